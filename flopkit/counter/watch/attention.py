"""Attention as one piece of work, however many operators it is made of.

`scaled_dot_product_attention` reaches the dispatcher as one fused kernel, or (on meta, and wherever no kernel fits) as two products
and a softmax, with the causal flag gone. So the call is seen above the dispatcher, counted once by its shapes, and the operators
inside, in the backward pass, too, are known to be part of it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from flopkit.counter.watch.assumed import assumed, chosen, is_chosen
from flopkit.counter.watch.attention_calls import Said, read
from flopkit.counter.calls import OpCall, name_of
from flopkit.counter.formulas.attention_kernels import BACKWARD, part_of, wanted_of_kernel
from flopkit.counter.formulas.attentions import KERNELS, backward_work, forward_work, split_of
from flopkit.counter.ledger import Entry
from flopkit.counter.watch.autograd import current_node, graph_task, next_number, number_of
from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.modules import Scope
from flopkit.counter.watch.state import heres
from flopkit.counter.work import COUNTED, FREE, Work

__all__ = ["Region", "install", "run", "watched"]

OP = "scaled_dot_product_attention"


class Region:
    """One call of attention: which kernel ran it, and what of its backward pass has been seen."""

    __slots__ = (
        "assumed", "done", "first", "fused", "kernel", "last", "outer", "phase", "ran", "said", "scored",
    )  # fmt: skip

    def __init__(self, said: Said, outer: Scope, phase: str, assumed: str) -> None:
        self.said = said
        self.outer = outer
        self.phase = phase
        self.assumed = assumed  # the kernel that nothing but products stands for, on meta; "" where all is as it runs
        self.kernel = ""
        self.fused = ""  # the fused kernel that ran
        self.ran: list[Work] = []  # what ran inside
        self.first = self.last = next_number()  # autograd's numbers of the call's nodes
        self.scored = 0  # autograd's number after the product that makes the scores
        self.done = -1  # the graph task whose backward work is counted

    # -- the call itself --------------------------------------------------------------------------------------

    def run(self, here: Any, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make the call, and enter what it cost."""
        outer = self.outer
        here.enter(outer.of_region(self))
        try:
            out = func(*args, **kwargs)
        except BaseException as error:
            self._end(here, error)
            raise
        self._end(here)
        return out

    def _end(self, here: Any, error: BaseException | None = None) -> None:
        self.last = next_number()
        here.leave()
        forced = here.watcher.attention
        self.kernel = self.fused or self.assumed or "math" if forced == "auto" else forced
        ran, self.ran = self.ran, []
        if not self.said.whole or not (ran or self.fused):  # counted one by one, or a cache gave the result
            return
        # A checkpoint that has what it needs breaks off by an exception; a kernel that was at work has then done its all.
        math, broken = self.kernel.startswith("math"), error is not None and not self.fused
        if (broken and (math or "StopRecomputation" not in type(error).__name__)) or (math and self._is_in_part(ran)):
            for work in ran:
                self.put(here, self._as_ran(work), self.phase, self.outer)
            return
        key = (self.said.shape, self.kernel)
        entry = here.watcher.entries.get(key)
        if entry is None:
            entry = here.watcher.entries[key] = Entry(OP, forward_work(*key))
        here.ledger.add(entry, self.outer.where(self.phase))

    def _is_in_part(self, ran: list[Work]) -> bool:
        """Whether a checkpoint that makes the call again had kept one of its products."""
        shape = self.said.shape
        whole = shape.pairs * (shape.head_dim + shape.v_head_dim)
        return self.phase == "recompute" and sum(sum(work.model.values()) for work in ran) < whole

    # -- operators inside of it, or of its backward pass ------------------------------------------------------

    def takes(
        self, here: Any, entry: Entry, func: Any, args: Any, kwargs: Any, out: Any, phase: str, place: Scope
    ) -> bool:
        """Whether an operator inside of this call is accounted for here; False where it counts by itself."""
        work = entry.work
        name = name_of(func)
        if here.place.region is self:
            return bool(self._inside(here, entry, name, out, phase))
        if phase == "recompute":  # before the call is made again
            return False
        forced = here.watcher.attention
        shape = self.said.shape
        if name in BACKWARD:
            kernel = self.kernel if forced == "auto" else forced
            node = current_node()
            if not self.said.whole:
                self.put(here, work, phase, place, entry.op)
            else:
                call = OpCall(func, args, kwargs, out, node)
                self.put(here, backward_work(part_of(shape, call), kernel, wanted_of_kernel(call)), phase, place)
        elif self.kernel.startswith("math") or not self.said.whole or self._again():
            self.put(here, self._as_ran(work), phase, place, OP if self.said.whole else entry.op)
        elif self.fused and forced == "auto":  # what is around the kernel: casts, paddings
            return False
        elif work.model:  # products stand for a kernel that would have run (there is none on meta)
            task = graph_task()
            if self.done != task:
                self.done = task
                n = self._at_once(work)
                whole = backward_work(shape.times(n, n, n, n), self.kernel)
                self.put(here, replace(whole, model={}, executed=whole.done), phase, place)
            self.put(
                here,
                Work(COUNTED, split_of(work.model, shape), {}, kernel=self.kernel, dtype=shape.dtype),
                phase,
                place,
            )
        return True

    def _inside(self, here: Any, entry: Entry, name: str, out: Any, phase: str) -> bool:
        work = entry.work
        if name in KERNELS:
            self.fused = self.assumed if out[0].device.type == "meta" else KERNELS[name]
        if not self.said.whole:
            self.put(here, self._as_ran(work), phase, self.outer, entry.op)
        elif name == "aten::_to_copy" and self.said.cast is not None and out.dtype == self.said.cast and not self.ran:
            return False  # autocast's: an operator of its own
        elif work.status != FREE:
            self.ran.append(work)
            if work.model and not self.scored:
                self.scored = next_number()
        return True

    def _again(self) -> bool:
        """Whether what is being differentiated now was made in a backward pass: no fused kernel knows its second derivative."""
        node = current_node()
        return node is not None and not (self.first <= number_of(node) < self.last)

    def _at_once(self, work: Work) -> int:
        """How many backward passes are made at once, by the first product of them: with ``is_grads_batched`` it is that of all.

        The kernel would run once for each: torch has no batching rule for it.
        """
        node = current_node()
        of_scores = node is not None and number_of(node) < self.scored
        one = self.said.shape.pairs * (self.said.shape.head_dim if of_scores else self.said.shape.v_head_dim)
        n, rest = divmod(int(sum(work.model.values())), one) if one else (1, 0)
        return max(n, 1) if not rest else 1

    def _as_ran(self, work: Work) -> Work:
        """An operator by itself: a product is one of scores, and computes the hidden ones, too."""
        kernel = work.kernel or (self.kernel if self.kernel.startswith("math") else "math")
        if not work.model or "scores" in work.model:
            return replace(work, kernel=kernel)
        done = {"scores": sum(work.model.values())}
        shape = self.said.shape
        return replace(
            work, model=split_of(work.model, shape), executed=done, kernel=kernel, note=shape.note, dtype=shape.dtype
        )

    def put(self, here: Any, work: Work, phase: str, place: Scope, op: str = OP) -> None:
        """Enter a line of this call."""
        entry = here.watcher.entries.setdefault((op, repr(work)), Entry(op, work))
        here.ledger.add(entry, place.where(phase))


