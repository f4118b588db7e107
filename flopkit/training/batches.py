"""How many sequences or images of a training step fit on a device."""

from __future__ import annotations

from typing import Any

from flopkit import devices
from flopkit.sizes import short

__all__ = ["largest_batch"]


def largest_batch(model: Any, device: Any, **how: Any) -> int:
    """The largest batch whose training step, the gradients of its loss included, fits in
    what programs can allocate on a device (`Device.available`); 0 where not even one sequence or image does.

    Parameters
    ----------
    model : Any
        What has a ``train_memory``: a `Model`, a `ConvNet`.
    device : Any
        A `Device`, or its name.
    **how : Any
        All but the batch that its ``train_memory`` takes: *seq*, *recompute*,
        *precision*, *optimizer*, *trained*, *shards* and so on. With *shards* the batch
        is that of each device.

    Raises
    ------
    ValueError
        For a device whose memory is not known.

    Notes
    -----
    `Memory` says what is not counted: leave room for it. What an allocator breaks into
    pieces that are too small, and the CUDA context, take some percent of a device.

    Examples
    --------
    >>> from flopkit import load
    >>> llama = load("llama-3.2-1b")
    >>> largest_batch(llama, "h100-sxm", seq=8192), largest_batch(llama, "h100-sxm", seq=8192, recompute="full")
    (2, 4)
    >>> largest_batch(load("llama-3-8b"), "h100-sxm", seq=1024)
    0
    >>> largest_batch(load("llama-3-8b"), "h100-sxm", seq=8192, precision="fsdp", shards=64)
    1
    """
    memory = devices.memory_of(devices.device(device))
    if "batch" in how:
        raise TypeError(f"batch={short(how['batch'])}: the batch is what largest_batch finds; leave it out")

    def fits(batch: int) -> bool:
        return bool(model.train_memory(batch=batch, **how).peak <= memory)

    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
