"""Figure of the chapter on convolution: one layer, from depthwise to full, its arithmetic beside its bytes."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import exact_div, ratio, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, source_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
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
    ("p100-pcie", "fp32"),
)
"""Beside today's devices the P100 (the PCIe card) in fp32, with which the study of the thirteen networks was made."""

READS = {
    "one channel (depthwise)": 0,
    "a sixteenth of them": 16,
    "an eighth of them": 8,
    "a quarter of them": 4,
    "half of them": 2,
    "all of them (full)": 1,
}
"""What an output channel reads of the input channels, and the number of groups that does it; 0 stands for one a channel."""

CHANNELS = [16 * n for n in steps(1, 128, per_octave=2)]
"""Multiples of 16, as the channels of the presets are, so that each of the shares above is a whole number."""

LINES = {
    "memory": ("memory", theme.GREEN, [1, 0]),
    "lanes": ("compute: lanes", theme.BLUE, [6, 4]),
    "tensor": ("compute: tensor cores", theme.BLUE, [1, 0]),
}
"""Name and look of each result that is a line; a device without tensor cores has none for them."""


def convolution_on_device(
    s: Any, *, reads: Any, channels: Any, kernel: Any, side: Any, stride: Any, batch: Any, device: Any
) -> None:
    """A convolution with as many channels out as in, in groups; *reads* is their number, or 0 for a depthwise layer.

    A depthwise layer seldom runs on tensor cores, so its arithmetic is timed at the fp32 peak of the ordinary lanes.
    """
    s.groups = where(reads == 0, channels, reads)
    s.read = exact_div(channels, s.groups)
    sizes = {"batch": batch, "c_in": channels, "c_out": channels, "h_out": side, "w_out": side, "kernel": kernel}
    cost = conv2d(**sizes, groups=s.groups, stride=stride, dtype=device)
    s.flops = cost.flops
    s.bytes = cost.bytes
    s.intensity = s.flops / s.bytes
    s.cores = where(device.peak > device.lanes, 1, 0)
    s.tensor = ratio(s.cores * s.flops, s.cores * device.peak)  # no number without tensor cores
    s.lanes = s.flops / device.lanes
    bound = bound_by(s.flops, s.bytes, where(s.read == 1, device.lanes, device.peak), device.bandwidth)
    s.arithmetic = bound.compute_seconds
    s.memory = bound.memory_seconds
    s.seconds = bound.seconds
    s.bound = bound.bound
    full = conv2d(**sizes, stride=stride, dtype=device)
    s.fewer_flops = full.flops / s.flops
    s.less_time = bound_by(full.flops, full.bytes, device.peak, device.bandwidth).seconds / s.seconds
    s.place = where(s.read == 1, "depthwise", where(s.groups == 1, "full", "grouped"))


