"""What has to be changed in torch while something is counted, and is put back afterwards, whatever happens.

A dispatch mode sees operators. It isn't told which module is called, which threads are started, or that a call of attention begins. So
while at least one count is running, those calls pass by here. Nothing is put on any module or tensor.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _pop_mode_temporarily

from flopkit.counter.calls import name_of
from flopkit.counter.formulas import FLEX
from flopkit.counter.watch import attention, chunked, decompose, flex, launches, pipelines, threads
from flopkit.counter.watch.autograd import graph_task
from flopkit.counter.watch.changes import Changes, lock
from flopkit.counter.watch.internals import dispatch_modes
from flopkit.counter.watch.mode import Watcher
from flopkit.counter.watch.modules import registered
from flopkit.counter.watch.state import busy, counting_states, local, thread_states

COMPILED = "a function was compiled before: of its backward pass the kernels that the compiler made are not seen"
TORCH = str(Path(torch.__file__).parent) + os.sep  # not torchvision, torchao, …

_users = 0
_changes = Changes()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Change what has to be changed until the last of those who count is done."""
    global _users
    with lock:
        if _users == 0:
            with contextlib.ExitStack() as halfway:
                halfway.callback(_changes.close)
                _install(_changes)
                halfway.pop_all()
        _users += 1
    try:
        yield
    finally:
        with lock:
            _users -= 1
            if _users == 0:
                _changes.close()


def _install(changes: Changes) -> None:
    _deeper(changes)
    # While that flag says that a mode is at work, torch runs nothing that was compiled, also where the program asks for it (`set_stance`).
    if (tell := getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)) is not None:
        changes.callback(tell, _python_dispatch._is_in_any_mode_without_ignore_compile_internals)
        tell(True)
    # What `Module.__call__` calls: to set a method with a name like that one, Python goes through all subclasses of the module.
    changes.replace(torch.nn.Module, "_call_impl", _calling)
    changes.replace(torch.nn.Module, "_compiled_call_impl", lambda original: _Uncompiled())
    changes.callback(registered.found.clear)
    changes.callback(register_module_module_registration_hook(registered.add).remove)
    custom = torch.autograd.function.BackwardCFunction
    for name in {"apply", "apply_boxed"} & vars(custom).keys():
        changes.replace(custom, name, _applying)
    changes.callback(register_optimizer_step_pre_hook(_before_step).remove)
    changes.callback(register_optimizer_step_post_hook(_after_step).remove)
    _eager(changes)
    changes.replace(torch._ops.HigherOrderOperator, "__call__", _higher_order)
    if not hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        changes.replace(torch._ops.HigherOrderOperator, "dispatch", _dispatching)
    if (bias := sys.modules.get("torch.nn.attention.bias")) is not None:  # loading it loads the compiler
        changes.replace(bias.CausalBias, "__new__", _making)
        changes.replace(bias.CausalBias, "_dispatch", lambda original: staticmethod(attention.watched(original)))
    if (fakes := sys.modules.get("torch._subclasses.fake_tensor")) is not None:
        entered: dict[Any, list[contextlib.ExitStack]] = {}  # by mode and thread, what is to be undone level by level
        changes.replace(fakes.FakeTensorMode, "__enter__", functools.partial(_entering, entered))
        changes.replace(fakes.FakeTensorMode, "__exit__", functools.partial(_leaving, entered))
    for part in (attention, threads, launches, pipelines):
        part.install(changes)


def _deeper(changes: Changes) -> None:
    """A call of a module takes a frame more than uncounted, an operator some: what recurses as deep as Python lets it still may."""
    before = sys.getrecursionlimit()
    ours = before + before // 2 + 100

    def put_back() -> None:
        if sys.getrecursionlimit() == ours:  # else the program has set one of its own
            sys.setrecursionlimit(before)

    changes.callback(put_back)
    sys.setrecursionlimit(ours)


