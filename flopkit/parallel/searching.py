"""All layouts of a model on a cluster, the fastest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, NamedTuple

from flopkit import names, units
from flopkit.models import Model
from flopkit.models.catalogue import the_model
from flopkit.parallel.clusters import Cluster, cluster as the_cluster
from flopkit.parallel.layouts import Layout
from flopkit.parallel.plans import Plan, Setting
from flopkit.parallel.steps import ParallelStep, fits, of_plan
from flopkit.sizes import number, several, short
from flopkit.tables import Table

__all__ = ["Found", "Refused", "search"]


class Refused(NamedTuple):
    """What of a search makes no step: a layout, or the degrees of which there is none, and why."""

    layout: str
    reason: str


@dataclass(frozen=True, repr=False)
class Found:
    """What a search found.

    Attributes
    ----------
    steps : tuple[ParallelStep, ...]
        Those of layouts that fit, the fastest first.
    tried : int
        Layouts by which model, batch and devices can be divided, whether they fit or not.
    supposes : tuple[str, ...]
        What all rest on.
    refused : tuple[Refused, ...]
        Degrees that were asked for and divide nothing, each with the reason.
    least : float or None
        Bytes of the fullest rank of the layout that needs the least memory, at their peak.
    room : float or None
        Bytes that a step may take of a device.
    """

    steps: tuple[ParallelStep, ...]
    tried: int
    supposes: tuple[str, ...]
    refused: tuple[Refused, ...] = ()
    least: float | None = None
    room: float | None = None

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
            why = next((f": {each.reason}" for each in self.refused if each.layout == str(layout)), "")
            raise ValueError(f"{layout} is not among the {len(self.steps)} layouts that fit{why}")
        return 1 + sum(each.seconds < own.seconds * (1 - 1e-9) for each in self.steps)

    def table(self, most: int = 20) -> Table:
        """One row a layout: seconds, MFU, memory of a rank at its peak."""
        rows = [
            {"layout": str(each.layout), "seconds": each.seconds, "MFU": each.mfu, "memory": float(each.memory.peak)}
            for each in self.steps[:most]
        ]
        formats = {"seconds": units.seconds, "MFU": units.percent, "memory": lambda v: units.si(v, "B")}
        return Table(rows, caption=str(self), formats=formats)

    def __str__(self) -> str:
        return f"{len(self.steps):,} of {self.tried:,} layouts fit; {self._why()}"

    def _why(self) -> str:
        """The fastest; or why there is none: the memory that is missing, and the reason that refused most."""
        if self.steps:
            return f"the fastest: {self.steps[0]}"
        if self.least is not None and self.room is not None:
            return f"the least takes {units.si(self.least, 'B')} of a rank's {units.si(self.room, 'B')}"
        found = Counter(each.reason for each in self.refused).most_common(2)
        return "refused: " + "; ".join(f"{reason} ({count:,} ×)" for reason, count in found)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def search(
    model: Model | str, cluster: Cluster | str, devices: int, *, seq: int, batch: int, tensor: Sequence[int] | None = None, context: Sequence[int] = (1,),
    pipeline: Sequence[int] | None = None, expert: Sequence[int] = (1,), virtual: Sequence[int] | None = None, micro_batch: Sequence[int] = (1, 2, 4),
    zero: Sequence[int] = (1,), recompute: Sequence[str] = ("none", "selective", "full"), schedule: str = "1f1b", sequence: bool = True,
    regather: str = "all", **asked: Any,
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
    sequence : bool, optional
        As in `Layout`, of all that are tried.
    regather : str, optional
        As in `Layout`, of all that are tried.
    **asked : Any
        Handed to `step`: precision, kernel, fused, overlap and so on.

    Returns
    -------
    Found

    Raises
    ------
    ValueError
        For models that `step` does not know, and values that no layout and no step can have. Degrees by which the model, the batch or the devices cannot
        be divided are left out, and ``Found.refused`` says why.
    TypeError
        For an argument that neither `search` nor `step` has, and for one value where several are wanted.

    Examples
    --------
    >>> found = search("llama-3-8b", "dgx-h100", 64, seq=8192, batch=128, zero=(1, 3))
    >>> found[0].layout.ranks, found.steps == tuple(sorted(found.steps, key=lambda each: each.seconds))
    (64, True)
    """
    model, place = the_model(model), the_cluster(cluster)
    devices = number("devices", devices)
    degrees = _degrees(
        tensor=tensor, context=context, pipeline=pipeline, expert=expert, virtual=virtual, micro_batch=micro_batch, zero=zero, recompute=recompute
    )  # fmt: skip
    known = [field.name for field in fields(Setting)[4:]]
    for name in asked:
        if name not in known:
            own = [*degrees, "schedule", "sequence", "regather", *known]
            raise TypeError(f"search has no argument {name!r}; {names.hint(name, own)}")
    setting = Setting(model, place, seq, batch, **asked)
    tried, least, fit, refused = 0, None, [], []
    last: Plan | None = None
    for layout in _layouts(
        setting, devices, degrees, {"schedule": schedule, "sequence": sequence, "regather": regather}
    ):
        if isinstance(layout, Refused):
            refused.append(layout)
            continue
        try:
            plan = Plan(setting, layout)
        except ValueError as error:
            refused.append(Refused(str(layout), str(error)))
            continue
        tried, last = tried + 1, plan
        held = plan.memory()
        least = float(held.peak) if least is None else min(least, float(held.peak))
        if fits(plan, held):
            fit.append(of_plan(plan, held))
    supposes = () if last is None else last.supposes()
    ranked = tuple(sorted(fit, key=lambda each: each.seconds))
    return Found(ranked, tried, supposes, tuple(refused), least, setting.room)


