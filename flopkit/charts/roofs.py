"""Measurements of several devices on one roofline: each as a share of the roof of its own device."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, column
from flopkit.charts.readings import pick
from flopkit.devices import device, measured_device
from flopkit.layers.products import matmul
from flopkit.recordings.cases import Case

__all__ = ["Dots", "measured", "on_one_roof", "published"]

NAMED = ("m", "n", "k", "transposed", "groups", "row")  # columns that tell a published product from others

RAISED = ", raised to the fastest dot"  # of a measured peak that was too low
SHAPES = ("circle", "square", "diamond", "triangle-up")  # beside colours, for those who don't see them
SIDES = {
    "right": ("left", 7, 1),
    "above": ("center", 0, -11),
    "below": ("center", 0, 13),
}  # of a dot: how its name is set


@dataclass(frozen=True)
class Dots:
    """Measurements of one owner on one device.

    Parameters
    ----------
    whose : str
        Who measured, and on what: the words of the legend.
    flops_per_s, bytes_per_s : float
        The ceilings of the device: its roof.
    ceilings : str, optional
        Where these come from, such as ``"datasheet"`` or ``"measured"``.
    rows : list[tuple[str, float, float, float]], optional
        Label, FLOPs, bytes and seconds of each.
    """

    whose: str
    flops_per_s: float
    bytes_per_s: float
    ceilings: str = "datasheet"
    rows: list[tuple[str, float, float, float]] = field(default_factory=list)

    def add(self, label: str, flops: float, bytes: float, seconds: float) -> Dots:
        """One more measurement.

        >>> Dots("a card, by its maker", 1e12, 1e11).add("a product", 1e9, 1e6, 2e-3).rows
        [('a product', 1000000000.0, 1000000.0, 0.002)]
        """
        self.rows.append((label, flops, bytes, seconds))
        return self

    def placed(self) -> list[dict[str, Any]]:
        """The dots of the plot: intensity over the device's ridge, rate over its ceiling, and what explains them."""
        ridge = self.flops_per_s / self.bytes_per_s
        return [
            {
                "key": f"{self.whose}: {label}", "whose": self.whose, "label": label, "intensity": flops / bytes / ridge,
                "rate": flops / seconds / self.flops_per_s, "flops_per_s": flops / seconds, "seconds": seconds,
                "roof": min(1.0, flops / bytes / ridge), "ceilings": self.ceilings,
            }
            for label, flops, bytes, seconds in self.rows
        ]  # fmt: skip


def measured(cases: Iterable[Case], label: Callable[[Case], str] | None = None) -> list[Dots]:
    """Recorded cases as dots, one `Dots` for each owner and number format, over the ceilings that were measured of their device.

    Cases without times, as published ones are, and those of devices without ceilings are left out. A ceiling that a case exceeds was measured
    too low, so it is raised to that rate, and ``ceilings`` says so: no dot stands above the flat part of its roof. Where a cache serves the bytes, one may stand left of it.

    Parameters
    ----------
    cases : Iterable[Case]
        As `flopkit.recordings.records` and `flopkit.experiments.here` give them.
    label : Callable[[Case], str], optional
        What a dot is called. None: its case.

    Examples
    --------
    >>> ok = {"verdict": "ok"}
    >>> found = {"title": "my CPU", "matmul": {"fp32": {"flops_per_s": 1e11, **ok}}, "traffic": {"copy": {"bytes_per_s": 1e10, **ok}}}
    >>> found |= {"threads": 2, "memory": 1e9, "when": "2026-01-01"}
    >>> record = {"case": "n=8", "dtype": "fp32", "counted": {"flops": 1024, "bytes": 768}, "seconds": {"mean": 1e-6}, **ok}
    >>> measured([Case(record, "yours", "yours: my CPU", "my CPU", found)])[0].rows
    [('n=8', 1024, 768, 1e-06)]
    """
    layers: dict[str, Dots] = {}
    for case in cases:
        if "seconds" not in case or case.ceilings is None or case["verdict"] != "ok":
            continue
        own = measured_device(case.ceilings)
        if case["dtype"] not in own.dtypes or not (case["counted"]["flops"] and case["counted"]["bytes"]):
            continue
        # who recorded ours is too long for a legend
        owner = f"ours: {case.device}" if case.owner == "ours" else case.whose
        whose = f"{owner}, {case['dtype']}"
        fresh = Dots(whose, own.peak(case["dtype"]), own.bandwidth, "measured")
        layers.setdefault(whose, fresh).add(
            label(case) if label else case["case"],
            case["counted"]["flops"],
            case["counted"]["bytes"],
            case["seconds"]["mean"],
        )
    return [_raised(one) for one in layers.values()]


