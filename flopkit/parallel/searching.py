"""All layouts of a model on a cluster, the fastest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flopkit import units
from flopkit.models import Model
from flopkit.models.catalogue import the_model
from flopkit.parallel.clusters import Cluster, cluster as the_cluster
from flopkit.parallel.layouts import Layout
from flopkit.parallel.plans import Plan, Setting
from flopkit.parallel.steps import ParallelStep, fits, of_plan
from flopkit.sizes import number
from flopkit.tables import Table

__all__ = ["Found", "search"]


@dataclass(frozen=True, repr=False)
class Found:
    """What a search found: the steps of layouts that fit, the fastest first; how many layouts were tried; what all rest on."""

    steps: tuple[ParallelStep, ...]
    tried: int
    supposes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, place: int) -> ParallelStep:
        return self.steps[place]

    def place(self, layout: Layout) -> int:
        """Which place *layout* has, counted from 1; layouts as fast share one.

        Raises
        ------
        ValueError
            If it was not tried or does not fit.
        """
        own = next((each for each in self.steps if each.layout == layout), None)
        if own is None:
            raise ValueError(f"{layout} is not among the {len(self.steps)} layouts that fit")
        return 1 + sum(each.seconds < own.seconds * (1 - 1e-9) for each in self.steps)

    def table(self, most: int = 20) -> Table:
        """One row a layout: seconds, MFU, memory of a rank."""
        rows = [
            {"layout": str(each.layout), "seconds": each.seconds, "MFU": each.mfu, "memory": float(each.memory.total)}
            for each in self.steps[:most]
        ]
        formats = {"seconds": units.seconds, "MFU": units.percent, "memory": lambda v: units.si(v, "B")}
        return Table(rows, caption=str(self), formats=formats)

    def __str__(self) -> str:
        best = f"; the fastest: {self.steps[0]}" if self.steps else ""
        return f"{len(self.steps):,} of {self.tried:,} layouts fit{best}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def search(
    model: Model | str, cluster: Cluster | str, devices: int, *, seq: int, batch: int, tensor: Sequence[int] | None = None, context: Sequence[int] = (1,),
    pipeline: Sequence[int] | None = None, expert: Sequence[int] = (1,), virtual: Sequence[int] | None = None, micro_batch: Sequence[int] = (1, 2, 4),
    zero: Sequence[int] = (1,), recompute: Sequence[str] = ("none", "selective", "full"), schedule: str = "1f1b", **asked: Any,
) -> Found:  # fmt: skip
    """Every layout of *devices* that the model can be divided by, and that fits, the fastest first.

    Parameters
    ----------
    model : Model or str
        A decoder, or its name.
    cluster : Cluster or str
        Where it runs.
    devices : int
        How many, all of them used.
    seq, batch : int
        As in `step`.
    tensor, context, pipeline, expert, virtual, micro_batch, zero : Sequence[int], optional
        What is tried. None: of tensor, all divisors up to a node; of pipeline, all divisors up to the layers; of virtual, one stage, of which
        those of a pipeline need not be equal, and all numbers of stages that divide the layers, or the layers with embedding and head.
    recompute : Sequence[str], optional
        What is tried of it.
    schedule : str, optional
        Of the pipelines.
    **asked : Any
        Handed to `step`: precision, kernel, fused, overlap and so on.

    Returns
    -------
    Found

    Raises
    ------
    ValueError
        For models that `step` does not know. A layout by which the model or the batch cannot be divided is left out.

    Examples
    --------
    >>> found = search("llama-3-8b", "dgx-h100", 64, seq=8192, batch=128, zero=(1, 3))
    >>> found[0].layout.ranks, found.steps == tuple(sorted(found.steps, key=lambda each: each.seconds))
    (64, True)
    """
    model, place = the_model(model), the_cluster(cluster)
    devices = number("devices", devices)
    setting = Setting(model, place, seq, batch, **asked)
    tried, fit = 0, []
    last: Plan | None = None
    degrees = (tensor, context, pipeline, expert, virtual, micro_batch, zero, recompute, schedule)
    for layout in _layouts(setting, devices, *degrees):
        try:
            plan = Plan(setting, layout)
        except ValueError:
            continue
        tried, last = tried + 1, plan
        held = plan.memory()
        if fits(plan, held):
            fit.append(of_plan(plan, held))
    supposes = () if last is None else last.supposes()
    return Found(tuple(sorted(fit, key=lambda each: each.seconds)), tried, supposes)


def _divisors(n: int, most: int) -> list[int]:
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


def _layouts(setting: Setting, devices: int, tensor: Any, context: Any, pipeline: Any, expert: Any, virtual: Any, micro_batch: Any, zero: Any, recompute: Any, schedule: str) -> Iterator[Layout]:  # fmt: skip
    layers, batch, place = setting.numbers.layers, setting.batch, setting.cluster
    for t in tensor or _divisors(devices, place.per_node):
        for c in context:
            if devices % (t * c):
                continue
            for p in pipeline or _divisors(devices // (t * c), layers + 2):
                d, rest = divmod(devices, t * c * p)
                if rest or batch % d:
                    continue
                several = [1, *_divisors(layers // p, layers), *_divisors((layers + 2) // p, layers)]
                for v in virtual or sorted(set(several)) if p > 1 else (1,):
                    if layers % (p * v) and (layers + 2) % (p * v) and (v > 1 or p > layers):
                        continue
                    for b in micro_batch:
                        if (batch // d) % b or (v > 1 and (batch // d // b) % p):
                            continue
                        for e in expert:
                            if (t * c * d) % e:
                                continue
                            for z in zero:
                                for again in recompute:
                                    yield Layout(t, c, p, d, e, z, v, b, True, again, schedule)
