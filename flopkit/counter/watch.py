"""Watching a program run: a dispatch mode for the operators, a function mode for attention, and nothing left behind."""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from flopkit.counter import chains, complexes, fbgemm, flex, inside, layers, regions, registry, spectra
from flopkit.counter.calls import Call, name_of, tensors
from flopkit.counter.ledger import Entry, Ledger
from flopkit.counter.operators import FLEX, explain
from flopkit.counter.phases import backward_or_recompute, is_on_stack
from flopkit.counter.places import NEVER, OUTSIDE, Modules, Place, Trail
from flopkit.counter.work import COUNTED, ELEMENTWISE, FREE, Work, unknown

__all__ = ["Functions", "Here", "Watcher"]

_graph_task = torch._C._current_graph_task_id
_node = torch._C._current_autograd_node
_modes = torch._C._len_torch_dispatch_stack
_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
_grad_enabled = torch.is_grad_enabled
_mode_stack = _get_current_dispatch_mode_stack
_SCALARS = frozenset({int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_STRIDED = torch.strided
LOCAL = "DTensor: what is counted is this rank's local work"
_local = threading.local()


def heres() -> tuple[Here, ...]:
    """Who watches this thread."""
    found: tuple[Here, ...] = getattr(_local, "heres", ())
    if not found and _graph_task() != -1:  # autograd's own thread, which no one entered: the modes came along
        return tuple([mode.here for mode in _mode_stack() if isinstance(mode, Watcher) and not mode.closed])
    return found


def custom_backwards() -> list[tuple[int, bool]]:
    """The backward passes of custom functions that this thread is in: in which graph task, and whether with gradients on."""
    found: list[tuple[int, bool]] | None = getattr(_local, "custom", None)
    if found is None:
        found = _local.custom = []
    return found


class Here:
    """What one watcher knows of one thread: where it is, and what it has seen."""

    __slots__ = (
        "arithmetic", "busy", "chain", "depth", "entered", "ledger", "nodes", "optimizers", "place", "stack", "trail", "watcher"
    )  # fmt: skip

    def __init__(self, watcher: Watcher, base: Place) -> None:
        self.watcher = watcher
        self.place = base
        self.stack: list[tuple[Place, int]] = []  # the places around, and the graph task in which each was entered
        self.trail = Trail()
        self.trail.mark(_number(), base)
        self.ledger = Ledger()
        self.busy = 0  # in a kernel, or where torch makes up shapes: nothing counts
        self.entered = False
        self.nodes = 0  # autograd's next number when last looked at
        self.arithmetic = 0  # operators that do some: tells whether any ran inside of an unknown one
        self.optimizers: list[Any] = []
        self.chain = chains.Chain(self.ledger)
        self.depth = 0  # operators around that were opened, and whose inside a dispatcher would not show

    def enter(self, place: Place) -> None:
        """Go into a module or an attention call."""
        self.stack.append((self.place, self.task))
        self.place = place
        self.trail.mark(_number(), place)

    @property
    def task(self) -> int:
        """The graph task in which the present place was entered; -1 outside of a backward pass."""
        return _graph_task()

    def leave(self) -> None:
        """Go back to where it was entered from."""
        self.place, _ = self.stack.pop()
        self.trail.mark(_number(), self.place)

    def call_module(self, module: Any) -> None:
        """Go into *module*."""
        task = _graph_task()
        under = self.place if task == -1 or (self.stack and self.stack[-1][1] == task) else self.of_node()
        self.enter(self.watcher.modules.place(module, under, again=task != -1))

    def of_node(self) -> Place:
        """The place whose work autograd is now differentiating."""
        node: Any = _node()
        if node is None:
            return OUTSIDE
        number = node._sequence_nr()
        if number >= NEVER:  # a leaf: it only accumulates
            return OUTSIDE
        trail = self.trail
        found = trail.at(number)
        if found is None or found is OUTSIDE:
            # The forward pass ran in another thread, as it does for every backward pass on a GPU.
            for other in self.watcher.threads():
                if other is not self and (there := other.trail.at(number)) is not None and there is not OUTSIDE:
                    trail, found = other.trail, there
                    break
        if number < trail.lowest:
            trail.lowest = number
        return found or OUTSIDE

    def where(self, depth: int) -> tuple[str, Place]:
        """Phase and place of the operator that is running now, whose caller is *depth* frames up."""
        task = _graph_task()
        optimizing = bool(self.optimizers) and self.in_optimizer()
        if task == -1:
            self.nodes = _number()
            if self.trail.lowest != NEVER:
                self.trail.end_pass()
            return ("optimizer" if optimizing else "forward"), self.place
        if optimizing:
            return "optimizer", self.place if self.stack else OUTSIDE
        phase = backward_or_recompute(sys._getframe(depth + 1))
        if phase == "backward" and _grad_enabled() and (task, False) in custom_backwards()[-1:]:
            # A custom function turned gradients on in its own backward pass: it runs something in order to differentiate it.
            phase = "recompute"
        place = self.place if self.stack and self.stack[-1][1] == task else self.of_node()
        if _grad_enabled() and (nodes := _number()) > self.nodes:  # what was made for this operator will be differentiated, too
            self.nodes = nodes
            self.trail.mark(nodes - 1, place)
        return phase, place

    def in_optimizer(self) -> bool:
        """Whether an optimiser's step is what asks for work now."""
        while self.optimizers:
            frame = self.optimizers[-1]
            if frame is None:  # inside of a closure, which has the phases of any other program
                return False
            if is_on_stack(frame):
                return True
            self.optimizers.pop()  # that step ended by an exception
        return False


_MANY = 20_000  # shapes that are remembered from one count to the next
_known: tuple[int, dict[Any, Any]] = (-1, {})


def _plans() -> dict[Any, Any]:
    """What is known of operators and shapes from earlier counts, as long as no formula was registered since."""
    global _known
    if _known[0] != registry.version() or sum(len(plan.entries) for plan in list(_known[1].values())) > _MANY:
        _known = (registry.version(), {})
    return _known[1]


class Watcher(TorchDispatchMode):
    """Sees every operator of the threads it is entered in, and keeps the ledgers."""

    supports_higher_order_operators = True

    def __init__(self, attention: str = "auto", progress: Callable[[], None] | None = None) -> None:
        super().__init__()
        if attention not in ("auto", "flash", "math"):
            raise ValueError(f"attention={attention!r}: must be 'auto' (what ran; flash on meta), 'flash' or 'math'")
        self.attention = attention
        self.modules = Modules()
        self.entries: dict[Any, Entry] = {}
        self.plans = _plans()
        self.desugared: dict[Any, bool] = {}
        self.closed = False
        self.notes: set[str] = set()
        self.progress = progress
        self._here = threading.local()
        self._all: list[Here] = []
        self._functions = Functions(self)
        self._registered = registry.version()
        self._final: Ledger | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # torch would import its whole compiler to guard us against it
        return False

    # -- threads ----------------------------------------------------------------------------------------------

    @property
    def here(self) -> Here:
        """What is known of this thread."""
        found = getattr(self._here, "value", None)
        if found is None:
            found = self._here.value = Here(self, OUTSIDE)
            self._all.append(found)
            around = getattr(_local, "heres", ())
            _local.heres = (*(here for here in around if not here.watcher.closed), found)
        return found

    def threads(self) -> list[Here]:
        """Every thread that was seen."""
        return list(self._all)

    @contextlib.contextmanager
    def on_this_thread(self, base: Place = OUTSIDE) -> Iterator[None]:
        """Watch this thread until the block ends; what no module asks for belongs to *base*."""
        here = self.here
        if here.entered:  # a pool's thread, started while counting, that takes a task
            before, here.place = here.place, base
            try:
                yield
            finally:
                here.place = before
            return
        here.place, here.entered = base, True
        if here not in heres():
            _local.heres = (*heres(), here)
        try:
            with self._functions, self:
                yield
        finally:
            here.entered = False
            here.chain.close()
            _local.heres = tuple(other for other in heres() if other is not here)

    def on_top(self) -> None:
        """Watch from above a mode that was entered since."""
        self.__enter__()

    def off_top(self) -> None:
        """Undo `on_top`."""
        self.__exit__(None, None, None)

    def finish(self) -> None:
        """Stop watching: keep what was added up, and let go of all that was only needed on the way."""
        self.closed = True
        self._final = self.ledger()
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            rank, ranks = distributed.get_rank(), distributed.get_world_size()
            self.notes.discard(LOCAL)
            self.notes.add(f"rank {rank} of {ranks}: what is counted is this rank's local work")
        self._all.clear()
        self.plans = {}
        self.entries.clear()
        self.modules = Modules()

    def ledger(self) -> Ledger:
        """All threads' calls."""
        if self._final is not None:
            return self._final
        total = Ledger()
        for here in self.threads():
            total.take(here.ledger)
        return total

    # -- operators --------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        here = self.here
        if here.busy or self.closed:
            return func(*args, **kwargs)
        if types and self._desugars(types):
            return NotImplemented
        plan = self.plans.get(func)
        if plan is None or self._registered != registry.version():
            plan = self._plan(func)
        if plan.attends and here.place.region is None:  # called from where no Python sees it, such as TorchScript
            return regions.attention(self, lambda *a, **k: self._open(here, func, a, k, plan), args, kwargs)
        if plan.flexes:
            return flex.attention(self, func, args, kwargs)
        if plan.opens:
            if plan.nested is None or not any(t.is_nested for t in args[:2]):
                return self._open(here, func, args, kwargs, plan)
            plan = plan.nested
        key = entry = None
        if plan.constant is None and not plan.by_value:
            key = _key(plan, args, kwargs)
            try:
                entry = plan.entries.get(key)
            except (TypeError, RuntimeError):  # an argument that has no hash
                key = None
            if entry is not None and entry.results is not None and _on_meta(args) and not _modes():
                # A meta kernel only makes up a shape, slowly; this one was made up before.
                out = _made_up(entry.results)
                self._record(here, plan, func, args, kwargs, out, key, entry)
                return out
        here.busy += 1
        try:
            out = func(*args, **kwargs)
        finally:
            here.busy -= 1
        self._record(here, plan, func, args, kwargs, out, key, entry)
        return out

    def _record(
        self, here: Here, plan: Any, func: Any, args: Any, kwargs: Any, out: Any, key: Any, entry: Entry | None
    ) -> None:
        phase, place = here.where(2)
        region = place.region
        if plan.constant is not None:
            entry = plan.constant
            taken = region is not None
        else:
            with torch._C.DisableTorchFunction():
                if entry is None or plan.by_result:
                    entry = self._look_up(plan, func, args, kwargs, out, key)
                taken = region is not None and region.takes(here, entry, func, args, kwargs, out, phase, place)
                if taken:
                    pass
                elif plan.merges:
                    here.chain.extend(phase, plan, args, kwargs, out, entry)
                elif entry.work.status != FREE or entry.work.bytes:
                    here.chain.close()
        here.arithmetic += entry.work.status in (COUNTED, ELEMENTWISE)
        where = place.where(phase, taken)
        here.ledger.add(entry, where)
        if here.depth:
            here.ledger.hide(entry, where)
        if self.progress is not None:
            self.progress()

    def _look_up(self, plan: Any, func: Any, args: Any, kwargs: Any, out: Any, key: Any) -> Entry:
        if key is None:
            return self._entry(plan, func, args, kwargs, out, None)
        if plan.by_result:
            key = (key, _signature(out))
            entry: Entry | None = plan.entries.get(key)
            if entry is not None:
                return entry
        entry = plan.entries[key] = self._entry(plan, func, args, kwargs, out, key)
        if plan.fresh and _on_meta(args):
            entry.results = _recipe(out)
        return entry

    def _entry(self, plan: Any, func: Any, args: Any, kwargs: Any, out: Any, key: Any) -> Entry:
        call = Call(func, args, kwargs, out, _node() if _graph_task() != -1 else None)
        try:
            work = plan.formula(call)
        except Exception as error:  # a mistake of ours must not end the program of somebody else
            if registry.theirs(func) is not None:
                raise
            self.notes.add(f"{plan.op}: flopkit's formula failed ({type(error).__name__}: {error}); please report it")
            work = unknown(call.bytes())
        if key is not None:
            return Entry(plan.op, work, func, (func, *key))
        # Filed by what it came to, not by what it was made of: else each step could be a new line.
        shapes: Any
        try:
            shapes = (func, _signature(args), _signature(kwargs))
            hash(shapes)
        except (TypeError, RuntimeError):
            shapes = (func,)
        return self.entries.setdefault((shapes, repr(work)), Entry(plan.op, work, func, shapes))

    def _plan(self, func: Any) -> Any:
        if self._registered != registry.version():
            self.plans = _plans()
            self.entries.clear()
            self._registered = registry.version()
        plan = self.plans.get(func)
        if plan is None:
            plan = self.plans[func] = explain(func)
        return plan

    def _desugars(self, types: Any) -> bool:
        """Whether a tensor subclass is at work that runs its operators by others: those are the ones to count."""
        found = self.desugared.get(types)
        if found is None:
            found = any(inside.is_wrapper(kind) for kind in types)
            self.desugared[types] = found
            for kind in types:
                if "DTensor" in kind.__name__:
                    self.notes.add(LOCAL)
        return found

    # -- operators that are opened ----------------------------------------------------------------------------

    def _open(self, here: Here, func: Any, args: Any, kwargs: Any, plan: Any) -> Any:
        """Run an operator that no formula explains with its inside in view; it is unknown if no arithmetic was seen there."""
        kernel = inside.inside_of(func, args, kwargs)
        if kernel is None:
            here.busy += 1
            try:
                out = func(*args, **kwargs)
            finally:
                here.busy -= 1
            self._unknown(here, func, args, kwargs, out, plan)
            return out
        before = here.arithmetic
        here.depth += not plan.composite
        try:
            with self:
                out = kernel(*args, **kwargs)
        finally:
            here.depth -= not plan.composite
        if out is NotImplemented:
            return out
        if here.arithmetic == before and not plan.composite:
            self._unknown(here, func, args, kwargs, out, plan)
        return out

    def _unknown(self, here: Here, func: Any, args: Any, kwargs: Any, out: Any, plan: Any) -> None:
        phase, place = here.where(3)
        with torch._C.DisableTorchFunction():
            work = unknown(Call(func, args, kwargs, out).bytes())
        entry = self.entries.setdefault((func, repr(work)), Entry(plan.op, work, func, None))
        here.chain.close()
        here.ledger.add(entry, place.where(phase))

    def unseen(self, op: str, work: Work) -> None:
        """Put down a call that no dispatcher shows, such as a Triton kernel that was launched directly."""
        here = self.here
        phase, place = here.where(2)
        entry = self.entries.setdefault((op, repr(work)), Entry(op, work))
        here.chain.close()
        here.arithmetic += 1  # an operator that was opened need not be listed beside what ran inside
        where = place.where(phase)
        here.ledger.add(entry, where)
        if here.depth:
            here.ledger.hide(entry, where)


_ABOVE: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(regions.ATTENTION, regions.attention),
    **dict.fromkeys(complexes.CONVOLUTIONS, complexes.convolution),
    **dict.fromkeys(spectra.VALUES, spectra.values),
    **dict.fromkeys(fbgemm.PRODUCTS, fbgemm.product),
}
_ABOVE.update({func: layers.noting(func, _ABOVE.get(func)) for func in layers.FUNCTIONS})


class Functions(TorchFunctionMode):
    """Sees attention, and what else torch takes apart or does otherwise when it is watched, before the dispatcher does."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self.watcher = watcher

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        above = _ABOVE.get(func)
        if above is not None and not self.watcher.closed:
            return above(self.watcher, func, args, kwargs or {})
        if type(func) in _FUNCTIONS:
            return func(*args, **(kwargs or {}))
        if isinstance(func, torch._ops.HigherOrderOperator) and name_of(func) in FLEX and not self.watcher.closed:
            return flex.attention(self.watcher, func, args, kwargs or {})
        if isinstance(func, torch._ops.HigherOrderOperator) and inside.chooses(func, args):
            return inside.EAGER[name_of(func).split("::")[-1]](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


# torch.add, torch.Tensor.add, the getter of torch.Tensor.shape: what is called most, and is never attention by another name.
_FUNCTIONS = frozenset({types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodWrapperType})


def _signature(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, torch.Tensor):
        if value.layout is not _STRIDED:  # what it stores does not show in its shape
            raise TypeError(value.layout)
        return (value.shape, value.stride(), value.dtype)
    if kind is float or kind is complex:
        return kind, value == 0, value == 1  # beta=0: nothing is added to the product; p=1: no power is taken
    if kind is torch.ScriptObject:  # packed weights come in a new wrapper at each call
        return kind
    if isinstance(value, (list, tuple)):
        if value and type(value[0]) in (int, bool):  # a stride, a shape, a mask of outputs
            return tuple(value)
        return tuple([_signature(item) for item in value])
    if isinstance(value, dict):
        return tuple([(name, _signature(item)) for name, item in value.items()]) if value else ()
    hash(value)
    return value


def _shapes(values: Any, parts: list[Any]) -> list[Any]:
    """The signature of an element-wise operator: of a scalar it matters what kind it is, and whether it is 1 (as a factor often is)."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout is not _STRIDED:
                raise TypeError(value.layout)
            parts += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, (int, float, complex)):
            parts += (type(value), value == 1)
        elif isinstance(value, (list, tuple)):
            parts.append(tuple(_shapes(value, [])))
        else:
            parts.append(value)
    return parts


