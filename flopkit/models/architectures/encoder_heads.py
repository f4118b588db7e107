"""What stands behind the last layer of an encoder of text, by the class that a file names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flopkit.models.architectures.classes import Tasks, headless, with_head
from flopkit.models.model import Model
from flopkit.models.stacks.heads import Head

__all__ = [
    "ALBERT_HEADS",
    "DEBERTA_HEADS",
    "DISTILBERT_HEADS",
    "ELECTRA_HEADS",
    "ESM_HEADS",
    "EUROBERT_HEADS",
    "GTE_HEADS",
    "MODERNBERT_HEADS",
    "POOLED_HEADS",
    "PRETRAINED_HEADS",
    "REMBERT_HEADS",
]

POOLER: dict[str, Any] = {"each": "sequence", "dense": True, "act": "tanh"}


def _words(model: Model, labels: int) -> Model:
    return model


def _words_with_one_bias(model: Model, labels: int) -> Model:
    """Where they are not tied to the embedding, transformers keeps a second bias, which it does not use."""
    return model if model.tied else replace(model, unused=model.unused + model.vocab)


def _nothing(model: Model, labels: int) -> Model:
    return headless(model)


def _for_each(model: Model, labels: int) -> Model:
    return with_head(model, outputs=labels, bias=True)


def _pooled(model: Model, labels: int, **more: Any) -> Model:
    return with_head(model, **POOLER | {"outputs": labels, "bias": True} | more)


def _pretrained(model: Model, labels: int) -> Model:
    """Masked words, and labels for the two sentences."""
    return replace(_words_with_one_bias(model, labels), second_head=Head(outputs=labels, bias=True, **POOLER))


_LABELS: Tasks = {
    "token": _for_each,
    "answer": _for_each,
    "sequence": _pooled,
    "choice": lambda model, _: _pooled(model, 1),
}

POOLED_HEADS: Tasks = {
    "mlm": _words_with_one_bias, "text": _words_with_one_bias, "none": lambda model, _: _pooled(model, 0), **_LABELS,
}  # fmt: skip
"""RoBERTa. Its pooler and the first layer of its classifier are equal."""

PRETRAINED_HEADS: Tasks = {
    **POOLED_HEADS,
    "pretraining": lambda model, _: _pretrained(model, 2),
    "next": lambda model, _: _pooled(model, 2),
}
"""BERT."""

ALBERT_HEADS: Tasks = {task: made for task, made in PRETRAINED_HEADS.items() if task not in ("text", "next")} | {
    "pretraining": _pretrained
}
"""ALBERT, whose head for the order of two sentences is as wide as the file has labels."""

GTE_HEADS: Tasks = {"mlm": _words, "none": _nothing, "token": _for_each, "sequence": _pooled}
"""Nomic-BERT and GTE, whose base model has no pooler."""

DISTILBERT_HEADS: Tasks = {
    "mlm": _words, "none": _nothing, "token": _for_each, "answer": _for_each,
    "sequence": lambda model, labels: _pooled(model, labels, act="relu"), "choice": lambda model, _: _pooled(model, 1, act="relu"),
}  # fmt: skip

ELECTRA_HEADS: Tasks = {
    "mlm": _words, "text": _words, "none": _nothing, "token": _for_each, "answer": _for_each,
    "sequence": lambda model, labels: _pooled(model, labels, act="gelu"), "choice": lambda model, _: _pooled(model, 1, act="gelu"),
    "pretraining": lambda model, _: with_head(model, outputs=1, bias=True, dense=True, act=_act(model)),
}  # fmt: skip
"""ELECTRA: its generator finds words, its discriminator (ForPreTraining) says of each whether it is the right one."""


def _act(model: Model) -> Any:
    """The activation of its layers."""
    return getattr(model.blocks[0][0].mlp, "act", "gelu")


def _transformed(model: Model, labels: int, each: str) -> Model:
    """Labels behind what stands before the words."""
    assert isinstance(model.head, Head)
    return replace(model, head=replace(model.head, outputs=labels, each=each, bias=True), tied=False)


MODERNBERT_HEADS: Tasks = {
    "mlm": _words, "none": _nothing,
    "token": lambda model, labels: _transformed(model, labels, "token"),
    "answer": lambda model, labels: _transformed(model, labels, "token"),
    "sequence": lambda model, labels: _transformed(model, labels, "sequence"),
    "choice": lambda model, _: _transformed(model, 1, "sequence"),
}  # fmt: skip
"""ModernBERT. A mean over the tokens is as much of products as the first token."""

ESM_HEADS: Tasks = {
    "mlm": _words, "none": lambda model, _: _pooled(model, 0), "token": _for_each, "sequence": _pooled,
}  # fmt: skip

REMBERT_HEADS: Tasks = {**POOLED_HEADS, "mlm": _words, "text": _words}

DEBERTA_HEADS: Tasks = {
    "mlm": _words_with_one_bias, "none": _nothing, "token": _for_each, "answer": _for_each,
    "sequence": lambda model, labels: _pooled(model, labels, act="gelu"), "choice": lambda model, _: _pooled(model, 1, act="gelu"),
}  # fmt: skip

EUROBERT_HEADS: Tasks = {"mlm": _words, "none": _nothing, "token": _for_each}
