"""Which module is called: no mode is told, so the call of every module passes by here."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.modules.module as nn_module

from flopkit.counter.beyond import plain
from flopkit.counter.beyond.layers import note
from flopkit.counter.beyond.traced import traces
from flopkit.counter.watching.here import heres, local

__all__ = ["install"]

_Tensor = torch.Tensor
_modes = torch._C._len_torch_function_stack
_graph_task = torch._C._current_graph_task_id
_before, _after = nn_module._global_forward_pre_hooks, nn_module._global_forward_hooks


def install(stack: contextlib.ExitStack, replace: Callable[..., None]) -> None:
    """Have the call of a module pass by here until *stack* is closed. *replace* changes an attribute until then.

    An attribute of `torch.nn.Module` could be set instead; but Python then goes through its several hundred subclasses, now and when it is
    put back, and forgets what it knew of looking up their attributes: as much time as a hundred operators take that are counted. So the
    function stays, and its code is another one for a while. Where that cannot be (somebody put a function with a closure in its place),
    the attribute is set.
    """
    function: Any = torch.nn.Module.__call__
    code = getattr(function, "__code__", None)
    if code is None or code.co_freevars:
        replace(stack, torch.nn.Module, "__call__", lambda original: _passing(_calling(original)))
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


def _by_constant(module: Any, /, *args: Any, **kwargs: Any) -> Any:
    calling: Any = "in the place of this constant stands what is called"
    return calling(module, args, kwargs)


def _passing(calling: Any) -> Any:
    def __call__(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        return calling(module, args, kwargs)

    return __call__


def _calling(original: Any) -> Any:
    kinds = plain.kinds()

    def call(module: Any, args: Any, kwargs: Any) -> Any:
        watching = getattr(local, "heres", None) or heres()
        if len(watching) != 1:  # seldom, and a model has many modules
            return several(watching, module, args, kwargs)
        here = watching[0]
        if here.watcher.closed:
            return original(module, *args, **kwargs)
        here.call_module(module)
        try:
            if (
                (kind := type(module)) in kinds and len(args) == 1 and not kwargs and type(args[0]) is _Tensor
                and len(here.stack) > 1 and _modes() == 1 and _graph_task() == -1 and not traces and not _before and not _after
                and not module._forward_pre_hooks and not module._forward_hooks and "forward" not in module.__dict__
                and kinds[kind](module)
            ):  # fmt: skip
                out = plain.run(here, original, module, args[0])
                if out is not NotImplemented:
                    return out
            out = original(module, *args, **kwargs)
            note(here, module, args, kwargs, out)
            return out
        finally:
            here.leave()

    def several(watching: Any, module: Any, args: Any, kwargs: Any) -> Any:
        for here in (watching := tuple([here for here in watching if not here.watcher.closed])):
            here.call_module(module)
        try:
            out = original(module, *args, **kwargs)
            for here in watching:
                note(here, module, args, kwargs, out)
            return out
        finally:
            for here in watching:
                here.leave()

    return call
