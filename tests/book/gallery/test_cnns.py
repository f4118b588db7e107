"""The figure of thirteen networks: what it adds up is what the trees and the roofline say, layer by layer."""

import pytest

from flopkit.book.gallery.cnns import FUSION, NETWORKS, cnn_anatomy, layers, totals
from flopkit.devices import device
from flopkit.models.vision import KINDS, cnn, cnn_kinds, cnn_names
from flopkit.rooflines import roofline

FIGURE = cnn_anatomy()
PLACES = {
    "H100 SXM5 80 GB, bf16": ("h100-sxm", "bf16"),
    "A100 SXM4 80 GB, bf16": ("a100-sxm-80gb", "bf16"),
    "P100 PCIe 16 GB, fp32": ("p100-pcie", "fp32"),
}
NOTHING, NORMS, SUMS = FUSION


def at_least(part, kind, place):
    """A depthwise convolution finds no tensor cores."""
    name, dtype = PLACES[place]
    return roofline(part, device(name), "fp32" if kind == "depthwise" else dtype).seconds


def test_all_networks_are_there():
    assert sorted(NETWORKS.values()) == sorted(cnn_names())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("title", NETWORKS)
def test_the_sums_are_those_of_the_layers(title, batch, place):
    """The figure splits each layer into a part an image and a part a batch; here every layer is counted at its batch."""
    _, dtype = PLACES[place]
    network, kinds = cnn(NETWORKS[title], batch=batch, dtype=dtype), cnn_kinds(NETWORKS[title])
    found = FIGURE.at(network=title, batch=batch, device=place)
    assert found["flops"] * batch == network.flops
    assert found["bytes"] * batch == pytest.approx(network.bytes, rel=1e-12)
    seconds = dict.fromkeys(KINDS, 0.0)
    for part in network.parts:
        seconds[kinds[part.name]] += at_least(part, kinds[part.name], place)
    assert found["seconds"] * batch == pytest.approx(sum(seconds.values()), rel=1e-12)
    for kind in KINDS:
        assert found[f"{NETWORKS[title]}_{kind}"] * batch == pytest.approx(seconds[kind], rel=1e-12)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("title", NETWORKS)
def test_folded_in_norms_and_activations_cost_nothing(title, place):
    _, dtype = PLACES[place]
    kinds = cnn_kinds(NETWORKS[title])
    network = cnn(NETWORKS[title], batch=64, dtype=dtype)
    left = [part for part in network.parts if kinds[part.name] not in ("norm", "activation")]
    found = FIGURE.at(network=title, device=place, fused=NORMS)
    assert found["flops"] * 64 == sum(part.flops for part in left) == network.flops
    assert found["bytes"] * 64 == pytest.approx(sum(part.bytes for part in left), rel=1e-12)
    assert found["seconds"] * 64 == pytest.approx(
        sum(at_least(part, kinds[part.name], place) for part in left), rel=1e-12
    )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("title", NETWORKS)
def test_a_fused_residual_sum_is_one_more_map_to_read(title, place):
    """The kernel that runs last before the sum reads the other map, as many numbers as it writes, and nothing else is added."""
    name, dtype = PLACES[place]
    kinds, there = cnn_kinds(NETWORKS[title]), device(name)
    kernels = []
    for part in cnn(NETWORKS[title], batch=64, dtype=dtype).parts:
        if part.name.endswith(".add"):
            convolution = [kernel for kernel in kernels if kernel[1]][-1]
            convolution[2] += part.vector_flops * {"bf16": 2, "fp32": 4}[dtype]  # an addition for each number
        elif kinds[part.name] not in ("norm", "activation"):
            peak = there.peak("fp32" if kinds[part.name] == "depthwise" else dtype)
            kernels.append([kinds[part.name], part.flops, part.bytes, peak])
    found = FIGURE.at(network=title, device=place, fused=SUMS)
    assert found["bytes"] * 64 == pytest.approx(sum(kernel[2] for kernel in kernels), rel=1e-12)
    for kind in KINDS:
        times = [max(flops / peak, moved / there.bandwidth) for k, flops, moved, peak in kernels if k == kind]
        assert found[f"{NETWORKS[title]}_{kind}"] * 64 == pytest.approx(sum(times), rel=1e-12)


def test_a_large_depthwise_kernel_waits_for_the_ordinary_lanes():
    """EfficientNet-B0 has 5 × 5 kernels, up to 12.5 FLOP/B in bf16; the lanes of an A100 have their ridge at 9.6."""
    a100 = device("a100-sxm-80gb")
    assert 9.5 < a100.ridge("fp32") < 9.6
    found = FIGURE.at(network="EfficientNet-B0", device="A100 SXM4 80 GB, bf16")
    parts = [p for p in cnn("efficientnet_b0", batch=64).parts if cnn_kinds("efficientnet_b0")[p.name] == "depthwise"]
    assert found["efficientnet_b0_depthwise"] * 64 > 1.03 * sum(p.bytes for p in parts) / a100.bandwidth


@pytest.mark.parametrize("fused", FUSION)
@pytest.mark.parametrize("show", ["least time", "bytes", "FLOPs"])
def test_the_bars_are_shares(show, fused):
    for row in FIGURE.rows(show=show, fused=fused):
        if fused != NOTHING:
            assert row["norm"] == row["activation"] == 0
        assert sum(row[kind] for kind in KINDS) == pytest.approx(1)
        assert row["whole"] == pytest.approx(sum(row[f"{kind}_all"] for kind in KINDS))


def test_bars_of_flops_by_hand():
    """VGG-16: 13 convolutions and three dense layers of 25,088 → 4,096 → 4,096 → 1,000."""
    dense = 2 * (25088 * 4096 + 4096 * 4096 + 4096 * 1000)
    assert totals("VGG-16", "dense") == (dense, 25088 + 4 * 4096 + 1000, dense // 2 + 2 * 4096 + 1000)
    row = next(row for row in FIGURE.rows(show="FLOPs") if row["title"] == "VGG-16")
    assert row["dense"] == pytest.approx(dense / (2 * 15_470_264_320))
    assert row["norm"] == row["activation"] == row["depthwise"] == 0
    assert sum(layers("VGG-16")["convolution"].values()) == 13


def test_the_opening_question():
    assert FIGURE.at()["resnet50_work"] == pytest.approx(4_089_184_256 / 300_774_272)
    assert 2 < FIGURE.at()["resnet50_time"] < 2.2
    assert 4.85 < FIGURE.at(device="P100 PCIe 16 GB, fp32")["resnet50_time"] < 4.95
    assert 3.0 < FIGURE.at(fused=NORMS)["resnet50_time"] < 3.1
    assert 9.2 < FIGURE.at(fused=NORMS, device="P100 PCIe 16 GB, fp32")["resnet50_time"] < 9.3
    assert 2.3 < FIGURE.at(fused=SUMS)["resnet50_time"] < 2.35
    assert 8.6 < FIGURE.at(fused=SUMS, device="P100 PCIe 16 GB, fp32")["resnet50_time"] < 8.7


def test_what_the_description_says():
    share = {row["title"]: round(100 * (row["norm"] + row["activation"])) for row in FIGURE.rows()}
    assert share["MobileNetV2"] == 64 and share["EfficientNet-B0"] == 55
    resnets = [percent for title, percent in share.items() if "ResNet" in title]
    assert (min(resnets), max(resnets)) == (44, 49)
    others = [percent for title, percent in share.items() if title == "AlexNet" or "VGG" in title]
    assert (min(others), max(others)) == (21, 33)
