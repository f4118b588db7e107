"""Where the numbers inside of an opened operator come from: whether all of it was seen, or only a part.

An operator that somebody else wrote may find a scale by torch and compute the rest in NumPy or in C. What it does outside of torch leaves a trace: its
result, or a tensor that it goes on with, comes from no operator that was seen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from flopkit.counter.calls import OpCall, tensors
from flopkit.counter.work import FREE, Work

CONSTANT, GIVEN, COMPUTED = 1, 2, 3  # made from nothing; an argument or its copy; computed from one


class Origins:
    """What was seen inside of one call of an operator."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.known: dict[int, int] = {}
        self.kept: list[StorageWeakRef] = []  # so that no other storage gets the same place
        self.contracts = self.launches = self.from_nowhere = False
        for given in tensors((args, kwargs)):
            self._put(given, GIVEN)

    def _put(self, tensor: Any, origin: int) -> None:
        if tensor.layout is torch.strided and not tensor.is_nested:
            ref = StorageWeakRef(tensor.untyped_storage())
            if ref.cdata not in self.known:
                self.kept.append(ref)
            self.known[ref.cdata] = max(origin, self.known.get(ref.cdata, 0))

    def of(self, tensor: Any) -> int:
        """Where a tensor's numbers come from; 0: from nowhere that was seen."""
        if tensor.layout is not torch.strided or tensor.is_nested:
            return COMPUTED
        return self.known.get(StorageWeakRef(tensor.untyped_storage()).cdata, 0)

    def saw(self, func: Any, args: Any, kwargs: Any, out: Any, work: Work) -> None:
        """An operator ran."""
        call = OpCall(func, args, kwargs, out)
        written, only_written = call.changed()
        read = [tensor for tensor in call.inputs if id(tensor) not in only_written]
        origins = [self.of(tensor) for tensor in read]
        is_view = not work.bytes and work.status == FREE
        if not is_view and any(not origin and tensor.numel() > 1 for origin, tensor in zip(origins, read, strict=True)):
            self.from_nowhere = True
        self.contracts = self.contracts or bool(work.model)
        origin = max(origins, default=0 if "empty" in call.name else CONSTANT)
        if origin >= GIVEN and work.status != FREE:
            origin = COMPUTED
        if origin:
            for result in (*call.outputs, *written.values()):
                self._put(result, origin)

    def only_in_part(self, func: Any, args: Any, kwargs: Any, out: Any) -> bool:
        """Whether the operator did something else than what was seen."""
        if self.launches:  # of a kernel, which is a line of its own
            return False
        if self.from_nowhere and not self.contracts:
            return True
        call = OpCall(func, args, kwargs, out)
        results = call.outputs or list(call.changed()[0].values())
        return any(result.numel() and self.of(result) != COMPUTED for result in results)
