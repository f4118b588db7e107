"""The gap between a run and its device's peak, item by item, up to what nobody can explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flopkit import units
from flopkit.conventions import Convention
from flopkit.derivations import number_format
from flopkit.devices import Device
from flopkit.models import Model
from flopkit.models.catalogue import the_model
from flopkit.parallel.clusters import Cluster, cluster as the_cluster
from flopkit.parallel.layouts import Layout, the_layout
from flopkit.parallel.plans import OVERLAPS
from flopkit.parallel.steps import ParallelStep, step
from flopkit.sizes import number, positive
from flopkit.tables import Table
from flopkit.training.memory import state_bytes
from flopkit.utilization.products import by_product

__all__ = ["ITEMS", "Gap", "Item", "gap", "interleaved", "step_seconds_of", "traffic"]

ITEMS = {
    "arithmetic": "model FLOPs at the peak of the fastest format",
    "format": "products that run in a slower format",
    "products": "what the best measured matrix product leaves of the peak",
    "recompute": "work that is done again, attention's scores included",
    "imbalance": "the slowest stage's work above the mean, and what several ranks compute alike",
    "memory": "operators without products, each by itself, and the optimiser's states",
    "bubble": "stages of a pipeline that wait",
    "tensor": "sums of tensor-parallel ranks that no arithmetic hides",
    "context": "keys and values of context-parallel ranks",
    "expert": "tokens on their way to experts and back",
    "pipeline": "activations between stages",
    "data": "gradients and weights that no arithmetic hides",
    "unexplained": "what is left of the step",
}
"""What a step's time goes to, in the order of the table."""


class Item(NamedTuple):
    """A part of a step: its name, its seconds, and the points of MFU that it takes (``100 · seconds / step``)."""

    name: str
    seconds: float
    points: float


