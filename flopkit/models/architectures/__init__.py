"""What each family of models says in its ``config.json``, and the layers that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures import (
    compressed,
    decoders,
    encoders,
    gpts,
    hybrids,
    layer_by_layer,
    linear,
    parallel,
    recurrent,
    remote,
    seq2seq,
    sparse,
    vision,
)
from flopkit.models.architectures.classes import DECODER, Tasks
from flopkit.models.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.transformer import transformer

__all__ = ["ARCHITECTURES", "NUMBERS", "SAME", "tasks"]

NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = {**decoders.NUMBERS, **gpts.NUMBERS}
"""What reads the numbers of `transformer` from the configuration of each ``model_type``."""


def _made_of(numbers: Callable[[Fields], dict[str, Any]]) -> Callable[[Fields, str], Model]:
    return lambda c, name: transformer(name=name, **numbers(c))


ARCHITECTURES: dict[str, Callable[[Fields, str], Model]] = {
    **{kind: _made_of(numbers) for kind, numbers in NUMBERS.items()},
    **layer_by_layer.MODELS, **gpts.MODELS, **encoders.MODELS, **seq2seq.MODELS, **vision.MODELS, **recurrent.MODELS,
    **sparse.MODELS, **parallel.MODELS, **remote.MODELS, **hybrids.MODELS, **linear.MODELS, **compressed.MODELS,
}  # fmt: skip
"""What reads the configuration of each ``model_type``."""

SAME: dict[str, str] = {**decoders.SAME, **parallel.SAME}
"""Another name for the same layers."""

_TASKS: dict[str, Tasks] = {
    **encoders.TASKS, **seq2seq.TASKS, **vision.TASKS, **gpts.TASKS, **parallel.TASKS, **remote.TASKS,
}  # fmt: skip


def tasks(family: str) -> Tasks:
    """The classes of a family, by what their names end in: those of a decoder, where it is not said."""
    return _TASKS.get(family, DECODER)
