"""What one call of one operator costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any

__all__ = [
    "COUNTED", "ELEMENTWISE", "FREE", "PHASES", "UNKNOWN", "Number", "Work", "counted", "elementwise", "free", "settled", "unknown",
]  # fmt: skip

COUNTED = "counted"  # a formula gives its multiply-adds
ELEMENTWISE = "element-wise"  # arithmetic outside of contractions: vector FLOPs
FREE = "free"  # no arithmetic: a view moves nothing, a copy or a gather moves bytes
UNKNOWN = "unknown"  # nobody has said what it does: listed, never a silent zero

Number = Any  # counts are ints; half of an odd one is a Fraction

PHASES = ("forward", "backward", "recompute", "optimizer")

_NOTHING: Mapping[str, Number] = MappingProxyType({})


def _nothing() -> Any:
    return field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True)
class Work:
    """What one call of one operator costs. Amounts are by kind (`flopkit.conventions.KINDS`, ``VECTOR_KINDS``)."""

    status: str  # COUNTED, ELEMENTWISE, FREE or UNKNOWN
    # Multiply-adds that the mathematics asks for, and those that the kernel carries out, where nothing is said the same. They differ where a
    # kernel computes pairs that the mask hides, or gradients that nobody asked for.
    model: Mapping[str, Number] = _nothing()
    executed: Any = None  # a mapping, too
    recomputed: Mapping[str, Number] = _nothing()  # by a fused backward, besides: the scores of flash attention
    vector: Mapping[str, Number] = _nothing()  # element-wise FLOPs
    vector_recomputed: Mapping[str, Number] = _nothing()
    bytes: int = 0  # compulsory traffic
    kernel: str = ""  # that ran, where one operator has several
    note: str = ""  # what could not be known, e.g. a mask that is hidden in a tensor
    dtype: str = ""  # of the operands, by torch's name; empty where nothing is contracted

    def __post_init__(self) -> None:
        if self.executed is None:
            object.__setattr__(self, "executed", self.model)

    def __reduce__(self) -> Any:
        values = [getattr(self, each.name) for each in fields(self)]
        return Work, tuple([dict(value) if isinstance(value, Mapping) else value for value in values])


def counted(macs: Number, bytes: int = 0, vector: float = 0) -> Work:
    """A contraction of *macs* multiply-adds."""
    return Work(COUNTED, {"products": macs}, bytes=bytes, vector={"elementwise": vector} if vector else _NOTHING)


def elementwise(vector: float, bytes: int = 0) -> Work:
    """Element-wise work of *vector* FLOPs."""
    return Work(ELEMENTWISE, vector={"elementwise": vector}, bytes=bytes)


def free(bytes: int = 0) -> Work:
    """Movement without arithmetic."""
    return Work(FREE, bytes=bytes)


def unknown(bytes: int = 0) -> Work:
    """An operator that no formula explains."""
    return Work(UNKNOWN, bytes=bytes)


def settled(number: Number) -> Number:
    """*number* as an int where it is one.

    >>> settled(Fraction(6, 2)), settled(2.5)
    (3, 2.5)
    """
    if isinstance(number, int):
        return number
    whole = number.denominator == 1 if isinstance(number, Fraction) else number.is_integer()
    return int(number) if whole else number
