"""The figure on conventions: its switches by hand, its tools by what they document, its printed numbers by their sources."""

from __future__ import annotations

import math

import pytest

from flopkit.book.gallery import what_counts
from flopkit.book.gallery.conventions import DOTS, RESNET_50_OUTPUTS, TOOLS, Published, Rule, Work, counted
from flopkit.peers.recorded import recorded, versions

NETWORK = "ResNet-50, one image"
CONVOLUTION = "VGG-16, first convolution and ReLU"
NEURON = "One neuron, 4 inputs and ReLU"
ATTENTION = "GPT-2, one layer's attention"


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
        ({"fma": 2, "unpaired": 1, "bias": False, "vector": False, "hidden": False}, 4 + 3),
        ({"fma": 2, "unpaired": 1, "bias": True, "vector": True, "hidden": True}, (4 + 3) + (3 + 1) + 1 + 1 + 5),
    ],
)
def test_switches(switches, expected):
    work = Work(macs=4, dots=1, hidden=3, hidden_dots=2, bias=1, vector=1, hidden_vector=5)
    assert counted(work, **switches) == expected


DONE = {"dot": "2K − 1 operations", "bias": True, "vector": True}


def test_what_is_done(figure):
    """A neuron multiplies 4 times, adds 3 times and once for the bias, and compares once. Tally counts the same."""
    from flopkit import tally

    assert figure.at(layer=NEURON, **DONE)["count"] == 4 + 3 + 1 + 1
    ledger = tally.dense(tokens=1, d_in=4, d_out=1, bias=True)
    assert figure.at(layer=NEURON, **DONE)["count"] == ledger.operations + 1
    outputs = 224 * 224 * 64
    assert figure.at(layer=CONVOLUTION, **DONE)["count"] == (27 + 26 + 1 + 1) * outputs


