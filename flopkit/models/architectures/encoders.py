"""Encoders of text: BERT and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.classes import Tasks, with_head
from flopkit.models.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.transformer import transformer

__all__ = ["MODELS", "TASKS"]


def _bert(c: Fields, name: str) -> Model:
    c.refuse(position_embedding_type="absolute", is_decoder=False)
    return transformer(
        name=name, **c.all("vocab", "d_model", "layers", "heads", "d_ff"), act=c.act("gelu"), gated=False, bias=True, rotary=0,
        norms="post", norm="layer", final_norm=False, embedding_norm=True, causal=False, head="mlm",
        head_bias=True, tied=c.flag("tie_word_embeddings", True), positions=c.need("max_position_embeddings"),
        token_types=c.need("type_vocab_size", minimum=0),
    )  # fmt: skip


MODELS: dict[str, Callable[[Fields, str], Model]] = {"bert": _bert}

_POOLER: dict[str, Any] = {"each": "sequence", "dense": True, "act": "tanh"}
_BERT: Tasks = {
    "mlm": lambda model, labels: model,
    "none": lambda model, labels: with_head(model, outputs=0, **_POOLER),
    "sequence": lambda model, labels: with_head(model, outputs=labels, bias=True, **_POOLER),
    "token": lambda model, labels: with_head(model, outputs=labels, bias=True),
    "answer": lambda model, labels: with_head(model, outputs=labels, bias=True),
    "choice": lambda model, labels: with_head(model, outputs=1, bias=True, **_POOLER),
}

TASKS: dict[str, Tasks] = {"bert": _BERT}
