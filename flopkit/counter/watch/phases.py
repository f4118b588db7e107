"""Inside of a backward pass: is an operator part of it, or forward work that is recomputed? The Python stack tells."""

from __future__ import annotations

import re
import sys
from types import CodeType, FrameType
from typing import Any

from flopkit.counter.watch.autograd import ENGINE

__all__ = ["backward_or_recompute", "is_on_stack"]

_CHECKPOINT = re.compile(r"Checkpoint\w*\.backward$|\b_?recompute_fn$")
_verdicts: dict[CodeType, str] = {}


def backward_or_recompute(frame: FrameType | None) -> str:
    """``"backward"`` or ``"recompute"``, by the callers of an operator.

    Autograd calls most operators from C++: the nearest Python frame is then the one that started the engine. Python code in between is a
    hook, the backward of a custom function, or a checkpoint, which is known by name: `torch.utils.checkpoint`, and the
    ``Checkpoint…Function.backward`` of other libraries.
    """
    while frame is not None:
        code = frame.f_code
        verdict = _verdicts.get(code)
        if verdict is None:
            if len(_verdicts) > 10_000:  # code that is made on the way, such as traced graphs
                _verdicts.clear()
            verdict = _verdicts[code] = _judge(code)
        if verdict:
            return verdict
        frame = frame.f_back
    return "backward"


def _judge(code: CodeType) -> str:
    if code is ENGINE:
        return "backward"
    if _CHECKPOINT.search(code.co_qualname) and "checkpoint" in (code.co_qualname + code.co_filename).lower():
        return "recompute"
    return ""


def is_on_stack(wanted: FrameType | CodeType, frame: Any = None) -> bool:
    """Whether *wanted* is among this thread's frames, or is the code of one."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if frame is wanted or frame.f_code is wanted:
            return True
        frame = frame.f_back
    return False
