"""A compiled function may count, too: the compiler leaves that, and what is counted, to Python. Nothing of torch is loaded for this."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, TypeVar

Function = TypeVar("Function")


def left_to_python(function: Function) -> Function:
    """Have *function* called as it is: marked as `torch.compiler.disable` would mark it, which loads the compiler."""
    vars(function)["_torchdynamo_disable"] = True
    vars(function)["_torchdynamo_disable_msg"] = "flopkit counts what runs: without fullgraph=True, or from outside"
    return function


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """In a function that is compiled: what it calls from here on runs as it was written."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    before = _compiler(None)
    try:
        yield
    finally:
        _compiler(before)


@left_to_python
def _compiler(callback: Any) -> Any:
    """Have *callback* look at what is called in this thread; who did before."""
    return sys.modules["torch._C._dynamo.eval_frame"].set_eval_frame(callback)