@dataclass(frozen=True, repr=False)
class Gap:
    """A run's step, divided into items that add up to it.

    Attributes
    ----------
    run : str
        What ran.
    step_seconds : float
        The step's time, as it was given or follows from the rate.
    mfu : float
        Under EXACT, over the peak of the fastest format.
    peak : str
        That format.
    items : tuple[Item, ...]
        The parts, in the order of ``ITEMS``. The last is *unexplained*; below zero it says that more was hidden, or ran faster, than was supposed.
    bound : ParallelStep
        The least time: products at the peak, all that is sent beside them.
    supposes : tuple[str, ...]
        What the items rest on.
    """

    run: str
    step_seconds: float
    mfu: float
    peak: str
    items: tuple[Item, ...]
    bound: ParallelStep
    supposes: tuple[str, ...]

    def __getitem__(self, name: str) -> Item:
        for item in self.items:
            if item.name == name:
                return item
        raise KeyError(f"{name!r}: the items are {', '.join(ITEMS)}")

    @property
    def largest(self) -> Item:
        """The item after the arithmetic that takes most of the step."""
        return max(self.items[1:], key=lambda item: item.seconds)

    @property
    def largest_known(self) -> Item:
        """The same without what is unexplained."""
        return max(self.items[1:-1], key=lambda item: item.seconds)

    @property
    def below_bound(self) -> bool:
        """Whether the run is faster than the bound: then a number of it, or the layout, is wrong."""
        return self.step_seconds < self.bound.seconds

    def table(self) -> Table:
        """One row an item: seconds, points of MFU, what it is."""
        rows: list[dict[str, Any]] = [
            {"item": item.name, "seconds": item.seconds, "points of MFU": item.points, "what": ITEMS[item.name]}
            for item in self.items
            if item.seconds or item.name == "unexplained"
        ]
        rows.append({"item": "step", "seconds": self.step_seconds, "points of MFU": 100.0, "what": "as given"})
        formats = {"seconds": units.seconds, "points of MFU": lambda value: f"{value:.1f}"}
        return Table(rows, caption=f"{self}. Supposed: {'; '.join(self.supposes)}", formats=formats)

    def __str__(self) -> str:
        least = f"at least {units.seconds(self.bound.seconds)}"
        if self.below_bound:
            least += ", which is longer than the step: a number of the run or of its layout is wrong"
        left = self.items[-1]
        said = (
            f"{left.points:.1f} points unexplained"
            if left.seconds >= 0
            else f"{-left.points:.1f} points more than the step"
        )
        return f"{self.run}: {units.seconds(self.step_seconds)} a step, {least}; MFU {100 * self.mfu:.1f} % of the {self.peak} peak, {self.largest.name} takes most, {said}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def gap(
    model: Model | str, layout: Layout, cluster: Cluster | str, *, seq: int, batch: int, step_seconds: float | None = None,
    tokens_per_s_per_device: float | None = None, tflops_per_device: float | None = None, mfu: float | None = None,
    convention: Convention | str = "EXACT", dtype: Any = "bf16", precision: str = "mixed-fp32-gradients",
    overlap: tuple[str, ...] = ("data", "pipeline"), products: float | None = None, uneven: int = 1,
    expert_nodes: int | str | None = None,
) -> Gap:  # fmt: skip
    """Where a run's step goes, from the peak down to what is unexplained.

        step = arithmetic + format + products + recompute + imbalance + memory + bubble + what is sent and does not hide + unexplained

    Each item but the last has a formula. None is fitted to the run, and what they leave is not distributed among them.

    Parameters
    ----------
    model : Model or str
        A decoder, or its name.
    layout : Layout
        The degrees.
    cluster : Cluster or str
        Where it ran.
    seq, batch : int
        Tokens of a sequence, sequences of a step on all devices.
    step_seconds : float, optional
        The time of a step. Exactly one of four rates is given.
    tokens_per_s_per_device : float, optional
        Tokens a second of one device.
    tflops_per_device : float, optional
        10¹² FLOP/s of one device, as *convention* counts FLOPs.
    mfu : float, optional
        The utilisation as a share, as *convention* counts FLOPs, over the peak of *dtype*'s fastest format.
    convention : Convention or str, optional
        How the source counts FLOPs.
    dtype : Any, optional
        The format of the products, or several by what they multiply, as `doctor` takes them.
    precision : str, optional
        Of the states, as in `Model.train_memory`.
    overlap : tuple[str, ...], optional
        What runs beside arithmetic, as in `flopkit.parallel.step`.
    products : float, optional
        The share of the peak that products usually reach. None: the best measured product of the device, where there is one.
    uneven : int, optional
        Virtual stages of a rank that are not equal, which *layout* cannot say with ``virtual=1``: the bubble is divided by them.
    expert_nodes : int or str, optional
        Nodes to which a token goes once, as in `flopkit.parallel.step`. None: a copy for each expert, or ``"expected"`` where copies alone would take longer than the
        step. The bound takes one node whatever it is: no router that sends each rank's tokens evenly to all ranks asks the network for less.

    Returns
    -------
    Gap

    Raises
    ------
    TypeError
        For no rate and for two.
    ValueError
        For degrees that do not divide the model or the batch, shares outside 0 to 1, and rates that are not positive.

    Notes
    -----
    *memory*: operators without products read and write each tensor once forward and twice as much backward, spread evenly over all ranks, and the optimiser reads
    and writes its states once, all at the full bandwidth. A program that fuses them is faster, so this item is an estimate; so is *products*.
    Not an item of its own: launching kernels, loading data, stragglers, clocks that fall, uneven experts, latency.

    Examples
    --------
    >>> layout = Layout(tensor=8, pipeline=16, data=128, virtual=8)
    >>> found = gap("llama-3.1-405b", layout, "llama-3", seq=8192, batch=2048, tflops_per_device=400, convention="MEGATRON")
    >>> round(found.step_seconds, 2), found.largest.name, found.below_bound
    (6.46, 'unexplained', False)
    >>> sum(item.seconds for item in found.items) == found.step_seconds
    True
    """
    one, place, layout = the_model(model), the_cluster(cluster), the_layout(layout)
    seq, batch = number("seq", seq), number("batch", batch)
    whole = one.train_step(seq=seq, batch=batch)
    fastest, by_format, by_products, said = _speeds(whole, place.device, dtype, products)
    took = step_seconds_of(
        whole, layout.ranks * float(place.device.peak(fastest)), seq * batch / layout.ranks, layout.ranks, convention,
        {"step_seconds": step_seconds, "tokens_per_s_per_device": tokens_per_s_per_device, "tflops_per_device": tflops_per_device, "mfu": mfu},
    )  # fmt: skip
    asked: dict[str, Any] = {"seq": seq, "batch": batch, "precision": precision, "dtype": fastest}
    slower = place.replace(matmul_efficiency=1 / (by_format * by_products))
    uneven = number("uneven", uneven)
    bound = interleaved(step(one, layout, place, overlap=OVERLAPS, expert_nodes=1, **asked), uneven)
    usual = interleaved(step(one, layout, slower, overlap=overlap, expert_nodes=expert_nodes, **asked), uneven)
    if expert_nodes is None and usual.parts["expert"] > took:
        usual = interleaved(step(one, layout, slower, overlap=overlap, expert_nodes="expected", **asked), uneven)
        said = (*said, "a copy of a token for each of its experts would take longer than the step")
    arithmetic = float(whole.model_flops) / (layout.ranks * float(place.device.peak(fastest)))
    parts: dict[str, float] = {
        "arithmetic": arithmetic,
        "format": arithmetic * (by_format - 1),
        "products": arithmetic * by_format * (by_products - 1),
        "recompute": usual.parts["recompute"],
        "imbalance": usual.parts["arithmetic"] - arithmetic * by_format * by_products,
        "memory": traffic(one, layout, usual, precision) / float(place.device.bandwidth),
        "bubble": usual.parts["bubble"],
    } | {name: usual.parts[name] for name in OVERLAPS}
    before = sum(parts.values())
    parts["unexplained"] = took - before
    items = tuple(Item(name, parts[name], 100 * parts[name] / took) for name in ITEMS)
    run = f"{one.name} on {layout.ranks:,} × {place.device.name} ({layout}; {place.name})"
    supposes = (
        *said,
        *usual.supposes[1:],
        f"gradients and states: {precision}",
        "operators without products run apart",
    )
    return Gap(run, took, arithmetic / took, fastest, items, bound, supposes)


