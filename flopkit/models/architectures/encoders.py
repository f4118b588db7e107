"""Encoders of text with learned positions: BERT and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

from flopkit.models.architectures.classes import Tasks
from flopkit.models.architectures.encoder_heads import DISTILBERT_HEADS, ELECTRA_HEADS, POOLED_HEADS, PRETRAINED_HEADS
from flopkit.models.config_fields import Fields
from flopkit.models.heads import Head
from flopkit.models.model import Model
from flopkit.models.transformer import transformer

__all__ = ["MODELS", "SAME", "TASKS"]

SAME: dict[str, str] = {"xlm-roberta": "roberta", "camembert": "roberta", "roberta-prelayernorm": "xlm-roberta-xl"}
"""Another name for the same layers."""


def _layers(c: Fields, name: str, **more: Any) -> Model:
    """Layers with biases and a norm behind each branch, learned positions, and a head for masked words."""
    sizes = {"vocab": "vocab", "d_model": "d_model", "layers": "layers", "heads": "heads", "d_ff": "d_ff"}
    sizes |= {"positions": "max_position_embeddings"} | more.pop("keys", {})
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
    return _layers(c, name, token_types=c.need("type_vocab_size", minimum=0), **more)


def _bert(c: Fields, name: str, **more: Any) -> Model:
    c.refuse(add_cross_attention=False)
    return _typed(c, name, causal=c.flag("is_decoder"), **more)


def _roberta(c: Fields, name: str, **more: Any) -> Model:
    """Its head has GELU, whatever the layers have; the first positions, up to that of padding, are for no token."""
    head = Head(dense=True, act="gelu", norm=True, bias=True)
    return _bert(c, name, head=head, position_offset=c.count("pad_token_id", 1, minimum=0) + 1, **more)


def _roberta_pre_norm(c: Fields, name: str) -> Model:
    return _roberta(c, name, norms="pre", final_norm=True, embedding_norm=c.kind == "roberta-prelayernorm")


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


def _albert(c: Fields, name: str) -> Model:
    """Layers in groups, and the layers of a group have the same parameters."""
    c.refuse(inner_group_num=1)
    width, act = c.need("embedding_size"), c.act("gelu_new")
    head = Head(dense=True, dense_dim=width, act=act, norm=True, bias=True)
    model = _typed(c, name, head=head, embedding_dim=width, shared=True)
    ((block, layers),) = model.blocks
    groups = c.count("num_hidden_groups", 1)
    if groups > layers:
        raise ValueError(f"num_hidden_groups={groups} is more than num_hidden_layers={layers}: some have no layer")
    order = tuple(int(i / (layers / groups)) for i in range(layers))
    return replace(model, blocks=tuple((block, len([*same])) for _, same in groupby(order)), order=order)


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "bert": _bert, "roberta": _roberta, "xlm-roberta-xl": _roberta_pre_norm, "distilbert": _distilbert, "mpnet": _mpnet,
    "electra": _electra, "albert": _albert,
}  # fmt: skip

TASKS: dict[str, Tasks] = {
    "bert": PRETRAINED_HEADS, "roberta": POOLED_HEADS, "xlm-roberta-xl": POOLED_HEADS, "distilbert": DISTILBERT_HEADS,
    "mpnet": {task: made for task, made in POOLED_HEADS.items() if task != "text"}, "electra": ELECTRA_HEADS,
    "albert": {task: made for task, made in PRETRAINED_HEADS.items() if task not in ("text", "next")},
}  # fmt: skip
