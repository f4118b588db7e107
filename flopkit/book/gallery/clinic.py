"""The figure of the clinic: a step as rows, cures to tick, and the most that each can gain."""

from __future__ import annotations

from functools import reduce
from typing import Any

from flopkit.arithmetic import maximum, vega, where
from flopkit.book.gallery.patients import CONTEXT, PATIENTS
from flopkit.book.gallery.rest import DEVICES
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, switch
from flopkit.charts.readings import pick

__all__ = ["CURES", "ROWS", "cures", "step_of_rows"]

ROWS = {
    "products": "matmuls, convolutions",
    "attention": "attention",
    "pointwise": "norms, element-wise",
    "optimizer": "optimiser",
    "host": "waiting for launches",
    "loader": "waiting for data",
}
CURES = {
    "fuse": "fuse",
    "launches": "fewer launches",
    "flash": "fused attention",
    "half": "lower precision",
    "ahead": "data loader",
    "grow": "larger batch",
    "one": "fused optimiser",
}
"""Switches, and what `flopkit.Profile.advice` calls each."""
LABELS = {
    "fuse": "Fuse element-wise chains",
    "launches": "Fewer launches (CUDA graph)",
    "flash": "Fused attention, is_causal",
    "half": "Lower precision (16 bit)",
    "ahead": "Data loader works ahead",
    "grow": "Larger batch (8 ×)",
    "one": "Fused optimiser",
}
LARGER = 8
HIDDEN = "hidden"
"""In place of the best cure until one that helps is ticked: the reader guesses first."""
FIRST = next(title for title in PATIENTS if "GPT" in title)
BARS = {"before": "as it is", "after": "with the cures ticked", "least": "with every cure"}
COLOURS = [theme.ORANGE, theme.AMBER, theme.BLUE, theme.GREEN, theme.PURPLE, theme.SKY]
LEAST = 0.0005
"""Of the step: what gains less is called nothing."""


