"""What is remembered of a call: arguments that are neither tensors nor plain settings, and the modules around it."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Around", "Listed", "Packed", "around"]


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


class Around:
    """The classes of the modules around a call, the innermost last, and in how many ways the model comes to that one. See `around`."""

    __slots__ = ("classes", "ways")

    def __init__(self, classes: tuple[type, ...], ways: int) -> None:
        self.classes, self.ways = classes, ways


_known: dict[tuple[tuple[type, ...], int], Around] = {}


def around(classes: tuple[type, ...], ways: int) -> Around:
    """One object for all that are equal: it goes into the key of every call, and so need not be compared part by part.

    >>> around((int, str), 1) is around((int, str), 1), around((int, str), 1) is around((int, str), 2)
    (True, False)
    """
    if len(_known) > 10_000:
        _known.clear()
    return _known.setdefault((classes, ways), Around(classes, ways))
