"""What has to be changed in torch while something is counted, and is put back afterwards, whatever happens.

Some things do not announce themselves to a mode: which module is called, which threads are started, compiled functions, and custom
functions whose backward pass runs their forward pass again. While at least one count is running, the call of a module, the start of a thread
and of a pool's task, the backward of a custom function, and the entry into a fake-tensor mode pass by here. Nothing is put on any
module or tensor.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from flopkit.counter.beyond import kernels, layers, regions, scripts
from flopkit.counter.watching.here import custom_backwards, heres
from flopkit.counter.watching.imports import when_imported
from flopkit.counter.watching.watcher import Functions, Watcher

__all__ = ["installed"]

POOLS = frozenset({"concurrent.futures.thread", "multiprocessing.pool"})  # their tasks are watched one by one
BIAS = "torch.nn.attention.bias"
COMPILED = "a function was compiled before: of its backward pass the kernels that the compiler made are not seen"

_TORCH = str(Path(torch.__file__).parent)
_lock = threading.RLock()
_users = 0
_undo: contextlib.ExitStack | None = None


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Change what has to be changed until the last of those who count is done."""
    global _users, _undo
    with _lock:
        if _users == 0:
            stack = contextlib.ExitStack()
            with contextlib.ExitStack() as building:
                building.push(stack)
                _install(stack)
                building.pop_all()
            _undo = stack
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _undo is not None:
                _undo.close()
                _undo = None


def _install(stack: contextlib.ExitStack) -> None:
    _modules(stack)
    _replace(stack, threading.Thread, "start", _starting)
    _replace(stack, ThreadPoolExecutor, "submit", _submitting)
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        _replace(stack, ThreadPool, name, _submitting)
    custom = torch.autograd.function.BackwardCFunction
    for name in {"apply", "apply_boxed"} & vars(custom).keys():
        _replace(stack, custom, name, _applying)
    _optimizers(stack)
    _scripts(stack)
    _replace(stack, torch.overrides, "has_torch_function", _asking)
    when_imported(stack, (BIAS,), lambda module: _replace(stack, module.CausalBias, "__new__", _making))
    _eager(stack)
    kernels.install(stack, _replace)
    scripts.install(stack, _replace)
    _traces(stack)
    if "torch._subclasses.fake_tensor" in sys.modules:
        _fake(stack)


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, make: Any) -> None:
    own = name in vars(owner)
    before = vars(owner).get(name)  # as it lies there: what a class hands out may be something else
    setattr(owner, name, make(getattr(owner, name)))

    def put_back() -> None:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)

    stack.callback(put_back)


def _modules(stack: contextlib.ExitStack) -> None:
    """Have the call of a module pass by here.

    An attribute of `torch.nn.Module` could be set instead; but Python then goes through its several hundred subclasses, now and when it is
    put back, and forgets what it knew of looking up their attributes: as much time as a hundred operators take that are counted. So the
    function stays, and its code is another one for a while. Where that cannot be (somebody put a function with a closure in its place),
    the attribute is set.
    """
    function: Any = torch.nn.Module.__call__
    code = getattr(function, "__code__", None)
    if code is None or code.co_freevars:
        _replace(stack, torch.nn.Module, "__call__", lambda original: _passing(_calling(original)))
        return
    original = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    ours, calling = _by_constant.__code__, _calling(original)
    consts = tuple([calling if const == _CALLING else const for const in ours.co_consts])
    function.__code__ = ours.replace(co_consts=consts, co_name=code.co_name)  # the name that tracebacks and torch go by

    def put_back() -> None:
        function.__code__ = code

    stack.callback(put_back)


_CALLING = "in the place of this constant stands what is called"


def _by_constant(module: Any, *args: Any, **kwargs: Any) -> Any:
    calling: Any = "in the place of this constant stands what is called"
    return calling(module, args, kwargs)


def _passing(calling: Any) -> Any:
    def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
        return calling(module, args, kwargs)

    return __call__