def _rows(patient: Any, device: Any, reach: Any, launch: Any, load: Any, ticked: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each row for the samples of one step of the patient, and for the host the seconds that its launches take."""
    fuse, launches, flash, half, ahead, grow, one = (ticked[name] for name in CURES)
    times = where(grow, LARGER, 1)
    narrow = where(half, 1 - patient.single / 2, 1)  # of the bytes: what is in 16 bits already stays
    peak = where(half, device.peak, where(patient.single == 1, device.lanes, device.peak)) * reach
    bandwidth = device.bandwidth * reach

    def kernel(flops: Any, moved: Any, once: Any = 0) -> Any:
        return maximum(patient.batch * flops / peak, (patient.batch * moved + once / times) * narrow / bandwidth)

    found = {
        "products": kernel(patient.flops, patient.moved, patient.weights),
        "attention": where(
            flash,
            kernel(patient.flash_flops, patient.flash_moved),
            kernel(patient.by_hand_flops, patient.by_hand_moved) + kernel(0, patient.softmax_moved),
        ),
        "pointwise": kernel(0, where(fuse, patient.fused_moved, patient.plain_moved)),
        "optimizer": where(one, patient.one_moved, patient.loop_moved) / times / bandwidth,
    }
    number = where(launches, 1, _launches(patient, ticked))
    found["launching"] = number / times * launch / 1e6
    found["host"] = maximum(0, found["launching"] - sum(found[name] for name in list(ROWS)[:4]))
    found["loader"] = where(ahead, 0, patient.loads * patient.batch * load / 1e3)
    return found


def _launches(patient: Any, ticked: dict[str, Any]) -> Any:
    """Launches of a step, if there is no CUDA graph."""
    return (
        patient.products_launches
        + where(ticked["flash"], patient.flash_launches, patient.by_hand_launches)
        + where(ticked["fuse"], patient.fused_launches, patient.plain_launches)
        + where(ticked["one"], patient.one_launches, patient.loop_launches)
    )


def step_of_rows(s: Any, *, patient: Any, device: Any, reach: Any, launch: Any, load: Any, **ticked: Any) -> None:
    """The step as it is, with the cures that are ticked, with all of them, and with one more of each."""
    settings = (patient, device, reach, launch, load)
    chosen = {"before": dict.fromkeys(CURES, False), "after": ticked, "least": dict.fromkeys(CURES, True)}
    for bar, cured in chosen.items():
        for name, seconds in _rows(*settings, cured).items():
            setattr(s, f"{bar}_{name}", seconds)
        setattr(s, bar, sum(getattr(s, f"{bar}_{name}") for name in ROWS))
    s.faster = s.before / s.after
    s.work = patient.batch * patient.model_flops / device.peak
    s.mfu_before, s.mfu, s.mfu_least = s.work / s.before, s.work / s.after, s.work / s.least
    for cure in CURES:
        rows = _rows(*settings, {**ticked, cure: True})
        setattr(s, f"saved_{cure}", 1 - sum(rows[name] for name in ROWS) / s.after)
    s.most = reduce(maximum, [getattr(s, f"saved_{cure}") for cure in CURES])
    s.gain = where(s.most > LEAST, s.most, 0)
    best: Any = "none"
    for cure in reversed(CURES):
        best = where(getattr(s, f"saved_{cure}") >= s.most, cure, best)
    s.best = where(s.most > LEAST, best, "none")
    s.told = where(s.after < s.before, s.best, HIDDEN)
    s.no_half = where(patient.single == 1, "", "This step runs in 16 bits already.")
    s.no_flash = where(patient.softmax_moved > 0, "", where(patient.flash_flops > 0, "Its attention is fused already.", "It has no attention."))  # fmt: skip
    s.no_launches = where(_launches(patient, ticked) > 1, "", "All that is left is one launch.")
    s.no_loader = where(patient.loads == 1, "", "This step loads nothing.")
    s.no_optimizer = where(patient.loop_moved > 0, "", "This step has no optimiser.")


def _row(r: Any, *, row: Any, **_: Any) -> None:
    """Milliseconds of one row in each of the bars."""
    for bar in BARS:
        setattr(r, f"ms_{bar}", 1e3 * pick(row, {title: getattr(r, f"{bar}_{name}") for name, title in ROWS.items()}))


def _chart(s: Any) -> Any:
    alt = need("altair")
    fields = {f"ms_{bar}": title for bar, title in BARS.items()}
    y = alt.Y("bar:N", title=None, sort=[*BARS.values()], scale=alt.Scale(domain=[*BARS.values()]), axis=alt.Axis(labels=False, ticks=False, domain=False))  # fmt: skip
    scale = alt.Scale(domain=[0, alt.ExprRef(f"1050 * ({vega(s.before)})")], nice=False)
    x = {"title": "ms for the samples of one step", "scale": scale, "axis": alt.Axis(format=",~r", tickCount=5, labelBound=True, labelFlush=True)}  # fmt: skip
    folded = s.rows.transform_fold([*fields], as_=["field", "ms"]).transform_calculate(
        bar=f"({fields})[datum.field]", place=f"indexof({[*ROWS.values()]}, datum.row)"
    )
    bars = folded.mark_bar(height=14, yOffset=9).encode(
        y=y, x=alt.X("ms:Q", stack="zero", **x), order=alt.Order("place:Q"),
        color=alt.Color("row:N", title=None, scale=alt.Scale(domain=[*ROWS.values()], range=COLOURS),
                        legend=alt.Legend(columns=2, orient="bottom", symbolType="square", labelLimit=0)),
        tooltip=[alt.Tooltip("row:N", title="row"), alt.Tooltip("bar:N", title="step"), alt.Tooltip("ms:Q", title="ms", format=",.3~r")],
    )  # fmt: skip
    words: list[Any] = []
    for bar, mfu in (("before", s.mfu_before), ("after", s.mfu), ("least", s.mfu_least)):
        said = s.now(total=1e3 * getattr(s, bar), mfu=mfu).transform_calculate(
            bar=f"'{BARS[bar]}'", label=f"'{BARS[bar]}: ' + format(datum.total, ',.3~r') + ' ms, MFU ' + format(100 * datum.mfu, '.3~r') + ' %'"
        )  # fmt: skip
        look = {"align": "left", "baseline": "middle", "dy": -8, "fontWeight": 600, "color": theme.INK}
        words += theme.words(said, look, y=y, x=alt.value(2), text="label:N")
    return alt.layer(bars, *words)


def cures() -> Figure:
    """A step as a bar of rows, and what is left of it with the cures that the reader ticks."""
    idle = {
        "launches": "no_launches",
        "half": "no_half",
        "flash": "no_flash",
        "ahead": "no_loader",
        "one": "no_optimizer",
    }
    return Figure(
        name="cures",
        title="A cure can gain no more than its rows take",
        alt="Three stacked bars of a step of {patient} on {device}, split into rows: the step as it is, {before} at {mfu_before} MFU; with the cures ticked, "
        "{after} at {mfu}, {faster} as fast; and with every cure, {least}. Of the cures that are left, this one could save most: {told}, at most "
        "{gain} of the step.",
        model=step_of_rows,
        controls=[
            choice("patient", "Patient", {title: count() for title, count in PATIENTS.items()}, value=FIRST),
            device_choice("device", "Device and its 16-bit format", DEVICES),
            slider("reach", "Kernels reach of their roof", [n / 20 for n in range(2, 21)], value=1, unit="%"),
            slider("launch", "A launch takes the host", [1, 2, 3, 4, 5, 7, 10, 15, 20, 30], value=5, unit="µs"),
            slider("load", "Loading an image takes", [0.1, 0.2, 0.5, 1, 2, 5, 10], value=1, unit="ms", idle="no_loader"),
            *(switch(name, LABELS[name], idle=idle.get(name, "")) for name in CURES),
        ],
        readouts=[
            readout("before", "As it is", "s"),
            readout("after", "With the cures ticked", "s"),
            readout("least", "With every cure", "s"),
            readout("mfu_before", "MFU as it is", "%"),
            readout("mfu", "MFU with these cures, at most", "%"),
            readout("faster", "Faster, at most", "×"),
            readout("after_launching", "The host launches for", "s"),
            readout("told", "The cure that could save most now", text={**CURES, "grow": "larger batch, per sample", "none": "none", HIDDEN: "tick one that helps first"}),
            readout("gain", "It saves of the step, at most", "%"),
        ],
        rows=along("row", [*ROWS.values()], _row),
        chart=_chart,
        table=[column("row", "Row"), *(column(f"ms_{bar}", title[0].upper() + title[1:], "ms") for bar, title in BARS.items())],
        caption="A model, not a measurement: a kernel takes its FLOPs at the peak or its bytes at the bandwidth, the longer of both, at the share that you set. At 100 %, every cure is an upper bound. The host launches ahead. "
        "A fused chain reads its inputs and writes its results once. A CUDA graph is one launch. Lower precision halves all bytes but the optimiser's; fp32 is without TF32. A loader that works ahead is never waited for. "
        f"A batch {LARGER} times as large is charged to the samples of one step. Llama reads {CONTEXT:,} cached tokens; GPT-2 trains on sequences of {CONTEXT:,}, ResNet-50 on batches of 64; GELU works on 2²⁶ elements. "
        "MFU: model FLOPs under EXACT over the 16-bit peak, whatever the format. " + peaks_note(DEVICES),
        height=250,
    )  # fmt: skip
