"""What was seen, added up: one line for each kind of call, so that a thousand steps take no more room than one."""

from __future__ import annotations

from typing import Any, NamedTuple

from flopkit.counter.work import COUNTED, ELEMENTWISE, Work

__all__ = ["Entry", "Kept", "Ledger", "Where"]


class Where(NamedTuple):
    """In which phase, in which module, and whether inside of an attention call that has a line of its own."""

    phase: str
    path: str
    in_attention: bool = False


class Entry:
    """A call of an operator with certain shapes, what it costs, and what torch's own counter says of it (`flopkit.counter.by_torch`)."""

    __slots__ = ("by_torch", "calculates", "func", "key", "op", "results", "work")

    def __init__(self, op: str, work: Work, func: Any = None, key: Any = None, by_torch: int | None = 0) -> None:
        self.op, self.work, self.func, self.key, self.by_torch = op, work, func, key, by_torch
        self.calculates = work.status in (COUNTED, ELEMENTWISE)
        self.results: Any = None  # how to make up what it returns, on meta

    def __reduce__(self) -> Any:  # to another process goes what it cost, and of the operator that there is one
        return Entry, (self.op, self.work, None if self.func is None else True, None, self.by_torch)


class Ledger:
    """Calls by entry and place. One for each thread; `take` adds them up."""

    __slots__ = ("calls", "foreign", "unseen")

    def __init__(self) -> None:
        self.calls: dict[tuple[Entry, Where], int] = {}
        self.foreign = False  # of a thread that the program started
        self.unseen: dict[tuple[Entry, Where], int] = {}  # of the calls, those that torch's counter would not see

    def add(self, entry: Entry, where: Where) -> None:
        """One more call."""
        key = (entry, where)
        self.calls[key] = self.calls.get(key, 0) + 1

    def hide(self, entry: Entry, where: Where) -> None:
        """The call that was just added ran inside an operator that had to be opened: a plain dispatch mode does not see it."""
        key = (entry, where)
        self.unseen[key] = self.unseen.get(key, 0) + 1

    def take(self, other: Ledger) -> None:
        """Add all of *other*. What ran in a thread that the program started is seen by none that was entered in the first."""
        unseen = other.calls if other.foreign else other.unseen
        for mine, theirs in ((self.calls, other.calls), (self.unseen, unseen)):
            for key, number in list(theirs.items()):
                mine[key] = mine.get(key, 0) + number


class Kept:
    """What a report goes by once it has been pickled: a ledger that nothing is added to any more."""

    closed = True

    def __init__(self, ledger: Ledger, notes: set[str]) -> None:
        self._ledger, self.notes = Ledger(), notes
        self._ledger.take(ledger)

    def ledger(self) -> Ledger:
        """All calls."""
        return self._ledger
