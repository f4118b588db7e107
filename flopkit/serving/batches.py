"""How many sequences fit, and from which batch on decoding is limited by arithmetic, if it ever is."""

from __future__ import annotations

from typing import Any

from flopkit import devices
from flopkit.dtypes import DType
from flopkit.models import Model
from flopkit.models.catalogue import the_model
from flopkit.models.formats import Weights
from flopkit.serving.bounds import arithmetic
from flopkit.sizes import number

__all__ = ["batch_at_ridge", "intensity_limit", "largest_batch"]


def largest_batch(
    model: Model | str,
    device: Any,
    *,
    context: int,
    weights: Weights | None = None,
    kv_cache: DType | None = None,
    count: int = 1,
) -> int:
    """How many sequences of *context* tokens fit beside the weights; 0 where not even one does.

    >>> largest_batch("llama-3-70b", "h100-sxm", context=8192, count=8)
    185
    """
    model, device = the_model(model), devices.device(device)
    if device.memory is None:
        raise ValueError(f"{device.name}: its memory is not known; make a device with flopkit.Device(..., memory=...)")
    room = number("count", count) * device.memory - model.weight_bytes(weights)
    return max(0, int(room // model.kv_bytes(context=number("context", context), dtype=model.cache_format(kv_cache))))


def intensity_limit(
    model: Model | str, *, context: int, weights: Weights | None = None, kv_cache: DType | None = None
) -> float:
    """FLOPs per byte of a step of decoding that no batch passes: a sequence's FLOPs by the bytes that it adds.

    A sequence adds its cache and a row of the embedding; the weights are read once for all. More sequences bring the intensity closer to
    this limit. Where it lies below a device's ridge, decoding is memory-bound at every batch.

    >>> round(intensity_limit("llama-2-13b", context=8192)), round(intensity_limit("llama-3-70b", context=8192))
    (5, 60)
    """
    sizes: dict[str, Any] = {"context": number("context", context), "weights": weights, "kv_cache": kv_cache}
    some, twice = (
        the_model(model).decode(batch=batch, **sizes) for batch in (2**40, 2**41)
    )  # enough to choose every expert
    return float((twice.flops - some.flops) / (twice.bytes - some.bytes))


def batch_at_ridge(
    model: Model | str, device: Any, *, context: int, weights: Weights | None = None, kv_cache: DType | None = None, compute: DType | None = None
) -> int | None:  # fmt: skip
    """The first batch at which decoding is compute-bound; None where no batch is, because the caches alone keep the memory busy.

    Any number of equal devices gives the same answer. Whether so many sequences fit is another question: `largest_batch`.

    >>> batch_at_ridge("llama-3-70b", "h100-sxm", context=512), batch_at_ridge("llama-3-70b", "h100-sxm", context=8192)
    (453, None)
    """
    model, device = the_model(model), devices.device(device)
    ridge = arithmetic(model, device, weights, compute) / device.bandwidth
    if intensity_limit(model, context=context, weights=weights, kv_cache=kv_cache) <= ridge:
        return None

    def reached(batch: int) -> bool:
        return bool(model.decode(context=context, batch=batch, weights=weights, kv_cache=kv_cache).intensity >= ridge)

    low, high = 0, 1  # the intensity grows with the batch
    while not reached(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
