"""Attention as one piece of work, however many operators it is made of.

`scaled_dot_product_attention` reaches the dispatch mode as one fused kernel, or (on meta, and wherever no kernel fits) as two products
and a softmax, with the causal flag gone. So the call is met above, where autograd takes it apart, and counted once by its shapes. The
operators inside, in the backward pass, too, are known to be part of it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from flopkit.counter.calls import OpCall, name_of
from flopkit.counter.formulas.attention_kernels import BACKWARD, part_of, wanted_of_kernel
from flopkit.counter.formulas.attentions import KERNELS, backward_work, forward_work, split_of
from flopkit.counter.ledger import Entry
from flopkit.counter.watch.attention_calls import CallShape, assumed, chosen, is_chosen, read
from flopkit.counter.watch.autograd import current_node, graph_task, next_number, number_of
from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.modules import Scope
from flopkit.counter.watch.state import thread_states
from flopkit.counter.work import COUNTED, FREE, Work

__all__ = ["Region", "install", "run", "watched"]

OP = "scaled_dot_product_attention"


class Region:
    """One call of attention: which kernel ran it, and what of its backward pass has been seen."""

    __slots__ = (
        "assumed", "first", "fused", "kernel", "last", "outer", "phase", "ran", "scored", "shape", "task", "whole",
    )  # fmt: skip

    def __init__(self, call: CallShape, outer: Scope, phase: str, assumed: str) -> None:
        self.shape, self.whole = call
        self.outer = outer
        self.phase = phase
        self.assumed = assumed  # the kernel that nothing but products stands for, on meta; "" where all is as it runs
        self.kernel = ""
        self.fused = ""  # the fused kernel that ran
        self.ran: list[Work] = []  # what ran inside
        self.first = self.last = next_number()  # autograd's numbers of the call's nodes
        self.scored = 0  # autograd's number after the product that makes the scores
        self.task = -1  # the backward pass that was counted

    # -- the call itself --------------------------------------------------------------------------------------

    def run(self, state: Any, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make the call, and enter what it cost."""
        state.enter(self.outer.of_region(self), graph_task())
        try:
            out = func(*args, **kwargs)
        except BaseException as error:
            self._end(state, error)
            raise
        self._end(state)
        return out

    def _end(self, state: Any, error: BaseException | None = None) -> None:
        self.last = next_number()
        state.leave()
        forced = state.watcher.attention
        self.kernel = (self.fused or self.assumed or "math") if forced == "auto" else forced
        ran, self.ran = self.ran, []
        if not self.whole or not (ran or self.fused):  # counted one by one, or a cache gave the result
            return
        # A checkpoint that has what it needs breaks off by an exception; a kernel that was at work has then done its all.
        math, broken = self.kernel.startswith("math"), error is not None and not self.fused
        if (broken and (math or "StopRecomputation" not in type(error).__name__)) or (math and self._is_in_part(ran)):
            for work in ran:
                self.put(state, self._as_ran(work), self.phase, self.outer)
            return
        key = (self.shape, self.kernel)
        entry = state.watcher.entries.get(key)
        if entry is None:
            entry = state.watcher.entries[key] = Entry(OP, forward_work(*key))
        state.ledger.add(entry, self.outer.where(self.phase))

    def _is_in_part(self, ran: list[Work]) -> bool:
        """Whether a checkpoint that makes the call again had kept one of its products."""
        whole = self.shape.pairs * (self.shape.head_dim + self.shape.v_head_dim)
        return self.phase == "recompute" and sum(sum(work.model.values()) for work in ran) < whole

    # -- operators inside of it, or of its backward pass ------------------------------------------------------

    def takes(
        self, state: Any, entry: Entry, func: Any, args: Any, kwargs: Any, out: Any, phase: str, scope: Scope
    ) -> bool:
        """Whether an operator inside of this call is accounted for by it; False where it counts by itself."""
        work, name = entry.work, name_of(func)
        if state.scope.region is self:
            self._inside(state, entry, name, out, phase)
            return True
        if phase == "recompute":  # before the call is made again
            return False
        forced = state.watcher.attention
        op = OP if self.whole else entry.op
        if name in BACKWARD:
            if self.whole:
                call = OpCall(func, args, kwargs, out, current_node())
                kernel = self.kernel if forced == "auto" else forced
                work = backward_work(part_of(self.shape, call), kernel, wanted_of_kernel(call))
            self.put(state, work, phase, scope, op)
        elif self.kernel.startswith("math") or not self.whole or self._is_second():
            self.put(state, self._as_ran(work), phase, scope, op)
        elif self.fused and forced == "auto":  # what is around the kernel: casts, paddings
            return False
        elif work.model:  # products stand for a kernel that would have run (there is none on meta)
            task = graph_task()
            if self.task != task:
                self.task = task
                n = self._at_once(work)
                whole = backward_work(self.shape.times(n, n, n, n), self.kernel)
                self.put(state, replace(whole, model={}, executed=whole.executed), phase, scope)
            model = split_of(work.model, self.shape)
            self.put(state, Work(COUNTED, model, {}, kernel=self.kernel, dtype=self.shape.dtype), phase, scope)
        return True

    def _inside(self, state: Any, entry: Entry, name: str, out: Any, phase: str) -> None:
        work = entry.work
        if name in KERNELS:
            self.fused = self.assumed if out[0].device.type == "meta" else KERNELS[name]
        if not self.whole:
            self.put(state, self._as_ran(work), phase, self.outer, entry.op)
        elif work.status != FREE:
            self.ran.append(work)
            if work.model and not self.scored:
                self.scored = next_number()

    def _is_second(self) -> bool:
        """Whether what is being differentiated now was made in a backward pass: no fused kernel knows its second derivative."""
        node = current_node()
        return node is not None and not (self.first <= number_of(node) < self.last)

    def _at_once(self, work: Work) -> int:
        """How many backward passes are made at once, by the first product of them: with ``is_grads_batched`` it is that of all.

        The kernel would run once for each: torch has no batching rule for it.
        """
        node = current_node()
        of_scores = node is not None and number_of(node) < self.scored
        one = self.shape.pairs * (self.shape.head_dim if of_scores else self.shape.v_head_dim)
        n, rest = divmod(int(sum(work.model.values())), one) if one else (1, 0)
        return max(n, 1) if not rest else 1

    def _as_ran(self, work: Work) -> Work:
        """An operator by itself: a product is one of scores, and computes the hidden ones, too."""
        kernel = work.kernel or (self.kernel if self.kernel.startswith("math") else "math")
        if not work.model or "scores" in work.model:
            return replace(work, kernel=kernel)
        model, executed = split_of(work.model, self.shape), {"scores": sum(work.model.values())}
        return replace(
            work, model=model, executed=executed, kernel=kernel, note=self.shape.note, dtype=self.shape.dtype
        )

    def put(self, state: Any, work: Work, phase: str, scope: Scope, op: str = OP) -> None:
        """Enter a line of this call."""
        entry = state.watcher.entries.setdefault((op, repr(work)), Entry(op, work))
        state.ledger.add(entry, scope.where(phase))


