"""Watching a program run: the dispatch mode that torch calls for each operator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import DisableTorchFunction
from torch.utils._python_dispatch import TorchDispatchMode

from flopkit.counter import registry
from flopkit.counter.calls import OpCall, name_of
from flopkit.counter.formulas import memory
from flopkit.counter.watch import attention, cache, decompose, internals, launches, pipelines
from flopkit.counter.watch.cache import key_of, made_up, on_meta
from flopkit.counter.watch.internals import dispatch_modes, how_many_dispatch, leave, pop_dispatch, push_dispatch
from flopkit.counter.watch.modules import OUTSIDE, Scope
from flopkit.counter.watch.origins import Origins
from flopkit.counter.watch.session import Session
from flopkit.counter.watch.state import ThreadState, busy, local, state_of, thread_states
from flopkit.counter.work import FREE, UNKNOWN, Work

BY_ITS_INSIDE = "counted by torch's operators inside it; arithmetic of its own is not seen (@fk.formula counts it)"
IN_PART = "only a part of its arithmetic is seen, by torch's operators inside it (@fk.formula counts all)"
HIDDEN = "{}, a tensor subclass, ran an operator where no dispatch mode sees it"
LOCAL = "DTensor: what is counted is this rank's local work"
# TorchScript compares the constants of a trace that never ran, and hands a mode numbers where these operators take tensors.
_OF_CONSTANTS = (torch.ops.aten.equal.default, torch.ops.aten._local_scalar_dense.default)


class Watcher(TorchDispatchMode):
    """Sees every operator of the threads it is entered in, and enters it in the ledgers of its session."""

    supports_higher_order_operators = True

    def __init__(self, session: Session, progress: Callable[[int], None] | None = None) -> None:
        super().__init__()
        if sum(len(rule.entries) for rule in list(registry.RULES.values())) > cache.MANY:
            registry.RULES.clear()
        self.session = session
        session.mode = self
        self.wrappers: dict[Any, Any] = {}
        self.progress, self.seen = progress, 0  # is told how many operators were seen
        self._launchers = launches.loaded()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # torch would import its whole compiler to guard us against it
        return False

    # -- threads ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def on_this_thread(self, base: Scope = OUTSIDE) -> Iterator[None]:
        """Watch this thread until the block ends; what no module asks for belongs to *base*."""
        state = state_of(self.session)
        if state.entered:  # a pool's thread, started while counting, that takes a task
            before, state.scope = state.scope, base
            try:
                yield
            finally:
                state.scope = before
            return
        state.scope, state.entered = base, True
        if state not in thread_states():
            local.states = (*thread_states(), state)
        self.__enter__()
        try:
            yield
        finally:
            leave(self)
            state.entered = False
            local.states = tuple(other for other in thread_states() if other is not state)

    def __enter__(self) -> Any:
        """Watch this thread. torch's own `__enter__` would also set flags for all threads, of which `patches` sets one."""
        push_dispatch(self)
        return self

    def __exit__(self, *error: Any) -> None:
        if dispatch_modes()[-1:] == [self]:  # else its count is over
            pop_dispatch(None)

    def finish(self) -> None:
        """Stop watching."""
        notes, distributed = self.session.notes, torch.distributed
        if distributed.is_available() and distributed.is_initialized() and (ranks := distributed.get_world_size()) > 1:
            notes.discard(LOCAL)
            notes.add(f"rank {distributed.get_rank()} of {ranks}: what is counted is this rank's local work")
        if launches.loaded() != self._launchers:
            notes.add(launches.LATE)
        self.session.finish()

    # -- operators --------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        session = self.session
        state = getattr(session.local, "state", None) or state_of(session)
        if state.busy or session.closed:
            with internals.as_if_unwatched(internals.is_composite(func)):
                return func(*args, **kwargs)
        if types and (wrapper := self._wrapper(types)) is not None:
            return self._by_wrapper(state, wrapper, func, types, args, kwargs)
        rule = registry.RULES.get(func) or cache.rule_of(func)
        if rule.is_attention and state.scope.region is None:  # in inference mode autograd does not take it apart
            return attention.run(state, lambda *a, **k: self._open(state, func, a, k, rule), *args, **kwargs)
        elif rule.opens:
            if rule.own_kernel is None or not decompose.has_kernel(func, args):
                return self._open(state, func, args, kwargs, rule)
            rule = rule.own_kernel
        key = out = None
        entry = rule.constant
        if entry is None and not rule.data_dependent:
            with DisableTorchFunction():  # a tensor is asked for its shape without anybody else being asked first
                key = key_of(rule, args, kwargs)
            entry = rule.entries.get(key)
            if entry is not None and entry.results is not None and on_meta(args) and not how_many_dispatch():
                out = made_up(entry.results)  # a meta kernel only makes up a shape, slowly; this one was made up before
        if out is None:
            state.busy += 1
            try:
                if entry is not None and not entry.conjugates and not rule.composite:
                    out = func(*args, **kwargs)
                else:
                    with internals.as_if_unwatched(rule.composite):
                        out = func(*args, **kwargs)
            except RuntimeError:
                if func not in _OF_CONSTANTS or all(isinstance(each, torch.Tensor) for each in args):
                    raise
                return func(*map(torch.as_tensor, args), **kwargs)
            finally:
                state.busy -= 1
        phase, scope = state.phase_and_scope()
        if rule.exchanges and phase == "forward" and pipelines.of_backward(args):
            phase = "backward"
        region, taken = scope.region, False
        if rule.constant is not None:
            taken = region is not None
        elif entry is None or region is not None or rule.dynamic_shape:
            with DisableTorchFunction():
                if entry is None or rule.dynamic_shape:
                    entry = cache.look_up(self.session, rule, func, args, kwargs, out, key)
                taken = region is not None and region.takes(state, entry, func, args, kwargs, out, phase, scope)
        state.calculations += entry.calculates
        where = scope.where(phase, taken)
        state.ledger.add(entry, where)
        if state.hidden_depth:
            state.ledger.hide(entry, where)
            if state.origins:
                with DisableTorchFunction():
                    state.origins[-1].saw(func, args, kwargs, out, entry.work)
        self.seen += 1
        if not self.seen & 127 and self.progress is not None:
            self.progress(self.seen)
        return out

    def _wrapper(self, types: Any) -> Any:
        """The tensor subclass at work that runs its operators by others: those are the ones to count. None where there is none."""
        if types not in self.wrappers:
            self.wrappers[types] = next(filter(decompose.is_wrapper, types), None)
            if any("DTensor" in kind.__name__ for kind in types):
                self.session.notes.add(LOCAL)
        return self.wrappers[types]

    def _by_wrapper(self, state: ThreadState, wrapper: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Leave an operator to *wrapper*. One with arithmetic is unknown if none was seen there: the subclass may hide it from modes."""
        handler = wrapper.__torch_dispatch__
        if not isinstance(func, torch._ops.OpOverload) or str(handler.__module__).startswith("torch."):
            return NotImplemented  # torch calls it; its own hide nothing
        before = state.calculations
        with self:
            out = handler(func, types, args, kwargs)
        if out is not NotImplemented and state.calculations == before:
            rule = registry.RULES.get(func) or cache.rule_of(func)
            with DisableTorchFunction():
                entry = cache.look_up(self.session, rule.own_kernel or rule, func, args, kwargs, out, None)
            if entry.work.status != FREE and not memory.is_view(func, name_of(func)):
                hidden = Work(UNKNOWN, bytes=entry.work.bytes, note=HIDDEN.format(wrapper.__name__))
                state.add_without_operator(f"{wrapper.__name__}.{rule.op}", hidden, entry.by_torch)
        return out

    # -- operators that are opened ----------------------------------------------------------------------------

    def _open(self, state: ThreadState, func: Any, args: Any, kwargs: Any, rule: Any) -> Any:
        """Run an operator that no formula explains with its inside in view; it is unknown if not all of its arithmetic was seen there."""
        kernel = decompose.inside_of(func, args, kwargs)
        before, origins = state.calculations, None
        if kernel is None:
            with busy([state]), internals.conjugating():
                out = func(*args, **kwargs)
        elif rule.composite:
            with self:
                return kernel(*args, **kwargs)
        else:
            if isinstance(func, torch._ops.OpOverload) and func.namespace != "aten":
                origins = Origins(args, kwargs)
            with self, state.hidden(origins):
                out = kernel(*args, **kwargs)
            if out is NotImplemented:
                return out
        with DisableTorchFunction():
            in_part = origins is not None and origins.only_in_part(func, args, kwargs, out)
            if in_part or state.calculations == before:
                if in_part and state.calculations != before:
                    self.session.notes.add(f"{rule.op}: {IN_PART}")
                state.add(cache.look_up(self.session, rule, func, args, kwargs, out, None))
            elif isinstance(func, torch._ops.OpOverload):
                self.session.notes.add(f"{rule.op}: {BY_ITS_INSIDE}")
            if state.origins:  # of the operator around
                state.origins[-1].saw(func, args, kwargs, out, rule.formula(OpCall(func, args, kwargs, out)))
        return out
