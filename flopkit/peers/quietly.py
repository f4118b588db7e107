"""Other people's tools print, warn, draw random numbers and put functions of their own into torch: here nothing of it stays."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["one_at_a_time", "put_back", "quiet", "same_random_state"]

one_at_a_time = threading.RLock()
"""For whoever asks. stdout, the descriptors, the warning filters and torch's functions belong to all threads, and two that
replace and restore them at once would keep each other's replacement."""


@contextlib.contextmanager
def same_random_state() -> Iterator[None]:
    """torch's random state is afterwards what it was before, on the CPU and on the CUDA devices that are in use."""
    import torch

    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if in_use else ()  # asking must not start CUDA
    with torch.random.fork_rng(devices, device_type="cuda"):
        yield


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """What a tool replaces in torch is put back, also where it failed in between."""
    import torch

    kept = [(owner, dict(vars(owner))) for owner in (torch, torch.nn.functional, torch.Tensor)]
    try:
        yield
    finally:
        for owner, before in kept:
            for name, value in before.items():
                if vars(owner).get(name, value) is not value:
                    setattr(owner, name, value)
        for name in vars(torch.Tensor).keys() - before.keys():  # what it inherits was put there as its own
            delattr(torch.Tensor, name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing printed, by Python or beneath it: all that the process writes to its descriptors 1 and 2 is dropped."""
    with contextlib.ExitStack() as stack:
        streams = sys.stdout, sys.stderr
        for stream in streams:
            _flush(stream)  # what was printed before is still shown
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):  # it may be closed
                _to_nowhere(descriptor, stack)
        for stream in streams:
            stack.callback(_flush, stream)  # what a logger, say, still wrote to it goes nowhere
        yield


def _to_nowhere(descriptor: int, stack: contextlib.ExitStack) -> None:
    """What is written beneath Python, such as by the profiler's library, until *stack* closes."""
    kept = os.dup(descriptor)
    stack.callback(os.close, kept)
    stack.callback(os.dup2, kept, descriptor)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _flush(stream: Any) -> None:
    with contextlib.suppress(AttributeError, ValueError, OSError):  # there is none, it is closed, nobody reads it
        stream.flush()
