"""torch's first products with packed weights: the library is called with no operator around it, so they are seen from above."""

from __future__ import annotations

from typing import Any

import torch

from flopkit.counter.calls import extent, numel, tensors
from flopkit.counter.work import counted

__all__ = ["PRODUCTS", "product"]

PRODUCTS = [
    getattr(torch, name)
    for name in (
        "fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation", "fbgemm_linear_int8_weight",
        "fbgemm_linear_int8_weight_fp32_activation",
    )
    if hasattr(torch, name)
]  # fmt: skip


def product(watcher: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A dense layer: each number of the output takes as many multiply-adds as the input has features."""
    out = func(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        given = args[0] if args else kwargs["input"]
        macs = numel(out) * int(given.shape[-1])
        moved = sum(extent(tensor) for tensor in tensors((args, kwargs, out)))
        watcher.unseen(func.__name__, counted(macs, moved))
    return out
