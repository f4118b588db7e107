"""What was seen, added up: one line for each kind of call, so that a thousand steps take no more room than one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flopkit.counter.work import COUNTED, ELEMENTWISE, FREE, Work

__all__ = ["Entry", "Ledger", "Where"]


class Where(NamedTuple):
    """In which phase, in which module, and whether inside of an attention call that has a line of its own."""

    phase: str
    path: str
    inside: bool = False


class Entry:
    """A call of an operator with certain shapes, and what it costs."""

    __slots__ = ("calculates", "extents", "func", "key", "moves", "op", "results", "work")

    def __init__(self, op: str, work: Work, func: Any = None, key: Any = None) -> None:
        self.op, self.work, self.func, self.key = op, work, func, key
        self.calculates = work.status in (COUNTED, ELEMENTWISE)
        self.moves = work.status != FREE or bool(work.bytes)
        self.extents: Any = None  # bytes of its tensors, kept for chains
        self.results: Any = None  # how to make up what it returns, on meta

    def __reduce__(self) -> Any:  # to another process goes what it cost, not what it was called with
        return Entry, (self.op, self.work)


class Ledger:
    """Calls by entry and place. One for each thread; `take` adds them up."""

    __slots__ = (
        "_functions", "_layers", "calls", "elsewhere", "file", "foreign", "functions_at", "hidden", "layers_at", "merged_away", "plain_at",
        "roots",
    )  # fmt: skip

    def __init__(self) -> None:
        self.calls: dict[tuple[Entry, Where], int] = {}
        self.foreign = False  # of a thread that the program started
        self.elsewhere: dict[tuple[Entry, Where], int] = {}  # those of the calls that ran in such threads
        self.hidden: dict[tuple[Entry, Where], int] = {}  # those that ran inside an operator that had to be opened
        # What other counters go by, as it is put down while the program runs: by place and shapes.
        self.functions_at: dict[Any, int] = {}
        self.layers_at: dict[Any, int] = {}
        self.plain_at: dict[Any, int] = {}  # calls of layers that are one call of one function
        self.file: Callable[[Ledger, dict[Any, int], dict[Any, int]], None] | None = (
            None  # how to add them to those of layers and functions
        )
        self._functions: dict[Any, int] = {}
        self._layers: dict[Any, int] = {}
        self.roots: dict[
            Any, int
        ] = {}  # calls of modules from outside of all others: path, batch, whether it has parameters
        self.merged_away: dict[str, int] = {}  # bytes by phase that need not move where element-wise chains are fused

    def add(self, entry: Entry, where: Where) -> None:
        """One more call."""
        key = (entry, where)
        self.calls[key] = self.calls.get(key, 0) + 1

    def hide(self, entry: Entry, where: Where) -> None:
        """The call that was just added ran inside an operator that had to be opened: a plain dispatch mode does not see it."""
        key = (entry, where)
        self.hidden[key] = self.hidden.get(key, 0) + 1

    def take(self, other: Ledger) -> None:
        """Add all of *other*."""
        self.file = self.file or other.file
        elsewhere = other.calls if other.foreign else other.elsewhere
        mine: dict[Any, int]
        theirs: dict[Any, int]
        for mine, theirs in (
            (self.calls, other.calls),
            (self.elsewhere, elsewhere),
            (self.hidden, other.hidden),
            (self.functions_at, other.functions_at),
            (self.layers_at, other.layers_at),
            (self.plain_at, other.plain_at),
            (self._functions, other._functions),
            (self._layers, other._layers),
            (self.roots, other.roots),
        ):
            for key, calls in list(theirs.items()):
                mine[key] = mine.get(key, 0) + calls
        for phase, saved in list(other.merged_away.items()):
            self.merged_away[phase] = self.merged_away.get(phase, 0) + saved

    @property
    def functions(self) -> dict[Any, int]:
        """Calls of functions, by name, modules around, whether in another thread, arguments, result, whether it was looked up."""
        self._file()
        return self._functions

    @property
    def layers(self) -> dict[Any, int]:
        """Calls of layers, by layer, shapes, and how many arguments had no name."""
        self._file()
        return self._layers

    def _file(self) -> None:
        """Few ask: so it is done when the first one does."""
        if self.file is not None and (self.functions_at or self.layers_at or self.plain_at):
            self.file(self, self._layers, self._functions)
            for filed in (self.functions_at, self.layers_at, self.plain_at):
                filed.clear()
