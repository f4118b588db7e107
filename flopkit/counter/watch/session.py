"""What one count keeps while it runs: what it has seen in each thread, what calls cost, notes. The dispatch mode feeds it."""

from __future__ import annotations

import threading
from typing import Any

from flopkit.counter.ledger import Entry, Ledger
from flopkit.counter.watch.modules import Modules


class Session:
    """One count, from its beginning to its report.

    ``mode`` is the dispatch mode that watches for it, ``states`` is what it knows of each thread that was seen.
    """

    def __init__(self, attention: str = "auto", order: list[Any] | None = None) -> None:
        if attention not in ("auto", "flash", "math"):
            raise ValueError(f"attention={attention!r}: must be 'auto' (what ran; flash on meta), 'flash' or 'math'")
        self.attention = attention
        self.order = order  # takes every call, one after the other
        self.mode: Any = None
        self.modules = Modules()
        self.entries: dict[Any, Entry] = {}
        self.chosen: dict[Any, set[bool]] = {}  # calls of attention: whether a checkpoint that chooses was around
        self.notes: set[str] = set()
        self.local = threading.local()
        self.states: list[Any] = []
        self.closed = False
        self._final: Ledger | None = None

    def finish(self) -> None:
        """Keep what was added up, and let go of all that was only needed on the way."""
        self.closed = True
        self._final = self.ledger()
        self.states.clear()
        self.local = threading.local()
        self.entries.clear()
        self.chosen.clear()
        self.modules = Modules()

    def ledger(self) -> Ledger:
        """All threads' calls."""
        if self._final is not None:
            return self._final
        total = Ledger()
        for state in tuple(self.states):
            total.take(state.ledger)
        return total
