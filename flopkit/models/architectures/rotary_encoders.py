"""Encoders of text with turned positions: ModernBERT, Nomic-BERT, GTE, EuroBERT, ESM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.classes import Tasks
from flopkit.models.architectures.decoder_fields import heads_of, in_turn
from flopkit.models.architectures.encoder_heads import (
    ESM_HEADS,
    EUROBERT_HEADS,
    GTE_HEADS,
    MODERNBERT_HEADS,
    POOLED_HEADS,
)
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.files.config_fields import WHOLE, WINDOWED, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.heads import Head
from flopkit.models.transformer import transformer

__all__ = ["MODELS", "SAME", "TASKS"]

SAME: dict[str, str] = {"new": "gte"}
"""Another name for the same layers."""


def _modernbert(c: Fields, name: str) -> Model:
    layers, bias = c.need("layers"), c.flag("attention_bias")
    width, every = c.count("local_attention", 128, minimum=2), c.count("global_attn_every_n_layers", 3)
    c.refuse(sliding_window=width // 2)
    order = c.order(layers, (WINDOWED, WHOLE), [WINDOWED if i % every else WHOLE for i in range(layers)])
    sizes = {"heads": c.need("heads"), "kv_heads": c.need("heads"), "head_dim": c.head_dim("")}
    mixers = [Attention(**sizes, qkv_bias=bias, out_bias=bias, reach=reach) for reach in (width // 2, None)]
    mlp = MLP(d_ff=c.need("d_ff"), act=c.act("gelu"), bias=c.flag("mlp_bias"))
    blocks = [Block(mixer=mixers[kind], mlp=mlp, mixer_norm=place > 0) for place, kind in enumerate(order)]
    act = Fields({"hidden_act": c.get("classifier_activation", "gelu")}, c.kind).act()
    head = Head(dense=True, dense_bias=c.flag("classifier_bias"), act=act, norm=True, bias=c.flag("decoder_bias", True))
    return Model(
        name=name, **c.all("d_model", "vocab"), **in_turn(blocks), norm="layer", norm_bias=c.flag("norm_bias"), embedding_norm=True,
        causal=False, head=head, tied=c.flag("tie_word_embeddings", True),
    )  # fmt: skip


def _post_norm(c: Fields, name: str, bias: bool, **more: Any) -> Model:
    """A gated MLP, and a norm behind each branch."""
    act = c.act()
    attention = heads_of(c, bias, kv_heads=c.need("heads"))
    mlp = MLP(d_ff=c.need("d_ff"), act=act, down_bias=bias)
    usual: dict[str, Any] = {
        "norm": "layer", "final_norm": False, "embedding_norm": True, "causal": False, "tied": c.flag("tie_word_embeddings", True),
        "token_types": c.need("type_vocab_size", minimum=0), "head": Head(dense=True, act=act, norm=True, bias=True),
    }  # fmt: skip
    blocks = ((Block(mixer=attention, mlp=mlp, norms="post"), c.need("layers")),)
    return Model(name=name, **c.all("d_model", "vocab"), blocks=blocks, **usual | more)


_NOMIC = {
    "activation_function": "swiglu", "prenorm": False, "parallel_block": False, "rotary_emb_fraction": 1.0, "use_rms_norm": False,
    "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "causal": False,
}  # fmt: skip
"""What nomic-ai's own files say; their code takes other values where a key is missing."""


def _nomic_bert(c: Fields, name: str) -> Model:
    """transformers' files, and those of nomic-ai's own code, which write n_embd."""
    if "n_embd" not in c.fields:
        return _post_norm(c, name, bias=False)
    for key, value in _NOMIC.items():
        if key not in c.fields or c.fields[key] != value:
            raise ValueError(
                f"{key}={c.fields.get(key)!r}: a {c.kind} with n_embd is described here only with {key}={value!r}"
            )
    c = Fields({**c.fields, "hidden_act": "silu"}, c.kind)
    c.refuse(num_experts=0)
    every, vocab = c.count("pad_vocab_size_multiple", 1), c.need("vocab")
    if vocab % every:
        raise ValueError(
            f"vocab_size={vocab} is no multiple of pad_vocab_size_multiple={every}: how it is padded is not described here"
        )
    return _post_norm(c, name, bias=False)


def _gte(c: Fields, name: str) -> Model:
    """transformers' files, and those of Alibaba-NLP/new-impl, whose model_type is "new"."""
    if c.kind == "new":
        c = Fields(c.fields, c.kind)
        c.refuse(layer_norm_type="layer_norm")
        if c.get("position_embedding_type") != "rope":
            raise ValueError(
                f"position_embedding_type={c.get('position_embedding_type')!r}: {c.kind} is described here only with 'rope'"
            )
    return _post_norm(c, name, bias=True)


def _jina(c: Fields, name: str) -> Model:
    """transformers' class for jina-embeddings-v3, without its adapters."""
    return transformer(
        name=name, **c.all("d_model", "vocab", "layers", "heads", "d_ff"), act=c.act("gelu"), gated=False, bias=True, norms="post",
        norm="layer", final_norm=False, embedding_norm=True, causal=False, token_types=c.need("type_vocab_size"),
        tied=c.flag("tie_word_embeddings", True), head=Head(dense=True, act="gelu", norm=True, bias=True),
    )  # fmt: skip


def _esm(c: Fields, name: str) -> Model:
    """Proteins: ESM-1b with learned positions, ESM-2 with turned ones. A head for contacts is there and does not run."""
    c.refuse(add_cross_attention=False, is_folding_model=False)
    kind = c.get("position_embedding_type", "absolute")
    if kind not in ("absolute", "rotary"):
        raise ValueError(
            f"position_embedding_type={kind!r}: {c.kind} is described here only with 'absolute' and 'rotary'"
        )
    positions: dict[str, Any] = {}
    if kind == "absolute":
        padding = c.need("pad_token_id", minimum=0)
        positions = {"rotary": 0, "positions": c.need("max_position_embeddings"), "position_offset": padding + 1}
    sizes = c.all("d_model", "vocab", "layers", "heads", "d_ff")
    return transformer(
        name=name, **sizes, **positions, act="gelu", gated=False, bias=True, norm="layer", causal=c.flag("is_decoder"),
        embedding_norm=c.flag("emb_layer_norm_before"), tied=c.flag("tie_word_embeddings", True),
        head=Head(dense=True, act="gelu", norm=True, bias=True), unused=sizes["layers"] * sizes["heads"] + 1,
    )  # fmt: skip


def _eurobert(c: Fields, name: str) -> Model:
    bias = c.flag("mlp_bias")
    return transformer(
        name=name, **c.all("d_model", "vocab", "layers", "d_ff"), act=c.act(), bias=bias, attention=heads_of(c, c.flag("attention_bias")),
        causal=False, head=Head(bias=bias), tied=c.flag("tie_word_embeddings"),
    )  # fmt: skip


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "modernbert": _modernbert, "nomic_bert": _nomic_bert, "gte": _gte, "eurobert": _eurobert, "jina_embeddings_v3": _jina, "esm": _esm,
}  # fmt: skip

TASKS: dict[str, Tasks] = {
    "modernbert": MODERNBERT_HEADS, "nomic_bert": GTE_HEADS, "gte": GTE_HEADS, "eurobert": EUROBERT_HEADS, "jina_embeddings_v3": {task: made for task, made in POOLED_HEADS.items() if task not in ("text", "choice")},
    "esm": ESM_HEADS,
}  # fmt: skip
