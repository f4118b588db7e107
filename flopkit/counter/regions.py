"""Attention as one piece of work, however many operators it is made of.

`scaled_dot_product_attention` reaches the dispatcher as one fused kernel, or (on meta, and wherever no kernel fits) as two products
and a softmax, with the causal flag gone. So the call is seen above the dispatcher, counted once by its shapes, and the operators
inside, in the backward pass, too, are known to be part of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from flopkit.counter.calls import Call, name_of
from flopkit.counter.inside import is_wrapper
from flopkit.counter.ledger import Entry, Where
from flopkit.counter.operators.attentions import KERNELS, Shape, backward_work, forward_work, shape_of, wanted
from flopkit.counter.places import Place
from flopkit.counter.work import COUNTED, Work

__all__ = ["ATTENTION", "Region", "attention"]

OP = "scaled_dot_product_attention"
ATTENTION = {
    F.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
}


class Region:
    """One call of attention: which kernel ran it, and what of its backward pass has been seen."""

    __slots__ = ("done", "entered", "kernel", "seen", "shape")

    def __init__(self, shape: Shape, entered: int) -> None:
        self.shape = shape
        self.entered = entered  # the graph task it was called in; -1 in a forward pass
        self.kernel = ""
        self.seen: set[str] = set()  # fused kernels that ran
        self.done = -1  # the graph task whose backward work is counted

    def takes(
        self, here: Any, entry: Entry, func: Any, args: Any, kwargs: Any, out: Any, phase: str, place: Place
    ) -> bool:
        """Whether an operator inside of this call is accounted for here; False where it counts by itself."""
        name = name_of(func)
        if name in KERNELS:
            self.seen.add(name)
        task = torch._C._current_graph_task_id()
        if task == self.entered:  # the call itself: counted by its shapes
            return True
        watcher = here.watcher
        if name.endswith("_backward") and name.removesuffix("_backward") in KERNELS:
            kernel = self.kernel if watcher.attention == "auto" else watcher.attention
            node = torch._C._current_autograd_node()
            self.put(here, backward_work(self.shape, kernel, wanted(Call(func, args, kwargs, out, node))), phase, place)
        elif self.kernel.startswith("math"):
            self.put(here, self._as_ran(entry.work), phase, place)
        else:  # products stand for a kernel that would have run (there is none on meta)
            if self.done != task:
                self.done = task
                whole = backward_work(self.shape, self.kernel)
                self.put(here, replace(whole, model={}, executed=whole.done), phase, place)
            if entry.work.model:
                self.put(here, Work(COUNTED, self._split(entry.work), {}, kernel=self.kernel), phase, place)
        return True

    def _as_ran(self, work: Work) -> Work:
        """An operator of a backward pass without a kernel: a product is one of scores, and computes the hidden ones, too."""
        if not work.model:
            return replace(work, kernel=self.kernel)
        done = {"scores": sum(work.model.values())}
        return replace(work, model=self._split(work), executed=done, kernel=self.kernel, note=self.shape.note)

    def _split(self, work: Work) -> dict[str, float]:
        shape, macs = self.shape, int(sum(work.model.values()))
        visible = macs * shape.visible // shape.pairs if shape.pairs else 0
        return {"scores": visible, **({"hidden": macs - visible} if shape.hides else {})}

    def put(self, here: Any, work: Work, phase: str, place: Place) -> None:
        """Enter a line of this call."""
        entry = here.watcher.entries.setdefault((OP, repr(work)), Entry(OP, work))
        here.chain.close()
        here.ledger.add(entry, place.where(phase))


def attention(watcher: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a call of attention as one region."""
    here = watcher.here
    shape = None
    # Inside of vmap and the like the shapes that are seen here are not the whole: there the operators count by themselves.
    if not here.busy and torch._C._functorch.peek_interpreter_stack() is None:
        with torch._C.DisableTorchFunction():
            shape = _shape(*args, **kwargs)
    if shape is None:
        return func(*args, **kwargs)
    region = Region(shape, torch._C._current_graph_task_id())
    phase, place = here.where(3)
    inner = Place(place.path, place.module, region, place.inside, place.spots)
    here.enter(inner)
    try:
        out = func(*args, **kwargs)
    finally:
        here.leave()
    region.kernel = _kernel(watcher, region, out)
    with torch._C.DisableTorchFunction():
        region.put(here, forward_work(shape, region.kernel), phase, place)
    return out


def _kernel(watcher: Any, region: Region, out: Any) -> str:
    if watcher.attention != "auto":
        return str(watcher.attention)
    if region.seen:
        return KERNELS[min(region.seen)]
    if out.device.type == "meta" or type(out).__name__ == "FakeTensor":
        return "flash (assumed: nothing runs on meta)"
    return "math"


def _shape(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None,
           enable_gqa: bool = False) -> Shape | None:  # fmt: skip
    if not all(isinstance(t, torch.Tensor) for t in (query, key, value)):
        return None
    if any(is_wrapper(type(t)) for t in (query, key, value)) or query.is_nested:
        return None
    if min(query.dim(), key.dim(), value.dim()) < 2:
        return None
    return shape_of(query, key, value, causal=is_causal, mask=attn_mask)
