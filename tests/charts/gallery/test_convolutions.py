"""The figure of one convolution: hand-derived numbers, and groups that always divide."""

import itertools
import math

import pytest

from flopkit.charts.gallery.convolutions import convolution_cost

FIGURE = convolution_cost()


def test_it_starts_at_a_depthwise_layer_of_mobilenet():
    start = FIGURE.at()
    outputs = 64 * 144 * 56 * 56
    assert start["flops"] == outputs * 9 * 2
    assert start["bytes"] == (outputs + 144 * 9 + outputs) * 2
    assert (start["groups"], start["read"], start["place"], start["bound"]) == (144, 1, "depthwise", "memory")
    assert start["seconds"] == pytest.approx(start["bytes"] / 3.35e12)


def test_the_star_full_is_one_move_away():
    full = FIGURE.at(reads=144)
    assert full["flops"] == 144 * FIGURE.at()["flops"]
    assert full["bytes"] - FIGURE.at()["bytes"] == 143 * 144 * 9 * 2, "only the weight grows"
    assert (full["groups"], full["place"], full["bound"]) == (1, "full", "compute")
    assert FIGURE.at()["fewer_flops"] == 144 and full["fewer_flops"] == full["less_time"] == 1
    assert FIGURE.at()["less_time"] == pytest.approx(full["seconds"] / FIGURE.at()["seconds"])


def test_on_a_device_with_a_low_ridge_the_flops_pay():
    """On a P100 the full layer is far above the ridge of 14.7, so dropping FLOPs saves time until memory is the limit."""
    h100, p100 = FIGURE.at(), FIGURE.at(device="P100 SXM2 16 GB, fp32")
    assert h100["less_time"] < 2.5 < 20 < p100["less_time"]


@pytest.mark.parametrize("reads", FIGURE.controls["reads"].options)
def test_groups_always_divide_and_the_ends_are_exact(reads):
    channels = FIGURE.controls["c_in"].options, FIGURE.controls["c_out"].options
    for c_in, c_out in itertools.product(*channels):
        found = FIGURE.at(reads=reads, c_in=c_in, c_out=c_out)
        assert c_in % found["groups"] == c_out % found["groups"] == 0
        assert found["groups"] == math.gcd(c_in // math.gcd(c_in, min(reads, c_in)), c_out)
        if reads >= c_in:
            assert found["groups"] == 1
        if reads == 1:
            assert found["groups"] == math.gcd(c_in, c_out)


@pytest.mark.parametrize(
    "preset, macs",
    [
        ("ResNet-50, 3 × 3 of layer2", 28 * 28 * 128 * 128 * 9),
        ("ResNet-50, 1 × 1 of layer1", 56 * 56 * 256 * 64),
        ("ResNet-50, first layer", 112 * 112 * 64 * 3 * 49),
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
