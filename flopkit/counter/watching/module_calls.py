"""Which module is called: no mode is told, so the call of every module passes by here."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch

from flopkit.counter.watching.here import heres, local

__all__ = ["install"]


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
    def call(module: Any, args: Any, kwargs: Any) -> Any:
        watching = getattr(local, "heres", None) or heres()
        if len(watching) != 1:  # seldom, and a model has many modules
            return several(watching, module, args, kwargs)
        here = watching[0]
        if here.watcher.closed:
            return original(module, *args, **kwargs)
        here.call_module(module)
        try:
            return original(module, *args, **kwargs)
        finally:
            here.leave()

    def several(watching: Any, module: Any, args: Any, kwargs: Any) -> Any:
        for here in (watching := tuple([here for here in watching if not here.watcher.closed])):
            here.call_module(module)
        try:
            return original(module, *args, **kwargs)
        finally:
            for here in watching:
                here.leave()

    return call
