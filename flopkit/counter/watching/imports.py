"""Modules that are imported while something is counted: those that something is to be done about, and torch's own."""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
from collections.abc import Callable, Collection
from typing import Any

from flopkit.counter.watching.here import heres

__all__ = ["apart", "when_imported"]


def when_imported(stack: contextlib.ExitStack, names: Collection[str], act: Callable[[Any], None]) -> None:
    """Call *act* with each module of *names*: now, or once it is imported before *stack* is closed."""
    for name in names:
        if name in sys.modules:
            act(sys.modules[name])

    def loading(load: Callable[[Any], None], module: Any) -> None:
        load(module)
        if finder in sys.meta_path:  # else nobody counts any more
            act(module)

    finder = _Finder(names.__contains__, loading)
    sys.meta_path.insert(0, finder)
    stack.callback(sys.meta_path.remove, finder)


def apart(stack: contextlib.ExitStack) -> None:
    """Count nothing of what torch calculates while a part of it is imported, until *stack* is closed: it is no work of the program's.

    The first `torch.vmap` of torch 2.6 imports the compiler, which tries out `torch.dot`.
    """

    def loading(load: Callable[[Any], None], module: Any) -> None:
        watching = heres()
        for here in watching:
            here.busy += 1
        try:
            load(module)
        finally:
            for here in watching:
                here.busy -= 1

    finder = _Finder(lambda name: name.startswith("torch."), loading)
    sys.meta_path.insert(0, finder)
    stack.callback(sys.meta_path.remove, finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself, but has a module whose name is *wanted* loaded by *loading*, which is given what loads it, and the module."""

    def __init__(self, wanted: Callable[[str], bool], loading: Callable[[Callable[[Any], None], Any], None]) -> None:
        self.wanted = wanted
        self.loading = loading

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not self.wanted(name):
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]  # those before were asked, and may ask this one
        found = (finder.find_spec(name, path, target) for finder in behind)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        """Watch what *loader* loads next."""
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            vars(loader).pop("exec_module", None)  # another finder may have taken it off already
            self.loading(load, module)

        loader.exec_module = exec_module
