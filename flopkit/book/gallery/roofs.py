"""The figure of the chapter on the roofline: the roof on paper, the one that is reached, and the bend between its two parts."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import maximum, minimum, vega, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import DEVICES, device_choice, peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, column, readout, slider, steps
from flopkit.layers.products import dense
from flopkit.rooflines import bound_by

__all__ = ["layer_below_roof", "reached_roof"]

PAIRS = (*DEVICES, ("h200", "tf32"))  # the last is that of our batch sweep
SHARES = [0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0]
LOW, HIGH = 0.4, 65536  # FLOPs per byte, of the axis: one token in tf32 has 0.5
DOWN, UP = 4e10, 6e15  # FLOP/s, of the axis
SEEN = 1.4  # times the least time: a gap with room for its number
NEAR = 16  # times the ridge, or a part of it: a dot within is shown large
LAUNCHES = [0.0, 2e-6, 5e-6, 1e-5, 2e-5]  # seconds
ON_PAPER, REACHED = -1, 0  # places on the axis that move: the two ridge points


def layer_below_roof(
    s: Any, *, tokens: Any, features: Any, device: Any, of_peak: Any, of_bandwidth: Any, overlap: Any, launch: Any
) -> None:
    """A square dense layer on a device that reaches shares of its peak and bandwidth, where part of the shorter time is hidden; or its launch, where that takes longer."""
    cost = dense(tokens=tokens, d_in=features, d_out=features, dtype=device)
    s.flops = cost.flops
    s.bytes = cost.bytes
    s.intensity = s.flops / s.bytes
    paper = bound_by(s.flops, s.bytes, device.peak, device.bandwidth)
    s.least = paper.seconds
    s.printed_peak = device.peak + 0
    s.printed_ridge = paper.ridge
    s.reached_peak = device.peak * of_peak
    s.reached_bandwidth = device.bandwidth * of_bandwidth
    s.ridge = s.reached_peak / s.reached_bandwidth
    reached = bound_by(s.flops, s.bytes, s.reached_peak, s.reached_bandwidth)
    s.hidden = overlap + 0
    work = reached.seconds + (1 - s.hidden) * minimum(reached.compute_seconds, reached.memory_seconds)
    s.seconds = maximum(launch, work)  # a queued kernel is launched while another runs
    s.no_launch = where(work >= LAUNCHES[-1], "The work of this layer takes longer than any of these launches.", "")
    s.bound = where(
        launch > work, "launch", where(reached.compute_seconds >= reached.memory_seconds, "compute", "memory")
    )
    s.rate = s.flops / s.seconds
    s.used = s.rate / device.peak
    s.slower = s.seconds / s.least
    s.above = s.rate * s.slower  # the roof on paper, above the dot
    s.middle = (s.rate * s.above) ** 0.5
    apart = maximum(s.intensity / s.printed_ridge, s.printed_ridge / s.intensity)
    s.near = where(apart <= NEAR / 2, where(s.used >= 2 / NEAR**1.5, 1, 0), 0)
    s.left = where(s.near == 1, s.printed_ridge / NEAR, LOW)  # room for a dot at the left
    s.right = where(s.near == 1, s.printed_ridge * NEAR * 2, HIGH)
    s.down = where(s.near == 1, device.peak / NEAR**1.5, DOWN)
    s.foot = s.down * where(s.near == 1, 1.3, 1.8)  # of the words
    s.drawn = maximum(s.rate, s.down)  # no dot below the picture
    s.up = where(s.near == 1, device.peak * 1.6, UP)


def one_intensity(r: Any, *, place: Any, device: Any, **rest: Any) -> None:
    """The roofs at one intensity, or at one of the two ridge points, so that the corners of both are drawn."""
    r.per_byte = where(place == ON_PAPER, r.printed_ridge, where(place == REACHED, r.ridge, place))
    r.paper = minimum(device.peak, device.bandwidth * r.per_byte)
    r.roof = minimum(r.reached_peak, r.reached_bandwidth * r.per_byte)
    compute, memory = 1 / r.reached_peak, 1 / (r.reached_bandwidth * r.per_byte)
    r.bent = 1 / (maximum(compute, memory) + (1 - r.hidden) * minimum(compute, memory))


def reached_roof() -> Figure:
    """The roof of a data sheet, that of the ceilings which are reached, the curve without full overlap, and a dense layer on it or, where its launch takes longer, below."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "per_byte:Q",
            title="arithmetic intensity (FLOPs per byte)",
            scale=alt.Scale(type="log", domain=alt.ExprRef(f"[{vega(s.left)}, {vega(s.right)}]"), nice=False),
            axis=alt.Axis(values=[1, 10, 100, 1000], format=",d"),
        )
        y = {
            "title": "FLOP/s",
            "scale": alt.Scale(type="log", domain=alt.ExprRef(f"[{vega(s.down)}, {vega(s.up)}]"), nice=False),
            "axis": alt.Axis(values=[1e11, 1e12, 1e13, 1e14, 1e15], format="~s"),
        }
        tooltip = [
            alt.Tooltip("per_byte:Q", title="FLOPs per byte", format=".4~s"),
            alt.Tooltip("paper:Q", title="roof on paper", format=".4~s"),
            alt.Tooltip("roof:Q", title="roof reached", format=".4~s"),
            alt.Tooltip("bent:Q", title="with this overlap", format=".4~s"),
        ]
        shown = s.rows.transform_filter(f"datum.per_byte >= {vega(s.left)} && datum.per_byte <= {vega(s.right)}")
        lines = [
            shown.mark_line(color=theme.MUTED).encode(x=x, y=alt.Y("paper:Q", **y)),
            shown.mark_line(color=theme.GREEN, strokeDash=[6, 4], strokeWidth=2).encode(x=x, y=alt.Y("roof:Q", **y)),
            shown.mark_line(color=theme.BLUE, strokeWidth=2.5).encode(x=x, y=alt.Y("bent:Q", **y)),
            shown.mark_point(color=theme.BLUE, size=20, opacity=0.01).encode(
                x=x, y=alt.Y("bent:Q", **y), tooltip=tooltip
            ),
        ]
        here = s.now("intensity", "rate", "drawn", "seconds", "used", per_byte=s.intensity)
        dot = here.mark_point(size=190, color=theme.ORANGE, filled=True, opacity=1, stroke=theme.PAPER, strokeWidth=2).encode(
            x=x, y=alt.Y("drawn:Q", **y),
            tooltip=[
                alt.Tooltip("intensity:Q", title="FLOPs per byte", format=".4~s"), alt.Tooltip("rate:Q", title="FLOP/s", format=".4~s"),
                alt.Tooltip("seconds:Q", title="seconds", format=".3~s"), alt.Tooltip("used:Q", title="of the peak", format=".3~p"),
            ],
        )  # fmt: skip
        gap = s.now("drawn", "above", per_byte=s.intensity).mark_rule(color=theme.ORANGE, strokeWidth=2).encode(
            x=x, y=alt.Y("drawn:Q", **y), y2="above:Q"
        )  # fmt: skip
        told = s.now("slower", "middle", "near", per_byte=s.intensity).transform_calculate(
            label=f"datum.near && datum.slower >= {SEEN} ? format(datum.slower, '.2f') + '×' : ''"
        )
        missing = theme.words(
            told,
            {"color": theme.ORANGE, "align": "right", "fontWeight": 600, "dx": -10},
            x=x,
            y=alt.Y("middle:Q", **y),
            text="label:N",
        )
        words = [
            word
            for height, label, colour, dy in (
                (s.printed_peak, "data sheet", theme.MUTED, -10),
                (s.foot, "reached, full overlap", theme.GREEN, 0),
                (s.foot, "reached, this overlap", theme.BLUE, -18),
            )
            for word in theme.words(
                s.now(per_byte=s.right, rate=height, label=label),
                {"color": colour, "align": "right", "fontWeight": 600, "dy": dy},
                x=x,
                y=alt.Y("rate:Q", **y),
                text="label:N",
            )
        ]
        return alt.layer(*lines, gap, dot, *missing, *words)

    # A preset sets every control, so that its name never stands above another layer.
    layer: dict[str, Any] = {"device": "H100 SXM5 80 GB, bf16", "tokens": 256, "features": 8192}
    ours = {"device": "H200 SXM 141 GB, tf32", "of_peak": 0.75, "of_bandwidth": 0.9, "overlap": 1.0}
    usual = {"of_peak": 0.8, "of_bandwidth": 0.85, "overlap": 0.5, "launch": 5e-6}
    return Figure(
        name="reached-roof",
        title="A layer below the roof: what is reached, and what overlaps",
        alt="A log-log plot of FLOP/s against arithmetic intensity with three lines: the roof of the data sheet of {device}, a dashed roof at "
        "{of_peak} of its peak and {of_bandwidth} of its bandwidth, and the curve that is reached where {overlap} of the shorter time is hidden, which bends below the dashed "
        "corner unless all of it is. The layer's dot lies on the curve, or below it where its work takes less than the {launch} of a launch. "
        "{tokens} through a layer of {features} have {intensity} and take {seconds}, at {used} of the peak, limited by {bound}.",
        model=layer_below_roof,
        controls=[
            slider("tokens", "Tokens", steps(1, 65536), value=256, unit="tokens"),
            slider("features", "Width in and out", steps(128, 32768), value=8192),
            device_choice(pairs=PAIRS),
            slider("of_peak", "Of the peak, reached", SHARES, value=0.8, unit="%"),
            slider("of_bandwidth", "Of the bandwidth, reached", SHARES, value=0.85, unit="%"),
            slider("overlap", "Overlap", [0.0, 0.25, 0.5, 0.75, 1.0], value=0.5, unit="%"),
            slider("launch", "Launch", LAUNCHES, value=5e-6, unit="s", idle="no_launch"),
        ],
        presets={
            "On paper": {**layer, "of_peak": 1.0, "of_bandwidth": 1.0, "overlap": 1.0, "launch": 0.0},
            "No overlap": {**layer, "of_peak": 1.0, "of_bandwidth": 1.0, "overlap": 0.0, "launch": 0.0},
            "Our layer, full overlap": {**layer, **usual, **ours},
            "One token": {**layer, **usual, "tokens": 1},
            "Small: the launch sets the time": {**layer, **usual, "features": 512, "tokens": 64},
            "Narrow: never compute-bound": {**layer, **usual, "features": 256, "tokens": 65536},
        },
        readouts=[
            readout("intensity", "Intensity", "FLOP/B"),
            readout("printed_ridge", "Ridge on paper", "FLOP/B"),
            readout("ridge", "Ridge reached", "FLOP/B"),
            readout("bound", "Limited by"),
            readout("least", "Least time, on paper", "s"),
            readout("seconds", "Time reached", "s"),
            readout("slower", "Over the least time", "ratio"),
            readout("used", "Of the peak", "%"),
        ],
        rows=along("place", [ON_PAPER, REACHED, LOW, *steps(1, HIGH, per_octave=4)], one_intensity),
        chart=chart,
        table=[
            column("per_byte", "Intensity", "FLOP/B"),
            column("paper", "Roof on paper", "FLOP/s"),
            column("roof", "Roof reached", "FLOP/s"),
            column("bent", "With this overlap", "FLOP/s"),
        ],
        caption="Time is the longer part, plus what is not hidden of the shorter one; or the launch, if that takes longer, and then the dot lies below the curve. "
        "The vertical line is the gap to the roof on paper. The shares are yours to choose; those of the preset “Our layer” are near what our H200 reached in tf32. "
        + peaks_note(PAIRS),
    )
