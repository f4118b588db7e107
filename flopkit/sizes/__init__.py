"""The edge where a caller's arguments are checked, so that formulas need no branches.

Every message names the argument, the value and the way out. Symbols and Altair parameters have no
value yet and pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from flopkit.sizes.checking import check_fields, checked
from flopkit.sizes.lengths import Lengths, lengths_of
from flopkit.sizes.values import (
    choice,
    divides,
    factor,
    flag,
    number,
    offence,
    pair,
    positive,
    several,
    short,
    size,
    spread,
)

__all__ = [
    "Count", "Factor", "Flag", "Lengths", "Size", "Sizes", "Whole", "check_fields", "checked", "choice", "divides", "factor", "flag", "lengths_of", "number",
    "offence", "pair", "positive", "several", "short", "size", "spread",
]  # fmt: skip


class Size(Protocol):
    """A whole number of at least 1: an int (exact), a NumPy array of them (a sweep), a SymPy symbol or an Altair parameter.

    To a type checker it is whatever can be added, subtracted, multiplied and divided: text and None are not.
    """

    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...


Count: TypeAlias = Size
"""A `Size` that may be 0."""

Flag: TypeAlias = bool | Size
"""True or False, or a parameter that holds 1 or 0."""

Factor: TypeAlias = float | Size
"""A positive number that need not be whole, such as 1.25, or a sweep or symbol of such."""

Sizes: TypeAlias = Size | Sequence[Size]
"""One `Size` for every axis, or a tuple or list with one for each."""

Whole: TypeAlias = int
"""A `Size` where a sweep or a symbol has no place: for an algorithm that runs."""
