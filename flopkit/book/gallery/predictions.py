"""The figure of the page of predictions: every tested part of every prediction, on a GPU and on CPUs."""

from __future__ import annotations

import json
import math
from typing import Any

from flopkit.arithmetic import where
from flopkit.book.explanations import MACHINES
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, column
from flopkit.charts.readings import pick
from flopkit.experiments import NAMES, experiment
from flopkit.experiments.expectations import Confirmation, Expectation, Finding, weak
from flopkit.experiments.pairs import Span

__all__ = ["deciding", "place", "predictions_held"]

FACTOR = 4  # outside the limits, one step of the scale is this factor
HALVES = {"gpu": "One H200", "cpu": "Two CPU cores"}  # by the scale of the recording
WIDTH = 3.3  # of a half of the chart, in widths of the limits
LEFT, RIGHT = -1.45, 1.65  # where a half ends; what lies farther out is drawn there
LOOKS = {  # colour and shape of a dot
    Confirmation.HELD: (theme.BLUE, "circle"),
    Confirmation.FAILED: (theme.ORANGE, "triangle-up"),
    Confirmation.NOT_CLEAR: (theme.MUTED, "diamond"),
}
HEADING = 1.7  # rows that an experiment's title takes
TICKS = {-1.0: "÷4", -0.5: "÷2", 0.5: "limits", 1.5: "×2"}


def place(expected: Expectation, value: float) -> float:
    """Where a value lies: 0 at the lower limit, 1 at the upper one, in proportion between them, and one farther for each factor of four outside.

    Where only a lower limit is set, a value inside lies at ``1 - limit / value``.

    >>> twice = Expectation("twice as long", (1.5, 2.5), "time", lambda of: [])
    >>> place(twice, 1.5), place(twice, 2.0), place(twice, 10.0), place(twice, 0.375)
    (0.0, 0.5, 2.0, -1.0)
    """
    least, most = expected.limits
    if value < least:
        return -math.log(least / value, FACTOR) if value > 0 else -math.inf
    if value > most:
        return 1 + math.log(value / most, FACTOR)
    return 1 - least / value if most == math.inf else (value - least) / (most - least)


def deciding(found: Finding) -> Span:
    """The value on which the word rests: of those that failed or missed, the one farthest outside, else the one whose interval comes nearest
    to a limit or crosses it farthest."""

    def outside(*values: float) -> float:
        return max(abs(place(found.expected, value) - 0.5) for value in values)

    if missed := found.missed:
        sound = [each for each in missed if not weak(each.cases)]
        return max(sound or missed, key=lambda each: outside(each.mean))
    return max(found.values, key=lambda each: outside(each.low, each.high))


def titled(name: str) -> str:
    return name[0].upper() + name[1:]


def _parts() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A row for each tested part: in which half and line of the chart it stands, and what it says. And the experiments' titles."""
    rows, titles, line = [], [], 0.0
    for name in NAMES:
        title = experiment(name).title
        titles.append({"line": line + HEADING / 2 - 0.35, "title": title})
        lines = dict.fromkeys(HALVES, 0)
        for machine in MACHINES:
            half = [*HALVES].index(machine.scale)
            for each in machine.findings(name):
                below = lines[machine.scale]
                lines[machine.scale] += 1
                value = deciding(each)
                ends = {"low": value.low, "mean": value.mean, "high": value.high}
                at = {key: min(max(place(each.expected, end), LEFT), RIGHT) for key, end in ends.items()}
                at |= {"left": LEFT, "right": RIGHT}
                rows.append(
                    {key: WIDTH * half + x for key, x in at.items()}
                    | {"line": line + HEADING + below, "experiment": title, "machine": titled(machine.name)}
                    | {"says": each.expected.says, "of": each.of, "seen": each.seen.removeprefix(f"{each.of}: ")}
                    | {"word": str(each.confirmation), "weak": weak(value.cases)}
                    | {"verdict": f"{each.confirmation}: {each.doubt}" if each.doubt else str(each.confirmation)}
                )
        line += HEADING + max(lines.values())
    return rows, titles


