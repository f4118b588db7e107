"""What was seen, added up: one line for each kind of call, so that a thousand steps take no more room than one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from flopkit.counter.work import COUNTED, ELEMENTWISE, Work


class Where(NamedTuple):
    """In which phase, in which module, and whether inside of an attention call that has a line of its own."""

    phase: str
    path: str
    in_attention: bool = False


@dataclass(eq=False, repr=False, slots=True)
class Entry:
    """A call of an operator with certain shapes, and what it costs."""

    op: str
    work: Work
    func: Any = None
    key: Any = None  # its signature: nothing here asks for it, tools/golden.py compares by it
    by_torch: int | None = 0  # what torch's own counter says of it; None: its formula fails
    results: Any = None  # how to make up what it returns, on meta
    conjugates: bool = False  # whether the kernel may have complex numbers to conjugate
    calculates: bool = field(init=False)

    def __post_init__(self) -> None:
        self.calculates = self.work.status in (COUNTED, ELEMENTWISE)

    def __reduce__(self) -> Any:  # to another process goes what it cost, and of the operator that there is one
        return Entry, (self.op, self.work, None if self.func is None else True, None, self.by_torch)


@dataclass(eq=False, repr=False, slots=True)
class Ledger:
    """Calls by entry and place. One for each thread; `take` adds them up."""

    calls: Counter[tuple[Entry, Where]] = field(default_factory=Counter)
    unseen: Counter[tuple[Entry, Where]] = field(default_factory=Counter)  # of them, those hidden from torch's counter
    foreign: bool = False  # of a thread that the program started
    order: list[tuple[Entry, Where, bool]] | None = (
        None  # of all threads, where somebody asked; whether inside of an opened operator
    )

    def add(self, entry: Entry, where: Where) -> None:
        """One more call."""
        self.calls[entry, where] += 1
        if self.order is not None:
            self.order.append((entry, where, False))

    def hide(self, entry: Entry, where: Where) -> None:
        """The call that was just added ran inside an operator that had to be opened: a plain dispatch mode does not see it."""
        self.unseen[entry, where] += 1
        if self.order is not None:
            self.order[-1] = (entry, where, True)

    def take(self, other: Ledger) -> None:
        """Add all of *other*. What ran in a thread that the program started is seen by none that was entered in the first."""
        calls, unseen = dict(other.calls), dict(other.unseen)  # a thread may be adding to its own
        self.calls.update(calls)
        self.unseen.update(calls if other.foreign else unseen)


@dataclass
class Snapshot:
    """What a report goes by once it has been pickled: a ledger that nothing is added to any more."""

    total: Ledger
    notes: set[str]
    closed: ClassVar[bool] = True

    def ledger(self) -> Ledger:
        """All calls."""
        return self.total