def run(state: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a call of attention as one region."""
    call = None
    if not state.busy and state.scope.region is None:
        with torch.DisableTorchFunction():
            call = read(*args, **kwargs)
    if call is None:
        return func(*args, **kwargs)
    phase, scope = state.where()
    if scope.region is not None:  # called again in the backward pass of a call
        scope = scope.region.outer
    region = Region(call, scope, phase, assumed(args[0] if args else kwargs["query"]))
    if call.whole and region.assumed.startswith("flash") and is_chosen(state.watcher, (scope.path, call.shape)):
        kernel = chosen(*args, **kwargs)
        if kernel is not None:
            return region.run(state, kernel, (), {})
    return region.run(state, func, args, kwargs)


def watched(func: Any) -> Any:
    """*func*, which carries out a call of attention, as a region of whoever watches."""

    def attention(*args: Any, **kwargs: Any) -> Any:
        inner = func
        for state in thread_states():
            if not state.watcher.closed and state.scope.region is None:
                inner = functools.partial(run, state, inner)
        return inner(*args, **kwargs)

    return attention


# The keys under which autograd takes attention apart, one for each kind of device. What `torch.func` wraps has no device that autograd knows
# of, if it is on meta (Other); under `torch.vmap` torch takes attention apart before that.
_DEVICES = ["CPU", "CUDA", "Meta", "Other", "NestedTensor"]
if (_accelerator := torch.accelerator.current_accelerator()) is not None and _accelerator.type != "cuda":
    _DEVICES.append({"xpu": "XPU", "mps": "MPS", "hpu": "HPU", "xla": "XLA"}.get(_accelerator.type, "PrivateUse1"))
_KEYS = (*(f"Autograd{device}" for device in _DEVICES), "FuncTorchVmapMode")


def install(changes: Changes) -> None:
    """Have the operator's own kernel tell of each call, whether it comes from Python, C++ or TorchScript, until *changes* are undone."""
    library = torch.library.Library("aten", "IMPL")
    changes.callback(library._destroy)
    kernel = watched(torch.ops.aten.scaled_dot_product_attention.default.decompose)
    with warnings.catch_warnings():
        # torch says that it had a kernel for `torch.vmap`, too; it has it again afterwards
        warnings.simplefilter("ignore", UserWarning)
        for key in _KEYS:
            library.impl(OP, kernel, key)
    # Jagged tensors call it by this name.
    kernel = watched(torch.ops.aten._scaled_dot_product_attention_math.default.decompose)
    library.impl("_scaled_dot_product_attention_math", kernel, "AutogradNestedTensor")
