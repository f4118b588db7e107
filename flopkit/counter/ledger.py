"""What was seen, added up: one line for each kind of call, so that a thousand steps take no more room than one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

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
        self.op, self.work, self.func, self.by_torch = op, work, func, by_torch
        self.key = key  # the signature of the call, for tools that compare ledgers
        self.calculates = work.status in (COUNTED, ELEMENTWISE)
        self.results: Any = None  # how to make up what it returns, on meta

    def __reduce__(self) -> Any:  # to another process goes what it cost, and of the operator that there is one
        return Entry, (self.op, self.work, None if self.func is None else True, None, self.by_torch)


class Ledger:
    """Calls by entry and place. One for each thread; `take` adds them up."""

    __slots__ = ("calls", "foreign", "unseen")

    def __init__(self) -> None:
        self.calls = Counter[tuple[Entry, Where]]()
        self.foreign = False  # of a thread that the program started
        self.unseen = Counter[tuple[Entry, Where]]()  # of the calls, those that torch's counter would not see

    def add(self, entry: Entry, where: Where) -> None:
        """One more call."""
        self.calls[entry, where] += 1

    def hide(self, entry: Entry, where: Where) -> None:
        """The call that was just added ran inside an operator that had to be opened: a plain dispatch mode does not see it."""
        self.unseen[entry, where] += 1

    def take(self, other: Ledger) -> None:
        """Add all of *other*. What ran in a thread that the program started is seen by none that was entered in the first."""
        calls, unseen = dict(other.calls), dict(other.unseen)  # a thread may be adding to its own
        self.calls.update(calls)
        self.unseen.update(calls if other.foreign else unseen)


@dataclass
class Kept:
    """What a report goes by once it has been pickled: a ledger that nothing is added to any more."""

    total: Ledger
    notes: set[str]
    closed: ClassVar[bool] = True

    def ledger(self) -> Ledger:
        """All calls."""
        return self.total
