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


def _nothing() -> Mapping[str, Number]:
    return _NOTHING


@dataclass(frozen=True)
class Work:
    """What one call of one operator costs.

    Parameters
    ----------
    status : str
        ``COUNTED``, ``ELEMENTWISE``, ``FREE`` or ``UNKNOWN``.
    model : Mapping[str, Number], optional
        Multiply-adds that the mathematics asks for, by kind (`flopkit.conventions.KINDS`).
    executed : Mapping[str, Number], optional
        Multiply-adds that the kernel carries out, by kind; None: as *model*. They differ where a kernel computes pairs that
        the mask hides, or gradients that nobody asked for.
    again : Mapping[str, Number], optional
        Multiply-adds that a fused backward carries out once more (the scores of flash attention).
    vector : Mapping[str, Number], optional
        Element-wise FLOPs, by kind (`flopkit.conventions.VECTOR_KINDS`).
    vector_again : Mapping[str, Number], optional
        The same, of what is carried out once more.
    bytes : int, optional
        Compulsory traffic.
    kernel : str, optional
        The kernel that ran, where one operator has several.
    note : str, optional
        What could not be known, e.g. a mask that is hidden in a tensor.
    dtype : str, optional
        Number format of the operands, by torch's name; empty where nothing is contracted.
    """

    status: str
    model: Mapping[str, Number] = field(default_factory=_nothing)
    executed: Mapping[str, Number] | None = None
    again: Mapping[str, Number] = field(default_factory=_nothing)
    vector: Mapping[str, Number] = field(default_factory=_nothing)
    vector_again: Mapping[str, Number] = field(default_factory=_nothing)
    bytes: int = 0
    kernel: str = ""
    note: str = ""
    dtype: str = ""

    @property
    def done(self) -> Mapping[str, Number]:
        """Multiply-adds that the kernel carried out, apart from what it did again."""
        return self.model if self.executed is None else self.executed

    def __reduce__(self) -> Any:
        values = [getattr(self, each.name) for each in fields(self)]
        return Work, tuple([dict(value) if isinstance(value, Mapping) else value for value in values])


def counted(macs: Number, bytes: int = 0, vector: float = 0, kernel: str = "") -> Work:
    """A contraction of *macs* multiply-adds."""
    return Work(
        COUNTED, {"products": macs}, bytes=bytes, vector={"elementwise": vector} if vector else _NOTHING, kernel=kernel
    )


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
