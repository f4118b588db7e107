"""Calls of `torch.jit.trace`: while one records, a shape that is looked at is recorded, too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["install", "is_done_again", "traces"]

_graph_task = torch._C._current_graph_task_id
_is_tracing = torch._C._is_tracing
traces: list[None] = []  # one for each call of `torch.jit.trace` under way, in whatever thread


def is_done_again() -> bool:
    """Whether what is called now is not to be put down: in a backward pass it is done again, in a trace what is looked at is recorded."""
    return _graph_task() != -1 or (bool(traces) and _is_tracing())


def install(stack: contextlib.ExitStack, replace: Callable[..., None]) -> None:
    """See traces begin and end until *stack* is closed. *replace* changes an attribute until then."""

    def tracing(original: Any) -> Any:
        def trace(*args: Any, **kwargs: Any) -> Any:
            traces.append(None)
            try:
                return original(*args, **kwargs)
            finally:
                traces.pop()

        return trace

    for owner, name in _TRACES:
        replace(stack, owner, name, tracing)
    if _is_tracing():  # what is traced counts
        traces.append(None)
        stack.callback(traces.pop)


_TRACES: list[tuple[Any, str]] = [
    (owner, name)
    for owner in (torch._C, torch._C.ScriptModule)
    for kind in ("function_from_trace", "graph_by_tracing", "method_from_trace")
    for name in (f"_create_{kind}", f"_create_{kind}_with_dict")
    if name in vars(owner)
]
