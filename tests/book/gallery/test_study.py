"""The figure of ceilings: what it adds up is the roofline of every operator of a training step."""

import pytest

from flopkit.book.gallery import utilisation_ceilings
from flopkit.book.gallery.cnns import NETWORKS
from flopkit.book.gallery.study import DEVICES
from flopkit.devices import device
from flopkit.models.vision import cnn, cnn_backward, cnn_kinds
from flopkit.rooflines import roofline

FIGURE = utilisation_ceilings()
PLACES = dict(zip(FIGURE.controls["device"].options, DEVICES, strict=True))


def by_hand(title, key, dtype, plain=1.0, depthwise=1.0):
    """FLOPs, bytes and the least seconds of a step on 64 images, operator by operator.

    A norm moves two maps forward and three backward; in training it reads again what it reads, so the bus carries three and five.
    """
    name = NETWORKS[title]
    kinds, flops, moved, seconds = cnn_kinds(name), 0, 0, 0.0
    for which, carried in ((cnn, 3 / 2), (cnn_backward, 5 / 3)):
        for part in which(name, batch=64, dtype=dtype).parts:
            kind = kinds[part.name]
            left = {"norm": plain, "activation": plain, "depthwise": depthwise}.get(kind, 1)
            left *= carried if kind == "norm" else 1
            seconds += left * roofline(part, device(key), "fp32" if kind == "depthwise" else dtype).seconds
            flops, moved = flops + part.flops, moved + part.bytes
    return flops, moved, seconds


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("title", ["AlexNet", "ResNet-50", "MobileNetV2", "EfficientNet-B0"])
def test_a_ceiling_is_work_over_least_time_and_peak(title, place):
    key, dtype = PLACES[place]
    flops, moved, seconds = by_hand(title, key, dtype)
    found = FIGURE.at(network=title, device=place)
    assert found["flops"] * 64 == flops
    assert found["bytes"] * 64 == pytest.approx(moved, rel=1e-12)
    assert found["seconds"] * 64 == pytest.approx(seconds, rel=1e-12)
    assert found["ceiling"] == pytest.approx(flops / seconds / device(key).peak(dtype), rel=1e-12)
    row = next(row for row in FIGURE.rows(device=place) if row["title"] == title)
    assert row["its_ceiling"] == found["ceiling"] and row["its_seconds"] == found["seconds"]


@pytest.mark.parametrize(("plain", "depthwise"), [(0, 1), (1, 0), (0.5, 0.2)])
def test_the_sliders_shorten_times_alone(plain, depthwise):
    [(_, (key, dtype)), *_] = PLACES.items()
    flops, moved, seconds = by_hand("MobileNetV2", key, dtype, plain, depthwise)
    found = FIGURE.at(plain=plain, depthwise=depthwise)
    assert found["seconds"] * 64 == pytest.approx(seconds, rel=1e-12)
    assert (found["flops"] * 64, found["bytes"] * 64) == (flops, pytest.approx(moved, rel=1e-12))


def test_multiply_adds_over_a_peak_in_flops_are_half():
    whole, half = FIGURE.at(), FIGURE.at(counts="multiply-adds, as the study")
    assert half["ceiling"] == whole["ceiling"] / 2 and half["seconds"] == whole["seconds"]


def test_no_network_passes_its_peak():
    for place in PLACES:
        assert all(0 < row["its_ceiling"] < 1 for row in FIGURE.rows(device=place))


def test_shares_of_the_bytes():
    name, found = "mobilenet_v2", FIGURE.at()
    kinds = cnn_kinds(name)
    parts = [part for which in (cnn, cnn_backward) for part in which(name, batch=64, dtype="fp32").parts]
    total = sum(part.bytes for part in parts)
    for share, some in (("plain_share", ("norm", "activation")), ("depthwise_share", ("depthwise",))):
        assert found[share] == pytest.approx(sum(p.bytes for p in parts if kinds[p.name] in some) / total, rel=1e-12)


def test_the_caption_says_that_a_norm_has_to_read_its_maps_twice():
    """A norm's bytes are those of one read: forward in and out, backward two in and one out; its mean needs the whole map before the first output."""
    norms = [
        part
        for part in cnn("mobilenet_v2", batch=64, dtype="int8").parts
        if cnn_kinds("mobilenet_v2")[part.name] == "norm"
    ]
    first, wide = norms[0], 64 * 32 * 112 * 112
    assert 2 * wide <= first.bytes < 2.001 * wide and "a batch norm reads its maps twice" in FIGURE.caption
