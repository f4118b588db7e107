"""Encoders of text: BERT and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.classes import Tasks, headless, with_head
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
    act = more.pop("act", "") or c.act("gelu")
    usual: dict[str, Any] = {
        "act": act, "gated": False, "bias": True, "rotary": 0, "norms": "post", "norm": "layer", "final_norm": False,
        "embedding_norm": True, "causal": False, "tied": c.flag("tie_word_embeddings", True),
        "head": Head(dense=True, act=act, norm=True, bias=True),
    }  # fmt: skip
    return transformer(name=name, **{ours: c.need(key) for ours, key in sizes.items()} | usual | more)


def _bert(c: Fields, name: str, **more: Any) -> Model:
    c.refuse(position_embedding_type="absolute", add_cross_attention=False)
    return _layers(c, name, causal=c.flag("is_decoder"), token_types=c.need("type_vocab_size", minimum=0), **more)


def _roberta(c: Fields, name: str, **more: Any) -> Model:
    """Its head has GELU, whatever the layers have; the first positions, up to that of padding, are for no token."""
    head = Head(dense=True, act="gelu", norm=True, bias=True)
    return _bert(c, name, head=head, position_offset=c.count("pad_token_id", 1, minimum=0) + 1, **more)


def _roberta_pre_norm(c: Fields, name: str) -> Model:
    return _roberta(c, name, norms="pre", final_norm=True, embedding_norm=c.kind == "roberta-prelayernorm")


def _distilbert(c: Fields, name: str) -> Model:
    keys = {"d_model": "dim", "d_ff": "hidden_dim"}
    return _layers(c, name, act=c.act("gelu"), keys=keys)


def _electra(c: Fields, name: str) -> Model:
    c.refuse(summary_type="first", summary_use_proj=True, summary_activation="gelu")
    width, d_model = c.need("embedding_size"), c.need("d_model")
    narrow = {} if width == d_model else {"embedding_dim": width}
    head = Head(dense=True, dense_dim=width, act="gelu", norm=True, bias=True)
    return _bert(c, name, head=head, **narrow)


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "bert": _bert, "roberta": _roberta, "xlm-roberta-xl": _roberta_pre_norm, "distilbert": _distilbert, "electra": _electra,
}  # fmt: skip

# -- heads --------------------------------------------------------------------------------------------------------

_POOLER: dict[str, Any] = {"each": "sequence", "dense": True, "act": "tanh"}


def _words(model: Model, labels: int) -> Model:
    """Masked words."""
    if not model.tied:
        raise ValueError(
            "tie_word_embeddings=False: transformers keeps a second bias for the words then, which is not described here"
        )
    return model


def _for_each(model: Model, labels: int) -> Model:
    return with_head(model, outputs=labels, bias=True)


def _pooled(model: Model, labels: int, **more: Any) -> Model:
    return with_head(model, **{**_POOLER, "outputs": labels, "bias": True, **more})


def _pretrained(model: Model, labels: int) -> Model:
    """Masked words, and whether one sentence follows the other."""
    return replace(_words(model, labels), second_head=Head(outputs=labels or 2, bias=True, **_POOLER))


_LABELS: Tasks = {"token": _for_each, "answer": _for_each, "sequence": _pooled, "choice": lambda model, _: _pooled(model, 1)}
_ROBERTA: Tasks = {
    "mlm": _words, "text": _words, "none": lambda model, _: _pooled(model, 0), **_LABELS,
}  # fmt: skip
_BERT: Tasks = {**_ROBERTA, "pretraining": _pretrained, "next": lambda model, _: _pooled(model, 2)}

_DISTILBERT: Tasks = {
    "mlm": lambda model, _: model,
    "none": lambda model, _: headless(model),
    **_LABELS,
    "sequence": lambda model, labels: _pooled(model, labels, act="relu"),
    "choice": lambda model, _: _pooled(model, 1, act="relu"),
}

_ELECTRA: Tasks = {
    "mlm": lambda model, _: model,
    "text": lambda model, _: model,
    "none": lambda model, _: headless(model),
    **_LABELS,
    "sequence": lambda model, labels: _pooled(model, labels, act="gelu"),
    "choice": lambda model, _: _pooled(model, 1, act="gelu"),
    "pretraining": lambda model, _: with_head(model, outputs=1, bias=True, dense=True, act=model.blocks[0][0].mlp.act),
}

TASKS: dict[str, Tasks] = {
    "bert": _BERT, "roberta": _ROBERTA, "xlm-roberta-xl": _ROBERTA, "distilbert": _DISTILBERT, "electra": _ELECTRA,
}  # fmt: skip
