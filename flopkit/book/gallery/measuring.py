"""The figure of the chapter on measuring: what stopping rules report of a simulated clock whose truth is known."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import where
from flopkit.book.simulation import DRIFTS, RUNS, RUNS_SAME_TIME, SETTLES, STATES, Clock, clocks, recorded
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout
from flopkit.charts.readings import pick

__all__ = ["stopping_rules"]

RULE_NAMES = {
    "torch blocked_autorange": "torch blocked",
    "torch adaptive_autorange": "torch adaptive",
    "Triton do_bench": "Triton do_bench",
    "NVBench stdrel": "NVBench stdrel",
    "flopkit, over calls": "flopkit, by calls",
    "flopkit, over rounds": "flopkit",
}
MOVING = [drift for drift in DRIFTS if drift]
DRIFT_NAMES = {0.0: "none", 0.04: "4 % slow at first", 0.08: "8 % slow at first", -0.08: "8 % fast at first"}
# The number of a clock, 0 to 59: as many for each drift as there are ways to settle, states and spikes.
GROUP = 2 * len(STATES)
DRIFT = {
    title: {"first": 0, "moves": 0} if not drift else {"first": 1 + MOVING.index(drift) * len(SETTLES), "moves": 1}
    for drift, title in DRIFT_NAMES.items()
}
SETTLING = {f"in {seconds:g} s": i for i, seconds in enumerate(SETTLES)}
HELD = {"none": 0, "± 1 % for 0.1 s": 1, "± 1 % for 1 s": 2}
SPIKES = {"none": 0, "1 call in 100, 3×": 1}
TIME = {"each rule its own": 0, "4.5 s for every rule": 1}
VALUES = ("bias", "low", "high", "half", "covered", "seconds")


def _number(clock: Clock) -> int:
    drift = 0 if not clock.drift else 1 + MOVING.index(clock.drift) * len(SETTLES) + SETTLES.index(clock.settles)
    return drift * GROUP + 2 * STATES.index((clock.states, clock.hold)) + clock.spikes


CLOCKS = {_number(clock): clock for clock in clocks()}
ALL = len(CLOCKS)


def told_by(s: Any, *, rule: Any, drift: Any, settles: Any, states: Any, spikes: Any, time: Any) -> None:
    """What a rule tells of a clock, from the table of simulated runs."""
    s.clock = (drift.first + drift.moves * settles) * GROUP + 2 * states + spikes + ALL * time
    for value in VALUES:
        by_rule = {
            title: pick(
                s.clock,
                {
                    n + ALL * same: recorded(bool(same))[clock, name][value]
                    for same in (0, 1)
                    for n, clock in CLOCKS.items()
                },
            )
            for title, name in RULE_NAMES.items()
        }
        setattr(s, value, pick(rule, by_rule))
    s.steady = where(drift.moves == 0, "Nothing drifts.", "")


def stopping_rules() -> Figure:
    """Stopping rules of three tools and flopkit's on a simulated clock: the errors of a thousand runs, and how often the interval holds."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = alt.Y("rule:N", title=None, sort=list(RULE_NAMES), axis=alt.Axis(labelLimit=165, domain=False, ticks=False))
        # Stretched around zero, or the errors of tenths of a per cent would be dots without width beside those of 8 %.
        scale = alt.Scale(type="symlog", constant=0.002, domain=[-0.12, 6], nice=False)
        x: dict[str, Any] = {
            "title": ["error, stretched around 0", "orange: mean; blue: 9 runs of 10"],
            "scale": scale,
            "axis": alt.Axis(
                labelExpr="datum.value ? format(datum.value, '+.0%') : '0'",
                values=[-0.08, -0.01, 0, 0.01, 0.08],
                domain=False,
                grid=True,
            ),
        }
        faint = alt.condition("datum.rule == rule", alt.value(1), alt.value(0.5))
        tips = [
            alt.Tooltip("rule:N", title="rule"),
            alt.Tooltip("bias:Q", title="mean error", format="+.2%"),
            alt.Tooltip("low:Q", title="nine runs in ten, from", format="+.2%"),
            alt.Tooltip("high:Q", title="to", format="+.2%"),
            alt.Tooltip("covered:Q", title="interval holds the truth", format=".0%"),
        ]
        spread = s.rows.mark_rule(strokeWidth=7, strokeCap="round", color=theme.BLUE).encode(
            y=y, x=alt.X("low:Q", **x), x2="high:Q", opacity=faint, tooltip=tips
        )
        means = s.rows.mark_point(filled=True, size=36, color=theme.ORANGE, opacity=1).encode(
            y=y, x=alt.X("bias:Q", **x), tooltip=tips
        )
        words = theme.words(
            s.rows.transform_calculate(label="format(datum.covered, '.0%') + ' hold'", place="0.14"),
            {"align": "left", "fontWeight": 600},
            y=y,
            x=alt.X("place:Q", **x),
            text="label:N",
        )
        truth = (
            s.now(none=0)
            .mark_rule(color=theme.MUTED, strokeDash=[5, 4], strokeWidth=1.5)
            .encode(x=alt.X("none:Q", **x))
        )
        return alt.layer(truth, spread, means, *words)

    quiet = {"drift": "none", "settles": "in 0.5 s", "states": "none", "spikes": "none", "time": "each rule its own"}
    return Figure(
        name="stopping-rules",
        title="Errors of simulated measurements, by stopping rule",
        alt="One row a stopping rule: a bar in which nine of ten errors lie, a dot at their mean, and the share of runs whose interval holds "
        "the truth. With drift {drift}, states {states} and interruptions {spikes}, {rule} is off by {bias} on average; {covered} of its "
        "intervals hold the truth, and a measurement takes {seconds}.",
        model=told_by,
        controls=[
            choice("rule", "Stopping rule", list(RULE_NAMES), value="flopkit, over rounds"),
            choice("drift", "The device is", DRIFT, value="none"),
            choice("settles", "It settles", SETTLING, value="in 0.5 s", idle="steady"),
            choice("states", "States of the GPU clock", HELD, value="± 1 % for 0.1 s"),
            choice("spikes", "Interrupted calls", SPIKES),
            choice("time", "Time of a measurement", TIME, value="4.5 s for every rule"),
        ],
        presets={
            "States, the same time": {**quiet, "states": "± 1 % for 0.1 s", "time": "4.5 s for every rule"},
            "Drift": {**quiet, "drift": "8 % slow at first"},
            "Drift, the same time": {**quiet, "drift": "8 % slow at first", "time": "4.5 s for every rule"},
            "A fast start": {**quiet, "drift": "8 % fast at first"},
            "Slow drift": {**quiet, "drift": "8 % slow at first", "settles": "in 2 s"},
            "States": {**quiet, "states": "± 1 % for 0.1 s"},
            "Long states": {**quiet, "states": "± 1 % for 1 s"},
            "Interruptions": {**quiet, "spikes": "1 call in 100, 3×"},
            "Nothing but jitter": quiet,
        },
        readouts=[
            readout("bias", "Mean error", "%"),
            readout("low", "Nine of ten runs: lowest", "%"),
            readout("high", "Nine of ten runs: highest", "%"),
            readout("half", "Interval, on average ±", "%"),
            readout("covered", "Intervals that hold the truth", "%"),
            readout("seconds", "A measurement takes", "s"),
        ],
        rows=along("rule"),
        chart=chart,
        table=[
            column("rule", "Stopping rule"),
            column("bias", "Mean error", "%"),
            column("low", "From", "%"),
            column("high", "To", "%"),
            column("half", "Interval ±", "%"),
            column("covered", "Holds the truth", "%"),
            column("seconds", "Takes", "s"),
        ],
        caption=f"Simulated: {RUNS:,} runs for each rule and clock ({RUNS_SAME_TIME} with the same time), calls of 1 ms with 1 % of jitter. “Settles in” is the time in which the drift falls to "
        "37 %. The truth is the mean of a call in the long run. Rules and defaults from the tools' sources: torch 2.13, Triton 3.5.1, NVBench 66212f1; launches, "
        "caches and NVBench's discarding of throttled samples are not simulated. Torch reports a median, the others a mean. "
        "torch, Triton and NVBench print no interval of what they report: theirs here is 1.96 standard errors of their samples, as for “flopkit, over calls”. "
        "With the same time, each tool first runs calls for 2 s, as do_bench(warmup=2000) does, and then times them for 2.5 s; flopkit gets time_budget=4.5.",
        height=250,
    )
