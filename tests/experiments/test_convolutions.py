"""The four kinds of convolution: their counts by hand, and the order of memory that is asked for is the one that runs."""

import pytest
import torch

import flopkit as fk
from flopkit.experiments import Bench, convolutions

C, SIDE = 16, 8  # the sizes at toy scale, one image
TAPS = {"dense": 9 * C, "grouped": 9 * C // 8, "depthwise": 9, "pointwise": C}  # products for each number of the output


@pytest.fixture(scope="module")
def records(toy):
    return toy("convolutions")[1]


def test_counts_by_hand(records):
    assert {each["params"]["kind"] for each in records} == set(TAPS) and len(records) == 2 * len(TAPS)
    for each in records:
        taps = TAPS[each["params"]["kind"]]
        assert each["counted"]["flops"] == 2 * C * SIDE**2 * taps
        assert each["counted"]["bytes"] == 4 * (2 * C * SIDE**2 + C * taps)


def test_counts_by_the_closed_form(records):
    for each in records:
        asked = each["params"]
        cost = fk.conv2d(
            batch=asked["batch"], c_in=C, c_out=C, h_out=SIDE, w_out=SIDE, h_in=SIDE, w_in=SIDE, kernel=asked["kernel"], groups=asked["groups"],
            dtype="fp32",
        )  # fmt: skip
        assert (each["counted"]["flops"], each["counted"]["bytes"]) == (cost.flops, cost.bytes)


def test_the_intensity_that_the_prediction_names():
    """At the sizes of a GPU: 2·9 FLOPs for a number that is read and one that is written, in 4 and in 2 bytes each."""
    sizes = {"batch": 64, "c_in": 256, "c_out": 256, "h_out": 56, "w_out": 56, "kernel": 3}
    for dtype, intensity in (("fp32", 2.25), ("bf16", 4.5)):
        assert fk.conv2d(**sizes, groups=256, dtype=dtype).intensity == pytest.approx(intensity, rel=1e-3)
    assert fk.conv2d(**sizes).flops == 256 * fk.conv2d(**sizes, groups=256).flops


def test_both_orders_run_as_asked(monkeypatch):
    made = []

    def case(self, experiment, params, make, dtype, **how):
        _fn, images, weight = make()
        made.append((params["layout"], params["groups"], images, weight))
        return {}

    monkeypatch.setattr(Bench, "case", case)
    list(convolutions.run(Bench("cpu", "toy")))
    assert [layout for layout, *_ in made] == ["NCHW"] * 4 + ["NHWC"] * 4
    for layout, groups, images, weight in made:
        assert images.is_contiguous(memory_format=torch.channels_last) == (layout == "NHWC")
        assert images.is_contiguous() == (layout == "NCHW")
        assert weight.shape == (C, C // groups, *weight.shape[2:])
