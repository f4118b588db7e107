"""How much fits in the memory beside the weights, as engines print it: tokens, and sequences at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit import devices, units
from flopkit.arithmetic import ceil_div
from flopkit.models import Model
from flopkit.models.caches import CacheFormat, Rows, cached_bytes
from flopkit.models.catalogue import the_model
from flopkit.models.formats import Weights
from flopkit.sizes import choice, number, positive

__all__ = ["WINDOWS", "Capacity", "capacity", "largest_batch"]

WINDOWS = {
    "window": "a layer with a window keeps as many tokens as it sees",
    "context": "it keeps the whole context, as engines do that have one block table for all layers",
}
"""What a layer with a window keeps."""


@dataclass(frozen=True, repr=False)
class Capacity:
    """What fits in the memory of all devices together.

    ``available`` is what may be used: of what programs can allocate (`Device.available`) the share that was asked for; ``weights`` what they take, ``reserve`` what is kept free, ``room`` the rest, for the
    cache; all in bytes, those before ``room`` None where it was given. ``sequence_bytes`` is what one sequence of ``context`` tokens takes, in whole blocks.
    """

    name: str
    available: float | None
    weights: Any
    reserve: float | None
    room: float
    context: int
    block: int
    sequence_bytes: int
    token_bytes: float | None

    @property
    def concurrency(self) -> float:
        """How many sequences of the context fit at once, with a fraction: what vLLM prints as *Maximum concurrency*."""
        return self.blocks / -(-self.context // self.block) if self.token_bytes else self.room / self.sequence_bytes

    @property
    def sequences(self) -> int:
        """How many fit whole."""
        return int(self.concurrency)

    @property
    def blocks(self) -> int:
        """Blocks that fit, where each token takes the same bytes."""
        if self.token_bytes is None:
            raise ValueError(
                f"{self.name}: a token takes more bytes in a short sequence than in a long one, so a number of blocks says nothing; ask for .concurrency"
            )
        return int(self.room // (self.block * self.token_bytes))

    @property
    def tokens(self) -> int:
        """Tokens that fit: whole blocks, or where windows and states make tokens of a long sequence cheaper, those of all
        sequences of the context: what vLLM prints as *GPU KV cache size*."""
        return self.blocks * self.block if self.token_bytes else int(self.concurrency * self.context)

    def __repr__(self) -> str:
        said = f"{self.name}: {self.tokens:,} tokens in {units.si(self.room, 'B')} of cache"
        if self.available is not None:
            said += f"\n{units.si(self.available, 'B')} may be used, {units.si(self.weights, 'B')} of weights"
            said += f", {units.si(self.reserve, 'B')} of reserve" if self.reserve else ""
        return f"{said}\n{self.concurrency:,.2f} sequences of {self.context:,} tokens at once, {units.si(self.sequence_bytes, 'B')} each"


def capacity(
    model: Model | str,
    device: Any = None,
    *,
    context: int,
    weights: Weights | None = None,
    kv_cache: CacheFormat | None = None,
    count: int = 1,
    utilization: float | None = None,
    reserve: float = 0,
    room: float | None = None,
    block: int = 16,
    windows: str = "window",
    batched: int = 0,
    copies: int = 1,
    source: int | None = None,
) -> Capacity:
    """The tokens and sequences whose caches fit beside the weights.

        room = count · usable memory · utilization − weights − reserve

    Parameters
    ----------
    model : Model or str
        A model, its name, or its ``config.json``.
    device : Any, optional
        A name or a `Device`. None: give *room*.
    context : int
        The longest sequence, prompt and answer together (vLLM's ``--max-model-len``).
    weights : Weights, optional
        The format of the weights, as in `decode`.
    kv_cache : CacheFormat, optional
        That of the cache.
    count : int, optional
        Devices, which share weights and cache evenly.
    utilization : float, optional
        The share that may be used of what programs can allocate (`Device.available`): vLLM's ``--gpu-memory-utilization``, 0.9 there by
        default, 0.92 since 2026. None: all of it.
    reserve : float, optional
        Bytes of all devices together for what is neither: activations of a step, CUDA graphs, the context, buffers of communication.
    room : float, optional
        Bytes for the cache, as an engine prints them (*Available KV cache memory*), in the place of *device*, *utilization* and *reserve*.
    block : int, optional
        Tokens of a block (a page), the least that a sequence takes. 1: no rounding.
    windows : str, optional
        What a layer with a window keeps: ``"window"`` or ``"context"``.
    batched : int, optional
        Tokens of a chunk of prefill, which a layer with a window holds beside its window until the chunk is done; then it also takes a block
        more, as a window can begin inside a block (vLLM's ``--max-num-batched-tokens``). 0: only what it sees.
    copies : int, optional
        How many devices hold the same cache. With tensor parallelism latents are whole on each device, and so are heads where there are
        fewer of them than devices.
    source : int, optional
        Of an encoder-decoder: tokens that its encoder reads, whose keys and values each sequence holds beside its context, in whole blocks,
        too. None: as many as *context*, and of sound its fixed length.

    Raises
    ------
    ValueError
        For bad sizes, a device whose memory is not known, both *device* and *room* or neither.

    Notes
    -----
    Not counted: what an engine adds so that pages of different layers are equally large, a cache of prefixes, the null block.

    References
    ----------
    vLLM, vllm/v1/core/kv_cache_utils.py and kv_cache_interface.py: a window takes ⌈min(window − 1 + batched, context) / block⌉ + 1 blocks.

    Examples
    --------
    A log of vLLM (issue 12330): an A100 with 39.50 GiB prints 5,691 blocks of 16 tokens (91,056), and a maximum
    concurrency of 11.12x; its sizes are rounded to 0.01 GiB, which is 5 blocks.

    >>> from flopkit import Device
    >>> gpu = Device("A100", peak={"bf16": 312e12}, bandwidth=1.555e12, memory=39.50 * 2**30)
    >>> found = capacity("llama-3-8b", gpu, context=8192, utilization=0.9, reserve=9.47 * 2**30)
    >>> found
    llama-3-8b: 91,104 tokens in 11.94 GB of cache
    38.17 GB may be used, 16.06 GB of weights, 10.17 GB of reserve
    11.12 sequences of 8,192 tokens at once, 1.074 GB each

    Starcoder2-7b has windows of 4,096 tokens in all layers:

    >>> room = {"room": 8e9, "context": 16384}
    >>> [round(capacity("starcoder2-7b", windows=kind, **room).concurrency, 1) for kind in ("context", "window")]
    [7.5, 29.8]
    """
    model = the_model(model)
    context, block, batched = number("context", context), number("block", block), number("batched", batched, minimum=0)
    copies = number("copies", copies)
    rows = _rows(choice("windows", windows, tuple(WINDOWS)), block, batched)
    kind, encoded = model.cache_format(kv_cache), model.encoded(context, source)

    def held(tokens: int) -> Any:
        return copies * cached_bytes(model.cached(tokens, rows, encoded), kind)

    sequence = held(context)
    whole = 2**20 * block
    token = held(whole) / whole if held(whole) == 2**20 * held(block) else None
    if (device is None) == (room is None):
        raise ValueError(
            "give a device=, whose memory holds weights and cache, or room=, the bytes of the cache: one of the two"
        )
    if room is not None:
        if utilization is not None or reserve:
            raise ValueError(
                f"room={room}: these bytes are for the cache alone, so leave utilization= and reserve= out"
            )
        there = float(positive("room", room, "bytes"))
        return Capacity(model.name, None, None, None, there, context, block, sequence, token)
    available, held_free = _available(device, count, utilization), float(positive("reserve", reserve, zero=True))
    stored = model.weight_bytes(weights)
    left = max(0.0, available - stored - held_free)
    return Capacity(model.name, available, stored, held_free, left, context, block, sequence, token)


def largest_batch(
    model: Model | str,
    device: Any,
    *,
    context: int,
    weights: Weights | None = None,
    kv_cache: CacheFormat | None = None,
    count: int = 1,
    utilization: float | None = None,
    reserve: float = 0,
    windows: str = "window",
    source: int | None = None,
) -> int:
    """How many sequences of *context* tokens fit beside the weights; 0 where not even one does.

    The other parameters are those of `capacity`.

    Parameters
    ----------
    device : Any
        A name or a `Device`.
    context : int
        Tokens of a sequence.
    utilization, reserve : float, optional
        As in `capacity`, which also rounds to blocks and says how many tokens fit.
    source : int, optional
        As in `capacity`.

    Examples
    --------
    >>> largest_batch("llama-3-70b", "h100-sxm", context=8192, count=8) > 180
    True
    """
    formats: dict[str, Any] = {"weights": weights, "kv_cache": kv_cache}
    how: dict[str, Any] = {
        "utilization": utilization,
        "reserve": reserve,
        "windows": windows,
        "block": 1,
        "source": source,
    }
    found = capacity(model, device, context=context, count=count, **formats, **how)
    return int(found.room // found.sequence_bytes)


def _available(device: Any, count: Any, utilization: float | None) -> float:
    memory = devices.memory_of(devices.device(device))
    share = 1.0 if utilization is None else float(positive("utilization", utilization, most=1))
    return float(number("count", count) * memory * share)


def _rows(windows: str, block: int, batched: int) -> Rows:
    """Tokens that a layer keeps, in whole blocks."""

    def blocks(tokens: Any) -> Any:
        return block * ceil_div(tokens, block)

    def rows(context: Any, limit: Any) -> Any:
        if limit is None or windows == "context":
            return blocks(context)
        if not batched:
            return blocks(min(context, limit))
        return blocks(min(limit - 1 + batched, context)) + block

    return rows
