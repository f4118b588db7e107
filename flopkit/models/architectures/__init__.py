"""What each family of models says in its ``config.json``, and the layers that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures import (
    alternating,
    compressed,
    crossed,
    decoders,
    dual,
    encoders,
    gpts,
    hybrids,
    layer_by_layer,
    linear,
    parallel,
    recurrent,
    relatives,
    remote,
    rotary_encoders,
    seq2seq,
    sound,
    sparse,
    stages,
    vision,
)
from flopkit.models.architectures.classes import DECODER, Tasks
from flopkit.models.files.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.transformer import transformer

__all__ = ["ARCHITECTURES", "FORMS", "MODULES", "NUMBERS", "SAME", "WHOLE", "reader_file", "tasks"]

MODULES = (
    decoders, layer_by_layer, gpts, parallel, remote, encoders, rotary_encoders, seq2seq, vision, recurrent, hybrids, linear, sparse,
    dual, stages, compressed, alternating, sound, crossed, relatives,
)  # fmt: skip


def _of_all(name: str) -> dict[str, Any]:
    """What the modules have under *name*, together."""
    return {kind: value for module in MODULES for kind, value in getattr(module, name, {}).items()}


NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = _of_all("NUMBERS")
"""What reads the numbers of `transformer` from the configuration of each ``model_type``."""


def _made_of(numbers: Callable[[Fields], dict[str, Any]]) -> Callable[[Fields, str], Model]:
    return lambda c, name: transformer(name=name, **numbers(c))


FORMS: dict[str, Callable[[Fields], dict[str, Any]]] = NUMBERS | _of_all("FORMS")
"""What reads the numbers for a form, which asks for fewer than a model has: not for how many features are turned in each layer."""

ARCHITECTURES: dict[str, Callable[[Fields, str], Model]] = {
    **{kind: _made_of(numbers) for kind, numbers in NUMBERS.items()}, **_of_all("MODELS"),
}  # fmt: skip
"""What reads the configuration of each ``model_type``."""

SAME: dict[str, str] = _of_all("SAME")
"""Another name for the same layers."""

WHOLE = frozenset(dual.TOWERS)
"""Types whose configurations of texts and of pictures are both read."""

_TASKS: dict[str, Tasks] = _of_all("TASKS")


def tasks(family: str) -> Tasks:
    """The classes of a family, by what their names end in: those of a decoder, where it is not said."""
    return _TASKS.get(family, DECODER)


def reader_file(family: str) -> str:
    """The module in which a family's reader stands.

    >>> reader_file("bert")
    'encoders'
    """
    found = (each for each in MODULES for name in ("NUMBERS", "MODELS") if family in getattr(each, name, {}))
    return next(found).__name__.rpartition(".")[2]
