"""Tools that go by layers, functions or traces: by hand, and against the tools themselves where they are installed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopkit as fk
from flopkit.counter import peers
from flopkit.counter.peers.asked import ask, sure


class Products(nn.Module):
    """Products that no layer does."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(8, 8))

    def forward(self, x):
        y = F.linear(x, self.w)
        y = torch.einsum("bij,bkj->bik", y, x)
        y = y @ y
        return torch.bmm(y, y).relu()


class OwnLinear(nn.Linear):
    """A class derived from one that every tool knows."""


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Weights(nn.Module):
    """Attention that also returns its weights: plain products, on every device."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class Norms(nn.Module):
    """Batch norms called by torch's own function, whose arguments come in another order than those of torch.nn.functional's."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x):
        y = torch.batch_norm(x, None, None, self.mean, self.var, False, 0.1, 1e-5, True)
        return torch.batch_norm(y, self.scale, self.mean, self.mean, self.var, False, 0.1, 1e-5, True)


LAYERS = {
    "convolutions": (nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)), (2, 4, 9, 8)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 5, 6)),
    "one and three dimensions": (nn.Sequential(nn.Conv1d(4, 6, 3, bias=False), nn.InstanceNorm1d(6, affine=True)), (2, 4, 9)),
    "pools": (nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)), (2, 4, 8, 8)),
    "dense and norms": (nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3, bias=False), nn.Softmax(-1)), (2, 5, 8)),
    "a class of one's own": (nn.Sequential(OwnLinear(8, 6), nn.Linear(6, 3)), (2, 5, 8)),
    "recurrent": (nn.GRU(8, 6, num_layers=2, bidirectional=True, batch_first=True), (2, 5, 8)),
    "elman": (nn.RNN(8, 6, batch_first=True), (2, 5, 8)),
    "products": (Products(), (2, 8, 8)),
    "attention": (Heads(), (2, 5, 16)),
    "attention with weights": (Weights(), (2, 5, 16)),
    "norms by torch's function": (Norms(), (2, 4, 3, 5)),
    "upsampling": (nn.Sequential(nn.Conv2d(3, 4, 1), nn.Upsample(scale_factor=2, mode="bilinear")), (1, 3, 4, 4)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("tool", peers.TOOLS)
def test_the_same_number_as_the_tool(tool, name):
    if not sure(tool):
        pytest.skip(f"{tool} is not here in the version that was looked at")
    model, shape = LAYERS[name]
    x = torch.ones(shape)
    answer = ask(tool, model.eval(), x)
    if answer.value is None:
        pytest.skip(f"{tool} itself fails: {answer.said}")
    report = fk.count(model, x)
    seen = report.as_seen_by(tool)
    assert int(seen) == answer.value
    assert sum(row.flops for row in seen.rows) == report.flops == seen.flops


def seen(tool, model, *shape):
    return fk.count(model.eval(), torch.ones(shape)).as_seen_by(tool)


def test_thop_by_hand():
    """A dense layer 8 → 6 over 10 rows, and a layer norm of 60 numbers, four operations each with its scale."""
    found = seen("thop", nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6)), 2, 5, 8)
    assert (found.value, found.unit) == (10 * 48 + 4 * 60, "MACs")
    assert found.flops == 2 * 10 * 48 and len(found.missed) == 0
    assert found.reasons == ["it adds norms: +480 FLOPs"]


def test_torchinfo_by_hand():
    """The weight once for each of two sequences, not for their five rows."""
    found = seen("torchinfo", nn.Linear(8, 6), 2, 5, 8)
    assert found.value == 2 * (48 + 6)
    assert found.missed.rows == [{"operator": "addmm", "calls": 1, "flops": 2 * 48 * (10 - 2)}]


def test_fvcore_by_hand():
    """A convolution of 4 · 9 weights at 36 positions, and two operations a number for a batch norm that is folded."""
    found = seen("fvcore", nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), 1, 1, 8, 8)
    assert found.value == 36 * 36 + 2 * 4 * 36
    assert found.unit == "FLOPs" and "multiply-adds" in found.really


def test_ultralytics_by_hand():
    """One head's worth: four projections of 16 × 16 for 5 rows, and 5 · 5 pairs twice 16; softmax 3n − 1 a row and head."""
    found = seen("ultralytics-thop", Heads(), 1, 5, 16)
    assert found.value == 4 * 5 * 256 + 2 * 25 * 16 + 4 * 5 * 14


@pytest.mark.parametrize("tool", [tool for tool in peers.TOOLS if tool not in ("torch", "torch.profiler")])
def test_backward_is_unseen(tool):
    layer = nn.Linear(8, 6, bias=False)
    x = torch.ones(4, 8, requires_grad=True)
    forward = fk.count(layer, x).as_seen_by(tool)
    with fk.counting() as report:
        layer(x).sum().backward()
    found = report.as_seen_by(tool)
    assert found.value == forward.value
    assert any("forward passes only" in reason for reason in found.reasons)


def test_nothing_grows():
    layer, x = nn.Linear(4, 4), torch.ones(2, 4)
    with fk.counting() as report:
        for _ in range(5):
            layer(x)
            layer(x) @ x.T
        ledger = report._source.ledger()
        before = len(ledger.layers), len(ledger.functions)
        for _ in range(50):
            layer(x)
            layer(x) @ x.T
        ledger = report._source.ledger()
        assert (len(ledger.layers), len(ledger.functions)) == before
        assert sum(ledger.layers.values()) == 110


class Both(nn.Module):
    """An attention layer, and attention beside it."""

    def __init__(self):
        super().__init__()
        self.heads = Heads()

    def forward(self, x):
        return F.scaled_dot_product_attention(self.heads(x), x, x)


def test_attention_in_a_layer_and_beside_it():
    found = seen("ultralytics-thop", Both(), 1, 5, 16)
    assert found.value == seen("ultralytics-thop", Heads(), 1, 5, 16).value + 2 * 25 * 16
    if sure("ultralytics-thop"):
        assert found.value == ask("ultralytics-thop", Both().eval(), torch.ones(1, 5, 16)).value


def test_products_of_an_attention_layer_are_not_missed():
    """Whatever the layer ran as, its rule has counted it: no row is short."""
    for model in (Heads(), Weights()):
        found = seen("ultralytics-thop", model, 2, 5, 16)
        assert len(found.missed) == 0, found
