"""Seeing a module that is there already, or that is imported while something is counted."""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
from collections.abc import Callable, Collection
from typing import Any

__all__ = ["when_imported"]


def when_imported(stack: contextlib.ExitStack, names: Collection[str], act: Callable[[Any], None]) -> None:
    """Call *act* with each module of *names*: now, or once it is imported before *stack* is closed."""
    for name in names:
        if name in sys.modules:
            act(sys.modules[name])
    finder = _Finder(names, act)
    sys.meta_path.insert(0, finder)
    stack.callback(sys.meta_path.remove, finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself, but hands one of *names* to *act* once it is imported."""

    def __init__(self, names: Collection[str], act: Callable[[Any], None]) -> None:
        self.names = names
        self.act = act

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.names:
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        """Watch what *loader* loads next."""
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            load(module)
            if self in sys.meta_path:  # else nobody counts any more
                self.act(module)

        loader.exec_module = exec_module
