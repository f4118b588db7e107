"""Other people's tools print, warn, and put functions of their own into torch: here nothing of it stays."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator

__all__ = ["put_back", "quiet"]


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
    """Nothing printed, by Python or beneath it."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        with contextlib.suppress(OSError):  # what is written beneath Python, such as by the profiler's library
            kept = os.dup(2)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 2)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 2)
            os.close(nowhere)
        yield
