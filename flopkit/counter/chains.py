"""Element-wise operators in a row: how many of their bytes a compiler that fuses them would not move."""

from __future__ import annotations

from typing import Any
from weakref import ref as _reference

import torch

from flopkit.counter.calls import extent, tensors
from flopkit.counter.ledger import Entry, Ledger

__all__ = ["Chain"]


class Chain:
    """Consecutive element-wise operators in one thread and phase.

    Run one by one, each reads its inputs and writes its output. Fused, the chain reads what came from outside, once, and writes
    what somebody still holds at its end: the next operator, autograd, or the caller. The difference goes to the ledger.
    """

    __slots__ = ("apart", "ledger", "made", "phase", "read")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.phase = ""
        self.apart = 0  # bytes, one by one
        self.read: dict[int, int] = {}  # what came from outside, by identity
        self.made: dict[int, tuple[Any, int]] = {}  # what was made inside: reference and bytes

    def extend(self, phase: str, args: Any, out: Any, entry: Entry) -> None:
        """One more element-wise operator. (How large its tensors are is kept with *entry*: that is what would take time here.)"""
        if phase != self.phase:
            self.close()
            self.phase = phase
        if entry.extents is None:
            entry.extents = ([extent(t) for t in tensors(args)], [extent(t) for t in tensors(out)])
        reads, writes = entry.extents
        self.apart += entry.work.bytes
        made, read = self.made, self.read
        place = 0
        for value in args:
            if isinstance(value, torch.Tensor):
                if (name := id(value)) not in made:
                    read[name] = reads[place]
                place += 1
            elif isinstance(value, (list, tuple)):
                for tensor in tensors(value):
                    if (name := id(tensor)) not in made:
                        read[name] = reads[place]
                    place += 1
        if isinstance(out, torch.Tensor):
            made[id(out)] = (_reference(out), writes[0])
        else:
            for tensor, size in zip(tensors(out), writes, strict=True):
                made[id(tensor)] = (_reference(tensor), size)

    def close(self) -> None:
        """Something else ran: settle what the chain would have saved."""
        if not self.made:
            return
        kept = sum(size for held, size in self.made.values() if held() is not None)
        saved = self.apart - sum(self.read.values()) - kept
        if saved > 0:
            self.ledger.merged_away[self.phase] = self.ledger.merged_away.get(self.phase, 0) + saved
        self.apart = 0
        self.read.clear()
        self.made.clear()