def _raised(layer: Dots) -> Dots:
    """The same over a peak that no dot exceeds; the roof says so where it is raised."""
    fastest = max(flops / seconds for _, flops, _, seconds in layer.rows)
    if fastest <= layer.flops_per_s:
        return layer
    return replace(layer, flops_per_s=fastest, ceilings=f"{layer.ceilings}{RAISED}")


def published(cases: Iterable[Case]) -> list[Dots]:
    """Published products of matrices as dots, one `Dots` for each source, device and number format, over the datasheet of the device.

    The FLOPs are ``2·m·n·k``. The bytes are those of the bandwidth that the source prints; where it prints none, each matrix once. Other work
    is left out, as are several devices together, and devices and number formats that `flopkit.device` does not know.

    Parameters
    ----------
    cases : Iterable[Case]
        As ``flopkit.recordings.records(experiment, owner="theirs")`` gives them.

    Examples
    --------
    >>> from flopkit.recordings import records
    >>> [dots] = published(records("matmul_sizes", owner="theirs", device="h800"))
    >>> label, flops, bytes, seconds = dots.rows[0]
    >>> label, round(flops / seconds / 1e12), round(bytes / seconds / 1e9)
    ('m=64, n=2112, k=7168', 206, 1688)
    """
    layers: dict[str, Dots] = {}
    for case in cases:
        row, dtype = case.get("extra", {}), case["dtype"]
        known = row.get("kind") == "matmul" and row.get("m") and row.get("flops_per_s") and row["count"] == 1
        if not known or row["device_name"] is None or dtype not in device(row["device_name"]).dtypes:
            continue
        card, cost = device(row["device_name"]), matmul(m=row["m"], k=row["k"], n=row["n"], dtype=dtype)
        seconds = cost.flops / row["flops_per_s"]
        printed = row.get("bandwidth_GBps")
        whose = f"{case.whose}, {dtype}"
        layers.setdefault(whose, Dots(whose, card.peak(dtype), card.bandwidth)).add(
            ", ".join(f"{name}={row[name]}" for name in NAMED if row.get(name) is not None),
            cost.flops,
            printed * 1e9 * seconds if printed else cost.bytes,
            seconds,
        )
    return list(layers.values())


