"""Which module is called: no mode is told, so the call of every module passes by here."""

from __future__ import annotations

from typing import Any

import torch

from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.state import heres, local

__all__ = ["install"]


def install(changes: Changes) -> None:
    """Have the call of a module pass by here until *changes* are undone."""
    changes.redirect(torch.nn.Module, "__call__", _calling)


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
