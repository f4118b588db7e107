"""Figures to test the front end with: every kind of control, read-out and row that `flopkit.charts` knows."""

from __future__ import annotations

import altair as alt

from flopkit.arithmetic import ceil_div, maximum, minimum, where
from flopkit.charts import Figure, along, choice, column, pick, readout, slider, steps, switch, theme


def layer(s, *, tokens, d_model, device, bits, causal, kind):
    s.flops = 2 * tokens * d_model * d_model * where(kind == "gated", 3, 2)
    s.bytes = ceil_div(bits * (2 * tokens * d_model + d_model * d_model), 8)
    s.intensity = s.flops / s.bytes
    s.seconds = maximum(s.flops / device.peak, s.bytes / device.bandwidth) * 1000
    s.busy = minimum(1, s.flops / device.peak / (s.seconds / 1000))
    s.speedup = where(causal, 2 * tokens / (tokens + 1), 1)
    s.rate = s.flops / s.seconds * 1000
    s.bound = where(s.flops / device.peak >= s.bytes / device.bandwidth, "compute", "memory")
    s.fits = s.bytes < 2e7
    s.batches = ceil_div(tokens, 512)


DEVICES = {"H100 SXM": dict(peak=989.4e12, bandwidth=3.35e12), "T4 <small>": dict(peak=65e12, bandwidth=320e9)}


def roofline(**changes):
    def chart(s):
        x = alt.X("tokens:Q", title="Tokens", **theme.log_scale(1, 65536))
        y = alt.Y("rate:Q", title="Attainable FLOP/s", **theme.log_scale(1e10, 2e15))
        tip = [alt.Tooltip("tokens:Q", title="Tokens"), alt.Tooltip("rate:Q", title="FLOP/s")]
        line = s.rows.mark_line().encode(x=x, y=y)
        here = s.now("tokens", "rate")
        return alt.layer(
            line, here.mark_point(stroke=theme.PAPER, strokeWidth=2, size=150).encode(x=x, y=y, tooltip=tip)
        )

    options = dict(
        name="demo-roofline",
        title="A layer under its roof",
        alt="The rate grows with the tokens until the arithmetic is the limit, then it stays.",
        model=layer,
        controls=[
            slider("tokens", "Tokens", steps(1, 65536), value=64, unit="tokens"),
            slider("d_model", "Width", steps(64, 16384, per_octave=2), value=4096),
            choice("device", "Device", DEVICES),
            choice("bits", "Number format", {"fp32": 32, "bf16": 16, "fp4": 4}, value="bf16"),
            choice("kind", "Layer", ["plain", "gated"]),
            switch("causal", "Causal mask", value=True),
        ],
        presets={
            "Wide & slow": {"d_model": 14336, "device": "T4 <small>"},
            "One token": {"tokens": 1, "causal": False},
        },
        readouts=[
            readout("flops", "Arithmetic", "FLOPs"),
            readout("bytes", "Traffic", "B"),
            readout("intensity", "Intensity", "FLOP/B"),
            readout("seconds", "Time of 1,000", "s"),
            readout("busy", "Arithmetic busy", "%"),
            readout("speedup", "Saved by the mask", "×"),
            readout("batches", "Batches of 512", "batches"),
            readout("bound", "Limited by", text={"compute": "arithmetic", "memory": "memory"}),
            readout("fits", "Fits the cache", text={True: "yes", False: "no"}),
        ],
        rows=along("tokens"),
        chart=chart,
        table=[
            column("tokens", "Tokens", "tokens"),
            column("rate", "Attainable", "FLOP/s"),
            column("busy", "Busy", "%"),
        ],
        caption="Peaks are dense.",
    )
    return Figure(**{**options, **changes})


def parts(r, *, part, d_model, **_):
    r.flops = pick(part, {"scores": r.scores, "values": r.values, "nothing": float("nan")})
    r.share = r.flops / (r.scores + r.values)


def attention(s, *, d_model, heads, mask, span):
    s.scores = 2 * d_model * d_model
    s.values = 3 * d_model * where(mask == "window", span, 1)
    s.no_window = where(mask == "window", "", "The {mask} mask has no window.")
    s.impossible = where(
        ceil_div(d_model, heads) * heads == d_model, "", "{d_model} features do not divide into {heads}."
    )


