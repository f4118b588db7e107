"""The last figure of the chapter on the inverted bottleneck: from the peak to the few per cent that a clock shows, cause by cause."""

from __future__ import annotations

from functools import cache
from typing import Any

from flopkit.arithmetic import where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, switch
from flopkit.charts.readings import pick
from flopkit.devices import device
from flopkit.models.vision import cnn, cnn_backward, cnn_kinds
from flopkit.recordings import records
from flopkit.rooflines import roofline

__all__ = ["lost_utilisation", "read_twice"]

NETWORKS = {"MobileNetV2": "mobilenet_v2", "EfficientNet-B0": "efficientnet_b0"}
GPUS = {"P100 of the study": "p100-pcie", "our H200": "h200-sxm"}
STUDY = 0.04  # multiply-adds over the peak in FLOP/s: Hobbhahn 2021, "lower than 0.04"
OTHERS = 0.30  # in the same unit: "between 0.3 and 0.75" for most architectures
CAUSES = {
    "bytes": "formulas",
    "kernels, as usual": "ResNet-50's clock",
    "slower still": "its own clock",
    "MACs for FLOPs": "formulas",
}
"""What takes a part of the peak, in order, and whose number it is."""
COLOURS = {"formulas": theme.BLUE, "ResNet-50's clock": theme.GREEN, "its own clock": theme.ORANGE}
BATCH = 64


@cache
def read_twice(name: str, key: str, fused: bool = False) -> float:
    """The highest utilisation of a training step in fp32, operator by operator; a batch norm reads its maps twice in each pass.

    Fused, norms and activations cost nothing of their own.
    """
    card, kinds, flops, seconds = device(key), cnn_kinds(name), 0, 0.0
    for work, maps in ((cnn(name, batch=BATCH, dtype="fp32"), 1), (cnn_backward(name, batch=BATCH, dtype="fp32"), 2)):
        for part in work.parts:
            kind = kinds[part.name]
            longer = (2 * maps + 1) / (maps + 1) if kind == "norm" else 1.0
            if fused and kind in ("norm", "activation"):
                longer = 0.0
            seconds += longer * roofline(part, card, "fp32").seconds
            flops += part.flops
    return flops / seconds / card.peak("fp32")


@cache
def _timed() -> dict[str, float]:
    """The utilisation of each network on our H200, by the clock."""
    cases = records("cnns", owner="ours", device="h200", dtype="fp32")
    plain = (case for case in cases if case["params"]["method"] == "batch" and not case["params"]["compiled"])
    peak = device("h200-sxm").peak("fp32")
    return {case["params"]["network"]: case["counted"]["flops"] / case["seconds"]["mean"] / peak for case in plain}


def _fields(key: str) -> dict[str, Any]:
    """What is known of the two networks on a GPU: their bounds, what a clock showed, and the share of its bound that ResNet-50 reaches there."""
    ours = key == "h200-sxm"
    resnet = _timed()["resnet50"] if ours else 2 * OTHERS
    found: dict[str, Any] = {"usual": resnet / read_twice("resnet50", key)}
    for name in NETWORKS.values():
        found[f"{name}_bound"] = read_twice(name, key)
        found[f"{name}_fused"] = read_twice(name, key, fused=True)
        found[f"{name}_reached"] = _timed()[name] if ours else 2 * STUDY
    return found


def utilisation_left(s: Any, *, network: Any, gpu: Any, fused: Any) -> None:
    """What is left of the peak after each cause. Fused, nobody measured: the usual share of the bound is all that is left to say."""

    def known(what: str) -> Any:
        return pick(network, {title: getattr(gpu, f"{name}_{what}") for title, name in NETWORKS.items()})

    s.bound = where(fused, known("fused"), known("bound"))
    s.usual = s.bound * gpu.usual
    s.reached = where(fused, s.usual, known("reached"))
    s.printed = s.reached / 2
    s.still = s.usual / s.reached
    s.whole = 1 / s.printed


