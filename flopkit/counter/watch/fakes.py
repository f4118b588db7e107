"""Fake-tensor modes that are entered while something is counted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.state import thread_states

__all__ = ["install"]

_TORCH = str(Path(torch.__file__).parent)


def install(changes: Changes) -> None:
    """A mode that the program enters would hide its operators: the watcher goes on top of it. One that torch itself enters in order to find
    out shapes (DTensor, export) is no work of the program's: nothing counts inside."""
    if "torch._subclasses.fake_tensor" not in sys.modules:
        return
    from torch._subclasses.fake_tensor import FakeTensorMode

    entered: dict[Any, list[tuple[bool, Any]]] = {}  # by mode, level by level: whether torch entered it, and who watched

    def entering(original: Any) -> Any:
        def __enter__(mode: Any) -> Any:
            found = original(mode)
            by_torch, states = _torch_asks(sys._getframe(1)), thread_states()
            for state in states:
                if by_torch:
                    state.busy += 1
                else:
                    state.watcher.__enter__()
            entered.setdefault(mode, []).append((by_torch, states))
            return found

        return __enter__

    def leaving(original: Any) -> Any:
        def __exit__(mode: Any, *error: Any) -> Any:
            levels = entered.get(mode)
            by_torch, states = levels.pop() if levels else (True, ())  # entered before counting began
            for state in reversed(states):
                if by_torch:
                    state.busy -= 1
                else:
                    state.watcher.__exit__(None, None, None)
            return original(mode, *error)

        return __exit__

    changes.replace(FakeTensorMode, "__enter__", entering)
    changes.replace(FakeTensorMode, "__exit__", leaving)


def _torch_asks(frame: Any) -> bool:
    """Whether the nearest caller that is no context manager is a part of torch."""
    while frame is not None and frame.f_code.co_filename.endswith(("contextlib.py", "_contextlib.py")):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)
