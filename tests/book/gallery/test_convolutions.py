"""The figure of one convolution: hand-derived numbers, and settings that are what happens."""

import itertools
import math
import re

import pytest

from flopkit.book.gallery.convolutions import READS, convolution_cost

FIGURE = convolution_cost()
DEPTHWISE, *GROUPED, FULL = READS
SHARES = dict(zip(GROUPED, (16, 8, 4, 2), strict=True))


def test_it_starts_at_a_depthwise_layer_of_mobilenet():
    start = FIGURE.at()
    outputs = 64 * 144 * 56 * 56
    assert start["flops"] == outputs * 9 * 2
    assert start["bytes"] == (outputs + 144 * 9 + outputs) * 2
    assert (start["groups"], start["read"], start["place"], start["bound"]) == (144, 1, "depthwise", "memory")
    assert start["seconds"] == pytest.approx(start["bytes"] / 3.35e12)


def test_the_full_layer_is_one_move_away():
    full = FIGURE.at(reads=FULL)
    assert full["flops"] == 144 * FIGURE.at()["flops"]
    assert full["bytes"] - FIGURE.at()["bytes"] == 143 * 144 * 9 * 2, "only the weight grows"
    assert (full["groups"], full["place"], full["bound"]) == (1, "full", "compute")
    assert FIGURE.at()["fewer_flops"] == 144 and full["fewer_flops"] == full["less_time"] == 1
    assert FIGURE.at()["less_time"] == pytest.approx(full["seconds"] / FIGURE.at()["seconds"])


def test_on_a_device_with_a_low_ridge_the_flops_pay():
    """On a P100 the full layer is far above the ridge of 12.7, so dropping FLOPs saves time until memory is the limit."""
    h100, p100 = FIGURE.at(), FIGURE.at(device="P100 PCIe 16 GB, fp32")
    assert h100["less_time"] < 2.5 < 20 < p100["less_time"]


def test_a_depthwise_layer_runs_on_the_ordinary_lanes():
    """An H100 has 67 TFLOP/s in fp32: a 7 × 7 of 96 channels takes longer to compute than to move, and an 11 × 11 three times as long."""
    seven = FIGURE.at(**FIGURE.presets["ConvNeXt-T, 7 × 7 depthwise"])
    outputs = 64 * 96 * 56 * 56
    assert seven["seconds"] == seven["lanes"] == pytest.approx(2 * 49 * outputs / 67e12)
    assert (
        seven["bound"] == "compute"
        and f"{seven['seconds'] * 1e6:.1f}" == "28.2"
        and f"{seven['memory'] * 1e6:.1f}" == "23.0"
    )
    eleven = FIGURE.at(kernel=11)
    assert (
        eleven["seconds"] == pytest.approx(2 * 121 * 64 * 144 * 56 * 56 / 67e12)
        and round(eleven["seconds"] * 1e6) == 104
    )
    assert FIGURE.at(kernel=11, reads=FULL)["seconds"] == FIGURE.at(kernel=11, reads=FULL)["tensor"]
    assert [FIGURE.at(kernel=k)["bound"] for k in (1, 3, 5, 7)] == ["memory"] * 3 + ["compute"]


@pytest.mark.parametrize("device", ["P100 PCIe 16 GB, fp32", "V100 SXM2 32 GB, fp32"])
def test_a_device_without_tensor_cores_has_no_line_for_them(device):
    """In the table a dash, in the chart nothing; the lanes take the full layer, too."""
    rows = FIGURE.rows(device=device)
    assert all(math.isnan(row["tensor"]) for row in rows) and not any(math.isnan(row["lanes"]) for row in rows)
    full = FIGURE.at(device=device, reads=FULL, kernel=11)
    assert full["seconds"] == full["lanes"] > full["memory"]
    solid = r'<path [^>]*d="([^"]*)"[^>]*stroke="#0072b2"[^>]*stroke-dasharray="1,0"'
    drawn = {name: len(re.findall(solid, FIGURE.svg(device=name))) for name in (device, "T4 16 GB, fp16")}
    assert drawn == {device: 1, "T4 16 GB, fp16": 2}, "the legend's, and the line"
    assert "only the dashed line" in FIGURE.caption


SIZES = ("channels", "kernel", "side", "stride", "batch")


@pytest.mark.parametrize("reads", READS)
def test_what_is_set_is_what_happens(reads):
    """Every combination of the sizes: whole numbers, groups that divide the channels, and the share that the label names."""
    for values in itertools.product(*(FIGURE.controls[name].options for name in SIZES)):
        sizes = dict(zip(SIZES, values, strict=True))
        found, channels = FIGURE.at(reads=reads, **sizes), sizes["channels"]
        expected = {DEPTHWISE: 1, FULL: channels}.get(reads) or channels / SHARES[reads]
        assert found["read"] == expected and found["read"] * found["groups"] == channels
        assert all(type(found[name]) is int for name in ("read", "groups", "flops"))
        assert found["place"] == ("depthwise" if expected == 1 else "full" if expected == channels else "grouped")
        outputs = sizes["batch"] * channels * sizes["side"] ** 2
        assert found["flops"] == 2 * outputs * expected * sizes["kernel"] ** 2


def test_depthwise_can_be_reached_at_every_width():
    for channels in FIGURE.controls["channels"].options:
        assert FIGURE.at(reads=DEPTHWISE, channels=channels)["groups"] == channels


@pytest.mark.parametrize("channels", FIGURE.controls["channels"].options)
def test_the_dot_lies_on_a_point_of_the_line(channels):
    rows = FIGURE.rows(channels=channels)
    assert [row["read"] for row in rows] == sorted(row["read"] for row in rows)
    for reads in READS:
        here = FIGURE.at(channels=channels, reads=reads)
        row = next(row for row in rows if row["reads"] == reads)
        assert (row["read"], row["groups"]) == (here["read"], here["groups"])
        assert here["seconds"] == max(row["lanes" if row["read"] == 1 else "tensor"], row["memory"])


@pytest.mark.parametrize(
    "preset, macs",
    [
        ("ResNet-50, 3 × 3 of layer2", 28 * 28 * 128 * 128 * 9),
        ("MobileNetV2, 3 × 3 depthwise", 56 * 56 * 144 * 9),
        ("ResNet-50, 1 × 1 of layer1", 56 * 56 * 64 * 64),
        ("VGG-16, second layer", 224 * 224 * 64 * 64 * 9),
        ("ConvNeXt-T, 7 × 7 depthwise", 56 * 56 * 96 * 49),
        ("EfficientNet-B0, 5 × 5 depthwise", 28 * 28 * 240 * 25),
    ],
)
def test_presets_are_the_layers_they_name(preset, macs):
    assert FIGURE.at(**FIGURE.presets[preset], batch=1)["flops"] == 2 * macs


def test_stride_changes_the_bytes_alone():
    one, two = FIGURE.at(), FIGURE.at(stride=2)
    assert one["flops"] == two["flops"]
    assert two["bytes"] - one["bytes"] == 3 * 64 * 144 * 56 * 56 * 2, "the input is four times as large"


def test_what_the_description_says():
    bounds = {row["read"]: row["bound"] for row in FIGURE.rows()}
    assert bounds == {1: "memory", 9: "memory", 18: "memory", 36: "memory", 72: "compute", 144: "compute"}
    assert {round(row["lanes"] / row["tensor"]) for row in FIGURE.rows()} == {15}
    assert FIGURE.texts()["fewer_flops"] == "144×" and round(FIGURE.at()["less_time"], 1) == 2.2