def run(watcher: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a call of attention as one region."""
    here = watcher.here
    said = None
    if not here.busy and here.place.region is None:
        with torch.DisableTorchFunction():
            said = read(*args, **kwargs)
    if said is None:
        return func(*args, **kwargs)
    phase, place = here.where(3)
    if place.region is not None:  # called again in the backward pass of a call
        place = place.region.outer
    region = Region(said, place, phase, assumed(func, args[0] if args else kwargs["query"]))
    if said.whole and region.assumed.startswith("flash") and is_chosen(watcher, (place.path, said.shape)):
        kernel = chosen(*args, **kwargs)
        if kernel is not None:
            return region.run(here, kernel, (), {})
    return region.run(here, func, args, kwargs)


def watched(func: Any) -> Any:
    """*func*, which carries out a call of attention, as a region of whoever watches."""

    def attention(*args: Any, **kwargs: Any) -> Any:
        inner = func
        for here in heres():
            if not here.watcher.closed and here.place.region is None:
                inner = functools.partial(run, here.watcher, inner)
        return inner(*args, **kwargs)

    return attention


# The keys under which autograd takes attention apart, one for each kind of device. What `torch.func` wraps has no device that autograd knows
# of, if it is on meta (Other); under `torch.vmap` torch takes attention apart before that.
_KEYS = (
    *(f"Autograd{device}" for device in ("CPU", "CUDA", "Meta", "Other", "NestedTensor", "XPU", "MPS", "HPU", "XLA", "PrivateUse1")),
    "FuncTorchVmapMode",
)  # fmt: skip


def install(changes: Changes) -> None:
    """Have the operator's own kernel tell of each call, whether it comes from Python, C++ or TorchScript, until *changes* are undone."""
    library = torch.library.Library("aten", "IMPL")
    changes.callback(library._destroy)
    kernel = watched(torch.ops.aten.scaled_dot_product_attention.default.decompose)
    with warnings.catch_warnings():
        # torch says that it had a kernel for `torch.vmap`, too; it has it again afterwards
        warnings.simplefilter("ignore", UserWarning)
        for key in _KEYS:
            library.impl("scaled_dot_product_attention", kernel, key)
    # A jagged tensor calls it by this name.
    kernel = watched(torch.ops.aten._scaled_dot_product_attention_math.default.decompose)
    library.impl("_scaled_dot_product_attention_math", kernel, "AutogradNestedTensor")
