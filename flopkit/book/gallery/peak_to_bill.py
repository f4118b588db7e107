"""The figure on denominators: from a data sheet's peaks to the rate of a whole run, and its GPU hours."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import maximum, vega, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.devices import device
from flopkit.models.catalogue import load

__all__ = ["from_peak_to_bill", "peak_to_bill"]

SEQ = 8192
MODELS = {"llama-3.1-8b": "Llama-3.1-8B", "llama-3.1-70b": "Llama-3.1-70B", "llama-3.1-405b": "Llama-3.1-405B"}
DEVICES = {"h100-sxm": "H100 SXM", "b200": "B200", "mi300x": "MI300X"}  # with published matmuls in both formats
RATES = ("rate while training", "rate over all hours")
BARS = ("peak, all in fp8", "peak, all in bf16", "peak of this mix", "best matmuls, this mix", *RATES)


def _device(name: str) -> dict[str, float]:
    known = device(name)
    rates = {"peak": known.peak, "best": known.ceiling, "limit": known.limit}
    return {f"{what}_{dtype}": float(rate(dtype)) for what, rate in rates.items() for dtype in ("bf16", "fp8")}


def peak_to_bill(s: Any, *, model: Any, device: Any, fp8: Any, rate: Any, goodput: Any, tokens: Any) -> None:
    """Peaks of a mix of two formats, the rate of a run as a share of them, and the hours of a device that the run takes.

    Each format's FLOPs take their time at its own rate, so the rate of a mix is the harmonic mean of the two, weighted with FLOPs.
    """

    def mixed(bf16: Any, in_fp8: Any) -> Any:
        return 1 / ((1 - fp8) / bf16 + fp8 / in_fp8)

    s.mix = mixed(device.peak_bf16, device.peak_fp8)
    s.best = mixed(device.best_bf16, device.best_fp8)
    s.training = model * rate
    s.overall = s.training * goodput
    s.mfu, s.of_best, s.of_all_hours = s.training / s.mix, s.training / s.best, s.overall / s.mix
    s.hours = 1e12 * tokens / (rate * goodput) / 3600
    s.possible = where(s.training <= mixed(device.limit_bf16, device.limit_fp8), "yes", "no")
    s.end = 1.27 * maximum(device.peak_fp8, s.training)  # of the axis, with room for a bar's number


def from_peak_to_bill() -> Figure:
    """Two peaks of a data sheet, the peak of a mix, the best matmuls, and the rate of a run with and without its lost time."""

    def row(r: Any, *, bar: Any, device: Any, **_: Any) -> None:
        rates = (device.peak_fp8, device.peak_bf16, r.mix, r.best, r.training, r.overall)
        r.at_rate = pick(bar, dict(zip(BARS, rates, strict=True)))
        shares = {name: r.at_rate / r.mix if name in RATES else r.training / r.at_rate for name in BARS}
        r.reported = pick(bar, shares)

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = alt.Y("bar:N", sort=list(BARS), title=None, axis=alt.Axis(labels=False, domain=False, ticks=False))
        axis = {
            "title": "TFLOP/s of each device",
            "scale": alt.Scale(domain=[0, alt.ExprRef(vega(s.end / 1e12))], nice=False),
            "axis": alt.Axis(format=",.0f", tickCount=4, labelBound=True),
        }
        rows = s.rows.transform_calculate(
            tera="datum.at_rate / 1e12",
            percent="format(datum.reported, datum.reported < 9.995 ? '.1%' : '.0%')",
            label="datum.bar + ': ' + format(datum.at_rate / 1e12, datum.at_rate < 1e13 ? '.2f' : ',.0f') + ' TFLOP/s'",
        )
        x = alt.X("tera:Q", **axis)
        tooltip = [
            alt.Tooltip("bar:N", title="rate"),
            alt.Tooltip("tera:Q", title="TFLOP/s", format=",.1f"),
            alt.Tooltip("reported:Q", title="utilisation", format=".1%"),
        ]
        place = {"align": "left", "baseline": "middle"}
        layers = []
        for test, colour in (
            (f"indexof({list(RATES)}, datum.bar) < 0", theme.BLUE),
            (f"indexof({list(RATES)}, datum.bar) >= 0", theme.ORANGE),
        ):
            some = rows.transform_filter(test)
            layers += [
                some.mark_bar(color=colour, height=12, yOffset=9).encode(x=x, y=y, tooltip=tooltip),
                *theme.words(some, {"dy": -7, "color": theme.INK, **place}, y=y, x=alt.value(2), text="label:N"),
                *theme.words(
                    some, {"dx": 5, "dy": 9, "color": colour, "fontWeight": 600, **place},
                    x=x, y=y, text="percent:N",
                ),
            ]  # fmt: skip
        return alt.layer(*layers)

    return Figure(
        name="from-peak-to-bill",
        title="From a data sheet's peaks to the rate that you pay for",
        alt="Six bars of FLOP/s of one {device} that trains {model} at {rate}, with {fp8} of its FLOPs in fp8 and a goodput of {goodput}: the data "
        "sheet's peaks in fp8 and in bf16, the peak of this mix of formats, the best matmuls that somebody found, the rate while steps run, and the "
        "rate over all hours. The MFU is {mfu}, and {tokens} trillion tokens take {hours} GPU hours.",
        model=peak_to_bill,
        controls=[
            choice("model", "Model", {title: float(load(name).train_step(seq=SEQ).flops_per_token) for name, title in MODELS.items()}),
            choice("device", "Device", {title: _device(name) for name, title in DEVICES.items()}),
            slider("fp8", "FLOPs in fp8, the others in bf16", [i / 20 for i in range(21)], value=0.814, unit="%"),
            slider("rate", "Throughput of each device", steps(64, 65536, per_octave=4), value=8532, unit="tokens/s"),
            slider("goodput", "Goodput", [i / 50 for i in range(25, 51)], value=0.9, unit="%"),
            slider("tokens", "Tokens of the run, in trillions", [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100], value=15),
        ],
        presets={
            "torchtitan, mostly fp8": {"model": "Llama-3.1-8B", "device": "H100 SXM", "fp8": 0.814, "rate": 8532, "goodput": 0.9, "tokens": 15},
            "torchtitan, all bf16": {"model": "Llama-3.1-8B", "device": "H100 SXM", "fp8": 0.0, "rate": 6667, "goodput": 0.9, "tokens": 15},
            "Meta's 405B, by its bill": {"model": "Llama-3.1-405B", "device": "H100 SXM", "fp8": 0.0, "rate": 156, "goodput": 0.9, "tokens": 15.6},
        },
        readouts=[
            readout("mfu", "MFU, over this mix's peak", "%"),
            readout("of_best", "Share of the best matmuls", "%"),
            readout("of_all_hours", "MFU over all hours", "%"),
            readout("hours", "GPU hours"),
            readout("possible", "Possible at all", text={"yes": "yes", "no": "no: above the chip's limit"}),
        ],
        rows=along("bar", BARS, row),
        chart=chart,
        table=[column("bar", "Rate"), column("at_rate", "Of each device", "FLOP/s"), column("reported", "Utilisation", "%")],
        caption="At a given throughput, another format or device changes the percentages and not the bill: GPU hours are tokens over throughput and goodput. "
        "Blue bars are denominators, each with the utilisation that the run shows over it; orange bars are the run, as shares of this mix's peak. "
        f"FLOPs are EXACT's for sequences of {SEQ:,} tokens. torchtitan's authors measured the two rates of 8B on eight H100s with HBM2e, limited to 500 W. Goodput and tokens of these presets are examples, and the rate of 405B is what "
        "Meta's hours give with a goodput of 90 %. Best matmuls: Bekman's search, AMD's own for the MI300X. "
        + peaks_note([(name, dtype) for name in DEVICES for dtype in ("bf16", "fp8")]),
        height=330,
    )  # fmt: skip
