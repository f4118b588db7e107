"""The figure on conventions: its switches by hand, its tools by what they document, its printed numbers by their sources."""

from __future__ import annotations

import math

import pytest

from flopkit.charts import what_counts
from flopkit.charts.gallery.conventions import TOOLS, Work, counted

NETWORK = "ResNet-50, one image"
CONVOLUTION = "VGG-16, first convolution and ReLU"
NEURON = "One neuron, 4 inputs and ReLU"
ATTENTION = "GPT-2, attention of one layer, 1,024 tokens"


@pytest.fixture(scope="module")
def figure():
    return what_counts()


def prints(figure, layer):
    return {row["name"]: row["prints"] for row in figure.rows(layer=layer) if not math.isnan(row["prints"])}


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ({"fma": 1, "bias": False, "vector": False, "hidden": False}, 4),
        ({"fma": 2, "bias": False, "vector": False, "hidden": False}, 8),
        ({"fma": 2, "bias": True, "vector": False, "hidden": False}, 9),
        ({"fma": 1, "bias": True, "vector": True, "hidden": False}, 6),
        ({"fma": 2, "bias": True, "vector": True, "hidden": True}, 8 + 2 * 3 + 1 + 1 + 5),
    ],
)
def test_switches(switches, expected):
    work = Work(macs=4, hidden=3, bias=1, vector=1, hidden_vector=5)
    assert counted(work, **switches) == expected


def test_neuron(figure):
    """Four multiply-adds, a bias, a comparison: each tool's number can be counted on the fingers."""
    assert prints(figure, NEURON) == {
        "fvcore": 4,
        "ptflops": 4 + 1 + 1,
        "this book": 8,
        "torch's counter": 8,
        "TensorFlow": 8 + 1,
        "calflops": 8 + 1,  # the comparison, not the bias
    }


def test_convolution(figure):
    outputs = 224 * 224 * 64
    assert prints(figure, CONVOLUTION) == {
        "fvcore": 27 * outputs,
        "ptflops": 29 * outputs,
        "this book": 54 * outputs,
        "torch's counter": 54 * outputs,
        "TensorFlow": 55 * outputs,
        "calflops": 56 * outputs,
    }


def test_attention(figure):
    """Scores and values of 12 heads of 64: 1024² positions, of which 1024 · 1025 / 2 are visible."""
    per_position = 12 * (64 + 64)
    assert prints(figure, ATTENTION) == {
        "fvcore": per_position * 1024**2,
        "FlashAttention": 2 * per_position * 1024**2 / 2,
        "this book": 2 * per_position * 1024 * 1025 / 2,
        "torch's counter": 2 * per_position * 1024**2,
    }
    softmax_and_scale = 6 * 12
    everything = figure.at(layer=ATTENTION, fma="twice", vector=True, hidden=True)
    assert everything["count"] == (2 * per_position + softmax_and_scale) * 1024**2


def test_who_prints_the_number(figure):
    def on_the_line(**settings):
        return [row["name"] for row in figure.rows(**settings) if row["agrees"] == "yes"]

    assert on_the_line() == ["torchvision's table", "fvcore"]
    assert on_the_line(fma="twice") == ["this book", "torch's counter", "MLPerf"]
    assert on_the_line(layer=ATTENTION) == ["fvcore", "FlashAttention"]
    assert on_the_line(layer=ATTENTION, fma="twice", hidden=False) == ["this book"]
    for layer in (NETWORK, CONVOLUTION, NEURON, ATTENTION):
        for fma in ("once", "twice"):
            settings = {"layer": layer, "fma": fma, "bias": True}
            assert figure.at(**settings)["agreeing"] == len(on_the_line(**settings))


def test_printed_numbers_round_the_exact_ones(figure):
    """torchvision keeps three decimals beside its weights, and PyTorch counts the network itself."""
    torchvision = pytest.importorskip("torchvision")
    operations = torchvision.models.ResNet50_Weights.IMAGENET1K_V1.meta["_ops"]
    assert round(operations, 2) * 1e9 == prints(figure, NETWORK)["torchvision's table"]
    assert figure.at()["count"] == pytest.approx(operations * 1e9, abs=0.5e6)


def test_torch_counts_the_convolution(figure):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        layer, image = (
            torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU()),
            torch.empty(1, 3, 224, 224),
        )
    with FlopCounterMode(display=False) as counter:
        layer(image)
    assert counter.get_total_flops() == prints(figure, CONVOLUTION)["torch's counter"]


def test_every_tool_stands_somewhere(figure):
    named = {name for layer in figure.controls["layer"].options for name in prints(figure, layer)}
    assert named == set(TOOLS.values())


def test_in_vega(figure):
    """The page has the same numbers: expressions for every result, and no text that breaks them."""
    pytest.importorskip("altair")
    params = {param["name"]: param for param in figure.spec()["params"]}
    assert {"count", "agreeing", "top"} <= params.keys()
    assert "None" not in str(params) and "True" not in params["count"]["expr"]


def test_element_wise_work_follows_the_mask():
    """Twelve heads, 1,024 queries: 524,800 visible pairs and 523,776 hidden ones, six element-wise operations each."""
    layer = "GPT-2, attention of one layer, 1,024 tokens"
    figure = what_counts()
    assert figure.at(layer=layer, hidden=False)["elements"] == 12 * 524_800 * 6
    assert figure.at(layer=layer, hidden=True)["elements"] == 12 * 1024 * 1024 * 6
