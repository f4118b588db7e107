"""Encoders of text with learned positions: BERT and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

from flopkit.models.architectures.classes import Tasks
from flopkit.models.architectures.decoder_fields import in_turn
from flopkit.models.architectures.encoder_heads import (
    ALBERT_HEADS,
    DEBERTA_HEADS,
    DISTILBERT_HEADS,
    ELECTRA_HEADS,
    POOLED_HEADS,
    PRETRAINED_HEADS,
    REMBERT_HEADS,
)
from flopkit.models.branches.disentangled import Convolution, DisentangledAttention
from flopkit.models.branches.mixers import Attention
from flopkit.models.files.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.stacks.heads import Head
from flopkit.models.transformer import transformer
from flopkit.sizes import number, short

__all__ = ["MODELS", "SAME", "TASKS"]

SAME: dict[str, str] = {
    "xlm-roberta": "roberta", "camembert": "roberta", "data2vec-text": "roberta", "roberta-prelayernorm": "xlm-roberta-xl",
}  # fmt: skip
"""Another name for the same layers."""


def _layers(c: Fields, name: str, **more: Any) -> Model:
    """Layers with biases and a norm behind each branch, learned positions, and a head for masked words."""
    sizes = {"vocab": "vocab", "d_model": "d_model", "layers": "layers", "heads": "heads", "d_ff": "d_ff"}
    sizes |= ({} if "positions" in more else {"positions": "max_position_embeddings"}) | more.pop("keys", {})
    act = c.act("gelu")
    usual: dict[str, Any] = {
        "act": act, "gated": False, "bias": True, "rotary": 0, "norms": "post", "norm": "layer", "final_norm": False,
        "embedding_norm": True, "causal": False, "tied": c.flag("tie_word_embeddings", True),
        "head": Head(dense=True, act=act, norm=True, bias=True),
    }  # fmt: skip
    return transformer(name=name, **{ours: c.need(key) for ours, key in sizes.items()} | usual | more)


def _typed(c: Fields, name: str, **more: Any) -> Model:
    """The same with a table of token types."""
    c.refuse(position_embedding_type="absolute")
    return _layers(c, name, **{"token_types": c.need("type_vocab_size", minimum=0)} | more)


def _bert(c: Fields, name: str, **more: Any) -> Model:
    c.refuse(add_cross_attention=False)
    return _typed(c, name, causal=c.flag("is_decoder"), **more)


def _roberta(c: Fields, name: str, **more: Any) -> Model:
    """Its head has GELU, whatever the layers have; the first positions, up to that of padding, are for no token."""
    head = Head(dense=True, act="gelu", norm=True, bias=True)
    return _bert(c, name, head=head, position_offset=c.count("pad_token_id", 1, minimum=0) + 1, **more)


def _roberta_pre_norm(c: Fields, name: str) -> Model:
    return _roberta(c, name, norms="pre", final_norm=True, embedding_norm=c.kind == "roberta-prelayernorm")


def _megatron_bert(c: Fields, name: str) -> Model:
    return _bert(c, name, norms="pre", final_norm=True, embedding_norm=False)


def _ernie(c: Fields, name: str) -> Model:
    """It may have a second table, of tasks."""
    types = c.need("type_vocab_size")
    return _bert(c, name, token_types=(types, c.need("task_type_vocab_size")) if c.flag("use_task_id") else types)


def _distilbert(c: Fields, name: str) -> Model:
    return _layers(c, name, keys={"d_model": "dim", "d_ff": "hidden_dim"})


def _mpnet(c: Fields, name: str) -> Model:
    """One table of biases for the scores of all layers, which the first is taken to have."""
    head = Head(dense=True, act="gelu", norm=True, bias=True)
    model = _layers(c, name, head=head, position_offset=2)
    ((later, layers),) = model.blocks
    mixer = replace(later.mixer, position_buckets=c.need("relative_attention_num_buckets"))  # type: ignore[type-var]
    order = (0, *(1,) * (layers - 1))
    blocks = ((replace(later, mixer=mixer), 1), (later, layers - 1))
    return replace(model, blocks=blocks[: max(order) + 1], order=order)


def _electra(c: Fields, name: str) -> Model:
    c.refuse(summary_type="first", summary_use_proj=True, summary_activation="gelu")
    width, d_model = c.need("embedding_size"), c.need("d_model")
    narrow = {} if width == d_model else {"embedding_dim": width}
    return _bert(c, name, head=Head(dense=True, dense_dim=width, act="gelu", norm=True, bias=True), **narrow)


def _rembert(c: Fields, name: str) -> Model:
    """Its words are never tied."""
    width, last = c.need("input_embedding_size"), c.count("output_embedding_size", 1664)
    head = Head(dense=True, dense_dim=last, act=c.act("gelu"), norm=True, bias=True)
    return _bert(c, name, head=head, embedding_dim=width, tied=False)


def _deberta(c: Fields, name: str) -> Model:
    """Positions by their distance, which the scores ask for by themselves."""
    c.refuse(pooler_hidden_act="gelu", pooler_hidden_size=c.need("d_model"), embedding_size=c.need("d_model"))
    c.refuse(attention_head_size=c.head_dim(""), talking_head=False)
    there = c.flag("position_biased_input", True)
    model = _layers(
        c, name, token_types=c.need("type_vocab_size", minimum=0),
        positions=c.need("max_position_embeddings") if there else None,
        tied=c.flag("tie_word_embeddings", True) or not c.flag("legacy", True),
    )  # fmt: skip
    block, layers = model.blocks[0][0], number("layers", model.layers)
    mixer, second = block.mixer, c.kind == "deberta-v2"
    assert isinstance(mixer, Attention)
    if not c.flag("relative_attention"):
        mixers = [replace(mixer, k_bias=second)] * layers
        if second and _norm_of_positions(c):  # of a table that is not there
            model = replace(model, unused=2 * model.d_model)
    else:
        mixers = [_disentangled(c, mixer, table=i == 0, second=second) for i in range(layers)]
    blocks = [replace(block, mixer=each) for each in mixers]
    if second and (width := c.count("conv_kernel_size", 0, minimum=0)):
        if width % 2 == 0:
            raise ValueError(f"conv_kernel_size={width}: an even one gives one token less, which does not go together")
        act = c.get("conv_act", "tanh")
        act = act if act == "tanh" else Fields({"hidden_act": act}, c.kind).act()
        blocks[0] = replace(blocks[0], last=Convolution(kernel=width, groups=c.count("conv_groups", 1), act=act))
    return replace(model, **in_turn(blocks))


def _if_any(c: Fields, key: str) -> int:
    """A number of which -1 says that there is none: 0 then."""
    value = c.get(key, -1)
    return 0 if value in (-1, 0) else c.count(key, 1)


def _norm_of_positions(c: Fields) -> bool:
    return "layer_norm" in [each.strip() for each in str(c.get("norm_rel_ebd", "none")).lower().split("|")]


def _disentangled(c: Fields, mixer: Attention, table: bool, second: bool) -> Attention:
    said = c.get("pos_att_type", [])
    types = [each.strip() for each in said.lower().split("|")] if isinstance(said, str) else c.listed("pos_att_type")
    if unknown := [each for each in types if each not in ("c2p", "p2c")]:
        raise ValueError(f"pos_att_type: {short(unknown[0])} is not described here")
    farthest = _if_any(c, "max_relative_positions") or c.need("max_position_embeddings")
    buckets = _if_any(c, "position_buckets") if second else 0
    shared = second and c.flag("share_att_key")
    sizes = {each.name: getattr(mixer, each.name) for each in fields(mixer)}
    return DisentangledAttention(
        **sizes | {"k_bias": second}, span=buckets or farthest, clipped=not second, table=table,
        table_norm=second and _norm_of_positions(c), to_positions="c2p" in types, from_positions="p2c" in types, shared=shared,
        position_key_bias=second,
    )  # fmt: skip


def _albert(c: Fields, name: str) -> Model:
    """Layers in groups, and the layers of a group have the same parameters."""
    c.refuse(inner_group_num=1)
    width, act = c.need("embedding_size"), c.act("gelu_new")
    head = Head(dense=True, dense_dim=width, act=act, norm=True, bias=True)
    model = _typed(c, name, head=head, embedding_dim=width, shared=True)
    block, layers = model.blocks[0][0], number("layers", model.layers)
    groups = c.count("num_hidden_groups", 1)
    if groups > layers:
        raise ValueError(f"num_hidden_groups={groups} is more than num_hidden_layers={layers}: some have no layer")
    order = tuple(int(i / (layers / groups)) for i in range(layers))
    return replace(model, blocks=tuple((block, len([*same])) for _, same in groupby(order)), order=order)


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "bert": _bert, "roberta": _roberta, "xlm-roberta-xl": _roberta_pre_norm, "distilbert": _distilbert, "mpnet": _mpnet,
    "electra": _electra, "albert": _albert, "megatron-bert": _megatron_bert, "ernie": _ernie, "rembert": _rembert,
    "deberta": _deberta, "deberta-v2": _deberta,
}  # fmt: skip

TASKS: dict[str, Tasks] = {
    "bert": PRETRAINED_HEADS, "roberta": POOLED_HEADS, "xlm-roberta-xl": POOLED_HEADS, "distilbert": DISTILBERT_HEADS,
    "mpnet": {task: made for task, made in POOLED_HEADS.items() if task != "text"}, "electra": ELECTRA_HEADS,
    "albert": ALBERT_HEADS,
    "megatron-bert": PRETRAINED_HEADS, "ernie": PRETRAINED_HEADS, "rembert": REMBERT_HEADS,
    "deberta": {task: made for task, made in DEBERTA_HEADS.items() if task != "choice"}, "deberta-v2": DEBERTA_HEADS,
}  # fmt: skip
