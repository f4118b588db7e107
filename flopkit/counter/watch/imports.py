"""Modules that are imported while something is counted: those that something is to be done about, and torch's own."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Mapping
from typing import Any

from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.state import heres

__all__ = ["watch"]


def watch(changes: Changes, acts: Mapping[str, Callable[[Changes, Any], None]]) -> None:
    """Act on each module that *acts* names: now, or once it is imported before *changes* are undone. Until then nothing is counted of
    what torch calculates while a part of it is imported: it is no work of the program's.

    The first `torch.vmap` of torch 2.6 imports the compiler, which tries out `torch.dot`.
    """
    for name in acts:
        if name in sys.modules:
            acts[name](changes, sys.modules[name])

    def loading(load: Callable[[Any], None], module: Any) -> None:
        name = module.__name__
        watching = heres() if name.startswith("torch.") else ()
        for here in watching:
            here.busy += 1
        try:
            load(module)
        finally:
            for here in watching:
                here.busy -= 1
        if name in acts and finder in sys.meta_path:  # else nobody counts any more
            acts[name](changes, module)

    finder = _Finder(lambda name: name.startswith("torch.") or name in acts, loading)
    sys.meta_path.insert(0, finder)
    changes.callback(sys.meta_path.remove, finder)


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
