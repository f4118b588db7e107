"""Changes to torch and to Python that are undone when nobody counts any more."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

__all__ = ["Changes", "catch_up", "lock", "waiting"]

lock = threading.RLock()
waiting: list[Callable[[], None]] = []  # changes that take long, and are made once they can matter


def catch_up() -> None:
    """Make the changes that are waiting. No other thread goes on before that is done."""
    if waiting:
        with lock:
            while waiting:
                waiting[-1]()
                waiting.pop()


_redirected: dict[tuple[Any, str], tuple[Any, Any, Any]] = {}  # function, its code, and ours


def _by_constant(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
    calling: Any = "in the place of this constant stands what is called"
    return calling(owner, args, kwargs)


def _passing(calling: Any, name: str) -> Any:
    """The code of a function that passes by *calling*, under the *name* that tracebacks and torch go by."""
    ours = _by_constant.__code__
    return ours.replace(co_consts=tuple([calling if const else const for const in ours.co_consts]), co_name=name)


class Changes:
    """What is to be undone, the last first."""

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def callback(self, act: Callable[..., Any], *given: Any) -> None:
        """Call *act* in the end."""
        self._undo.append((act, given))

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put what *make* makes of an attribute in its place."""
        lies = vars(owner)  # what a class hands out may be something else
        self._undo.append((setattr, (owner, name, lies[name])) if name in lies else (delattr, (owner, name)))
        setattr(owner, name, make(getattr(owner, name)))

    def redirect(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Have a method pass by what *make* makes of it: a function of the object, a tuple of arguments, and a dict of those by name.

        The attribute could be set instead; but Python then goes through its owner's subclasses (of a module several hundred), now and
        when it is put back, and forgets what it knew of looking up their attributes: as much time as a hundred operators take that are
        counted. So the function stays, and its code is another one for a while, made once. Where that cannot be (somebody put a
        function with a closure in its place), the attribute is set.
        """
        function = getattr(owner, name)
        code = getattr(function, "__code__", None)
        if code is None or code.co_freevars:
            self.replace(owner, name, lambda original: types.FunctionType(_passing(make(original), name), {}))
            return
        known = _redirected.get((owner, name), (None, None, None))
        if known[:2] != (function, code):
            original = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
            original.__kwdefaults__ = function.__kwdefaults__
            known = _redirected[owner, name] = function, code, _passing(make(original), code.co_name)
        self._undo.append((setattr, (function, "__code__", code)))
        function.__code__ = known[2]

    def close(self) -> None:
        """Undo everything, whatever fails on the way."""
        try:
            while self._undo:
                act, given = self._undo.pop()
                act(*given)
        finally:
            if self._undo:
                self.close()
