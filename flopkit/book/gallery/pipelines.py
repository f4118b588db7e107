"""The figure of a pipeline: the bubble's share of a step by its micro-batches, for four schedules."""

from __future__ import annotations

import math
from typing import Any

from flopkit.arithmetic import ceil_div, minimum, where
from flopkit.charts import theme
from flopkit.charts.code import Code, unless, value
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.parallel import pipeline
from flopkit.parallel.pipelines import in_stages

__all__ = ["pipeline_playground"]

GPIPE, ONE, SEVERAL, ZERO = "GPipe", "1F1B", "interleaved 1F1B", "interleaved zero-bubble"
SCHEDULES = {GPIPE: "gpipe", ONE: "1f1b", SEVERAL: "interleaved", ZERO: "interleaved-zero-bubble"}
MICRO_BATCHES = steps(1, 1024)
CURVES = {
    "plain": ("GPipe and 1F1B", theme.BLUE, [1, 0]),
    "several": (SEVERAL, theme.ORANGE, [6, 4]),
    "zero": (ZERO, theme.GREEN, [2, 4]),
}


def _run(name: str, stages: Any, micro_batches: Any, virtual: Any, ratio: Any) -> Any:
    """A pipeline in which the forward pass of a micro-batch takes a rank 1. Interleaved ones get whole groups of micro-batches: others are refused."""
    several = name in (SEVERAL, ZERO)
    groups = ceil_div(micro_batches, stages) * stages
    return pipeline(
        stages=stages, micro_batches=groups if several else micro_batches, virtual=virtual if several else 1, schedule=SCHEDULES[name],
        forward=1, backward=ratio,
    )  # fmt: skip


def _of_step(s: Any, *, schedule: Any, stages: Any, micro_batches: Any, virtual: Any, ratio: Any) -> None:
    """Set the bubble, its two shares, and the micro-batches that the first rank holds."""
    runs = {name: _run(name, stages, micro_batches, virtual, ratio) for name in SCHEDULES}
    several = pick(schedule, {name: int(name in (SEVERAL, ZERO)) for name in SCHEDULES})
    s.several = 1 * several
    alone = "Interleaved schedules take groups of as many micro-batches as there are stages: {stages} do not divide {micro_batches} micro-batches."
    s.refused = where(where(s.several > 0, micro_batches % stages, 0) > 0, alone, "")
    s.bubble = pick(schedule, {name: 1.0 * run.bubble for name, run in runs.items()})
    s.work = 1.0 * micro_batches * (1 + ratio)
    s.step = s.work + s.bubble
    s.share = s.bubble / s.step
    s.of_work = s.bubble / s.work
    held = {
        GPIPE: micro_batches,
        ONE: in_stages(stages, micro_batches, 1, 0),
        SEVERAL: in_stages(stages, micro_batches, virtual, 0) / virtual,
        ZERO: minimum(stages, micro_batches),
    }
    s.held = pick(schedule, {name: 1.0 * number for name, number in held.items()})


def _at(r: Any, *, each: Any, stages: Any, virtual: Any, ratio: Any, **_: Any) -> None:
    """The bubble's share of the step with another number of micro-batches; of interleaved schedules, where there is one."""
    shares = {name: 1.0 * _run(name, stages, each, virtual, ratio).share for name in (ONE, SEVERAL, ZERO)}
    r.exists = where(each % stages > 0, 0, 1)
    r.plain = shares[ONE]
    r.several = pick(r.exists, {0: math.nan, 1: shares[SEVERAL]})
    r.zero = pick(r.exists, {0: math.nan, 1: shares[ZERO]})


def _chart(s: Any) -> Any:
    alt = need("altair")
    x = {"title": "micro-batches", **theme.log_scale(MICRO_BATCHES[0], MICRO_BATCHES[-1])}
    x["axis"] |= {"format": ",d"}
    y = {"title": "bubble, share of the step", "scale": alt.Scale(domain=[0, 1], nice=False), "axis": alt.Axis(format="%", tickCount=5)}  # fmt: skip
    lines = theme.curves(
        s.rows, CURVES, "part", {"strokeWidth": 2.5}, x=alt.X("each:Q", **x), y=alt.Y("part:Q", **y),
        tooltip=[alt.Tooltip("each:Q", title="micro-batches", format=","), alt.Tooltip("curve:N", title="schedule"), alt.Tooltip("part:Q", title="bubble", format=".1%")],
    ).transform_filter("isValid(datum.part)")  # fmt: skip
    dot = (
        s.now("micro_batches", "share")
        .mark_point(color=theme.INK)
        .encode(
            x=alt.X("micro_batches:Q", **x),
            y=alt.Y("share:Q", **y),
            tooltip=[alt.Tooltip("share:Q", title="bubble of this setting", format=".1%")],
        )
    )
    return alt.layer(lines, dot)


