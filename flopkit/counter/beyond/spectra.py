"""Eigenvalues and singular values without their vectors.

Where nothing needs a gradient torch computes the values alone, at a fraction of the price. Under any dispatch mode, a counter's too, it
becomes cautious and takes the vectors along. So these calls are seen above the dispatcher, and made as they are without anybody
watching. Where C++ makes them (the condition number, a matrix norm, the rank), vectors are computed, and counted, when watched.
"""

from __future__ import annotations

from typing import Any

import torch

from flopkit.counter.watch.internals import has_tangents, transformation

__all__ = ["VALUES", "values"]


def _eigvalsh(A: Any, UPLO: str = "L") -> Any:
    return torch.ops.aten._linalg_eigh.default(A, UPLO, False)[0]


def _svdvals(A: Any, *, driver: str | None = None) -> Any:
    return torch.ops.aten._linalg_svd.default(A, False, False, driver=driver)[1]


def _eigvals(A: Any) -> Any:
    return torch.ops.aten._linalg_eigvals.default(A)


VALUES = {torch.linalg.eigvalsh: _eigvalsh, torch.linalg.svdvals: _svdvals, torch.linalg.eigvals: _eigvals}


def values(watcher: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Run one of them; as torch would where a gradient, a tangent or ``out=`` is asked for."""
    matrix: Any = args[0] if args else kwargs.get("A")
    if (
        not (type(matrix) in (torch.Tensor, torch.nn.Parameter) or type(matrix).__name__ == "FakeTensor")
        or (torch.is_grad_enabled() and matrix.requires_grad)
        or has_tangents()
        or transformation() is not None
        or kwargs.keys() - {"A", "UPLO", "driver"}
    ):
        return func(*args, **kwargs)
    return VALUES[func](*args, **kwargs)