def convolution_cost() -> Figure:
    """Time for the arithmetic and time for the bytes of one layer, over the input channels that an output reads."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "read:Q",
            title="input channels that each output reads",
            scale=alt.Scale(type="log", base=2, nice=False, padding=36),
            axis=alt.Axis(format=",d", values=[1, 4, 16, 64, 256, 1024], labelBound=True),
        )
        scale = alt.Scale(type="log", nice=False, padding=30)
        axis = alt.Axis(
            labelExpr="replace(format(datum.value, '~s'), /([^0-9])?$/, ' $1') + 's'",
            values=[10.0**power for power in range(-10, 3)],
        )

        def y(column: str) -> Any:
            return alt.Y(f"{column}:Q", title="least time", scale=scale, axis=axis)

        tips = [
            alt.Tooltip("read:Q", title="channels read", format=","),
            alt.Tooltip("groups:Q", title="groups", format=","),
            alt.Tooltip("flops:Q", title="FLOPs", format=".4~s"),
            alt.Tooltip("bytes:Q", title="bytes", format=".4~s"),
        ]
        lines = theme.curves(s.rows, LINES, "least", {"point": {"size": 28}}, x=x, y=y("least"), tooltip=tips)
        here = s.now("read", "seconds", "groups", "place").transform_calculate(
            label="datum.place == 'grouped' ? format(datum.groups, ',') + ' groups' : datum.place"
        )
        dot = here.mark_point(size=190, stroke=theme.PAPER, strokeWidth=2).encode(
            x=x, y=y("seconds"), tooltip=[*tips[:2], alt.Tooltip("seconds:Q", title="least time, s", format=".4~s")]
        )
        beside = {"expr": "place == 'depthwise' ? 'center' : 'right'"}
        style = {"color": theme.ORANGE, "fontWeight": 600, "fontSize": 13, "dy": -18, "align": beside}
        return alt.layer(lines, *theme.words(here, style, x=x, y=y("seconds"), text="label:N"), dot)

    return Figure(
        name="convolution-cost",
        title="From depthwise to full: the compute time and the memory time of one convolution",
        alt="Least times of a convolution over the input channels that each output reads, both axes logarithmic. The compute time "
        "rises in proportion to them, on tensor cores (solid line) and on the ordinary lanes (dashed), where depthwise layers run; the memory time is flat as long as the maps hold most of the bytes. "
        "Here: a kernel of {kernel} on a side, {channels} channels on a map of {side}, {batch}, {device}. An output reads {reads}: "
        "{flops}, {bytes}, at least {seconds}, limited by {bound}; the full layer does {fewer_flops} the FLOPs and takes {less_time} the time.",
        model=convolution_on_device,
        controls=[
            choice("reads", "Input channels that each output reads", READS),
            slider("channels", "Channels, in and out", CHANNELS, value=144),
            slider("kernel", "Kernel, on a side", [1, 3, 5, 7, 9, 11], value=3),
            slider("side", "Output map, on a side", [7, 14, 28, 56, 112, 224], value=56),
            slider("stride", "Stride", [1, 2], value=1),
            slider("batch", "Batch", steps(1, 512), value=64, unit="images"),
            device_choice(pairs=DEVICES),
        ],
        presets={
            "MobileNetV2, 3 × 3 depthwise": _layer(144, 3, 56, "one channel (depthwise)"),
            "EfficientNet-B0, 5 × 5 depthwise": _layer(240, 5, 28, "one channel (depthwise)"),
            "ConvNeXt-T, 7 × 7 depthwise": _layer(96, 7, 56, "one channel (depthwise)"),
            "ResNet-50, 3 × 3 of layer2": _layer(128, 3, 28, "all of them (full)"),
            "ResNet-50, 1 × 1 of layer1": _layer(64, 1, 56, "all of them (full)"),
            "VGG-16, second layer": _layer(64, 3, 224, "all of them (full)"),
        },
        readouts=[
            readout("flops", "FLOPs", "FLOPs"),
            readout("bytes", "Bytes moved", "B"),
            readout("intensity", "Intensity", "FLOP/B"),
            readout("seconds", "Least time", "s"),
            readout("bound", "Limited by"),
            readout("groups", "Groups"),
            readout("fewer_flops", "Full layer: FLOPs over these", "×"),
            readout("less_time", "Full layer: time over this", "×"),
        ],
        rows=along("reads", list(READS)),
        chart=chart,
        table=[
            column("read", "Channels read"),
            column("groups", "Groups"),
            column("flops", "FLOPs", "FLOPs"),
            column("tensor", "Compute, tensor cores", "s"),
            column("lanes", "Compute, lanes", "s"),
            column("bytes", "Bytes", "B"),
            column("memory", "Memory time", "s"),
        ],
        caption="The layer takes at least the longer of its memory time and its compute time. A depthwise layer computes on the lanes (dashed line), "
        "any other layer on the tensor cores (solid line), which is optimistic where each output reads few channels. Without tensor cores, the lanes run every layer, and only the dashed line is drawn. "
        "With a small map and batch, most bytes are weights, and the green line rises, too. " + source_note(DEVICES),
    )


def _layer(channels: int, kernel: int, side: int, reads: str) -> dict[str, Any]:
    """A preset."""
    return {"channels": channels, "kernel": kernel, "side": side, "stride": 1, "reads": reads}
