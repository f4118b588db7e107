"""Figures of the chapter on dense layers."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import ceil_div, minimum, vega, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, column, readout, slider, steps
from flopkit.layers.products import dense
from flopkit.models import hf_config
from flopkit.rooflines import bound_by

__all__ = ["dense_on_device", "dense_roofline"]

AT_THE_RIDGE = 325  # tokens that make a layer of 4,096 by 16,384 compute-bound on an H100; the chapter asks for them


def dense_on_device(s: Any, *, tokens: Any, d_in: Any, d_out: Any, device: Any) -> None:
    """A dense layer on the roofline of a device."""
    cost = dense(tokens=tokens, d_in=d_in, d_out=d_out, dtype=device)
    s.flops = cost.flops
    s.bytes = cost.bytes
    s.intensity = s.flops / s.bytes
    bound = bound_by(s.flops, s.bytes, device.peak, device.bandwidth)
    s.seconds = bound.seconds
    s.attainable = bound.attainable_flops_per_s
    s.peak = device.peak
    s.bandwidth = device.bandwidth
    s.ridge = device.ridge
    s.busy = s.attainable / s.peak
    s.bound = bound.bound
    # 1/intensity is (bytes of a number / 2) · (1/tokens + 1/d_in + 1/d_out); at the ridge it is 1/ridge.
    s.spare = 16 / (device.bits * s.ridge) - 1 / d_in - 1 / d_out
    s.tokens_at_ridge = where(s.spare > 0, ceil_div(1, where(s.spare > 0, s.spare, 1)), "never")


def dense_roofline() -> Figure:
    """The roofline of a device, and on it one dense layer with the tokens to choose."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "intensity:Q",
            title="arithmetic intensity (FLOPs per byte)",
            scale=alt.Scale(type="log", domain=[0.5, 65536]),
            axis=alt.Axis(values=[1, 10, 100, 1000, 10000], format=",d"),
        )
        y = alt.Y(
            "attainable:Q",
            title="attainable FLOP/s",
            scale=alt.Scale(type="log", domain=[1e11, 8e15]),
            axis=alt.Axis(values=[1e12, 1e13, 1e14, 1e15], format="~s"),
        )
        roof = (
            alt.Chart(alt.Data(values=[{"corner": 0}, {"corner": 1}, {"corner": 2}]))
            .transform_calculate(
                intensity=vega(where(alt.datum.corner == 1, s.ridge, where(alt.datum.corner == 0, 0.5, 65536))),
                attainable=vega(minimum(s.peak, s.bandwidth * alt.datum.intensity)),
            )
            .mark_line(color=theme.MUTED)
            .encode(x=x, y=y)
        )
        tooltip = [
            alt.Tooltip("tokens:Q", title="tokens", format=","),
            alt.Tooltip("intensity:Q", title="FLOPs per byte", format=".4~s"),
            alt.Tooltip("attainable:Q", title="attainable FLOP/s", format=".4~s"),
        ]
        trail = s.rows.mark_point(color=theme.BLUE, size=28, opacity=0.75).encode(x=x, y=y, tooltip=tooltip)
        fall = (
            alt.Chart(alt.Data(values=[{"end": 0}, {"end": 1}]))
            .transform_calculate(intensity=vega(s.ridge), attainable=vega(where(alt.datum.end > 0, 1e11, s.peak)))
            .mark_line(color=theme.MUTED, strokeWidth=1, strokeDash=[3, 3])
            .encode(x=x, y=y)
        )
        ridge = s.now(intensity=s.ridge, attainable=1.6e11)
        notes = [
            word
            for rows, place in (
                (
                    ridge.transform_calculate(label="'ridge ' + format(datum.intensity, ',.3r')"),
                    {"align": "left", "dx": 6},
                ),
                (s.now(intensity=60000, attainable=s.peak, label="compute"), {"align": "right", "dy": 14}),
                (
                    s.now(intensity=6, attainable=s.bandwidth * 6, label="memory"),
                    {"align": "right", "dx": -10, "dy": -8},
                ),
            )
            for word in theme.words(rows, {"color": theme.MUTED, **place}, x=x, y=y, text="label:N")
        ]
        here = s.now("intensity", "attainable", "tokens")
        dot = here.mark_point(size=190, stroke=theme.PAPER, strokeWidth=2).encode(x=x, y=y, tooltip=tooltip)
        label = here.transform_calculate(label="format(datum.tokens, ',') + (datum.tokens == 1 ? ' token' : ' tokens')")
        style = {"color": theme.ORANGE, "fontWeight": 600, "fontSize": 13}
        names = [
            word
            for side, place in (
                ("<", {"align": "left", "dx": 9, "dy": 17}),  # below the slope
                (
                    ">=",
                    {
                        "align": {"expr": "intensity > 4000 ? 'right' : 'center'"},
                        "dx": {"expr": "intensity > 4000 ? 8 : 0"},
                        "dy": -18,
                    },
                ),  # above the roof
            )
            for word in theme.words(
                label.transform_filter(f"datum.intensity {side} {vega(s.ridge)}"),
                place | style,
                x=x,
                y=y,
                text="label:N",
            )
        ]
        return alt.layer(fall, roof, trail, *notes, *names, dot)

    small, large, deepseek = (hf_config(name) for name in ("llama-3-8b", "llama-3-70b", "deepseek-v3"))
    return Figure(
        name="dense-roofline",
        title="How many tokens make a dense layer compute-bound?",
        alt="A log-log plot of attainable FLOP/s against arithmetic intensity. The roof of {device} rises with the bandwidth of its memory "
        "up to the ridge at {ridge}, and is flat at its compute peak from there on. A layer of {d_in} by {d_out} with {tokens} has {intensity}: "
        "it is limited by {bound}, at {busy} of the peak. Tokens that bring it to the ridge: {tokens_at_ridge}.",
        model=dense_on_device,
        controls=[
            slider("tokens", "Tokens", [*steps(1, 65536, per_octave=2), AT_THE_RIDGE], value=1, unit="tokens"),
            slider("d_in", "Width in", steps(128, 65536, per_octave=2), value=4096),
            slider("d_out", "Width out", steps(128, 131072, per_octave=2), value=16384),
            device_choice(),
        ],
        presets={
            "4,096 → 16,384": {"d_in": 4096, "d_out": 16384},
            "Llama-3-8B, gate or up": {"d_in": small["hidden_size"], "d_out": small["intermediate_size"]},
            "Llama-3-8B, head": {"d_in": small["hidden_size"], "d_out": small["vocab_size"]},
            "Llama-3-70B, gate or up": {"d_in": large["hidden_size"], "d_out": large["intermediate_size"]},
            "GPT-2, first of the MLP": {"d_in": 768, "d_out": 3072},
            "DeepSeek-V3, one expert's up": {
                "d_in": deepseek["hidden_size"],
                "d_out": deepseek["moe_intermediate_size"],
            },
            "Narrow, 256 → 256": {"d_in": 256, "d_out": 256},
        },
        readouts=[
            readout("flops", "FLOPs", "FLOPs"),
            readout("bytes", "Bytes moved", "B"),
            readout("intensity", "Intensity", "FLOP/B"),
            readout("seconds", "Least time", "s"),
            readout("busy", "Of the peak, at most", "%"),
            readout("bound", "Limited by"),
            readout("ridge", "Ridge point", "FLOP/B"),
            readout("tokens_at_ridge", "Tokens that reach it", "tokens"),
        ],
        rows=along("tokens", steps(1, 65536)),
        chart=chart,
        table=[
            column("tokens", "Tokens", "tokens"),
            column("intensity", "Intensity", "FLOP/B"),
            column("attainable", "Attainable", "FLOP/s"),
            column("seconds", "Least time", "s"),
            column("bound", "Limited by"),
        ],
        caption=peaks_note()
        + " Bytes are the fewest that the layer can move from and to main memory. The least time leaves out the microseconds "
        "that starting a kernel takes.",
    )
