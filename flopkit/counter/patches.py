"""What has to be changed in torch while something is counted, and is put back afterwards, whatever happens.

Three things do not announce themselves to a mode: which module is called, which threads are started, and compiled functions. While
at least one count is running, the call of a module, the start of a thread and of a pool's task, and the entry into a fake-tensor mode pass by
here. Nothing is put on any module or tensor.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from flopkit.counter import regions
from flopkit.counter.watch import Functions, heres

__all__ = ["installed"]

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
    _replace(stack, torch.nn.Module, "__call__", _calling)
    _replace(stack, threading.Thread, "start", _starting)
    _replace(stack, ThreadPoolExecutor, "submit", _submitting)
    _optimizers(stack)
    _scripts(stack)
    _replace(stack, torch.overrides, "has_torch_function", _asking)
    _eager(stack)
    if "torch._subclasses.fake_tensor" in sys.modules:
        _fake(stack)


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, make: Any) -> None:
    own = name in vars(owner)
    original = getattr(owner, name)
    setattr(owner, name, make(original))

    def put_back() -> None:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    stack.callback(put_back)


def _calling(original: Any) -> Any:
    def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
        watching = [here for here in heres() if not here.watcher.closed]
        for here in watching:
            here.call_module(module)
        try:
            return original(module, *args, **kwargs)
        finally:
            for here in watching:
                here.leave()

    return __call__


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
        target = getattr(thread, "_target", None)
        pool = getattr(target, "__module__", "") == "concurrent.futures.thread"  # its tasks are watched one by one
        if heres() and not pool and "run" not in vars(thread):
            run = _watched(thread.run)

            def once() -> None:
                del thread.run
                run()

            thread.run = once  # type: ignore[method-assign]
        original(thread)

    return start


def _submitting(original: Any) -> Any:
    def submit(pool: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return original(pool, _watched(fn), *args, **kwargs)

    return submit


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


def _as_region(watcher: Any, run: Any, *args: Any, **kwargs: Any) -> Any:
    return regions.attention(watcher, run, args, kwargs)


def _asking(original: Any) -> Any:
    """Transformer layers leave their fast path where a function mode is at work. Ours changes nothing: the path is that of the program."""
    plain = torch._C._disabled_torch_function_impl

    def has_torch_function(arguments: Any) -> Any:
        modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
        if not all(isinstance(mode, Functions) for mode in modes):
            return original(arguments)
        kinds = {type(argument) for argument in arguments} - {torch.Tensor}
        return any(getattr(kind, "__torch_function__", plain) is not plain for kind in kinds)

    return has_torch_function


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
    """A fake-tensor mode that is entered while counting would run its operators unseen: the watcher goes on top of it."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def entering(original: Any) -> Any:
        def __enter__(mode: Any) -> Any:
            found = original(mode)
            for here in heres():
                here.watcher.on_top()
            return found

        return __enter__

    def leaving(original: Any) -> Any:
        def __exit__(mode: Any, *error: Any) -> Any:
            for here in reversed(heres()):
                here.watcher.off_top()
            return original(mode, *error)

        return __exit__

    _replace(stack, FakeTensorMode, "__enter__", entering)
    _replace(stack, FakeTensorMode, "__exit__", leaving)
