"""One layout of one model, on the way to its step.

What a rank computes is in `computing`, what it sends in `traffic`, what it holds in `holding`. Here they add up: `micro_batch` says how long a rank
takes for one micro-batch, and `Plan.times` what of all its micro-batches and of waiting for other ranks becomes the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

from flopkit.arithmetic import Number, is_zero, maximum, reduced, where
from flopkit.models import Model
from flopkit.parallel import computing, holding, traffic
from flopkit.parallel.clusters import Cluster
from flopkit.parallel.computing import Products
from flopkit.parallel.layouts import Layout
from flopkit.parallel.ranks import Rank, check, in_flight, of_layout, stages
from flopkit.parallel.saving import ACTIVATIONS, Saving
from flopkit.parallel.shares import Shares, gathered, shares
from flopkit.parallel.traffic import Formats, Sent, Traffic
from flopkit.sizes import choice, flag, number, positive, several
from flopkit.training.memory import OPTIMIZERS, PRECISIONS, Memory, state_bytes

__all__ = ["OVERLAPS", "MicroBatch", "Plan", "Setting", "hidden_data", "micro_batch"]

OVERLAPS = ("tensor", "context", "expert", "pipeline", "data")
"""What can run beside arithmetic."""

AXES = OVERLAPS[:-1]
"""Along these a rank exchanges something in each micro-batch."""


class MicroBatch(NamedTuple):
    """Seconds of a micro-batch on a rank: all of them, and where they go, arithmetic and what does not hide behind it."""

    seconds: Number
    parts: dict[str, Number]


def micro_batch(products: Products, sent: Mapping[str, Sent], peak: Number, hides: Mapping[str, Any]) -> MicroBatch:
    """How long a rank takes for one micro-batch.

    Arithmetic and the exchanges that do not hide follow each other; beside them run those that do, and ``"regathered"``, one after the other. The longer of
    the two is the time. Where what should hide is longer, the rest of it shows, as a part of the axis that sends most.

    Parameters
    ----------
    products : Products
        FLOPs.
    sent : Mapping[str, Sent]
        Exchanges by axis.
    peak : Number
        FLOP/s.
    hides : Mapping[str, Any]
        1 for an axis whose exchanges run beside arithmetic, else 0.
    """
    parts = {"arithmetic": products.once / products.among / peak, "recompute": products.again / products.among / peak}
    beside: Any = sent["regathered"].seconds
    for name in AXES:
        seconds = sent[name].seconds
        parts[name] = seconds if is_zero(hides[name]) else seconds * (1 - hides[name])
        beside += 0.0 if is_zero(hides[name]) else seconds - parts[name]
    waiting = sum(parts.values())
    if isinstance(beside, float) and beside <= waiting:
        return MicroBatch(waiting, parts)
    left = maximum(beside - waiting, 0)
    order = [name for name in hides if name in AXES and not is_zero(hides[name])]
    if not order:
        return MicroBatch(maximum(waiting, beside), parts)
    if len(order) == 1:
        return MicroBatch(maximum(waiting, beside), parts | {order[0]: parts[order[0]] + maximum(beside - waiting, 0)})
    most = reduce(maximum, (sent[name].bytes * hides[name] for name in order))
    for name in order:
        taken = where(sent[name].bytes * hides[name] >= most, left, 0)
        parts[name] += taken
        left = left - taken
    return MicroBatch(maximum(waiting, beside), parts)


def hidden_data(sent: Sent, one: Number, micro_batches: Number, zero: Number, hides: Any) -> Number:
    """Seconds of the exchange of gradients and weights that do not hide: it has room beside one micro-batch, from ZeRO-2 on beside all."""
    room = one * where(zero >= 2, micro_batches, 1)
    return where(hides > 0, maximum(sent.seconds - room, 0.0), sent.seconds)


class Times(NamedTuple):
    """Of a whole step: seconds, where they go, bytes that the pacing rank sends, FLOPs that all ranks execute."""

    seconds: float
    parts: dict[str, float]
    sent: dict[str, float]
    executed: float


@dataclass(frozen=True, eq=False)
class Setting:
    """What is asked beside the layout; the fields are arguments of `flopkit.parallel.step`. What of it holds for all layouts is made once."""

    model: Model
    cluster: Cluster
    seq: int
    batch: int
    precision: str = "mixed-fp32-gradients"
    optimizer: str = "adam"
    kernel: str = "flash"
    dropout: bool = False
    fused: bool = False
    overlap: tuple[str, ...] = ("data", "pipeline")
    dtype: str = "bf16"
    dispatch_bytes: int = 2
    combine_bytes: int = 2
    expert_nodes: int | str | None = None
    memory: float | None = None
    mla_up_proj: bool = False
    activations: str = "as computed"
    weigh_inside: bool = False
    fp8_copies: float = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq", number("seq", self.seq))
        object.__setattr__(self, "batch", number("batch", self.batch))
        object.__setattr__(self, "overlap", several("overlap", self.overlap))
        for name in ("dispatch_bytes", "combine_bytes"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        for name in ("dropout", "fused", "mla_up_proj", "weigh_inside"):
            object.__setattr__(self, name, bool(flag(name, getattr(self, name))))
        if isinstance(self.expert_nodes, str):
            choice("expert_nodes", self.expert_nodes, ("expected",))
        elif self.expert_nodes is not None:
            object.__setattr__(self, "expert_nodes", number("expert_nodes", self.expert_nodes))
        if self.memory is not None:
            object.__setattr__(self, "memory", positive("memory", self.memory, "bytes"))
        object.__setattr__(self, "fp8_copies", positive("fp8_copies", self.fp8_copies, "bytes", zero=True))
        choice("kernel", self.kernel, ("flash", "math"))
        self.cluster.device.peak(self.dtype)  # refuses a format that it does not have
        choice("precision", self.precision, tuple(PRECISIONS))
        if self.precision == "autocast":
            raise ValueError(
                "precision='autocast': which activations are of 32 bits is not known of a step on several devices; "
                "precision='fp32' and 'mixed' bound it from above and below"
            )
        choice("optimizer", self.optimizer, tuple(OPTIMIZERS))
        choice("activations", self.activations, tuple(ACTIVATIONS))
        self.saving.check(self.model, self.precision, self.fused)
        for name in self.overlap:
            choice("overlap", name, OVERLAPS)

    @cached_property
    def numbers(self) -> Shares:
        dtype = "fp32" if self.precision == "fp32" else "bf16"
        return shares(self.model, self.seq, self.kernel, self.dropout, dtype, self.saving)

    @property
    def saving(self) -> Saving:
        """How a layer keeps less."""
        return Saving(self.mla_up_proj, self.activations, self.weigh_inside)

    @cached_property
    def peak(self) -> float:
        """FLOP/s of a device, as its maker prints them."""
        return float(self.cluster.device.peak(self.dtype))

    @cached_property
    def room(self) -> float | None:
        """Bytes that a step may take of a device, where they are known."""
        return self.cluster.device.available if self.memory is None else self.memory

    @cached_property
    def state(self) -> tuple[int, int, int]:
        """Bytes of a parameter: weight, gradient, optimiser."""
        return state_bytes(self.precision, self.optimizer)

    @cached_property
    def formats(self) -> Formats:
        weight, gradient, _ = self.state
        moved = 4 if self.precision == "fp32" else 2
        return Formats(moved, self.dispatch_bytes + self.combine_bytes, gradient, min(weight, moved), self.expert_nodes)

    @cached_property
    def hides(self) -> dict[str, int]:
        """1 for what runs beside arithmetic, in the order in which it was given."""
        return dict.fromkeys(self.overlap, 1) | {name: 0 for name in OVERLAPS if name not in self.overlap}


class Plan:
    """One layout of a `Setting`.

    Raises
    ------
    ValueError
        For degrees by which the model or the batch cannot be divided.
    """

    def __init__(self, setting: Setting, layout: Layout) -> None:
        self.setting, self.layout = setting, layout
        if setting.fused and layout.regather != "all" and layout.sequence and layout.tensor > 1:
            raise ValueError(
                f"fused=True with regather={layout.regather!r}: the outputs of norms are what a rank keeps whole; give fused=False, or regather='all'"
            )
        if setting.mla_up_proj and layout.recompute == "full":
            raise ValueError(
                "mla_up_proj=True with recompute='full', which computes all of a layer again: give one of the two"
            )
        if setting.fp8_copies and layout.zero == 3:
            raise ValueError(
                f"fp8_copies={setting.fp8_copies:g} with zero=3: gathered weights have their copies for as long as they are there, which is not known here; give fp8_copies=0"
            )
        self.numbers = setting.numbers
        self.micro_batches = layout.micro_batches(setting.batch)
        check(self.numbers, layout, self.micro_batches)
        self.ranks = stages(self.numbers, layout.pipeline, layout.virtual)

    # -- time --------------------------------------------------------------------------------------------------

    def times(self) -> Times:
        """The step's. A rank works off its micro-batches one after the other. It waits for the first of them, and at the end, for as long as the ranks
        before it take for one, on the first of their virtual stages. Of all ranks the last to finish sets the pace."""
        m, layout, place, formats = self.micro_batches, self.layout, self.setting.cluster, self.setting.formats
        peak = self.setting.peak * place.matmul_efficiency
        inside = {name: layout.in_node(place, name) for name in OVERLAPS}
        exchanges = traffic.of_micro_batch(self.numbers, layout, place, inside, formats)
        kinds = {rank: self._one(rank, exchanges, peak, layout.virtual) for rank in dict.fromkeys(self.ranks)}
        ones = [kinds[rank][0] for rank in self.ranks]
        opened = {
            rank: self._one(rank.opening, exchanges, peak, 1)[0] if rank.virtual else kinds[rank][0] for rank in kinds
        }
        bubbles = self._bubbles([one.seconds for one in ones], [opened[rank].seconds for rank in self.ranks])
        at = max(range(len(ones)), key=lambda i: m * ones[i].seconds + bubbles[i])
        rank, one = self.ranks[at], ones[at]
        params = computing.params_of(self.numbers, layout, rank)
        alike = (inside["data"], layout.in_node(place, "experts"))
        data = traffic.of_data(params, layout, m, place, alike, formats)
        exposed = hidden_data(data, one.seconds, m, layout.zero, self.setting.hides["data"])
        parts = {name: m * seconds for name, seconds in one.parts.items()} | {"bubble": bubbles[at], "data": exposed}
        sent = {name: m * float(each.bytes) for name, each in kinds[rank][1].items()} | {"data": float(data.bytes)}
        sent["tensor"] += sent.pop("regathered")
        of_stage = layout.tensor * layout.context * layout.data
        executed = sum(kinds[rank][2] for rank in self.ranks) * m * of_stage
        seconds = m * one.seconds + bubbles[at] + exposed
        return Times(seconds, parts, {name: each for name, each in sent.items() if each}, executed)

    def _one(
        self, rank: Rank, exchanges: Traffic, peak: float, virtual: int
    ) -> tuple[MicroBatch, dict[str, Sent], float]:
        products = computing.products_of(self.numbers, self.layout, rank)
        sent = traffic.on_rank(exchanges, self.numbers, self.layout, rank, virtual)
        return micro_batch(products, sent, peak, self.setting.hides), sent, products.executed

    def _bubbles(self, seconds: list[float], opened: list[float]) -> list[float]:
        """How long each rank waits; *opened*: seconds of the first virtual stages. Schedules without 1F1B's bubble are known for equal stages, a pass forward
        being a third of the whole."""
        if self.layout.order in ("interleaved-zero-bubble", "dualpipe"):
            bubble = float(of_layout(self.layout, self.micro_batches).bubble)
            return [bubble / 3 * sum(seconds) / len(seconds)] * len(seconds)
        return list(accumulate(opened[:-1], initial=0.0))

    # -- memory ------------------------------------------------------------------------------------------------

    def memory(self) -> Memory:
        """That of the rank with the most; its name says which. Of ranks with as many layers of each kind the first holds most micro-batches, so that one
        of each sort is asked; with DualPipe all."""
        count, layout = len(self.ranks), self.layout
        model, whole = self.numbers.model.name, str(layout)
        ranks = [f"rank {i} of the pipeline" for i in range(count)] if count > 1 else ["a rank"]
        names = [f"{model}, training step, {each} of {whole}" for each in ranks]
        if layout.order == "dualpipe":
            found = [self._both_of(i, count - 1 - i, names[i]) for i in range(count // 2)]
        else:
            firsts = {rank: i for i, rank in reversed([*enumerate(self.ranks)])}
            found = [self.memory_of(i, names[i]) for i in sorted(firsts.values())]
        return max(found, key=lambda memory: memory.peak)

    def _both_of(self, i: int, other: int, name: str) -> Memory:
        """A rank of DualPipe has two stages, as far from the ends as each other. Of each it holds as many micro-batches as with 1F1B: p + 1 together."""
        p = len(self.ranks)
        one, two = (self._memory_of(at, [[(p - at) * n for n in self.ranks[at].kinds]], name) for at in (i, other))
        summed = ("weights", "gradients", "optimizer", "layers", "ends", "loss")
        parts: dict[str, Any] = {part: getattr(one, part) + getattr(two, part) for part in summed}
        return Memory(name, **parts, again=maximum(one.again, two.again), gathered=one.gathered)

    def memory_of(self, i: int, name: str = "") -> Memory:
        """That of the rank at place *i* of a pipeline that goes one way."""
        rank = self.ranks[i]
        if len(self.ranks) == 1:
            return self._memory_of(i, [rank.kinds], name)
        return self._memory_of(i, in_flight(self.layout, self.micro_batches, rank, i), name)

    def _memory_of(self, i: int, held: Sequence[Sequence[Number]], name: str) -> Memory:
        layout, rank = self.layout, self.ranks[i]
        params = computing.params_of(self.numbers, layout, rank)
        weights, gradients, optimizer = holding.states_of(params, layout, self.setting.state)
        if copies := self.setting.fp8_copies:
            weights += ceil(Fraction(copies) * computing.matrices_of(self.numbers, layout, rank))
        there, again = holding.activations_of(
            self.numbers, layout, rank, held, self.setting.fused, self.setting.formats.moved
        )
        ends = holding.ends_of(self.numbers, layout, rank, self.setting.fused)
        if (
            layout.order == "gpipe" and layout.pipeline > 1
        ):  # the losses of all micro-batches are taken before the first goes back
            there += (self.micro_batches - 1) * ends
        whole: Any = 0
        if layout.zero == 3 and layout.data * layout.context > 1:
            among = holding.experts_gathered(layout)
            whole = reduced(gathered(self.numbers.model, self.setting.precision, among) / Fraction(layout.tensor))
        loss = holding.loss_of(self.numbers, layout, rank)
        return Memory(name, weights, gradients, optimizer, there, ends, again, gathered=whole, loss=loss)

    def _regathered(self) -> list[str]:
        layout, found = self.layout, []
        again, whole = "are gathered again in the backward pass", "are kept whole"
        if layout.tensor > 1 and layout.sequence:
            found.append(f"inputs of branches {f'{again}, beside arithmetic' if layout.regather == 'all' else whole}")
        if layout.context > 1:
            found.append(f"keys and values {whole if layout.regather == 'none' else again}")
        return found

    def supposes(self) -> tuple[str, ...]:
        """What the numbers rest on."""
        layout, setting = self.layout, self.setting
        share = setting.cluster.matmul_efficiency
        said = ["products at the peak" if share == 1 else f"products at {share:.0%} of the peak"]
        if layout.ranks > 1:
            shown = ", ".join(name for name in OVERLAPS if name in setting.overlap) or "nothing"
            said.append(f"beside arithmetic run: {shown}")
        said.extend(self._regathered())
        if layout.pipeline > 1 and len({sum(rank.kinds) for rank in self.ranks}) > 1:
            said.append("layers of the ranks: " + ", ".join(str(sum(rank.kinds)) for rank in self.ranks))
        if layout.expert > 1:
            said.append("each expert gets as many tokens as the others")
            if setting.expert_nodes is not None:
                at = (
                    "as many nodes as chance gives"
                    if isinstance(setting.expert_nodes, str)
                    else f"{setting.expert_nodes} nodes at most"
                )
                said.append(f"the experts of a token lie in {at}, and it goes to each of these once")
        vocab: Any = self.numbers.model.vocab
        if vocab % layout.tensor:
            said.append(f"a vocabulary of {vocab:,} as if {layout.tensor} divided it")
        if setting.fp8_copies:
            said.append(f"matrices of the layers have copies of {setting.fp8_copies:g} bytes a number beside them")
        if setting.fused:
            said.append("outputs of norms and activations are computed again, in no time")
        if self.numbers.mtp is not None:
            copy = (
                ", which has an embedding of its own for it"
                if layout.pipeline > 1 and layout.order != "dualpipe"
                else ""
            )
            said.append(f"multi-token prediction runs on the last rank{copy}, and is not recomputed")
        if setting.mla_up_proj:
            said.append("up-projections of latent attention run again")
        if setting.activations != "as computed":
            said.append(f"activations are kept as in {setting.activations}")
        return tuple(said)
