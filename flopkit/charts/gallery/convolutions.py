"""Figure of the chapter on convolution: one layer, from depthwise to full, its arithmetic beside its bytes."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import exact_div, minimum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure, need
from flopkit.charts.hardware import device_choice, source_note
from flopkit.charts.panel import along, column, readout, slider, steps
from flopkit.layers.convolutions import conv2d
from flopkit.rooflines import bound_by

__all__ = ["DEVICES", "convolution_cost", "convolution_on_device"]

DEVICES = (
    ("h100-sxm", "bf16"),
    ("h200", "bf16"),
    ("b200", "bf16"),
    ("a100-sxm-80gb", "bf16"),
    ("mi300x", "bf16"),
    ("l4", "bf16"),
    ("t4", "fp16"),
    ("v100-sxm", "fp16"),
    ("v100-sxm", "fp32"),
    ("p100-sxm", "fp32"),
)
"""Beside today's devices the P100 in fp32, with which the study of the thirteen networks was made."""

EUCLID = 7  # divisions that the pairs of sizes below need at most; a test tries them all


def convolution_on_device(
    s: Any, *, reads: Any, c_in: Any, c_out: Any, kernel: Any, side: Any, stride: Any, batch: Any, device: Any
) -> None:
    """A convolution in which an output reads *reads* input channels: 1 is depthwise, all of them is full.

    Groups must divide both numbers of channels, so the next smaller number of groups is taken that does.
    """
    s.most = minimum(reads, c_in)
    s.fan = _common_divisor(s, "in", c_in, s.most)
    s.groups = _common_divisor(s, "out", exact_div(c_in, s.fan), c_out)
    s.read = exact_div(c_in, s.groups)
    sizes = {"batch": batch, "c_in": c_in, "c_out": c_out, "h_out": side, "w_out": side, "kernel": kernel}
    cost = conv2d(**sizes, groups=s.groups, stride=stride, dtype=device)
    s.flops = cost.flops
    s.bytes = cost.bytes
    s.intensity = s.flops / s.bytes
    bound = bound_by(s.flops, s.bytes, device.peak, device.bandwidth)
    s.arithmetic = bound.compute_seconds
    s.memory = bound.memory_seconds
    s.seconds = bound.seconds
    s.bound = bound.bound
    full = conv2d(**sizes, stride=stride, dtype=device)
    s.channels = c_in
    s.full_arithmetic = full.flops / device.peak
    s.fewer_flops = full.flops / s.flops
    s.less_time = bound_by(full.flops, full.bytes, device.peak, device.bandwidth).seconds / s.seconds
    s.place = where(s.groups == 1, "full", where(s.read == 1, "depthwise", "grouped"))


def _common_divisor(s: Any, name: str, a: Any, b: Any) -> Any:
    """The greatest common divisor by Euclid's algorithm, without a loop that looks at the sizes."""
    for step in range(EUCLID):
        setattr(s, f"{name}_d{step}", where(b > 0, b, a))
        divisor = getattr(s, f"{name}_d{step}")
        setattr(s, f"{name}_r{step}", a % divisor)
        a, b = divisor, getattr(s, f"{name}_r{step}")
    return a


