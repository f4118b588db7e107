"""Encoder-decoders: T5, BART and Whisper, and their relatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.classes import Tasks, headless, with_head
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.files.config_fields import Fields
from flopkit.models.files.unknown_types import WAY_OUT
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block, Frames
from flopkit.names import hint
from flopkit.sizes import divides

__all__ = ["MODELS", "TASKS"]


def _t5(c: Fields, name: str, each_layer: bool = False) -> Model:
    act = str(c.get("feed_forward_proj", "relu"))
    gated = act.startswith("gated-")
    if (said := c.fields.get("is_gated_act")) is not None and c.flag("is_gated_act") != gated:
        raise ValueError(
            f"is_gated_act={said} beside feed_forward_proj={act!r}: they contradict each other; correct the one that is wrong"
        )
    kinds = {"relu": "relu", "gated-gelu": "gelu_tanh", "gated-silu": "silu", "gelu": "gelu"}
    if act not in kinds:
        raise ValueError(f"feed_forward_proj={act!r} is not described here; {hint(act, kinds)}")
    heads, head_dim, buckets = c.need("heads"), c.need("head_dim"), c.need("relative_attention_num_buckets")
    sizes = {"heads": heads, "kv_heads": heads, "head_dim": head_dim, "rotary": 0}
    mlp = MLP(d_ff=c.need("d_ff"), act=kinds[act], gated=gated)
    common = c.all("d_model", "vocab") | {
        "tied": c.flag("tie_word_embeddings", True) and c.flag("scale_decoder_outputs", True)
    }

    def stack(layers: int, cross: Any) -> dict[str, Any]:
        first, later = (
            Block(mixer=Attention(**sizes, position_buckets=rows), mlp=mlp, cross=cross)
            for rows in (buckets, buckets if each_layer else 0)
        )
        if each_layer:
            return {"blocks": ((first, layers),)}
        return {"blocks": ((first, 1), (later, layers - 1)), "order": (0, *(1,) * (layers - 1))}

    layers = c.need("num_layers")
    encoder = Model(name="encoder", **common, **stack(layers, None), causal=False, head="none")
    cross = Attention(**sizes, cross=True)
    return Model(name=name, **common, **stack(c.count("num_decoder_layers", layers), cross), encoder=encoder)


def _bart(c: Fields, name: str, norms: str = "post", positions: int | None = 2, embedding_norm: bool = True) -> Model:
    """BART and its relatives. *positions*: rows of the table of positions beyond those for tokens; None: positions have no table."""
    vocab, d_model = c.need("vocab"), c.need("d_model")
    _one_table(c)
    if c.kind == "bart":
        c.left_out = {**c.left_out, "num_labels": 3}
    rows = None if positions is None else c.need("max_position_embeddings") + positions
    unread = {} if not positions else {"position_offset": positions}  # rows for no token
    ends: dict[str, Any] = {
        "d_model": d_model, "vocab": vocab, "norm": "layer", "final_norm": norms == "pre", "embedding_norm": embedding_norm,
        "positions": rows, "tied": True, **unread,
    }  # fmt: skip
    return _joined(c, name, norms, ends, ends)


def _one_table(c: Fields) -> None:
    """Refuse embeddings that are not tied: which of them are then one table depends on transformers' version."""
    if not c.flag("tie_word_embeddings", True):
        raise ValueError(
            f"tie_word_embeddings=False: the encoder and the decoder of a {c.kind} then share a table in transformers 4 and have "
            f"two beside it in transformers 5, and flopkit supports {c.kind} only tied; {WAY_OUT}"
        )


def _marian(c: Fields, name: str) -> Model:
    c.refuse(share_encoder_decoder_embeddings=True)
    if (words := c.get("decoder_vocab_size")) not in (None, c.need("vocab")):
        raise ValueError(f"decoder_vocab_size={words}: flopkit supports marian only with one vocabulary")
    return _bart(c, name, positions=0, embedding_norm=False)


def _whisper(c: Fields, name: str) -> Model:
    c.refuse(use_weighted_layer_sum=False)
    d_model = c.need("d_model")
    common: dict[str, Any] = {"d_model": d_model, "norm": "layer"}
    frames = Frames(tokens=c.need("max_source_positions"), bins=c.need("num_mel_bins"))
    encoder = common | {"frames": frames, "positions": frames.tokens}
    tied = {"vocab": c.need("vocab"), "tied": c.flag("tie_word_embeddings", True)}
    return _joined(c, name, "pre", encoder, common | tied | {"positions": c.need("max_target_positions")}, k_bias=False)


def _joined(
    c: Fields, name: str, norms: str, encoder: dict[str, Any], decoder: dict[str, Any], k_bias: bool = True
) -> Model:
    """An encoder and a decoder of equal layers."""
    d_model, act = decoder["d_model"], c.act("gelu")

    def stack(side: str) -> tuple[Any, Any, Any]:
        heads = c.need(f"{side}_attention_heads")
        divides(f"{side}_attention_heads", heads, "d_model", d_model)
        sizes = {"heads": heads, "kv_heads": heads, "head_dim": d_model // heads, "rotary": 0}
        attention = Attention(**sizes, qkv_bias=True, out_bias=True, k_bias=k_bias)
        mlp = MLP(d_ff=c.need(f"{side}_ffn_dim"), act=act, gated=False, bias=True)
        # transformers' other name for the encoder's layers wins where a file has both
        said = "num_hidden_layers" if side == "encoder" and c.fields.get("num_hidden_layers") is not None else ""
        return attention, mlp, c.need(said or f"{side}_layers")

    mixer, mlp, layers = stack("encoder")
    first = Model(
        name="encoder",
        **encoder,
        blocks=((Block(mixer=mixer, mlp=mlp, norms=norms), layers),),
        causal=False,
        head="none",
    )
    mixer, mlp, layers = stack("decoder")
    block = Block(mixer=mixer, mlp=mlp, cross=replace(mixer, cross=True), norms=norms)
    return Model(name=name, **decoder, blocks=((block, layers),), encoder=first)


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "t5": _t5,
    "mt5": _t5,
    "umt5": lambda c, name: _t5(c, name, each_layer=True),
    "bart": _bart,
    "mbart": lambda c, name: _bart(c, name, norms="pre"),
    "m2m_100": lambda c, name: _bart(c, name, norms="pre", positions=None, embedding_norm=False),
    "marian": _marian,
    "pegasus": lambda c, name: _bart(c, name, norms="pre", positions=0, embedding_norm=False),
    "blenderbot": lambda c, name: _bart(c, name, norms="pre", positions=0, embedding_norm=False),
    "blenderbot-small": lambda c, name: _bart(c, name, positions=0),
    "plbart": _bart,
    "whisper": _whisper,
}

_PLAIN: Tasks = {"text": lambda model, labels: model, "none": lambda model, labels: headless(model)}
_BART: Tasks = {
    **_PLAIN,
    "sequence": lambda model, labels: with_head(
        model, outputs=labels, each="sequence", bias=True, dense=True, act="tanh"
    ),
    "answer": lambda model, labels: with_head(model, outputs=2, bias=True),  # whatever id2label says
}


def _encoder(model: Model, labels: Any) -> Model:
    """The encoder alone, with its table."""
    assert isinstance(model.encoder, Model)
    return headless(replace(model.encoder, name=model.name))


_T5: Tasks = {**_PLAIN, "encoder": _encoder}
TASKS: dict[str, Tasks] = {
    **dict.fromkeys(MODELS, _PLAIN),
    **dict.fromkeys(("t5", "mt5", "umt5"), _T5),
    "bart": _BART,
    "mbart": _BART,
}