def predictions_held() -> Figure:
    """Every tested part of every prediction, on a GPU and on CPUs, against its limits."""
    parts, titles = _parts()
    last = max(row["line"] for row in parts) + 0.7

    def row(r: Any, *, part: Any) -> None:
        for key in parts[0]:
            setattr(r, key, pick(part, {number: found[key] for number, found in enumerate(parts)}))
        r.cases = where(r.weak == "", "steady", r.weak)

    def chart(s: Any) -> Any:
        alt = need("altair")
        ticks = {half * WIDTH + at: said for half in range(2) for at, said in TICKS.items()}
        names = {f"{at:.2f}": said for at, said in ticks.items()}
        axis = alt.Axis(
            orient="top", values=list(ticks), grid=False, domain=False, labelOverlap=False,
            labelExpr=f"({json.dumps(names)})[replace(format(datum.value, '.2f'), '\u2212', '-')]",
        )  # fmt: skip
        scale = alt.Scale(domain=[LEFT - 0.05, WIDTH + RIGHT + 0.05], nice=False, zero=False)

        def x(field: str) -> Any:
            return alt.X(f"{field}:Q", title=None, scale=scale, axis=axis)

        def vertical(field: str) -> Any:
            return alt.Y(
                f"{field}:Q", title=None, axis=None, scale=alt.Scale(domain=[last, -2.2], nice=False, zero=False)
            )

        y = vertical("line")
        words = [str(word) for word in LOOKS]
        colour, shape = (
            channel("word:N", title=None, scale=alt.Scale(domain=words, range=[look[i] for look in LOOKS.values()]))
            for i, channel in enumerate((alt.Color, alt.Shape))
        )
        tooltip = [
            alt.Tooltip("experiment:N"), alt.Tooltip("machine:N"), alt.Tooltip("says:N", title="predicted"),
            alt.Tooltip("of:N", title="measured"), alt.Tooltip("seen:N", title="result"), alt.Tooltip("verdict:N"),
            alt.Tooltip("cases:N"),
        ]  # fmt: skip
        halves = [
            {
                "from": half * WIDTH,
                "to": half * WIDTH + 1,
                "line": -1.5,
                "top": -0.9,
                "bottom": last,
                "machine": title,
                "is": "as predicted",
            }
            for half, title in enumerate(HALVES.values())
        ]
        bands, heads = (alt.Chart(alt.Data(values=values)) for values in (halves, titles))
        bold = {"baseline": "middle", "fontWeight": 600}
        return alt.layer(
            bands.mark_rect(color=theme.GRID, opacity=0.6).encode(
                x=x("from"), x2="to:Q", y=vertical("top"), y2="bottom:Q", tooltip="is:N"
            ),
            s.rows.mark_bar(opacity=0, height=10).encode(x=x("left"), x2="right:Q", y=y, tooltip=tooltip),
            s.rows.mark_rule(strokeWidth=1.5).encode(x=x("low"), x2="high:Q", y=y, color=colour),
            *theme.words(heads, {"align": "left", **bold}, text="title:N", x=alt.value(2), y=y),
            *theme.words(
                bands.transform_calculate(middle="(datum.from + datum.to) / 2"),
                bold,
                text="machine:N",
                x=x("middle"),
                y=y,
            ),
            s.rows.mark_point(size=55, filled=True).encode(
                x=x("mean"), y=y, color=colour, shape=shape, tooltip=tooltip
            ),
            s.rows.transform_filter("datum.weak !== ''")
            .mark_point(size=16, filled=True, color=theme.PAPER)
            .encode(x=x("mean"), y=y, shape=shape, tooltip=tooltip),
        )

    def told(machine: Any) -> str:
        found = [row["word"] for row in parts if row["machine"] == titled(machine.name)]
        return f"on {machine.name} " + ", ".join(f"{found.count(str(word))} {word}" for word in LOOKS)

    return Figure(
        name="predictions-held",
        title=f"{len(parts)} parts of our predictions, against what we measured",
        alt="A dot with its interval for each tested part of a prediction, against a band that stands for its limits: "
        f"{'; '.join(map(told, MACHINES))}. The data table lists them.",
        model=lambda s: None,
        controls=[],
        rows=along("part", range(len(parts)), row),
        chart=chart,
        table=[
            column("experiment", "Experiment"),
            column("machine", "Machine"),
            column("says", "Predicted"),
            column("of", "Measured"),
            column("seen", "Result (interval)"),
            column("verdict", "Verdict"),
        ],
        caption="The grey band stands for the limits of each part, in proportion. Outside it the scale is the factor by which a value misses: ÷2 is half of the "
        "lower limit, ×2 twice the upper one. A part with several values has one dot, for the value that decides: the one farthest outside, or nearest to a limit. "
        "It is hollow if a case behind that value is unsteady or launch-bound. Point at a line to read the part; the data table has all of them.",
        height=round(11 * last) + 30,
    )