def interleaved(found: ParallelStep, stages: int) -> ParallelStep:
    """The step with its bubble divided by the virtual stages of a rank."""
    saved = found.parts["bubble"] * (1 - 1 / stages)
    shrink, parts = found.seconds / (found.seconds - saved), found.parts | {"bubble": found.parts["bubble"] - saved}
    return replace(found, seconds=found.seconds - saved, parts=parts, mfu=found.mfu * shrink, hfu=found.hfu * shrink)


def _speeds(whole: Any, card: Device, dtype: Any, products: float | None) -> tuple[str, float, float, tuple[str, ...]]:
    """The fastest format; how much longer the products take in their own formats, and at their usual share; in words."""
    if isinstance(dtype, Mapping):
        flops = {name: float(value) for name, value in by_product(whole, "model_flops", dtype).items()}
    else:
        flops = {number_format(dtype): float(whole.model_flops)}
    if products is not None and not 0 < products <= 1:
        raise ValueError(f"products={products}: the share of the peak that products reach, above 0 and at most 1")
    fastest = max(flops, key=lambda name: card.peak(name))
    at_peak = sum(value / card.peak(name) for name, value in flops.items())
    share = {name: products or _usual(card, name) for name in flops}
    usual = sum(value / card.peak(name) / share[name] for name, value in flops.items())
    said = ", ".join(f"{name} products at {share[name]:.0%} of the peak" for name in flops)
    source = "as given" if products else "the best that was measured"
    total = sum(flops.values())
    return fastest, at_peak * card.peak(fastest) / total, usual / at_peak, (f"{said} ({source})",)


def _usual(card: Device, name: str) -> float:
    """The measured ceiling of products by the peak; 1 where nobody measured."""
    return float(card.ceilings[name] / card.peak(name)) if name in card.ceilings else 1.0


def step_seconds_of(
    whole: Any, peak: float, tokens: float, ranks: int, convention: Convention | str, given: Mapping[str, float | None]
) -> float:  # fmt: skip
    """Seconds of a step from the one rate that is given."""
    there = {name: value for name, value in given.items() if value is not None}
    if len(there) != 1:
        raise TypeError(
            f"{' and '.join(f'{name}=' for name in there) or 'no rate'} given: give exactly one of {', '.join(f'{name}=' for name in given)}"
        )
    ((name, value),) = there.items()
    rate = float(positive(name, value, name))
    if name == "step_seconds":
        return rate
    if name == "tokens_per_s_per_device":
        return tokens / rate
    counted = float(whole.under(convention).model_flops)
    if name == "tflops_per_device":
        if rate > 1e7:
            raise ValueError(f"tflops_per_device={value}: is in 10¹² FLOP/s")
        return counted / (rate * 1e12 * ranks)
    if rate > 1:
        raise ValueError(f"mfu={value}: a share of the peak, at most 1; {value} % is mfu={rate / 100:g}")
    return counted / (rate * peak)


def traffic(model: Model, layout: Layout, found: ParallelStep, precision: str) -> float:
    """Bytes that a rank's memory moves beside products: operators without products, on average of all ranks, and the optimiser's states."""
    run = model._whole(found.seq, 1, "bf16", None)
    passes = 4 if layout.recompute == "full" else 3
    counts = [layers for _, layers in model.blocks] + [1] * (model.mtp is not None)
    stacks = [stack for stack in model.parts(run) if stack.place in ("layers", "mtp")]
    each_rank = 0.0
    for layers, stack in zip(counts, stacks, strict=True):
        for each in stack.inside:
            if not each.cost.flops:
                whole = each.split == "none" or (each.split == "sequence" and not layout.sequence)
                each_rank += layers * passes * float(each.cost.bytes) / (1 if whole else layout.tensor)
    sequences = found.batch / (layout.data * layout.context * layout.pipeline)
    weight, gradient, states = state_bytes(precision, "adam")
    optimizer = float(found.memory.optimizer) * (2 + (weight + gradient) / states)
    return each_rank * sequences + optimizer