def convolution_cost() -> Figure:
    """Time for the arithmetic and time for the bytes of one layer, over the input channels that an output reads."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "read:Q",
            title="input channels that each output reads",
            scale=alt.Scale(type="log", base=2, nice=False, padding=36),
            axis=alt.Axis(format=",d", values=[1, 4, 16, 64, 256, 1024]),
        )
        scale = alt.Scale(type="log", nice=False, padding=30)
        axis = alt.Axis(labelExpr="format(datum.value, '~s') + 's'", values=[10.0**power for power in range(-10, 3)])

        def y(column: str) -> Any:
            return alt.Y(f"{column}:Q", title="least time", scale=scale, axis=axis)

        tips = [
            alt.Tooltip("read:Q", title="channels read", format=","),
            alt.Tooltip("groups:Q", title="groups", format=","),
            alt.Tooltip("flops:Q", title="FLOPs", format=".4~s"),
            alt.Tooltip("bytes:Q", title="bytes", format=".4~s"),
        ]
        lines = [
            s.rows.mark_line(color=colour, point={"color": colour, "size": 28}).encode(x=x, y=y(column), tooltip=tips)
            for column, colour in (("memory", theme.GREEN), ("arithmetic", theme.BLUE))
        ]
        depthwise = s.now(read=1, seconds=s.memory, label="for the bytes")
        full = s.now(read=s.channels, seconds=s.full_arithmetic, label="for the arithmetic")
        here = s.now("read", "seconds", "groups", "place")
        dot = here.mark_point(size=190, stroke=theme.PAPER, strokeWidth=2).encode(x=x, y=y("seconds"))
        name = (
            here.transform_calculate(
                label="datum.place == 'grouped' ? format(datum.groups, ',') + ' groups' : datum.place"
            )
            .mark_text(color=theme.ORANGE, fontWeight=600, fontSize=13, dy=-18)
            .encode(x=x, y=y("seconds"), text="label:N")
        )
        words = [
            depthwise.mark_text(color=theme.GREEN, fontWeight=600, align="left", dx=12, dy=14).encode(
                x=x, y=y("seconds"), text="label:N"
            ),
            full.mark_text(color=theme.BLUE, fontWeight=600, align="right", dx=-12, dy=-4).encode(
                x=x, y=y("seconds"), text="label:N"
            ),
        ]
        return alt.layer(*lines, *words, dot, name)

    return Figure(
        name="convolution-cost",
        title="From depthwise to full: the arithmetic grows, the bytes hardly do",
        alt="Least time of a 3 × 3 convolution of 144 channels on an H100, over the input channels that each output reads, both "
        "axes logarithmic. The time for the arithmetic rises in proportion; the time for the bytes is flat and lies above it "
        "up to about 64 channels. A depthwise convolution needs 144 times fewer FLOPs than a full one and 2.2 times less time.",
        model=convolution_on_device,
        controls=[
            slider("reads", "Channels that each output reads", steps(1, 2048), value=1, unit="channels"),
            slider("c_in", "Channels in", steps(32, 2048, per_octave=2), value=144),
            slider("c_out", "Channels out", steps(32, 2048, per_octave=2), value=144),
            slider("kernel", "Kernel, on a side", [1, 3, 5, 7, 9, 11], value=3),
            slider("side", "Output map, on a side", [7, 14, 28, 56, 112, 224], value=56),
            slider("stride", "Stride", [1, 2], value=1),
            slider("batch", "Batch", steps(1, 512), value=64, unit="images"),
            device_choice(pairs=DEVICES),
        ],
        presets={
            "MobileNetV2, 3 × 3 depthwise": _layer(144, 144, 3, 56, reads=1),
            "EfficientNet-B0, 5 × 5 depthwise": _layer(240, 240, 5, 28, reads=1),
            "ConvNeXt-T, 7 × 7 depthwise": _layer(96, 96, 7, 56, reads=1),
            "ResNet-50, 3 × 3 of layer2": _layer(128, 128, 3, 28),
            "ResNet-50, 1 × 1 of layer1": _layer(64, 256, 1, 56),
            "ResNet-50, first layer": _layer(3, 64, 7, 112, stride=2),
            "VGG-16, second layer": _layer(64, 64, 3, 224),
        },
        readouts=[
            readout("flops", "Arithmetic", "FLOPs"),
            readout("bytes", "Bytes moved", "B"),
            readout("intensity", "Intensity", "FLOP/B"),
            readout("seconds", "At least", "s"),
            readout("bound", "Limited by", text={"compute": "arithmetic", "memory": "memory"}),
            readout("groups", "Groups"),
            readout("fewer_flops", "Fewer FLOPs than full", "×"),
            readout("less_time", "Less time than full", "×"),
        ],
        rows=along("reads", steps(1, 2048)),
        chart=chart,
        table=[
            column("read", "Channels read"),
            column("groups", "Groups"),
            column("flops", "Arithmetic", "FLOPs"),
            column("arithmetic", "Time for it", "s"),
            column("bytes", "Bytes", "B"),
            column("memory", "Time for them", "s"),
        ],
        caption="The layer takes at least the longer of the two times. Groups must divide the channels: where the slider asks "
        "for a number that does not, the next one that does is taken. " + source_note(DEVICES),
    )


def _layer(
    c_in: int, c_out: int, kernel: int, side: int, *, stride: int = 1, reads: int | None = None
) -> dict[str, Any]:
    """A preset. Without *reads* the layer is full."""
    return {
        "c_in": c_in, "c_out": c_out, "kernel": kernel, "side": side, "stride": stride,
        "reads": c_in if reads is None else reads,
    }  # fmt: skip