def _degrees(**given: Any) -> dict[str, tuple[Any, ...] | None]:
    """What is tried of each degree, checked; None where the search chooses."""
    found: dict[str, tuple[Any, ...] | None] = {}
    for name, values in given.items():
        found[name] = None if values is None and name in ("tensor", "pipeline", "virtual") else several(name, values)
        if found[name] == ():
            raise ValueError(f"{name}={short(values)}: there is nothing to try; give at least one value")
        for value in found[name] or ():
            Layout(**{name: value}) if name in ("zero", "recompute") else number(name, value)
    return found


def _divisors(n: int, most: int) -> list[int]:
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


def _layouts(
    setting: Setting, devices: int, given: Mapping[str, tuple[Any, ...] | None], alike: Mapping[str, Any]
) -> Iterator[Layout | Refused]:
    """The layouts of *devices*, and of the values that were given those that divide neither them nor the batch, nor the layers."""
    numbers, batch = setting.numbers, setting.batch
    layers, own = numbers.places, given["virtual"] or given["pipeline"]
    inner = [given[name] or () for name in ("zero", "recompute")]
    for t, c in product(given["tensor"] or _divisors(devices, setting.cluster.per_node), given["context"] or ()):
        at = {"tensor": t, "context": c}
        if devices % (t * c):
            yield _refused(f"{devices:,} devices cannot be divided by tensor · context = {t * c}", at)
            continue
        for p in given["pipeline"] or _divisors(devices // (t * c), layers + 2):
            at["pipeline"], (d, rest) = p, divmod(devices, t * c * p)
            if rest or batch % d:
                shared = f"{devices:,} devices cannot be divided by tensor · context · pipeline = {t * c * p}"
                yield _refused(
                    shared if rest else f"batch={batch} cannot be divided among {d:,} data-parallel ranks", at
                )
                continue
            stages = sorted({1, *_divisors(layers // p, layers), *_divisors((layers + 2) // p, layers)})
            for v in (given["virtual"] or stages) if p > 1 else (1,):
                if not numbers.divisible(p, v):
                    if own:
                        yield _refused(
                            f"{layers} layers cannot be divided into {p * v} equal stages", at | {"virtual": v}
                        )
                    continue
                for b in given["micro_batch"] or ():
                    if (batch // d) % b or (v > 1 and (batch // d // b) % p):
                        multiple = f", a multiple of {p} with several virtual stages" if v > 1 else ""
                        reason = (
                            f"{batch // d} sequences of a rank make no whole number of micro-batches of {b}{multiple}"
                        )
                        yield _refused(reason, at | {"virtual": v, "micro_batch": b})
                        continue
                    for e in given["expert"] or ():
                        if (t * c * d) % e:
                            reason = f"{t * c * d} ranks of a stage cannot be divided by expert={e}"
                            yield _refused(reason, at | {"expert": e})
                            continue
                        for z, again in product(*inner):
                            yield Layout(t, c, p, d, e, z, v, b, recompute=again, **alike)


def _refused(reason: str, degrees: Mapping[str, int]) -> Refused:
    return Refused(", ".join(f"{name}={value}" for name, value in degrees.items()), reason)