def lost_utilisation() -> Figure:
    """A waterfall from the whole peak to what the study would print: each cause divides what the one before it left."""

    def row(r: Any, *, cause: Any, **_: Any) -> None:
        left = dict(zip(CAUSES, (r.bound, r.usual, r.reached, r.printed), strict=True))
        r.high = pick(cause, dict(zip(CAUSES, (1.0, *list(left.values())[:-1]), strict=True)))
        r.low = pick(cause, left)
        r.divided = r.high / r.low
        r.whose = pick(cause, CAUSES)

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = alt.Y("cause:N", title=None, sort=list(CAUSES), axis=alt.Axis(labelLimit=150, domain=False, ticks=False))
        x: dict[str, Any] = {
            "title": "utilisation that is left",
            "scale": alt.Scale(type="log", domain=[0.012, 1], nice=False),
            "axis": alt.Axis(values=[0.02, 0.05, 0.1, 0.2, 0.5, 1], format=".0%", grid=True),
        }
        tips = [
            alt.Tooltip("cause:N", title="cause"), alt.Tooltip("whose:N", title="number of"),
            alt.Tooltip("high:Q", title="before", format=".1%"), alt.Tooltip("low:Q", title="after", format=".1%"),
            alt.Tooltip("divided:Q", title="divided by", format=".2f"),
        ]  # fmt: skip
        colour = alt.Color(
            "whose:N",
            title="whose number",
            scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
            legend=alt.Legend(orient="bottom", columns=2, symbolType="square"),
        )
        bars = s.rows.mark_bar(size=20, opacity=0.85).encode(
            y=y, x=alt.X("high:Q", **x), x2="low:Q", color=colour, tooltip=tips
        )
        said = s.rows.transform_calculate(
            label="datum.divided > 1.0005 ? '÷' + format(datum.divided, '.1f') + ', ' + format(datum.low, datum.low < 0.1 ? '.1%' : '.0%') + ' left' : 'nothing'"
        )
        place = [
            ("datum.low > 0.09", {"align": "right", "dx": -6}, "low:Q"),
            ("datum.low <= 0.09", {"align": "left", "dx": 6}, "high:Q"),
        ]
        words = [
            word
            for rule, look, end in place
            for word in theme.words(said.transform_filter(rule), look, y=y, x=alt.X(end, **x), text="label:N")
        ]
        return alt.layer(bars, *words)

    start = {"network": "MobileNetV2", "gpu": "P100 of the study", "fused": False}
    return Figure(
        name="lost-utilisation",
        title="From the whole peak down: each cause divides what is left",
        alt="Five bars on a logarithmic axis, each from the utilisation before a cause to the one after it. {network} on {gpu}, norms and activations "
        "fused: {fused}. The bytes of separate operators leave {bound} of the peak, kernels with ResNet-50's share of the bound {usual}, "
        "the clock {reached}, and multiply-adds over a peak in FLOP/s {printed}.",
        model=utilisation_left,
        controls=[
            choice("gpu", "GPU, fp32", {title: _fields(key) for title, key in GPUS.items()}),
            choice("network", "Network", list(NETWORKS)),
            switch("fused", "Norms and activations fused"),
        ],
        presets={"The study": start, "Our H200": {**start, "gpu": "our H200"}, "The study, fused": {**start, "fused": True}},
        readouts=[
            readout("bound", "Bound, by bytes", "%"),
            readout("usual", "With kernels as usual", "%"),
            readout("reached", "Utilisation", "%"),
            readout("printed", "As the study counts", "%"),
            readout("still", "Slower still", "×"),
            readout("whole", "All causes together", "×"),
        ],
        rows=along("cause", list(CAUSES), row),
        chart=chart,
        table=[
            column("cause", "Cause"), column("whose", "Number of"), column("high", "Before", "%"), column("low", "After", "%"),
            column("divided", "Divided by", "×"),
        ],
        caption="Training, 64 images, fp32, channels first; a norm reads its maps twice. “As usual”: the share of its bound that ResNet-50 reaches on the "
        "same GPU; on the P100 the study's 30 %, so at most this much. “Slower still”: down to what a clock showed; on the P100 the study's 4 %, so "
        "at least this much. Fused: norms and activations cost no bytes of their own, more than training can save. Nobody timed that, so it ends at the usual share.",
        height=220,
    )  # fmt: skip