@pytest.mark.parametrize(("hidden", "pairs"), [(False, 1024 * 1025 // 2), (True, 1024**2)])
def test_attention_as_it_is_done(figure, hidden, pairs):
    """A score is 64 products and 63 additions; a number of the result adds one product fewer than it has pairs."""
    scores = pairs * (64 + 63)
    values = 64 * (pairs + (pairs - 1024))
    assert figure.at(layer=ATTENTION, hidden=hidden, **DONE)["count"] == 12 * (scores + values + 6 * pairs)


def test_the_read_outs_follow_the_mask(figure):
    """Twelve heads, 1,024 queries: 524,800 visible pairs and 523,776 hidden ones, six element-wise operations each."""
    seen, everything = figure.at(layer=ATTENTION, hidden=False), figure.at(layer=ATTENTION, hidden=True)
    assert (seen["macs"], everything["macs"]) == (12 * 128 * 524_800, 12 * 128 * 1024**2)
    assert (seen["elements"], everything["elements"]) == (12 * 6 * 524_800, 12 * 6 * 1024**2)
    assert seen["masked"] == everything["masked"] == 12 * 128 * 523_776


def test_neuron(figure):
    """Four multiply-adds, a bias, a comparison: each tool's number can be counted on the fingers."""
    assert prints(figure, NEURON) == {
        "fvcore": 4,
        "ptflops": 4 + 1 + 2,  # the comparison twice
        "this book": 8,
        "PyTorch's counter": 8,
        "TensorFlow": 8 + 1,
        "calflops": 8 + 1,  # the comparison, not the bias
    }


def test_convolution(figure):
    outputs = 224 * 224 * 64
    assert prints(figure, CONVOLUTION) == {
        "fvcore": 27 * outputs,
        "ptflops": 30 * outputs,
        "this book": 54 * outputs,
        "PyTorch's counter": 54 * outputs,
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
        "PyTorch's counter": 2 * per_position * 1024**2,
    }
    softmax_and_scale = 6 * 12
    everything = figure.at(layer=ATTENTION, dot="2K FLOPs", vector=True, hidden=True)
    assert everything["count"] == (2 * per_position + softmax_and_scale) * 1024**2


def test_who_prints_the_number(figure):
    def on_the_line(**settings):
        return [row["name"] for row in figure.rows(**settings) if row["agrees"] == "yes"]

    assert on_the_line() == ["torchvision's table"]
    assert on_the_line(dot="2K FLOPs") == ["this book", "PyTorch's counter", "MLPerf"]
    assert on_the_line(layer=ATTENTION) == ["fvcore", "FlashAttention"]
    assert on_the_line(layer=ATTENTION, dot="2K FLOPs", hidden=False) == ["this book"]
    for layer in (NETWORK, CONVOLUTION, NEURON, ATTENTION):
        for dot in DOTS:
            settings = {"layer": layer, "dot": dot, "bias": True}
            others = [name for name in on_the_line(**settings) if name != "this book"]
            assert figure.at(**settings)["agreeing"] == len(others)


def test_a_rounded_number_agrees_with_what_it_rounds_and_nothing_else(figure):
    """All that is done to ResNet-50 makes 8.23 G, and without a bias or norms 8.17 G: both round to MLPerf's 8.2, and MLPerf means neither."""
    for dot, vector in (("2K − 1 operations", True), ("2K − 1 operations", False), ("2K FLOPs", True)):
        settings = {"dot": dot, "vector": vector}
        assert abs(figure.at(**settings)["count"] - 8.2e9) < 0.05e9
        assert {row["name"]: row["agrees"] for row in figure.rows(**settings)}["MLPerf"] == "no"
    more = {row["name"]: row["more"] for row in figure.rows()}
    assert (
        round(more["MLPerf"], 4) == 0.0026 and round(more["calflops"], 4) == 0.0040 and round(more["thop"], 3) == -0.495
    )
    with pytest.raises(ValueError, match="8,178.*does not round to it"):
        Published("8.3 GFLOPs", Rule(2)).counts(Work(macs=4_089_184_256))


def test_the_tools_numbers_are_those_that_they_print(figure):
    """Chapter 7 shows the same numbers: both are made of flopkit/data/counters.toml."""
    ran = recorded()["ResNet-50"].printed
    for tool in ("fvcore", "ptflops", "thop", "torch", "calflops"):
        assert prints(figure, NETWORK)[TOOLS[tool]] == ran[tool], tool
        assert versions()[tool].split(".post")[0] in figure.caption
    assert [round(ran[tool] / 1e9, 2) for tool in ("fvcore", "ptflops", "thop", "calflops")] == [4.11, 4.13, 4.13, 8.21]
    assert "count: 4,089,184,256," in figure.description() and "count: 8,178,368,512," in figure.description(
        dot="2K FLOPs"
    )


def _convolution(nn):
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()), (1, 3, 224, 224)


def _neuron(nn):
    return nn.Sequential(nn.Linear(4, 1), nn.ReLU()), (1, 4)


@pytest.mark.parametrize(("layer", "made"), [(CONVOLUTION, _convolution), (NEURON, _neuron)])
@pytest.mark.parametrize("tool", ["fvcore", "ptflops", "torch", "calflops"])
@pytest.mark.filterwarnings("ignore")
def test_the_installed_tools_count_so(figure, tool, layer, made):
    torch = pytest.importorskip("torch")
    from flopkit.peers.asking import ask, sure

    if not sure(tool):
        pytest.skip(f"{tool} is not here in the version that is written about")
    module, shape = made(torch.nn)
    answer = ask(tool, module.eval(), torch.ones(shape))
    assert answer.value == prints(figure, layer)[TOOLS[tool]], answer


@pytest.mark.parametrize("tool", ["fvcore", "torch"])
@pytest.mark.filterwarnings("ignore")
def test_attention_counts_where_it_is_written_out(figure, tool):
    """As two matmuls, as the caption says; of the fused operator the same tools count nothing on a CPU."""
    torch = pytest.importorskip("torch")
    from flopkit.peers.asking import ask, sure

    if not sure(tool):
        pytest.skip(f"{tool} is not here in the version that is written about")

    class WrittenOut(torch.nn.Module):
        def forward(self, q, k, v):
            return (q @ k.transpose(-1, -2)).softmax(-1) @ v

    class Fused(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    qkv = (torch.ones(1, 12, 1024, 64),) * 3
    assert ask(tool, WrittenOut(), *qkv).value == prints(figure, ATTENTION)[TOOLS[tool]]
    assert ask(tool, Fused(), *qkv).value == 0
    assert "written out as two matmuls" in figure.caption


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
    assert counter.get_total_flops() == prints(figure, CONVOLUTION)["PyTorch's counter"]


def test_dot_products_of_the_network():
    """One to each number that a convolution or a dense layer gives."""
    torch, torchvision = pytest.importorskip("torch"), pytest.importorskip("torchvision")
    outputs = []
    with torch.device("meta"):
        model, image = torchvision.models.resnet50().eval(), torch.empty(1, 3, 224, 224)
    for module in model.modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            module.register_forward_hook(lambda module, inputs, output: outputs.append(output.numel()))
    model(image)
    assert sum(outputs) == RESNET_50_OUTPUTS


def test_every_tool_stands_somewhere(figure):
    named = {name for layer in figure.controls["layer"].options for name in prints(figure, layer)}
    assert named == set(TOOLS.values())


def test_in_vega(figure):
    """The page has the same numbers: expressions for every result, and no text that breaks them."""
    pytest.importorskip("altair")
    params = {param["name"]: param for param in figure.spec()["params"]}
    assert {"count", "agreeing", "top"} <= params.keys()
    assert "None" not in str(params) and "True" not in params["count"]["expr"]