def _code() -> Code:
    names = {title: f'"{name}"' for title, name in SCHEDULES.items()}
    return Code((
        "import flopkit as fk\n\nrun = fk.parallel.pipeline(\n    stages=", value("stages"), ", micro_batches=", value("micro_batches"), ", schedule=", value("schedule", names),
        unless("schedule", [GPIPE, ONE], [", virtual=", value("virtual")]), ", backward=", value("ratio"), ",\n)\n",
        "print(float(run.share), float(run.share_of_ideal), float(run.in_flight()), float(run.bubble), float(run.total))\n",
    ))  # fmt: skip


def pipeline_playground() -> Figure:
    """Share of a training step for which a pipeline's stages wait, by micro-batches, stages and schedule."""
    small = {"stages": 4, "micro_batches": 8, "virtual": 2, "ratio": 2}
    llama = {"stages": 16, "micro_batches": 16, "virtual": 8, "ratio": 2}
    return Figure(
        name="pipeline-playground",
        title="How much of a step a pipeline waits",
        alt="Falling curves over the number of micro-batches: the bubble's share of a step with GPipe and 1F1B, which are one curve, and below it the curves of interleaved 1F1B and of "
        "interleaved zero-bubble with {virtual} each. A dot marks the setting: {schedule}, {stages}, {micro_batches} micro-batches: the bubble is {share} of the step, {of_work} of the work, and the first stage holds "
        "{held} micro-batches at most.",
        model=_of_step,
        controls=[
            slider("stages", "Stages (p)", steps(2, 64), value=4, unit="stages"),
            slider("micro_batches", "Micro-batches (m)", MICRO_BATCHES, value=8),
            choice("schedule", "Schedule", list(SCHEDULES), value=GPIPE),
            slider("virtual", "Virtual stages, interleaved (V)", steps(1, 16), value=2, unit="virtual stages"),
            slider("ratio", "Backward by forward", [1, 1.5, 2, 2.5, 3, 4], value=2),
        ],
        presets={
            "4 stages, 8 micro-batches, GPipe": {**small, "schedule": GPIPE},
            "The same, 1F1B": {**small, "schedule": ONE},
            "The same, interleaved": {**small, "schedule": SEVERAL},
            "Llama 3, 16,384 GPUs": {**llama, "schedule": SEVERAL},
            "Llama 3, 8,192 GPUs": {**llama, "schedule": SEVERAL, "micro_batches": 32},
            "16,384 GPUs without interleaving": {**llama, "schedule": ONE},
        },
        readouts=[
            readout("share", "Bubble, of the step", "%"),
            readout("of_work", "Bubble, of the work", "%"),
            readout("held", "Micro-batches on stage 1"),
            readout("bubble", "Bubble, in forward passes"),
            readout("step", "Step, in forward passes"),
        ],
        rows=along("each", steps(MICRO_BATCHES[0], MICRO_BATCHES[-1], per_octave=2), _at),
        chart=_chart,
        table=[
            column("each", "Micro-batches"),
            column("plain", "GPipe, 1F1B", "%"),
            column("several", "Interleaved 1F1B", "%"),
            column("zero", "Interleaved zero-bubble", "%"),
        ],
        refused="refused",
        code=_code(),
        caption="The formulas of fk.parallel.pipeline: equal stages, messages that take no time. "
        "A forward pass is that of one micro-batch through one stage, all its V virtual stages. Interleaved schedules take micro-batches in groups of as many as there are stages; their curves begin there. "
        "Zero-bubble: half of the backward pass makes gradients of weights, which wait until a stage has nothing else to do.",
        height=280,
    )  # fmt: skip
