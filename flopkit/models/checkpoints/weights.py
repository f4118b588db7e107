"""The weights of a whole model in bytes, and what somebody asks for when they name a
format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flopkit.arithmetic import reading, same, total
from flopkit.dtypes import nbytes
from flopkit.models.checkpoints.llama_cpp import MIXTURES, mixture
from flopkit.models.formats import Formats, Weights, by_role, part_bytes
from flopkit.models.stacks import passes
from flopkit.models.stacks.parts import Part
from flopkit.models.stacks.stack import Stack
from flopkit.models.storage import stored
from flopkit.names import plain

__all__ = ["formats_of", "read_bytes", "weight_bytes"]


def formats_of(model: Stack, weights: Weights | None) -> Formats:
    """What *weights* says for a model. None: what the model's file says, else bf16.

    Raises
    ------
    ValueError
        Without *weights*, for a file whose quantisation is not read.

    Examples
    --------
    >>> from flopkit import load
    >>> formats_of(load("llama-3-8b"), None), formats_of(load("llama-3-8b"), "Q8_0")
    (Formats: bf16, Formats: q8_0)
    """
    if weights is None:
        found = model.formats or Formats()
        if found.unread:
            raise ValueError(
                f"{model.name}: {found.unread}: how its weights are stored is not known; say it: weights='bf16', 'int4', …"
            )
    elif isinstance(weights, Formats):
        found = weights
    elif isinstance(weights, Mapping):
        found = by_role(weights)
    elif isinstance(weights, str) and plain(weights) in map(plain, MIXTURES):
        found = mixture(model, weights)
    else:
        found = Formats(rest=stored(weights, "weights", MIXTURES))
    return found if found.only is not None else _tied(model, found)


def _tied(model: Stack, formats: Formats) -> Formats:
    """A tied table is one tensor, which has the format of the head."""
    table, head = formats.of("embedding"), formats.of("head")
    if same(table, head):
        return formats
    if reading(model.tied) != "plain":
        raise ValueError(f"embedding {table}, head {head}: {model.name} may be tied; give both the same format")
    return replace(formats, embedding=head) if model.tied else formats


def read_bytes(model: Stack, formats: Formats, parts: list[Part]) -> list[Any]:
    """Bytes of the weights that each of the *parts* of a pass reads."""
    return _each(formats, parts, whole=False)


def weight_bytes(model: Stack, formats: Formats) -> Any:
    """Bytes of all weights, a tied table once."""
    if formats.only is not None:
        return nbytes(passes.token(model).params, formats.only)
    return total(_each(formats, passes.through(model, passes.one(model)), whole=True))


def _each(formats: Formats, parts: list[Part], whole: bool) -> list[Any]:
    found, kind = [], 0
    for each in parts:
        found.append(part_bytes(each, formats, kind=kind, whole=whole))
        kind += each.place == "layers"
    return found