def bars():
    def chart(s):
        x, y = alt.X("flops:Q", title="FLOPs"), alt.Y("part:N", title=None, sort=None)
        # What a table must not be misled by: a row that the chart leaves out, and a data set with all of the table's columns.
        label = s.now(part="scores", flops=s.scores, share=1).mark_text(dx=10).encode(x=x, y=y, text="share:N")
        return alt.layer(label, s.rows.mark_bar().encode(x=x, y=y, tooltip=[alt.Tooltip("flops:Q")]))

    return Figure(
        name="demo-bars",
        title="Parts of a layer",
        alt="Scores outgrow values as the width grows: {scores} at a width of {d_model}.",
        model=attention,
        controls=[
            slider("d_model", "Width", [*steps(1, 64), 48], value=8),
            choice("heads", "Heads", {"one head": 1, "twelve heads": 12}),
            choice("mask", "Mask", ["causal", "window"]),
            slider("span", "Window", [1, 2, 4], value=2, idle="no_window"),
        ],
        readouts=[readout("scores", "Scores", "FLOPs")],
        refused="impossible",
        rows=along("part", ["nothing", "scores", "values"], parts),
        chart=chart,
        table=[column("part", "Part"), column("flops", "Arithmetic", "FLOPs"), column("share", "Share", "%")],
        height=120,
    )


def calculator():
    def days(s, *, billions, gpus):
        s.days = 6 * billions * 1e9 * 15e12 / (gpus * 0.4 * 989.4e12)

    return Figure(
        name="demo-calculator",
        title="How long does it take?",
        alt="Training time of a model.",
        model=days,
        controls=[
            slider("billions", "Billion parameters", [1, 8, 70, 405], value=8),
            slider("gpus", "GPUs", steps(1, 65536), 16384),
        ],
        readouts=[readout("days", "Training time", "s")],
        table=[column("gpus", "GPUs"), column("days", "Training time", "s")],
    )


LONG = "first " * 39 + "first"  # in no chart is room for it
# What a reader would stumble over, and how the tests complain of it; of the first there is nothing to say.
FAULTS = {
    "none": [],
    "overlap": ['"first" and "second" overlap'],
    "outside": [f'"{LONG}" leaves the picture'],
    "struck": ['"first" is crossed by a line, var(--fk-blue)'],
    "gridded": ['"first" is crossed by a line, var(--fk-grid)'],
    "covered": ['"first" is crossed by a dot, var(--fk-green)'],
    "keyless": ["nothing says what these colours mean: var(--fk-blue), var(--fk-orange)"],
    "swatch": [],
}


def faulty(fault):
    """Two lines with a legend, a name that stands on one of them, and one of the faults above."""

    def chart(s):
        kinds = {"upper": theme.BLUE, "lower": theme.ORANGE}
        x, y = (alt.X("x:Q", scale=alt.Scale(domain=[0, 10])), alt.Y("y:Q", scale=alt.Scale(domain=[0, 10])))
        legend = None if fault == "keyless" else alt.Legend(orient="bottom", symbolType="stroke", symbolOpacity=1)
        scale = alt.Scale(domain=[*kinds], range=[*kinds.values()])
        ends = [{"x": end, "y": at, "line": line} for line, at in (("upper", 7), ("lower", 2)) for end in (0, 10)]
        lines = alt.Chart(alt.Data(values=ends)).mark_line(opacity=0.5 if fault == "swatch" else 1)
        lines = lines.encode(x=x, y=y, color=alt.Color("line:N", title=None, scale=scale, legend=legend))

        def name(words, right, up, first=0):
            rows = alt.Chart(alt.Data(values=[{"x": right, "y": up, "words": words}]))
            return theme.words(rows, {}, x=x, y=y, text="words:N")[first:]

        dot = alt.Chart(alt.Data(values=[{"x": 3, "y": 4}])).mark_point(color=theme.GREEN, size=200)
        more = {
            "overlap": [*name("first", 3, 4), *name("second", 3.2, 4.1)],
            "outside": name(LONG, 5, 9),
            "struck": name("first", 5, 7, first=1),  # without its halo
            "gridded": name("first", 3, 4, first=1),
            "covered": [*name("first", 3, 4), dot.encode(x=x, y=y)],
        }.get(fault, name("first", 5, 7))
        return alt.layer(lines, *more)

    return Figure(
        name=f"demo-{fault}", title=f"A fault: {fault}", alt="Two lines.", model=lambda s: None, controls=[], chart=chart, height=200
    )  # fmt: skip
