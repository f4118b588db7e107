"""Complex convolutions, which torch runs as three real ones.

``(a + ib) ∗ (c + id)`` is four real convolutions, and four is what the mathematics asks for (8 FLOPs for each complex multiply-add). torch
makes do with three, ``a ∗ c``, ``b ∗ d`` and ``(a + b) ∗ (c + d)``, before anything reaches the dispatcher. So the call is seen above it,
and of its three operators, in forward and again in backward, the first counts twice in the model. Executed is what runs.

Where no Python is called, as in TorchScript, three real convolutions are all that can be seen.
"""

from __future__ import annotations

from typing import Any

import torch

from flopkit.counter.ledger import Entry
from flopkit.counter.watch.autograd import graph_task
from flopkit.counter.watch.modules import Scope
from flopkit.counter.work import Work

__all__ = ["CONVOLUTIONS", "Region", "convolution"]

CONVOLUTIONS = frozenset(
    {
        torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d
    }
)  # fmt: skip


class Region:
    """One call of a complex convolution."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen: dict[Any, int] = {}  # convolutions of one kind and size that ran in one pass

    def takes(
        self, here: Any, entry: Entry, func: Any, args: Any, kwargs: Any, out: Any, phase: str, place: Scope
    ) -> bool:
        """Whether an operator inside is accounted for here: a convolution is, all else counts by itself."""
        work = entry.work
        if not work.model or "convolution" not in entry.op:
            return False
        key = (graph_task(), entry.op, sum(work.model.values()))
        before = self.seen[key] = self.seen.get(key, -1) + 1
        model = {kind: macs * (1 + (before % 3 == 0)) for kind, macs in work.model.items()}
        whole = Work(
            work.status,
            model,
            work.done,
            vector=work.vector,
            bytes=work.bytes,
            kernel="three real ones",
            dtype=work.dtype,
        )
        mine = here.watcher.entries.setdefault((entry.op, repr(whole)), Entry(entry.op, whole))
        here.ledger.add(mine, place.where(phase))
        return True


def convolution(watcher: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a convolution, as a region if its image is complex."""
    here = watcher.here
    image = args[0] if args else kwargs.get("input")
    if here.place.region is not None or not isinstance(image, torch.Tensor) or not image.is_complex():
        return func(*args, **kwargs)
    outer = here.place
    here.enter(outer.of_region(Region()))
    try:
        return func(*args, **kwargs)
    finally:
        here.leave()
