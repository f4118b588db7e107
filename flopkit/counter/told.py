"""What is remembered of an argument that is neither a tensor nor a plain setting."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Listed", "Packed"]


class Listed(tuple):  # type: ignore[type-arg]
    """What came as a list: not the same as a tuple to a tool that looks.

    >>> Listed((2, 3)) == (2, 3), Listed((2, 3)) == Listed((2, 3))
    (False, True)
    """

    __slots__ = ()
    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is Listed and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class Packed(NamedTuple):
    """Sequences of several lengths: the shape of what is packed, the length of the longest, and how many they are, where that is known."""

    data: Any
    steps: int
    batch: int | None
