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
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
    _pop_mode_temporarily,
)

from flopkit.counter.beyond import kernels, scripts
from flopkit.counter.watching import fakes, module_calls, threads
from flopkit.counter.watching.autograd import graph_task
from flopkit.counter.watching.functions import Functions
from flopkit.counter.watching.here import custom_backwards, heres
from flopkit.counter.watching.imports import apart, when_imported
from flopkit.counter.watching.watcher import Watcher

__all__ = ["installed"]

BIAS = "torch.nn.attention.bias"
COMPILED = "a function was compiled before: of its backward pass the kernels that the compiler made are not seen"

_lock = threading.RLock()
_users = 0
_undo: contextlib.ExitStack | None = None


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Change what has to be changed until the last of those who count is done."""
    global _users, _undo
    with _lock:
        if _users == 0:
            stack = _Changes()
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
    custom = torch.autograd.function.BackwardCFunction
    for name in {"apply", "apply_boxed"} & vars(custom).keys():
        _replace(stack, custom, name, _applying)
    _optimizers(stack)
    _replace(stack, torch.overrides, "has_torch_function", _asking)
    when_imported(stack, (BIAS,), lambda module: _replace(stack, module.CausalBias, "__new__", _making))
    apart(stack)
    _eager(stack)
    if not hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        _replace(stack, torch._ops.HigherOrderOperator, "dispatch", _dispatching)
    for room in (module_calls, threads, fakes, kernels, scripts):
        room.install(stack, _replace)


class _Changes(contextlib.ExitStack):
    """What is to be undone; attributes in a list, which is quicker than a function for each."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[tuple[Any, str, bool, Any]] = []
        self.callback(self._put_back)

    def _put_back(self) -> None:
        while self.replaced:
            owner, name, own, before = self.replaced.pop()
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)


def _replace(stack: Any, owner: Any, name: str, make: Any) -> None:
    lies = vars(owner)  # what a class hands out may be something else
    stack.replaced.append((owner, name, name in lies, lies.get(name)))
    setattr(owner, name, make(getattr(owner, name)))


def _applying(original: Any) -> Any:
    def apply(node: Any, *gradients: Any) -> Any:
        inside = custom_backwards()
        task = graph_task()
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


def _dispatching(original: Any) -> Any:
    """An older torch calls a mode for a higher-order operator only if the two are known to each other. Ours is for all of them."""

    def dispatch(operator: Any, key: Any, /, *args: Any, **kwargs: Any) -> Any:
        modes = _get_current_dispatch_mode_stack()
        if key != torch._C.DispatchKey.Python or not modes or not isinstance(modes[-1], Watcher):
            return original(operator, key, *args, **kwargs)
        with _pop_mode_temporarily() as mode:
            return mode.__torch_dispatch__(operator, (), args, kwargs)

    return dispatch


def _making(original: Any) -> Any:
    """Attention's `CausalBias` is made by calling the class, which torch cannot do where a dispatch mode is at work."""

    def __new__(kind: Any, *args: Any, **kwargs: Any) -> Any:
        modes = _get_current_dispatch_mode_stack()
        if not all(isinstance(mode, Watcher) for mode in modes):
            return original(kind, *args, **kwargs)
        with _disable_current_modes():
            return original(kind, *args, **kwargs)

    return staticmethod(__new__)


def _exporting(original: Any) -> Any:
    """What is exported strictly is traced by the compiler, up to torch 2.9, which traces nothing that is to run eagerly."""

    def export(*args: Any, **kwargs: Any) -> Any:
        with torch.compiler.set_stance("default"):
            found = original(*args, **kwargs)
        return functools.partial(export_now, found) if callable(found) else found

    def export_now(traced: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.compiler.set_stance("default"):
            return traced(*args, **kwargs)

    return export


def _eager(stack: contextlib.ExitStack) -> None:
    """Compiled functions run as they were written, and stay compiled. The compiler is not loaded for that: only if somebody asks for it."""

    def set_stance() -> None:
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        _replace(stack, torch._dynamo, "export", _exporting)

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
