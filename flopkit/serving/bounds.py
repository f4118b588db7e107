"""What a step of decoding or a prefill takes at least, on one device or several, and whether it fits in their memory.

Two bounds: with everything overlapped, which no program can beat, and with the parts of the model in order, one after another, as an engine
runs a single batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from flopkit import devices, units
from flopkit.arithmetic import Number, maximum, ratio, reading, total, where
from flopkit.cost import Cost, amount
from flopkit.dtypes import DType
from flopkit.models import Experts, Model
from flopkit.models.branches.per_layer import DenseAndExperts
from flopkit.models.caches import CacheFormat, cached_bytes
from flopkit.models.catalogue import the_model
from flopkit.models.checkpoints.weights import formats_of
from flopkit.models.formats import Formats, Weights
from flopkit.models.serving.serving_pass import Piece, ServingPass, decoded, prefilled
from flopkit.rooflines import Roofline, bound_by
from flopkit.sizes import Count, Size, size
from flopkit.tables import Table

__all__ = ["SCHEDULES", "Bound", "arithmetic", "decode", "prefill"]

SCHEDULES = {
    "overlapped": "all arithmetic runs while anything is read",
    "in order": "one part of the model after another, each reading while it computes",
}
"""What a bound supposes of the order of things."""


@dataclass(frozen=True, repr=False, eq=False)
class Bound:
    """The least time of a pass, and what follows from it.

    ``cost`` is the work of the pass, ``roofline`` its times on all devices together. It yields ``tokens`` for ``batch`` sequences, one a
    user. ``memory`` is what weights and cache need in bytes, ``available`` what programs can allocate on the devices (`Device.available`;
    ``usable`` says whether that was read, or all of the memory is taken for it), None where that is not known.
    ``seconds`` is the least time, ``bound`` the roof that sets it: ``"compute"`` or ``"memory"``. ``supposes`` says under which condition,
    if there is one.

    ``schedule`` is ``"overlapped"`` or ``"in order"``; `overlapped` and `in_order` give the same pass under the other one. Overlapped, the
    time is the longer of all arithmetic and all reading. No program is faster, but to come near it must compute for one group of
    sequences while it reads for another. In order, it is the sum over the parts of the model of each one's longer time, and ``bound``
    says in which of the two kinds of parts more of that time is spent.

    Examples
    --------
    Dense layers are compute-bound from 295 users on, and attention never is:

    >>> step = decode("llama-3-70b", "h100-sxm", context=1147, batch=1325, count=8)
    >>> [f"{each.seconds:.4f}" for each in (step, step.in_order)]
    ['0.0238', '0.0419']
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
    schedule: str = "overlapped"
    served: ServingPass | None = field(default=None)
    with_experts: Callable[..., Bound] | None = field(default=None)
    usable: bool = False

    @property
    def overlapped(self) -> Bound:
        """The same pass with everything overlapped."""
        return self._under("overlapped", bound_by(2 * self.cost.macs, self.cost.bytes, *self._rates))

    @cached_property
    def in_order(self) -> Bound:
        """The same pass with the parts of the model one after another."""
        peak, bandwidth = self._rates
        computing: list[Any] = []
        waiting: list[Any] = []
        for each in self.pieces:
            compute, memory = each.flops / peak, each.bytes / bandwidth
            computing.append(where(compute >= memory, compute, 0))
            waiting.append(where(compute >= memory, 0, memory))
        compute, memory = total(computing), total(waiting)
        seconds = compute + memory
        return self._under(
            "in order",
            replace(
                self.roofline,
                seconds=seconds,
                bound=where(compute >= memory, "compute", "memory"),
                attainable_flops_per_s=ratio(2 * self.cost.macs, seconds),
            ),
        )

    @property
    def expected(self) -> Bound | None:
        """The same pass where each token chooses its experts by chance, all equally likely and independently of other tokens
        (`expected_experts`). None where no experts are chosen. The other bound takes the most that so many tokens can choose.

        >>> step = decode("qwen3-30b-a3b", "h200-sxm", context=32768, batch=32)
        >>> round(step.tokens_per_s), round(step.expected.tokens_per_s)
        (939, 984)
        """
        if self.with_experts is None:
            return None
        found = self.with_experts(experts="expected")
        return found.in_order if self.schedule == "in order" else found

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The parts of the model in the order in which they run, each for all layers that have it."""
        if self.served is None:
            raise ValueError(f"{self.cost.name}: the parts of this pass are not known; make it by decode or prefill")
        return self.served.pieces

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

    @property
    def _rates(self) -> tuple[Number, Number]:
        return self.roofline.peak, self.roofline.bandwidth

    def _under(self, schedule: str, roof: Roofline) -> Bound:
        return replace(self, roofline=roof, seconds=roof.seconds, bound=roof.bound, schedule=schedule)

    def table(self) -> Table:
        """One row for each part of the model: FLOPs, bytes, the times of both, the longer one, and which it is. Their sum is the time in
        order; the last rows are the two bounds.

        >>> table = decode("llama-3-8b", "h100-sxm", context=8192, batch=64).table()
        >>> [row["part"] for row in table][-2:]
        ['in order', 'overlapped']
        """
        peak, bandwidth = self._rates
        rows: list[dict[str, Any]] = []
        for each in self.pieces:
            compute, memory = each.flops / peak, each.bytes / bandwidth
            rows.append(
                {"part": each.name, "FLOPs": each.flops, "bytes": each.bytes, "arithmetic": compute, "reading": memory}
                | {"at least": maximum(compute, memory), "bound": where(compute >= memory, "compute", "memory")}
            )
        for bound in (self.in_order, self.overlapped):
            roof = bound.roofline
            rows.append(
                {"part": bound.schedule, "FLOPs": 2 * self.cost.macs, "bytes": self.cost.bytes, "arithmetic": roof.compute_seconds}
                | {"reading": roof.memory_seconds, "at least": bound.seconds, "bound": bound.bound}
            )  # fmt: skip
        times = {name: partial(amount, unit="s") for name in ("arithmetic", "reading", "at least")}
        formats = {"FLOPs": partial(amount, unit="FLOPs"), "bytes": partial(amount, unit="B")} | times
        return Table(rows, caption=f"{self.cost.name}, batch {amount(self.batch)}", formats=formats)

    def __repr__(self) -> str:
        if (kind := reading(self.memory, self.seconds)) != "plain":
            return f"<{self.cost.name}: a bound in {kind}>"
        fits = {None: "whose size is not known", True: "which fits", False: "which does not fit"}[self.fits]
        room = "" if self.available is None else f" of {units.si(self.available, 'B')}" + " usable" * self.usable
        supposes = f"\n{self.supposes}" if self.supposes else ""
        other = ""
        if self.served is not None:
            name = next(each for each in SCHEDULES if each != self.schedule)
            seconds = (self.in_order if name == "in order" else self.overlapped).seconds
            other = f" ({name} {units.seconds(seconds)})"
        return (
            f"{self.cost.name}: at least {units.seconds(self.seconds)} {self.schedule}{other}, bound by {self.bound}\n"
            f"{self.tokens_per_s:,.1f} tokens/s in all, {self.tokens_per_s_per_user:,.1f} to each of {self.batch:,}\n"
            f"arithmetic {100 * self.busy:.2f} % busy\nmemory {units.si(self.memory, 'B')}{room}, {fits}{supposes}"
        )


def decode(
    model: Model | str, device: Any, *, context: Size, batch: Size = 1, weights: Weights | None = None, kv_cache: CacheFormat | None = None,
    compute: DType | None = None, count: Size = 1, new: Size = 1, experts: str = "most", source: Size | None = None,
) -> Bound:  # fmt: skip
    """The bounds of one step of decoding, in which each user gets a token.

        seconds = max(flops / (count · peak), bytes / (count · bandwidth))
        in_order.seconds = Σ over parts of max(their flops / (count · peak), their bytes / (count · bandwidth))

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
    kv_cache : CacheFormat, optional
        That of the cache, as in `Model.prefill`. None: what the model's file says, else bf16.
    compute : DType, optional
        The format whose peak the arithmetic meets. None: what the model's file says, else that of the weights; of blocks fp8 for
        fp8_block and mxfp8, fp4 for nvfp4, and bf16 for those that are only stored (mxfp4, nf4, awq, gptq, those of llama.cpp). Where
        roles differ it is the fastest of them, so that the bound holds. Give it where plain weights are only stored in fewer bits.
    count : Size, optional
        Devices.
    new : Size, optional
        New tokens of each sequence; see `Model.decode`.
    experts : str, optional
        Of a mixture: ``"most"``, as many different experts as so many tokens can choose, or ``"expected"``, as many as they choose on
        average by chance. `Bound.expected` gives the latter beside the former.
    source : Size, optional
        Of an encoder-decoder: tokens that its encoder has read, as in `Model.decode`.

    Raises
    ------
    ValueError
        For a name that is not known, and for arithmetic that the device does not have.

    Notes
    -----
    Work, weights and cache are spread evenly over the devices, and what these send each other takes no time. Not counted: starting
    kernels, element-wise work, activations, sampling. Of a mixture of experts, all experts that so many tokens could choose are read: where
    several choose the same, fewer are, and a step can be faster than this; ``supposes`` says so.
    All arithmetic meets one peak. In order, a part is a dense layer, attention's core, the experts of a layer; within a part, reading and
    arithmetic overlap.

    Examples
    --------
    >>> step = decode("llama-3-70b", "h100-sxm", context=8192, count=8)
    >>> step
    llama-3-70b, decode: at least 5.287 ms overlapped (in order 5.287 ms), bound by memory
    189.1 tokens/s in all, 189.1 to each of 1
    arithmetic 0.38 % busy
    memory 143.8 GB of 680.2 GB usable, which fits

    >>> decode("mixtral-8x7b", "h200-sxm", context=8192, batch=4).supposes
    'supposing that tokens choose different experts as far as there are any: it can be faster where they choose the same'
    """
    model = the_model(model)
    again = partial(
        decode,
        model,
        device,
        context=context,
        batch=batch,
        weights=weights,
        kv_cache=kv_cache,
        compute=compute,
        count=count,
        new=new,
        source=source,
    )
    served = decoded(
        model, context=context, batch=batch, weights=weights, kv_cache=kv_cache, new=new, experts=experts, source=source
    )
    return _bound(model, device, served, batch, size("new", new), weights, compute, count, experts, again)


def prefill(
    model: Model | str, device: Any, *, prompt: Size, prefix: Count = 0, batch: Size = 1, weights: Weights | None = None, kv_cache: CacheFormat | None = None,
    compute: DType | None = None, count: Size = 1, experts: str = "most", source: Size | None = None,
) -> Bound:  # fmt: skip
    """The bounds of the pass over a prompt, or over a chunk of it behind a *prefix* that lies in the cache: the least time to first token.

    The other parameters are those of `decode`.

    Parameters
    ----------
    prompt : Size
        New tokens of a sequence; of an encoder-decoder as in `Model.prefill`.
    prefix : Count, optional
        Tokens of a sequence that lie in the cache already; of an encoder-decoder as in `Model.prefill`.
    batch : Size, optional
        Sequences.
    source : Size, optional
        Of an encoder-decoder: tokens that its encoder reads, as in `Model.prefill`.

    Examples
    --------
    >>> prefill("llama-3-8b", "h100-sxm", prompt=8192).bound
    'compute'

    Whisper's encoder reads 30 seconds of sound, whatever the prompt is:

    >>> f"{prefill('whisper-large-v3', 'h100-sxm', prompt=4).cost.flops / 1e12:.3f} TFLOPs"
    '2.595 TFLOPs'
    """
    model = the_model(model)
    again = partial(
        prefill,
        model,
        device,
        prompt=prompt,
        prefix=prefix,
        batch=batch,
        weights=weights,
        kv_cache=kv_cache,
        compute=compute,
        count=count,
        source=source,
    )
    served = prefilled(
        model, prompt=prompt, batch=batch, weights=weights, kv_cache=kv_cache, prefix=prefix, experts=experts, source=source
    )  # fmt: skip
    return _bound(model, device, served, batch, prompt, weights, compute, count, experts, again)


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
    served: ServingPass,
    batch: Number,
    new: Number,
    weights: Any,
    compute: Any,
    count: Number,
    experts: str,
    again: Callable[..., Bound],
) -> Bound:
    device, count, batch = devices.device(device), size("count", count), size("batch", batch)
    cost = served.cost
    roof = bound_by(
        2 * cost.macs, cost.bytes, count * arithmetic(model, device, weights, compute), count * device.bandwidth
    )
    run = served.run
    held = model.cached(run.kv, source=run.encoded)
    memory = model.weight_bytes(weights) + cached_bytes(held, served.cache, batch)
    available, chosen = device.available, _chooses(model)
    supposes = ""
    if chosen and reading(batch * new) == "plain" and batch * new > 1 and roof.bound == "memory":
        supposes = _SUPPOSED[experts]  # of the time only bytes depend on how many are chosen
    return Bound(
        cost,
        roof,
        roof.seconds,
        roof.bound,
        batch,
        batch * new,
        memory,
        None if available is None else count * available,
        supposes,
        served=served,
        with_experts=again if chosen else None,
        usable=device.usable is not None,
    )


_SUPPOSED = {
    "most": "supposing that tokens choose different experts as far as there are any: it can be faster where they choose the same",
    "expected": "supposing that each token chooses its experts by chance, all equally likely and independently of other tokens",
}


def _chooses(model: Model) -> bool:
    """Whether tokens choose among experts."""
    branches = [block.mlp for block, _ in model.blocks]
    experts = [each.experts if isinstance(each, DenseAndExperts) else each for each in branches]
    mixtures: list[Any] = [each for each in experts if isinstance(each, Experts)]
    return any(each.top_k < each.experts for each in mixtures)
