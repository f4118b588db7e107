"""The waterfall of utilisations: against the figure of bounds, the bytes of norms alone, and what was recorded."""

import math
from functools import cache
from itertools import pairwise

import pytest

from flopkit.book.gallery import lost_utilisation, utilisation_ceilings
from flopkit.devices import device
from flopkit.models.vision import cnn, cnn_backward, cnn_kinds
from flopkit.recordings import records

FIGURE = lost_utilisation()
NAMES = {"MobileNetV2": "mobilenet_v2", "EfficientNet-B0": "efficientnet_b0", "ResNet-50": "resnet50"}
KEYS = {"P100 of the study": "p100-pcie", "our H200": "h200-sxm"}


@cache
def least_seconds(name, key):
    """Of a step on 64 images, each operator for itself: FLOPs over the peak or bytes over the bandwidth; and the bytes of the norms."""
    card, seconds, norms, flops = device(key), 0.0, 0, 0
    for part in (*cnn(name, batch=64, dtype="fp32").parts, *cnn_backward(name, batch=64, dtype="fp32").parts):
        seconds += max(part.flops / card.peak("fp32"), part.bytes / card.bandwidth)
        norms += part.bytes * (cnn_kinds(name)[part.name] == "norm")
        flops += part.flops
    return seconds, norms, flops


def bound_twice(name, key):
    """A norm moves two maps forward and three backward; read twice, three and five. It never waits for arithmetic."""
    seconds, norms, flops = least_seconds(name, key)
    card = device(key)
    return flops / card.peak("fp32") / (seconds + norms * 3 / 5 / card.bandwidth)


@cache
def by_the_clock(name):
    [case] = [
        case
        for case in records("cnns", owner="ours", device="h200", dtype="fp32")
        if (case["params"]["network"], case["params"]["method"], case["params"]["compiled"]) == (name, "batch", False)
    ]
    _, _, flops = least_seconds(name, "h200-sxm")
    assert case["params"]["batch"] == 64
    return flops / case["seconds"]["mean"] / device("h200-sxm").peak("fp32")


@pytest.mark.parametrize("gpu", KEYS)
@pytest.mark.parametrize("network", ["MobileNetV2", "EfficientNet-B0"])
def test_each_step_by_another_way(network, gpu):
    name, key = NAMES[network], KEYS[gpu]
    found = FIGURE.at(network=network, gpu=gpu)
    assert found["bound"] == pytest.approx(bound_twice(name, key), rel=2e-3)  # a norm's few parameters are read once
    resnet = by_the_clock("resnet50") if gpu == "our H200" else 0.6  # 30 % in multiply-adds
    assert found["usual"] / found["bound"] == pytest.approx(resnet / bound_twice("resnet50", key), rel=2e-3)
    reached = by_the_clock(name) if gpu == "our H200" else 0.08  # 4 % in multiply-adds
    assert found["reached"] == pytest.approx(reached, rel=1e-6)
    assert found["printed"] == found["reached"] / 2


@pytest.mark.parametrize("network", ["MobileNetV2", "EfficientNet-B0"])
def test_fused_is_the_bound_without_norms_and_activations(network):
    other = utilisation_ceilings()
    place = next(option for option in other.controls["device"].options if option.startswith("P100"))
    found = FIGURE.at(network=network, fused=True)
    assert found["bound"] == pytest.approx(other.at(network=network, device=place, plain=0.0)["ceiling"])
    assert found["reached"] == found["usual"], "nobody timed it"
    assert FIGURE.at(network=network)["bound"] == pytest.approx(other.at(network=network, device=place)["ceiling"])


@pytest.mark.parametrize("preset", FIGURE.presets.values(), ids=FIGURE.presets)
def test_bars_meet_and_multiply_to_the_whole(preset):
    rows, found = FIGURE.rows(**preset), FIGURE.at(**preset)
    assert rows[0]["high"] == 1 and rows[-1]["low"] == found["printed"]
    assert all(one["low"] == other["high"] >= other["low"] for one, other in pairwise(rows))
    assert math.prod(row["divided"] for row in rows) == pytest.approx(found["whole"])
    assert all(0.012 < row["low"] <= 1 for row in rows), "inside the axis"


def test_the_caption_says_at_least():
    """The study printed “lower than 0.04”."""
    assert FIGURE.at()["printed"] == 0.04 and FIGURE.at()["whole"] == 25
    assert "so at least this much" in FIGURE.caption and FIGURE.at()["still"] > 1


def test_of_the_p100s_kernels_the_caption_says_at_most():
    """The study has most networks above 0.3: if ResNet-50 is among them, a higher share of its bound leaves less to the usual cause."""
    found = FIGURE.at()
    assert found["bound"] / found["usual"] < FIGURE.at(gpu="our H200")["bound"] / FIGURE.at(gpu="our H200")["usual"]
    assert "so at most this much" in FIGURE.caption
