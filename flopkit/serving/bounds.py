"""What a step of decoding or a prefill takes at least, on one device or several, and whether it fits in their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit import devices, units
from flopkit.arithmetic import Number, reading
from flopkit.cost import Cost
from flopkit.dtypes import DType
from flopkit.models import Experts, Model
from flopkit.models.catalogue import the_model
from flopkit.models.formats import Formats, Weights
from flopkit.models.weights import formats_of
from flopkit.rooflines import Roofline, bound_by
from flopkit.sizes import Count, Size, size

__all__ = ["Bound", "arithmetic", "decode", "prefill"]


@dataclass(frozen=True, repr=False, eq=False)
class Bound:
    """The least time of a pass, and what follows from it.

    ``cost`` is the work of the pass, ``roofline`` its times on all devices together. It yields ``tokens`` for ``batch`` sequences, one a
    user. ``memory`` is what weights and cache need in bytes, ``available`` what the devices have, None where that is not known.
    ``seconds`` is the least time, ``bound`` the roof that sets it: ``"compute"`` or ``"memory"``. ``supposes`` says under which condition,
    if there is one.
    """

    cost: Cost
    roofline: Roofline
    seconds: Number
    bound: Any
    batch: Number
    tokens: Number
    memory: Number
    available: float | None
    supposes: str = ""

    @property
    def tokens_per_s(self) -> Number:
        """New tokens a second at most, all users together."""
        return self.tokens / self.seconds

    @property
    def tokens_per_s_per_user(self) -> Number:
        """The same for one user."""
        return self.tokens_per_s / self.batch

    @property
    def busy(self) -> Number:
        """The share of the peak that is used if the pass takes its least time."""
        return self.roofline.compute_seconds / self.seconds

    @property
    def fits(self) -> Any:
        """Whether weights and cache fit in the memory; None where its size is not known."""
        return None if self.available is None else self.memory <= self.available

    def __repr__(self) -> str:
        if (kind := reading(self.memory, self.seconds)) != "plain":
            return f"<{self.cost.name}: a bound in {kind}>"
        fits = {None: "whose size is not known", True: "which fits", False: "which does not fit"}[self.fits]
        room = "" if self.available is None else f" of {units.si(self.available, 'B')}"
        supposes = f"\n{self.supposes}" if self.supposes else ""
        return (
            f"{self.cost.name}: at least {units.seconds(self.seconds)}, bound by {self.bound}\n"
            f"{self.tokens_per_s:,.1f} tokens/s in all, {self.tokens_per_s_per_user:,.1f} to each of {self.batch:,}\n"
            f"arithmetic {100 * self.busy:.2f} % busy\nmemory {units.si(self.memory, 'B')}{room}, {fits}{supposes}"
        )


def decode(
    model: Model | str, device: Any, *, context: Size, batch: Size = 1, weights: Weights | None = None, kv_cache: DType | None = None,
    compute: DType | None = None, count: Size = 1, new: Size = 1,
) -> Bound:  # fmt: skip
    """The bound of one step of decoding, in which each user gets a token.

        seconds = max(flops / (count · peak), bytes / (count · bandwidth))

    Parameters
    ----------
    model : Model or str
        A model, its name, or its ``config.json``.
    device : Any
        A name or a `Device`.
    context : Size
        Tokens of a sequence, the new one included.
    batch : Size, optional
        Sequences that are decoded together, one a user.
    weights : Weights, optional
        The format in which the weights are stored, as in `Model.prefill`. None: what the model's file says, else bf16.
    kv_cache : DType, optional
        That of the cache. None: the same.
    compute : DType, optional
        The format whose peak the arithmetic meets. None: what the model's file says, else that of the weights; of blocks fp8 for
        fp8_block and mxfp8, fp4 for nvfp4, and bf16 for those that are only stored (mxfp4, nf4, awq, gptq, those of llama.cpp). Where
        roles differ it is the fastest of them, so that the bound holds. Give it where plain weights are only stored in fewer bits.
    count : Size, optional
        Devices.
    new : Size, optional
        New tokens of each sequence; see `Model.decode`.

    Raises
    ------
    ValueError
        For a name that is not known, and for arithmetic that the device does not have.

    Notes
    -----
    Work, weights and cache are spread evenly over the devices, and what these send each other takes no time. Not counted: starting
    kernels, element-wise work, activations, sampling. Of a mixture of experts, all experts that so many tokens could choose are read: where
    several choose the same, fewer are, and a step can be faster than this; ``supposes`` says so.

    Examples
    --------
    >>> step = decode("llama-3-70b", "h100-sxm", context=8192, count=8)
    >>> step
    llama-3-70b, decode: at least 5.287 ms, bound by memory
    189.1 tokens/s in all, 189.1 to each of 1
    arithmetic 0.38 % busy
    memory 143.8 GB of 640 GB, which fits

    >>> decode("mixtral-8x7b", "h200-sxm", context=8192, batch=4).supposes
    'supposing that tokens choose different experts as far as there are any: it can be faster where they choose the same'
    """
    model = the_model(model)
    cost = model.decode(context=context, batch=batch, weights=weights, kv_cache=kv_cache, new=new)
    return _bound(model, device, cost, context, batch, size("new", new), weights, kv_cache, compute, count)


def prefill(
    model: Model | str, device: Any, *, prompt: Size, prefix: Count = 0, batch: Size = 1, weights: Weights | None = None, kv_cache: DType | None = None,
    compute: DType | None = None, count: Size = 1,
) -> Bound:  # fmt: skip
    """The bound of the pass over a prompt, or over a chunk of it behind a *prefix* that lies in the cache.

    Parameters
    ----------
    model : Model or str
        A model, its name, or its ``config.json``.
    device : Any
        A name or a `Device`.
    prompt : Size
        New tokens of a sequence.
    prefix : Count, optional
        Tokens of a sequence that lie in the cache already.
    batch : Size, optional
        Sequences.
    weights : Weights, optional
        The format in which the weights are stored, as in `Model.prefill`.
    kv_cache : DType, optional
        That of the cache.
    compute : DType, optional
        As in `decode`.
    count : Size, optional
        Devices.

    Examples
    --------
    >>> prefill("llama-3-8b", "h100-sxm", prompt=8192).bound
    'compute'
    """
    model = the_model(model)
    cost = model.prefill(prompt=prompt, batch=batch, weights=weights, kv_cache=kv_cache, prefix=prefix)
    return _bound(model, device, cost, prompt + prefix, batch, prompt, weights, kv_cache, compute, count)


def arithmetic(model: Model, device: Any, weights: Weights | None, compute: DType | None) -> float:
    """The peak that the arithmetic meets: in the format of the weights, unless another is given; where they have several, the fastest."""
    formats = formats_of(model, weights)
    try:
        return max(float(device.peak(each)) for each in (formats.arithmetic() if compute is None else [compute]))
    except ValueError as error:
        said = formats if weights is None or isinstance(weights, Formats) else weights
        raise ValueError(
            f"{error}. If the weights are only stored in {said}, say how it computes, e.g. compute='bf16'"
        ) from None


def _bound(
    model: Model,
    device: Any,
    cost: Cost,
    context: Number,
    batch: Number,
    new: Number,
    weights: Any,
    kv_cache: Any,
    compute: Any,
    count: Number,
) -> Bound:
    device, count, batch = devices.device(device), size("count", count), size("batch", batch)
    roof = bound_by(
        2 * cost.macs, cost.bytes, count * arithmetic(model, device, weights, compute), count * device.bandwidth
    )
    cache = model.kv_bytes(context=context, batch=batch, dtype=model.cache_format(kv_cache))
    memory = model.weight_bytes(weights) + cache
    return Bound(
        cost,
        roof,
        roof.seconds,
        roof.bound,
        batch,
        batch * new,
        memory,
        None if device.memory is None else count * device.memory,
        _DIFFERENT if _choices_matter(model, batch * new, roof.bound) else "",
    )


_DIFFERENT = "supposing that tokens choose different experts as far as there are any: it can be faster where they choose the same"


def _choices_matter(model: Model, tokens: Any, bound: Any) -> bool:
    """Whether the time depends on how many different experts *tokens* choose: only the bytes do."""
    if reading(tokens) != "plain" or tokens <= 1 or bound != "memory":
        return False
    mixtures: list[Any] = [block.mlp for block, _ in model.blocks if isinstance(block.mlp, Experts)]
    return any(mixture.top_k < mixture.experts for mixture in mixtures)