def _same(args: Any) -> Any:
    """Which arguments are one and the same tensor, for that is read once; None where each is another."""
    if len(args) < 2:
        if not args or not isinstance(args[0], (list, tuple)):
            return None
    elif len(args) == 2 and not isinstance(args[0], (list, tuple)):
        return args[0] is args[1] or None
    names = []
    for value in args:
        if isinstance(value, torch.Tensor):
            names.append(id(value))
        elif value and type(value) in (list, tuple) and type(value[0]) is not int:
            names += [id(tensor) for tensor in tensors(value)]
    if len(set(names)) == len(names):
        return None
    first: dict[int, int] = {}
    return tuple([first.setdefault(name, place) for place, name in enumerate(names)])


def _key(plan: Any, args: Any, kwargs: Any) -> Any:
    """What two calls have in common that cost the same; None where that cannot be said (a symbolic size, a sparse tensor)."""
    with torch._C.DisableTorchFunction():
        try:
            if plan.chained:  # the values of scalars do not change what an element-wise operator costs
                parts = _shapes(args, [_same(args)])
                return tuple(_shapes(kwargs.values(), [*parts, *kwargs])) if kwargs else tuple(parts)
            return (_signature(args), _signature(kwargs) if kwargs else None, _same(args))
        except (TypeError, RuntimeError):
            return None


def _on_meta(args: Any) -> bool:
    """Whether the first tensor has no numbers in it."""
    for value in args:
        if type(value) is list or type(value) is tuple:
            value = value[0] if value else None
        if isinstance(value, torch.Tensor):
            return value.is_meta and type(value) in (torch.Tensor, torch.nn.Parameter)
    return False


_META = torch.device("meta")


def _recipe(out: Any) -> Any:
    """How to make up *out* again; None where it is more than one or several strided meta tensors."""
    if isinstance(out, torch.Tensor):
        whole = type(out) is torch.Tensor and out.is_meta and out.layout is torch.strided and not out.is_quantized
        return (out.shape, out.stride(), out.dtype) if whole and out.storage_offset() == 0 else None
    if type(out) is tuple:
        parts = [None if part is None else _recipe(part) or False for part in out]
        return None if False in parts else parts
    return None


def _made_up(recipe: Any) -> Any:
    if type(recipe) is list:
        return tuple([None if part is None else _made_up(part) for part in recipe])
    shape, stride, dtype = recipe
    return torch.empty_strided(shape, stride, dtype=dtype, device=_META)
