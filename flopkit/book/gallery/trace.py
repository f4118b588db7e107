"""The figure of a recorded trace: the rate of thousands of products, the clock beside it, and what a measurement of a part of them tells."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from functools import cache
from typing import Any

from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout
from flopkit.charts.readings import pick
from flopkit.recordings.traces import Sample, Trace, traces

__all__ = ["rate_and_clock", "readings"]

NAMES = {"normal": "random numbers", "zeros": "zeros"}
BEFORE = (
    0.02  # s: so long before a reading of the clock the rate is taken, and of so long is the mean that a line shows
)
PER_MHZ = 132 * 4096 * 1e6  # FLOP/s of 132 SMs in bf16
SETTLED = 0.2  # s
WARM = {"nothing": 0.0, "25 ms": 0.025, "0.1 s": 0.1, "0.2 s": 0.2, "0.5 s": 0.5, "1 s": 1.0, "2 s": 2.0, "3 s": 3.0}
LONG = {"10 ms": 0.01, "0.1 s": 0.1, "0.3 s": 0.3, "1 s": 1.0, "2 s": 2.0, "4 s": 4.0}


def readings(one: Trace) -> Iterator[tuple[Sample, float]]:
    """The clock each time that NVML had read it anew, from the first call on, and FLOP/s in the 0.02 s before."""
    last = None
    ends = one.ends
    for sample in one.samples:
        told = (sample.sm_mhz, sample.watts, sample.celsius)
        if told != last and 0 <= sample.at <= ends[-1]:
            first, behind = (bisect(ends, sample.at - ago) for ago in (BEFORE, 0))
            before = one.seconds[first:behind]
            yield sample, len(before) * one.flops / sum(before) if before else 0.0
        last = told


@cache
def _recorded() -> tuple[Trace, Trace]:
    [normal], [zeros] = (traces(n=6144, data=data) for data in NAMES)
    return normal, zeros


@cache
def _dots() -> dict[str, dict[str, Any]]:
    """Each reading: of which run, when, the clock in Hz, the rate before it."""
    return {
        f"{NAMES[one.data]}, {each.at:.3f} s": {"of": NAMES[one.data], "at": each.at, "clock": each.sm_mhz * 1e6, "rate": done}
        for one in _recorded()
        for each, done in readings(one)
    }  # fmt: skip


@cache
def _typical() -> float:
    """The share of what its clock allows that the run with random numbers reaches, from 0.2 s on."""
    shares = [done / PER_MHZ / each.sm_mhz for each, done in readings(_recorded()[0]) if each.at > SETTLED]
    return sum(shares) / len(shares)


@cache
def _averaged() -> dict[int, tuple[float, float]]:
    """For each warm-up and each window, by their number: FLOP/s of the random numbers, and the error of the time of a call."""
    one = _recorded()[0]
    whole, ends, found = sum(one.seconds) / len(one.seconds), one.ends, {}
    for i, begins in enumerate(WARM.values()):
        for j, lasts in enumerate(LONG.values()):
            part = one.seconds[bisect(ends, begins) : bisect(ends, begins + lasts)]
            mean = sum(part) / len(part)
            found[i * len(LONG) + j] = one.flops / mean, mean / whole - 1
    return found


def _measured(s: Any, *, warm: Any, long: Any) -> None:
    s.begins, s.behind = warm.at, warm.at + long.lasts
    which = warm.number * len(LONG) + long.number
    s.told = pick(which, {number: rate for number, (rate, _) in _averaged().items()})
    s.error = pick(which, {number: error for number, (_, error) in _averaged().items()})


def rate_and_clock() -> Figure:
    """Seven seconds of one product on an H200: the rate, the clock, and what a measurement tells that takes a part of them."""

    def dot(r: Any, *, reading: Any, **_: Any) -> None:
        for key in ("of", "at", "clock", "rate"):
            setattr(r, key, pick(reading, {name: values[key] for name, values in _dots().items()}))

    def chart(s: Any) -> Any:
        alt = need("altair")
        ends = (480, 920)
        scale = alt.Scale(domain=list(NAMES.values()), range=theme.CATEGORIES[:2])
        colour = alt.Color("of:N", title=None, legend=alt.Legend(orient="bottom"), scale=scale)
        of_time = alt.Scale(domain=[0, 7.1], nice=False)
        along_time = {"title": "seconds; green: what is averaged", "scale": of_time}
        x = alt.X("at:Q", **along_time)
        left = alt.Y("rate:Q", title="line: TFLOP/s; dots: MHz, at the right", scale=alt.Scale(domain=ends, nice=False))
        right = alt.Y(
            "clock:Q",
            scale=alt.Scale(domain=[each * 1e18 / PER_MHZ / _typical() for each in ends], nice=False),
            axis=alt.Axis(
                orient="right", title=None, grid=False, labelExpr="format(datum.value / 1e6, ',d')",
                values=[mhz * 1e6 for mhz in (1200, 1400, 1600, 1800, 2000)],
            ),
        )  # fmt: skip
        tips = [
            alt.Tooltip("of:N", title="data"),
            alt.Tooltip("at:Q", title="seconds", format=".2f"),
            alt.Tooltip("clock:Q", title="clock, Hz", format=".4s"),
            alt.Tooltip("rate:Q", title="FLOP/s before", format=".3s"),
        ]
        window = (
            s.now("begins", "behind", "error")
            .mark_rect(color=theme.GREEN, fillOpacity=0.22, stroke=theme.GREEN, strokeWidth=1.5)
            .encode(
                x=alt.X("begins:Q", **along_time),
                x2="behind:Q",
                tooltip=[alt.Tooltip("error:Q", title="error of the time", format="+.1%")],
            )
        )
        lines = [
            {"at": round(at, 3), "rate": round(done / 1e12, 1), "of": NAMES[one.data]}
            for one in _recorded()
            for at, done in one.rates(BEFORE)
        ]
        rate = alt.Chart(alt.Data(values=lines)).mark_line(strokeWidth=1.5).encode(x=x, y=left, color=colour)
        clock = s.rows.mark_point(filled=True, size=26).encode(x=x, y=right, color=colour, tooltip=tips)
        return alt.layer(window, rate, clock).resolve_scale(y="independent")

    return Figure(
        name="rate-and-clock",
        title="The rate follows the GPU clock, which swings for seconds",
        alt="Over seven seconds of products of random numbers, the rate falls from 774 to 670 TFLOP/s within 0.2 s. From 0.8 s on it swings "
        "between 528 and 671 TFLOP/s, about once a second, ever less. From 0.2 s on the readings of the clock, 1,125 to 1,470 MHz, lie on the "
        "same curve, within 3 %. With zeros the rate stays at 803 TFLOP/s and the clock at 1,770 MHz. A measurement that warms up for {warm} "
        "and averages {long} tells {told}; its time of a call is off by {error}.",
        model=_measured,
        controls=[
            choice("warm", "Warm up for", {title: {"at": at, "number": i} for i, (title, at) in enumerate(WARM.items())}, value="nothing"),
            choice("long", "Then average", {title: {"lasts": lasts, "number": i} for i, (title, lasts) in enumerate(LONG.items())}, value="10 ms"),
        ],
        presets={
            "Ten milliseconds": {"warm": "nothing", "long": "10 ms"},
            "Soon, and short": {"warm": "25 ms", "long": "0.1 s"},
            "Late, and short": {"warm": "2 s", "long": "0.1 s"},
            "Long": {"warm": "1 s", "long": "4 s"},
        },
        readouts=[readout("told", "Rate that is told", "FLOP/s"), readout("error", "Error of the time", "%")],
        rows=along("reading", list(_dots()), dot),
        chart=chart,
        table=[
            column("reading", "Reading"),
            column("clock", "Clock", "Hz"),
            column("rate", "Rate in the 0.02 s before", "FLOP/s"),
        ],
        caption="Products of two 6,144 × 6,144 matrices in bf16 on one rented H200, 27 November 2026. Lines: means over 0.02 s. Dots: each new "
        f"reading of the clock. The right axis is drawn so that a dot lies on its line where {100 * _typical():.1f} % of what its clock allows is reached. "
        "Error: of the mean time of the averaged calls, against the mean of all 10,000 with random numbers.",
    )  # fmt: skip