def _calling(original: Any) -> Any:
    """Go into the module's scope, and leave it afterwards."""

    def _call_impl(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # a strict export traces through here
            return original(module, *args, **kwargs)
        entered = []
        try:
            for state in thread_states():
                if not state.session.closed:
                    state.call_module(module)
                    entered.append(state)
            return original(module, *args, **kwargs)
        finally:
            for state in entered:
                state.leave()

    return _call_impl


class _Uncompiled:
    """Has `Module.__call__` pass over what `Module.compile` made. (TorchScript would take a property for one of the program's.)"""

    def __get__(self, module: Any, kind: Any = None) -> None:
        return None

    def __set__(self, module: Any, made: Any) -> None:
        vars(module)["_compiled_call_impl"] = made

    def __delete__(self, module: Any) -> None:
        vars(module).pop("_compiled_call_impl", None)


def _applying(original: Any) -> Any:
    """Remember that the backward pass of a custom function runs, and whether gradients were on when it began."""

    def apply(node: Any, *gradients: Any, **by_name: Any) -> Any:
        inside = local.custom_backwards
        task = graph_task()
        for state in thread_states():
            if task not in state.began:
                state.begin(task)
            if type(node).__name__ == "CompiledFunctionBackward":
                state.session.notes.add(COMPILED)
        run = chunked.as_one_call(original) if type(node).__name__ == chunked.NODE else original
        inside.append((task, torch.is_grad_enabled()))
        try:
            return run(node, *gradients, **by_name)
        finally:
            inside.pop()

    return apply


def _before_step(optimizer: Any, args: Any, kwargs: Any) -> Any:
    frame = sys._getframe(1)
    states = thread_states()
    for state in states:
        state.optimizers.append(frame)
    closure = kwargs.get("closure") if "closure" in kwargs else args[1] if len(args) > 1 else None
    if not states or not callable(closure):
        return None

    def outside() -> Any:
        for state in states:
            state.optimizers.append(None)
        try:
            return closure()
        finally:
            for state in states:
                if None in state.optimizers:
                    while state.optimizers.pop() is not None:
                        pass

    if "closure" in kwargs:
        return args, {**kwargs, "closure": outside}
    return (args[0], outside, *args[2:]), kwargs


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    for state in thread_states():
        if state.optimizers:
            state.optimizers.pop()


def _entering(entered: Any, original: Any) -> Any:
    """A fake-tensor mode that the program enters would hide its operators: the watcher goes on top of it. One that torch itself enters in
    order to find out shapes (DTensor, export) is no work of the program's."""

    def __enter__(mode: Any) -> Any:
        found = original(mode)
        undo, frame = contextlib.ExitStack(), sys._getframe(1)
        while frame.f_code.co_filename.endswith(("contextlib.py", "_contextlib.py")) and frame.f_back is not None:
            frame = frame.f_back
        if frame.f_code.co_filename.startswith(TORCH):
            undo.enter_context(busy(thread_states()))
        else:
            for state in thread_states():
                undo.enter_context(state.session.mode)
        entered.setdefault((mode, threading.get_ident()), []).append(undo)
        return found

    return __enter__


def _leaving(entered: Any, original: Any) -> Any:
    def __exit__(mode: Any, *error: Any) -> Any:
        if levels := entered.get((mode, threading.get_ident())):  # else it was entered before counting began
            levels.pop().close()
        return original(mode, *error)

    return __exit__


def _higher_order(original: Any) -> Any:
    """In order to differentiate FlexAttention or a branch, torch traces their functions. That is not the program, so they are met before."""

    def __call__(operator: Any, /, *args: Any, **kwargs: Any) -> Any:
        run: Any = functools.partial(original, operator)
        states = counting_states()
        if states and name_of(operator) in FLEX:
            for state in states:
                run = functools.partial(flex.attention, state, operator, run)
        elif states and decompose.can_follow(operator, args):
            run = decompose.EAGER[operator.name()]
        elif states and operator.name() in ("scan", "map_impl"):  # torch's own refuses to run under a mode
            run = launches.recorded_as_uncounted(operator.name(), functools.partial(_without_modes, run))
        return run(*args, **kwargs)

    return __call__


def _without_modes(run: Any, *args: Any, **kwargs: Any) -> Any:
    with _disable_current_modes():
        return run(*args, **kwargs)


def _dispatching(original: Any) -> Any:
    """An older torch calls a mode for a higher-order operator only if the two are known to each other. Ours is for all of them."""

    def dispatch(operator: Any, key: Any, /, *args: Any, **kwargs: Any) -> Any:
        modes = dispatch_modes()
        if key != torch.DispatchKey.Python or not modes or not isinstance(modes[-1], Watcher):
            return original(operator, key, *args, **kwargs)
        with _pop_mode_temporarily() as mode:
            return mode.__torch_dispatch__(operator, (), args, kwargs)

    return dispatch


def _making(original: Any) -> Any:
    """Attention's `CausalBias` is made by calling the class, which torch cannot do where a dispatch mode is at work."""

    def __new__(kind: Any, *args: Any, **kwargs: Any) -> Any:
        modes = dispatch_modes()
        if not all(isinstance(mode, Watcher) for mode in modes):
            return original(kind, *args, **kwargs)
        return _without_modes(original, kind, *args, **kwargs)

    return staticmethod(__new__)


@functools.cache
def _pass_over_us() -> None:
    """Have the compiler leave the counter's own frames alone, also where the program asks it to compile what is counted."""
    for name in ("mode", "cache", "state", "attention", "internals", "decompose", "origins"):
        sys.modules["torch._dynamo.trace_rules"].add(f"flopkit.counter.watch.{name}")


def _eager(changes: Changes) -> None:
    """Compiled functions run as they were written, and stay compiled. The compiler is not loaded for that: only if somebody asks for it."""

    def set_stance() -> None:
        stance = torch.compiler.set_stance("force_eager")
        stance.__enter__()
        changes.callback(stance.__exit__, None, None, None)
        _pass_over_us()

    if "torch._dynamo" in sys.modules:
        set_stance()
        return
    asked = False

    def compiling(original: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:
            nonlocal asked
            with lock:
                if _users and not asked:  # else it was kept from a count that has ended
                    asked = True
                    set_stance()
            return original(*args, **kwargs)

        return compile

    changes.replace(torch, "compile", compiling)