def _calling(original: Any) -> Any:
    def call(module: Any, args: Any, kwargs: Any) -> Any:
        watching = heres()
        if len(watching) != 1 or watching[0].watcher.closed:
            return several([here for here in watching if not here.watcher.closed], module, args, kwargs)
        here = watching[0]  # the same as below, in the time that a count has
        here.call_module(module)
        try:
            out = original(module, *args, **kwargs)
            layers.note(here, module, args, kwargs, out)
            return out
        finally:
            here.leave()

    def several(watching: list[Any], module: Any, args: Any, kwargs: Any) -> Any:
        for here in watching:
            here.call_module(module)
        try:
            out = original(module, *args, **kwargs)
            for here in watching:
                layers.note(here, module, args, kwargs, out)
            return out
        finally:
            for here in watching:
                here.leave()

    return call


def _watched(run: Any) -> Any:
    """*run*, to be watched in another thread by whoever watches this one."""
    watchers = [(here.watcher, here.place) for here in heres() if not here.watcher.closed]
    if not watchers:
        return run

    def watched(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for watcher, place in watchers:
                if not watcher.closed:
                    stack.enter_context(watcher.on_this_thread(place))
                    watcher.here.ledger.foreign = True
            return run(*args, **kwargs)

    return watched


def _starting(original: Any) -> Any:
    def start(thread: threading.Thread) -> None:
        pool = getattr(getattr(thread, "_target", None), "__module__", "") in POOLS
        if heres() and not pool and "run" not in vars(thread):
            run = _watched(thread.run)

            def once() -> None:
                del thread.run
                run()

            thread.run = once  # type: ignore[method-assign]
            try:
                original(thread)
            except BaseException:  # it did not start
                vars(thread).pop("run", None)
                raise
            return
        original(thread)

    return start


def _submitting(original: Any) -> Any:
    def submit(pool: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return original(pool, _watched(fn), *args, **kwargs)

    return submit


def _applying(original: Any) -> Any:
    def apply(node: Any, *gradients: Any) -> Any:
        inside = custom_backwards()
        task = torch._C._current_graph_task_id()
        inside.append((task, torch.is_grad_enabled()))
        for here in heres():
            if task not in here.began:
                here.begin(task)
        if type(node).__name__ == "CompiledFunctionBackward":
            for here in heres():
                here.watcher.notes.add(COMPILED)
        try:
            return original(node, *gradients)
        finally:
            inside.pop()

    return apply


def _optimizers(stack: contextlib.ExitStack) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
        frame = sys._getframe(1)
        watching = heres()
        for here in watching:
            here.optimizers.append(frame)
        closure = kwargs.get("closure") if "closure" in kwargs else args[1] if len(args) > 1 else None
        if not watching or not callable(closure):
            return None

        def outside() -> Any:
            for here in watching:
                here.optimizers.append(None)
            try:
                return closure()
            finally:
                for here in watching:
                    if None in here.optimizers:
                        while here.optimizers.pop() is not None:
                            pass

        if "closure" in kwargs:
            return args, {**kwargs, "closure": outside}
        return (args[0], outside, *args[2:]), kwargs

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        for here in heres():
            if here.optimizers:
                here.optimizers.pop()

    stack.callback(register_optimizer_step_pre_hook(before).remove)
    stack.callback(register_optimizer_step_post_hook(after).remove)


def _scripts(stack: contextlib.ExitStack) -> None:
    """TorchScript calls attention from C++, where no function mode sees it: for a while the operator's own kernel tells."""
    op = torch.ops.aten.scaled_dot_product_attention.default

    def attention(*args: Any, **kwargs: Any) -> Any:
        run: Any = op.decompose
        for here in heres():
            if not here.watcher.closed and here.place.region is None:
                run = functools.partial(_as_region, here.watcher, run)
        return run(*args, **kwargs)

    library = torch.library.Library("aten", "IMPL")
    stack.callback(library._destroy)
    for device in ("CPU", "CUDA", "Meta"):
        library.impl("scaled_dot_product_attention", attention, f"Autograd{device}")


def _traces(stack: contextlib.ExitStack) -> None:
    """While `torch.jit.trace` records, a shape that is looked at is recorded, too: nothing is put down of what is called meanwhile."""

    def tracing(original: Any) -> Any:
        def trace(*args: Any, **kwargs: Any) -> Any:
            layers.traces.append(None)
            try:
                return original(*args, **kwargs)
            finally:
                layers.traces.pop()

        return trace

    for owner, name in _TRACES:
        _replace(stack, owner, name, tracing)
    if torch._C._is_tracing():  # what is traced counts
        layers.traces.append(None)
        stack.callback(layers.traces.pop)


_TRACES: list[tuple[Any, str]] = [
    (owner, name)
    for owner in (torch._C, torch._C.ScriptModule)
    for kind in ("function_from_trace", "graph_by_tracing", "method_from_trace")
    for name in (f"_create_{kind}", f"_create_{kind}_with_dict")
    if name in vars(owner)
]


def _as_region(watcher: Any, run: Any, *args: Any, **kwargs: Any) -> Any:
    return regions.attention(watcher, run, args, kwargs)


def _asking(original: Any) -> Any:
    """Transformer layers leave their fast path where a function mode is at work. Ours changes nothing: the path is that of the program."""
    plain = torch._C._disabled_torch_function_impl

    def has_torch_function(arguments: Any) -> Any:
        modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
        layer = sys._getframe(1).f_globals.get("__name__", "").startswith("torch.nn.modules.")
        if not layer or not all(isinstance(mode, Functions) for mode in modes):
            return original(arguments)
        kinds = {type(argument) for argument in arguments} - {torch.Tensor}
        return any(getattr(kind, "__torch_function__", plain) is not plain for kind in kinds)

    return has_torch_function


def _making(original: Any) -> Any:
    """Attention's `CausalBias` is made by calling the class, which torch cannot do where a dispatch mode is at work."""

    def __new__(kind: Any, *args: Any, **kwargs: Any) -> Any:
        modes = _get_current_dispatch_mode_stack()
        if not all(isinstance(mode, Watcher) for mode in modes):
            return original(kind, *args, **kwargs)
        with _disable_current_modes():
            return original(kind, *args, **kwargs)

    return staticmethod(__new__)


def _eager(stack: contextlib.ExitStack) -> None:
    """Compiled functions run as they were written, and stay compiled. The compiler is not loaded for that: only if somebody asks for it."""

    def set_stance() -> None:
        stack.enter_context(torch.compiler.set_stance("force_eager"))

    if "torch._dynamo" in sys.modules:
        set_stance()
        return
    asked = False

    def compiling(original: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:
            nonlocal asked
            with _lock:
                if not asked:
                    asked = True
                    set_stance()
            return original(*args, **kwargs)

        return compile

    _replace(stack, torch, "compile", compiling)


def _fake(stack: contextlib.ExitStack) -> None:
    """A fake-tensor mode that is entered while counting would run its operators unseen: the watcher goes on top of it.

    Not where torch itself enters one, in order to find out shapes: that is no work of the program's.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    entered: dict[Any, list[tuple[bool, Any]]] = {}  # what was done about it, level by level

    def entering(original: Any) -> Any:
        def __enter__(mode: Any) -> Any:
            found = original(mode)
            shapes = _torch_asks(sys._getframe(1))
            for here in (watching := heres()):
                if shapes:
                    here.busy += 1
                else:
                    here.watcher.on_top()
            entered.setdefault(mode, []).append((shapes, watching))
            return found

        return __enter__

    def leaving(original: Any) -> Any:
        def __exit__(mode: Any, *error: Any) -> Any:
            levels = entered.get(mode)
            shapes, watching = levels.pop() if levels else (True, ())  # entered before counting began
            for here in reversed(watching):
                if shapes:
                    here.busy -= 1
                else:
                    here.watcher.off_top()
            return original(mode, *error)

        return __exit__

    _replace(stack, FakeTensorMode, "__enter__", entering)
    _replace(stack, FakeTensorMode, "__exit__", leaving)


def _torch_asks(frame: Any) -> bool:
    """Whether the nearest caller that is no context manager is a part of torch."""
    while frame is not None and frame.f_code.co_filename.endswith(("contextlib.py", "_contextlib.py")):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)
