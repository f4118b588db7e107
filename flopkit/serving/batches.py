"""From which batch on decoding is limited by arithmetic, if it ever is: as a whole, and in its dense layers."""

from __future__ import annotations

from typing import Any

from flopkit import devices
from flopkit.dtypes import DType
from flopkit.models import Model
from flopkit.models.caches import CacheFormat
from flopkit.models.catalogue import the_model
from flopkit.models.formats import Weights
from flopkit.models.serving.serving_pass import decoded
from flopkit.serving.bounds import arithmetic
from flopkit.sizes import choice, number

__all__ = ["batch_at_ridge", "intensity_limit"]

PARTS = ("step", "dense", "experts", "cache")


def intensity_limit(
    model: Model | str, *, context: int, weights: Weights | None = None, kv_cache: CacheFormat | None = None, source: int | None = None
) -> float:  # fmt: skip
    """FLOPs per byte of a step of decoding that no batch passes: a sequence's FLOPs by the bytes that it adds.

    A sequence adds its cache and a row of the embedding; the weights are read once for all. More sequences bring the intensity closer to
    this limit. Where it lies below a device's ridge, decoding is memory-bound at every batch.

    >>> round(intensity_limit("llama-2-13b", context=8192)), round(intensity_limit("llama-3-70b", context=8192))
    (5, 60)
    """
    sizes: dict[str, Any] = {"context": number("context", context), "weights": weights, "kv_cache": kv_cache}
    sizes["source"] = source
    some, twice = (
        the_model(model).decode(batch=batch, **sizes) for batch in (2**40, 2**41)
    )  # enough to choose every expert
    return float((twice.flops - some.flops) / (twice.bytes - some.bytes))


def batch_at_ridge(
    model: Model | str, device: Any, *, context: int, weights: Weights | None = None, kv_cache: CacheFormat | None = None, compute: DType | None = None,
    part: str = "step", source: int | None = None,
) -> int | None:  # fmt: skip
    """The first batch at which decoding is compute-bound; None where no batch is, because the caches alone keep the memory busy.

    Any number of equal devices gives the same answer. Whether so many sequences fit is another question: `largest_batch`. The
    other parameters are those of `decode`.

    Parameters
    ----------
    context : int
        Tokens of a sequence.
    part : str, optional
        Of what: ``"step"``, all arithmetic beside all reading, as where everything overlaps; ``"dense"``, the dense layers alone, which
        are compute-bound from there on where layers run in order; ``"experts"``, the experts; ``"cache"``, attention's core.
    source : int, optional
        Of an encoder-decoder: tokens that its encoder has read, as in `Model.decode`.

    Examples
    --------
    >>> batch_at_ridge("llama-3-70b", "h100-sxm", context=512), batch_at_ridge("llama-3-70b", "h100-sxm", context=8192)
    (453, None)
    >>> [batch_at_ridge("llama-3-70b", "h100-sxm", context=8192, part=part) for part in ("dense", "cache")]
    [296, None]
    """
    model, device = the_model(model), devices.device(device)
    choice("part", part, PARTS)
    sizes: dict[str, Any] = {"context": number("context", context), "weights": weights, "kv_cache": kv_cache}
    sizes["source"] = source
    ridge = arithmetic(model, device, weights, compute) / device.bandwidth
    if part == "step" and intensity_limit(model, **sizes) <= ridge:
        return None

    def reached(batch: int) -> bool:
        if part == "step":
            return bool(model.decode(batch=batch, **sizes).intensity >= ridge)
        found = decoded(model, batch=batch, new=1, experts="most", **sizes).grouped().get(part)
        return found is not None and bool(found.flops >= ridge * found.bytes)

    low, high = 0, 1  # the intensity grows with the batch
    while not reached(high):
        low, high = high, 2 * high
        if high > 2**40:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