def on_one_roof(
    layers: Sequence[Dots], title: str, conclusion: str, caption: str = "", height: int = 320,
    names: Mapping[str, str | tuple[str, str]] | None = None,
) -> Figure:  # fmt: skip
    """Measurements of several owners on one roofline.

    Devices differ, so each dot is a share of the roof of its own device, by datasheet or by measured ceilings: FLOP/s over the peak, and intensity
    over the ridge. The roof is then the same for all: it rises to 1 at the ridge and is flat from there on.

    A page of the built book leaves the reader's own out, those whose owner begins with "your": they would be its builder's.

    Parameters
    ----------
    layers : Sequence[Dots]
        The measurements, one entry for each owner; those without any are left out.
    title : str
        What is shown.
    conclusion : str
        What it says, in a sentence: the alternative text.
    caption : str, optional
        A note below the chart, before the one on the ceilings.
    height : int, optional
        Height of the chart in pixels.
    names : Mapping[str, str | tuple[str, str]], optional
        What is written beside a dot, by its label, or by owner and label, ``"whose: label"``; short and few, since names of near dots overlap.
        ``(name, "above")`` and ``(name, "below")`` put it there, instead of right of the dot. Every dot says its label when it is pointed at.

    Raises
    ------
    ValueError
        Where nobody has measured anything, or two measurements of one owner have one label.

    Examples
    --------
    >>> theirs = Dots("a card, by its maker", 1e12, 1e11).add("a product", 1e9, 1e6, 2e-3)
    >>> figure = on_one_roof([theirs], "A product", "It reaches half of the roof.")
    >>> [(row["intensity"], row["rate"]) for row in figure.data()]
    [(100.0, 0.5)]
    """
    if os.environ.get("FLOPKIT_BOOK"):
        layers = [layer for layer in layers if not layer.whose.startswith("your")]
    rows = [row for layer in layers for row in layer.placed()]
    keys = [row["key"] for row in rows]
    if not rows:
        raise ValueError("nothing was measured: give Dots with at least one measurement")
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice!r} stands there twice: give each measurement of an owner a label of its own")
    owners = [layer.whose for layer in layers if layer.rows]
    low = min(0.01, *(min(row["intensity"], row["rate"]) for row in rows)) / 2
    far = max(100.0, *(row["intensity"] for row in rows)) * 2
    tens = [10.0**k for k in range(-6, 7)]
    high = max(2.0, *(2 * row["rate"] for row in rows))
    named = {row["key"]: _named((names or {}).get(row["key"], (names or {}).get(row["label"], ""))) for row in rows}
    sides = sorted({side for each in named.values() for side in each})

    def row(r: Any, *, measurement: Any) -> None:
        for name in ("whose", "label", "intensity", "rate", "roof", "flops_per_s", "seconds", "ceilings"):
            setattr(r, name, pick(measurement, {each["key"]: each[name] for each in rows}))
        for side in sides:
            setattr(r, side, pick(measurement, {each["key"]: named[each["key"]].get(side, "") for each in rows}))

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "intensity:Q", title="intensity ÷ ridge of its roof",
            scale=alt.Scale(type="log", domain=[low, far], nice=False), axis=alt.Axis(format="~g", grid=False, values=tens),
        )  # fmt: skip
        y = alt.Y(
            "rate:Q", title="FLOP/s ÷ peak of its roof",
            scale=alt.Scale(type="log", domain=[low, high], nice=False), axis=alt.Axis(format="~p", grid=True, values=tens),
        )  # fmt: skip
        ends = [{"intensity": low, "rate": low}, {"intensity": 1, "rate": 1}, {"intensity": far, "rate": 1}]
        roof = alt.Chart(alt.Data(values=ends)).mark_line(color=theme.MUTED).encode(x=x, y=y)
        scale = {"domain": owners}
        legend = alt.Legend(title=None, orient="bottom", columns=1, labelLimit=0)
        dots = s.rows.mark_point(size=70, filled=True, opacity=0.85).encode(
            x=x, y=y,
            color=alt.Color(
                "whose:N", legend=legend, scale=alt.Scale(**scale, range=[*theme.CATEGORIES, theme.MUTED][: len(owners)])
            ),
            shape=alt.Shape(
                "whose:N", legend=legend, scale=alt.Scale(**scale, range=[SHAPES[i % len(SHAPES)] for i in range(len(owners))])
            ),
            tooltip=[
                alt.Tooltip("label:N", title="what"), alt.Tooltip("whose:N", title="whose"),
                alt.Tooltip("rate:Q", title="of the peak", format=".3~p"), alt.Tooltip("roof:Q", title="roof", format=".3~p"),
                alt.Tooltip("flops_per_s:Q", title="FLOP/s", format=".3~s"), alt.Tooltip("seconds:Q", title="seconds", format=".3~s"),
                alt.Tooltip("ceilings:N", title="roof by"),
            ],
        )  # fmt: skip
        beside = [
            theme.words(s.rows, dict(zip(("align", "dx", "dy"), SIDES[side], strict=True)), x=x, y=y, text=f"{side}:N")
            for side in sides
        ]
        return alt.layer(roof, *(halo for halo, _ in beside), dots, *(words for _, words in beside))

    told = "; ".join(
        f"{layer.whose}: {layer.ceilings.removesuffix(RAISED)} roof{RAISED * layer.ceilings.endswith(RAISED)}"
        for layer in layers
        if layer.rows
    )
    if all(layer.ceilings == "datasheet" for layer in layers if layer.rows):
        told = "Each roof is that of the device's datasheet"
    return Figure(
        name=re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"), title=title, alt=conclusion, model=lambda s: None, controls=[],
        rows=along("measurement", keys, row), chart=chart, height=height, caption=f"{caption} {told}.".strip(),
        table=[
            column("whose", "Whose"), column("label", "What"), column("intensity", "Intensity ÷ ridge", "ratio"),
            column("rate", "Of the peak", "%"), column("roof", "Roof", "%"), column("flops_per_s", "Rate", "FLOP/s"),
            column("seconds", "Time", "s"),
        ],
    )  # fmt: skip


def _named(name: str | tuple[str, str]) -> dict[str, str]:
    """What is written on a side of a dot; nothing where it has no name."""
    text, side = (name, "right") if isinstance(name, str) else name
    if side not in SIDES:
        raise ValueError(f"names: {name!r}: the side must be one of {', '.join(SIDES)}")
    return {side: text} if text else {}
