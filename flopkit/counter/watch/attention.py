"""Attention as one piece of work, however many operators it is made of.

`scaled_dot_product_attention` reaches the dispatch mode as one fused kernel, or (on meta, and wherever no kernel fits) as two products
and a softmax, with the causal flag gone. So the call is met above, where autograd takes it apart, and counted once by its shapes. The
operators inside, in the backward pass, too, are known to be part of it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from flopkit.counter.calls import OpCall, name_of
from flopkit.counter.formulas.attention_kernels import BACKWARD, wanted_of_kernel
from flopkit.counter.formulas.attentions import KERNELS, Shape, backward_work, forward_work, split_of
from flopkit.counter.ledger import Entry
from flopkit.counter.watch.attention_calls import assumed, chosen, is_chosen, read
from flopkit.counter.watch.autograd import current_node, graph_task, next_number, number_of
from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.modules import Scope
from flopkit.counter.watch.state import ThreadState, thread_states
from flopkit.counter.work import COUNTED, FREE, Work

OP = "scaled_dot_product_attention"


class Region:
    """One call of attention: which kernel ran it, and what of its backward pass has been seen."""

    def __init__(self, shape: Shape, outer: Scope, phase: str, assumed: str) -> None:
        self.shape = shape
        self.outer = outer
        self.phase = phase
        self.assumed = assumed  # the kernel that is assumed where none runs, on meta; else ""
        self.kernel = ""
        self.fused = ""  # the fused kernel that ran
        self.ran: list[Work] = []  # what ran inside
        self.first = self.last = next_number()  # autograd's numbers of the call's nodes
        self.scored = 0  # autograd's number after the product that makes the scores
        self.task = -1  # the backward pass that was counted

    # -- the call itself --------------------------------------------------------------------------------------

    def run(self, state: ThreadState, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make the call, and enter what it cost."""
        state.enter(self.outer.of_region(self), graph_task())
        try:
            out = func(*args, **kwargs)
        except BaseException as error:
            self._end(state, error)
            raise
        self._end(state)
        return out

    def _end(self, state: ThreadState, error: BaseException | None = None) -> None:
        self.last = next_number()
        state.leave()
        forced = state.session.attention
        self.kernel = (self.fused or self.assumed or "math") if forced == "auto" else forced
        ran, self.ran = self.ran, []
        if not (ran or self.fused):  # a cache gave the result
            return
        # A checkpoint that has what it needs breaks off by an exception; a kernel that was at work has then done its all.
        math, broken = self.kernel.startswith("math"), error is not None and not self.fused
        if (broken and (math or "StopRecomputation" not in type(error).__name__)) or (math and self._is_in_part(ran)):
            for work in ran:
                self.put(state, self._as_ran(work), self.phase, self.outer)
            return
        key = (self.shape, self.kernel)
        entry = state.session.entries.get(key)
        if entry is None:
            entry = state.session.entries[key] = Entry(OP, forward_work(*key))
        state.ledger.add(entry, self.outer.where(self.phase))

    def _is_in_part(self, ran: list[Work]) -> bool:
        """Whether a checkpoint that makes the call again had kept one of its products."""
        whole = self.shape.pairs * (self.shape.head_dim + self.shape.v_head_dim)
        return self.phase == "recompute" and sum(sum(work.model.values()) for work in ran) < whole

    # -- operators inside of it, or of its backward pass ------------------------------------------------------

    def takes(
        self, state: ThreadState, entry: Entry, func: Any, args: Any, kwargs: Any, out: Any, phase: str, scope: Scope
    ) -> bool:
        """Whether an operator inside of this call is accounted for by it; False where it counts by itself."""
        work, name = entry.work, name_of(func)
        if state.scope.region is self:
            if name in KERNELS:
                self.fused = self.assumed if out[0].device.type == "meta" else KERNELS[name]
            if work.status != FREE:
                self.ran.append(work)
                if work.model and not self.scored:
                    self.scored = next_number()
            return True
        if phase == "recompute":  # before the call is made again
            return False
        forced = state.session.attention
        if name in BACKWARD:
            wanted = wanted_of_kernel(OpCall(func, args, kwargs, out, current_node()))
            kernel = self.kernel if forced == "auto" else forced
            self.put(state, backward_work(self.shape, kernel, wanted), phase, scope)
        elif self.kernel.startswith("math") or self._is_second():
            self.put(state, self._as_ran(work), phase, scope)
        elif self.fused and forced == "auto":  # what is around the kernel: casts, paddings
            return False
        elif work.model:  # products stand for a kernel that would have run (there is none on meta)
            task = graph_task()
            if self.task != task:
                self.task = task
                whole = backward_work(self.shape, self.kernel)
                for _ in range(self._at_once(work)):
                    self.put(state, replace(whole, model={}, executed=whole.executed), phase, scope)
            model = split_of(work.model, self.shape)
            self.put(state, Work(COUNTED, model, {}, kernel=self.kernel, dtype=self.shape.dtype), phase, scope)
        return True

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
        return max(int(sum(work.model.values())) // max(one, 1), 1)

    def _as_ran(self, work: Work) -> Work:
        """An operator by itself: a product is one of scores, and computes the hidden ones, too."""
        kernel = work.kernel or (self.kernel if self.kernel.startswith("math") else "math")
        if not work.model or "scores" in work.model:
            return replace(work, kernel=kernel)
        model, executed = split_of(work.model, self.shape), {"scores": sum(work.model.values())}
        note, dtype = self.shape.note, self.shape.dtype
        return replace(work, model=model, executed=executed, kernel=kernel, note=note, dtype=dtype)

    def put(self, state: ThreadState, work: Work, phase: str, scope: Scope) -> None:
        """Enter a line of this call."""
        entry = state.session.entries.setdefault((OP, repr(work)), Entry(OP, work))
        state.ledger.add(entry, scope.where(phase))


def run(state: ThreadState, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a call of attention as one region."""
    shape = None
    if not state.busy and state.scope.region is None:
        with torch.DisableTorchFunction(), contextlib.suppress(RuntimeError):  # of a size that nobody knows yet
            shape = read(*args, **kwargs)
    if shape is None:
        return func(*args, **kwargs)
    phase, scope = state.phase_and_scope()
    if scope.region is not None:  # called again in the backward pass of a call
        scope = scope.region.outer
    region = Region(shape, scope, phase, assumed(args[0] if args else kwargs["query"]))
    if region.assumed.startswith("flash") and is_chosen(state.session, (scope.path, shape)):
        kernel = chosen(*args, **kwargs)
        if kernel is not None:
            return region.run(state, kernel, (), {})
    return region.run(state, func, args, kwargs)


def watched(func: Any) -> Any:
    """*func*, which carries out a call of attention, as a region of whoever watches."""

    def attention(*args: Any, **kwargs: Any) -> Any:
        inner = func
        for state in thread_states():
            if not state.session.closed and state.scope.region is None:
                inner = functools.partial(run, state, inner)
        return inner(*args, **kwargs)

    return attention


# Under these keys autograd takes attention apart, one for each kind of device (Other: what `torch.func` wraps, on meta).
_DEVICES = ["CPU", "CUDA", "Meta", "Other"]
if (_accelerator := torch.accelerator.current_accelerator()) is not None and _accelerator.type != "cuda":
    _DEVICES.append({"xpu": "XPU", "mps": "MPS", "hpu": "HPU", "xla": "XLA"}.get(_accelerator.type, "PrivateUse1"))


def install(changes: Changes) -> None:
    """Have the operator's own kernel tell of each call, whether it comes from Python, C++ or TorchScript, until *changes* are undone."""
    library = torch.library.Library("aten", "IMPL")
    changes.callback(library._destroy)
    kernel = watched(torch.ops.aten.scaled_dot_product_attention.default.decompose)
    for device in _DEVICES:
        library.impl(OP, kernel, f"Autograd{device}")
