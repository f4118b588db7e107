"""Element-wise operators in a row: how many of their bytes a compiler that fuses them would not move."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from flopkit.counter.calls import extent, tensors
from flopkit.counter.ledger import Ledger

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

    def extend(self, phase: str, args: Any, out: Any, bytes: int) -> None:
        """One more element-wise operator."""
        if phase != self.phase:
            self.close()
            self.phase = phase
        self.apart += bytes
        for tensor in args if type(args) is tuple else ():
            if isinstance(tensor, torch.Tensor):
                if id(tensor) not in self.made:
                    self.read[id(tensor)] = extent(tensor)
            elif isinstance(tensor, (list, tuple)):
                for each in tensors(tensor):
                    if id(each) not in self.made:
                        self.read[id(each)] = extent(each)
        for tensor in tensors(out):
            self.made[id(tensor)] = (weakref.ref(tensor), extent(tensor))

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
