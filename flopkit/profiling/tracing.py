"""Steps under torch's profiler, and the trace of them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flopkit.profiling.events import LOADER, STEP, Trace, read_trace

__all__ = ["profiler_runs", "trace_of"]


def profiler_runs() -> bool:
    """Whether one of torch's profilers is at work."""
    import torch

    return bool(torch.autograd.profiler._is_profiler_enabled)


def _all_threads() -> Any:
    """What makes the profiler see the threads that a program starts; None in a torch that cannot."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        return None


def trace_of(turns: Sequence[tuple[Any, Callable[[], object]]], order: Sequence[int], name: str, record_shapes: bool = False) -> Trace:  # fmt: skip
    """Steps under torch's profiler, each that of its number in *turns*, under its settings; after one of each that is not kept."""
    import torch
    from torch.profiler import ProfilerActivity, record_function

    cuda: Any = torch.cuda
    on_gpu = cuda.is_available() and cuda.is_initialized()
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    wait = cuda.synchronize if on_gpu else lambda: None
    prof: Any = torch.profiler.profile(activities=kinds, record_shapes=record_shapes, experimental_config=_all_threads())  # fmt: skip
    with _unheard():
        prof.__enter__()
    try:
        for settings, run in turns:
            with settings():
                run()  # the first event of all takes the profiler milliseconds
        if not profiler_runs():
            raise ValueError(f"fn={name}: it runs torch's profiler, and only one can run; take it out of the step")
        wait()
        with _marked_iterators():
            for number, which in enumerate(order):
                settings, run = turns[which]
                with settings(), record_function(f"{STEP}{number}"):
                    run()
                    wait()
    finally:
        with _unheard():
            prof.__exit__(None, None, None)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        prof.export_chrome_trace(str(file))
        try:
            return read_trace(file)
        except ValueError:
            why = "they run in threads, which this version of torch does not show, or only the first time"
            raise ValueError(f"fn={name}: the profiler saw none of its operators: {why}") from None


@contextlib.contextmanager
def _marked_iterators() -> Iterator[None]:
    """A data loader's start, of its workers, too, is loading: torch marks only what it does for each batch."""
    from torch.profiler import record_function
    from torch.utils.data import DataLoader

    plain: Any = DataLoader.__iter__
    DataLoader.__iter__ = record_function(f"{LOADER}#__iter__")(plain)  # type: ignore[method-assign]
    try:
        yield
    finally:
        DataLoader.__iter__ = plain  # type: ignore[method-assign]


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Without the lines that the profiler writes past Python's standard error when it starts and when it ends; all others come through."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    with os.fdopen(kept, "wb", 0) as heard, tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            said.seek(0)
            heard.writelines(line for line in said if not line.startswith(b"USDT:"))
