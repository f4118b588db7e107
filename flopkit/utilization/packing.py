"""The work of a step over documents of other lengths, without building the step anew each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import mul
from typing import Any, TypeAlias

from flopkit.sizes import Lengths, lengths_of

__all__ = ["Amounts"]

_Sum: TypeAlias = tuple[str, Any]  # what `Lengths` adds up, and the width or the chunk
_PLAIN = object()  # in the place of these, where there is none


class Amounts:
    """Amounts of work of a step for any lengths of its documents.

    What a step does is affine in what its documents add up to: their tokens, their pairs under each mask, their chunks. So
    the step is built for the first lengths, and once more for each of these sums with 1 added to it, which shows exactly what one
    token, pair or chunk more takes; from then on the sums are enough. Where it is not affine, as under a capacity of experts,
    which rounds up, the step is built each time; and also for a document that is longer than all before, which a table of
    positions may not have.

    Parameters
    ----------
    read : Callable[[Any], Iterable[Any]]
        Gives the amounts for lengths.

    Examples
    --------
    >>> amounts = Amounts(lambda documents: [10 * documents.tokens + 3 * documents.seen()])
    >>> amounts([4, 2]), amounts([1, 1, 1])
    ([99], [39])
    """

    def __init__(self, read: Callable[[Any], Iterable[Any]]) -> None:
        self._read = read
        self._longest = 0
        self._sums: list[_Sum] | None = None
        self._rows: list[tuple[Any, list[Any]]] | None = None  # what is always there, and how much more for each sum

    def __call__(self, lengths: Any) -> list[Any]:
        """The amounts for documents of these *lengths*."""
        documents = lengths_of(lengths)
        if self._rows is None or documents.longest > self._longest:
            found = list(self._read(documents))
            self._longest = max(documents.longest, self._longest)
            if self._sums is None:
                self._learn(documents, found)
            return found
        sums = [_sum(documents, each) for each in self._sums or ()]
        return [rest + sum(map(mul, row, sums)) for rest, row in self._rows]

    def _learn(self, documents: Lengths, found: list[Any]) -> None:
        def with_more(more: dict[_Sum, int]) -> tuple[list[Any], set[_Sum]]:
            changed = _Changed(documents, more)
            return list(self._read(changed)), changed.asked

        self._sums = list(with_more({})[1])
        steps = [with_more({each: 1})[0] for each in self._sums]
        each_more = [
            [after - before for after in more] for before, more in zip(found, zip(*steps, strict=True), strict=True)
        ]
        check = with_more({each: place + 2 for place, each in enumerate(self._sums)})[0]
        expected = [
            before + sum((place + 2) * more for place, more in enumerate(row))
            for before, row in zip(found, each_more, strict=True)
        ]
        if check == expected:
            sums = [_sum(documents, each) for each in self._sums]
            rests = [before - sum(map(mul, row, sums)) for before, row in zip(found, each_more, strict=True)]
            self._rows = list(zip(rests, each_more, strict=True))


def _sum(documents: Lengths, which: _Sum) -> Any:
    what, size = which
    return getattr(documents, what) if size is _PLAIN else getattr(documents, what)(size)


class _Changed(Lengths):
    """Documents with some of their sums changed; it notes which are asked for."""

    def __init__(self, documents: Lengths, more: dict[_Sum, int]) -> None:
        self._documents, self._more, self.asked = documents, more, set[_Sum]()
        self.longest = documents.longest

    def _changed(self, what: str, size: Any = _PLAIN) -> Any:
        self.asked.add((what, size))
        return _sum(self._documents, (what, size)) + self._more.get((what, size), 0)

    @property
    def tokens(self) -> Any:  # type: ignore[override]
        return self._changed("tokens")

    @property
    def count(self) -> Any:  # type: ignore[override]
        return self._changed("count")

    @property
    def squares(self) -> Any:  # type: ignore[override]
        return self._changed("squares")

    def seen(self, width: Any = None) -> Any:
        return self._changed("seen", width)

    def within(self, width: Any) -> Any:
        return self._changed("within", width)

    def chunks(self, size: Any) -> Any:
        return self._changed("chunks", size)

    def filled(self, size: Any) -> Any:
        return self._changed("filled", size)

    def filled_pairs(self, size: Any) -> Any:
        return self._changed("filled_pairs", size)
