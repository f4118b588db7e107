"""Triton kernels that are launched directly, ``kernel[grid](...)``: no dispatcher shows them, so their launch passes by here.

A kernel with a formula (`flopkit.formula`) is counted by it; one without is a row of `uncounted` with the bytes of its tensor arguments,
each once. An autotuner's trials are not counted: the launch is one call, however many kernels it tries. What an operator launches that
has a formula of its own (`torch.library.triton_op` and `@fk.formula` on that) belongs to the operator.

A package that AOTInductor compiled calls its kernels from C++: it is a row of `uncounted`, too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from flopkit.counter import registry
from flopkit.counter.calls import OpCall, tensors
from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.internals import PACKAGES
from flopkit.counter.watch.state import heres
from flopkit.counter.work import Work, unknown

__all__ = ["MODULES", "install", "listed"]

# Classes whose `run` launches a kernel, by the module they are in: compiled, tuned, chosen by heuristics, interpreted.
MODULES: Mapping[str, tuple[str, ...]] = {
    "triton.runtime.jit": ("JITFunction",),
    "triton.runtime.autotuner": ("Autotuner", "Heuristics"),
    "triton.runtime.interpreter": ("InterpretedFunction",),
}


def install(changes: Changes, module: Any) -> None:
    """See the launches of a *module*, in `MODULES` or `PACKAGES`, until *changes* are undone."""
    for name in MODULES.get(module.__name__, ()):
        kind = getattr(module, name, None)
        if hasattr(kind, "run"):
            changes.replace(kind, "run", _launching)
        elif hasattr(kind, "__getitem__"):  # the interpreter, up to Triton 3.6: ``kernel[grid]`` makes what launches
            changes.replace(kind, "__getitem__", _indexing)
    if module.__name__ == PACKAGES and hasattr(module, "AOTICompiledModel"):
        changes.replace(module.AOTICompiledModel, "__call__", functools.partial(listed, "inductor.AOTICompiledModel"))


def _launching(original: Any) -> Any:
    def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        watching = (
            [] if kwargs.get("warmup") else [here for here in heres() if not here.watcher.closed and not here.busy]
        )
        if not watching:
            return original(kernel, *args, **kwargs)
        for here in watching:
            here.busy += 1  # the kernels beneath, an autotuner's trials, the interpreter's own operators: all of it is this launch
        try:
            out = original(kernel, *args, **kwargs)
        finally:
            for here in watching:
                here.busy -= 1
        given = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        for here in watching:
            here.watcher.unseen(f"triton.{_name(kernel)}", _work(kernel, args, given))
        return out

    return run


def _indexing(original: Any) -> Any:
    def __getitem__(kernel: Any, grid: Any) -> Any:
        launch = original(kernel, grid)
        return functools.partial(_launching(lambda _, *args, **kwargs: launch(*args, **kwargs)), kernel)

    return __getitem__


def listed(op: str, original: Any) -> Any:
    """A function that runs with no operator around it: a row of `uncounted`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        watching = [here for here in heres() if not here.watcher.closed and not here.busy]
        for here in watching:
            here.busy += 1
        try:
            out = original(*args, **kwargs)
        finally:
            for here in watching:
                here.busy -= 1
        for here in watching:
            with torch.DisableTorchFunction():
                work = unknown(OpCall(original, args, kwargs, out).bytes())
            here.watcher.unseen(op, work)
        return out

    return call


def _beneath(kernel: Any) -> list[Any]:
    """The kernel, and what it wraps: an autotuner its heuristics, those a compiled function, that one a Python function."""
    found = [kernel]
    while getattr(found[-1], "fn", None) is not None and len(found) < 10:
        found.append(found[-1].fn)
    return found


def _name(kernel: Any) -> str:
    return str(getattr(_beneath(kernel)[-1], "__name__", type(kernel).__name__))


def _work(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
    call = OpCall(kernel, args, kwargs, None)
    for each in _beneath(kernel):
        formula = registry.theirs(each)
        if formula is not None:
            return formula(call)
    found = {id(t): t for t in tensors((args, kwargs))}
    return unknown(OpCall(kernel, tuple(found.values()), {}, None).bytes())
