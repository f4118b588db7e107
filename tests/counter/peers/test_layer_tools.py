"""Tools that go by layers, functions or traces: by hand, and against the tools themselves where they are installed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopkit as fk
from flopkit.counter import peers
from flopkit.peers.asking import ask, sure


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


class Run(nn.Module):
    """A module that is a function, with a parameter, so that every tool takes it."""

    def __init__(self, run):
        super().__init__()
        self.run = run
        self.w = nn.Parameter(torch.ones(6, 5))

    def forward(self, x):
        return self.run(x, self.w)


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
    "padded by a word": (nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.Conv2d(4, 4, 3, padding="valid", groups=2)), (2, 3, 8, 8)),
    "padded by a word, one dimension": (nn.Sequential(nn.Conv1d(2, 4, 4, padding="same", dilation=2), nn.Conv1d(4, 3, 1)), (2, 2, 9)),
    "padded by a word, no batch": (nn.Conv2d(3, 4, 3, padding="same"), (3, 6, 6)),
    "the first factor spread": (Run(lambda x, w: x @ w.expand(4, 6, 5)), (4, 1, 3, 6)),
    "a matrix times a batch": (Run(lambda x, w: torch.matmul(x, w.expand(4, 6, 5)) @ w.T), (3, 6)),
    "a batch times a matrix": (Run(lambda x, w: x @ w), (2, 4, 3, 6)),
    "a vector times a matrix": (Run(lambda x, w: x @ w), (6,)),
    "a vector times a batch": (Run(lambda x, w: x @ w.expand(4, 6, 5)), (6,)),
    "a weight times a batch": (Run(lambda x, w: w[:, 0] @ x), (4, 6, 5)),
    "a matrix times a vector": (Run(lambda x, w: x @ w[:, 0]), (3, 6)),
    "a vector times a vector": (Run(lambda x, w: torch.matmul(x, w[:, 0])), (6,)),
    "a matrix times a vector, by another name": (Run(lambda x, w: torch.mv(x, w[:, 0])), (3, 6)),
    "a dense layer of one row": (Run(lambda x, w: F.linear(x, w[:, 0])), (3, 6)),
    "einsum, of three": (Run(lambda x, w: torch.einsum("bij,jk,lk->bil", x, w, w)), (3, 4, 6)),
    "einsum, of more digits": (Run(lambda x, w: torch.einsum("bij,jk->bik", x, w)), (7, 191, 6)),
    "einsum, in a list, other letters": (Run(lambda x, w: torch.einsum("BIJ, BKJ -> BIK", [x, x])), (3, 4, 6)),
    "einsum, nothing summed": (Run(lambda x, w: torch.einsum("ab,cb->abc", x, w.T)), (3, 6)),
    "einsum, summed beforehand": (Run(lambda x, w: torch.einsum("abc,cd->ad", x, w)), (3, 7, 6)),
    "bilinear": (Run(lambda x, w: F.bilinear(x, x, w.T.view(5, 6, 1).expand(5, 6, 6), w[0])), (2, 6)),
    "distances": (Run(lambda x, w: torch.cdist(x, x)), (2, 30, 8)),
    "a norm of one row": (nn.LayerNorm(8), (8,)),
    "no parameters": (nn.ReLU(), (2, 8)),
    "no parameters, a pool": (nn.AvgPool2d(2), (2, 3, 4, 4)),
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
    report = fk.count(model, x)
    seen = report.as_seen_by(tool)
    assert (seen.value, seen.failure) == (answer.value, answer.said)
    assert sum(row.flops for row in seen.rows) == report.flops == seen.flops


@pytest.mark.parametrize(
    "name", ["dense and norms", "padded by a word", "a matrix times a batch", "einsum, of three", "bilinear"]
)
@pytest.mark.parametrize("tool", ["fvcore", "torch.profiler"])
def test_without_gradients_too(tool, name):
    """Without gradients torch takes a call apart in other ways."""
    if not sure(tool):
        pytest.skip(f"{tool} is not here in the version that was looked at")
    model, shape = LAYERS[name]
    x = torch.ones(shape)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert fk.count(model.eval(), x).as_seen_by(tool).value == ask(tool, model, x).value


def test_no_number_by_hand():
    """A matrix times a vector, of which fvcore asks for the second size."""
    found = seen("fvcore", Run(lambda x, w: F.linear(x, w.T) @ w[0]), 3, 6)
    assert (found.value, found.share, found.flops) == (None, 0.0, 2 * 3 * 6 * 5 + 2 * 3 * 5)
    assert sum(row["flops"] for row in found.missed) == found.flops
    assert found.reasons == ["it fails with IndexError: list index out of range"]
    assert "no number" in repr(found) and "IndexError" in found._repr_html_()
    with pytest.raises(ValueError, match="fvcore prints no number: it fails with IndexError"):
        int(found)


def test_what_fvcore_reads_of_a_product():
    """3 · 6 numbers, and 5 columns: four times less than what runs."""
    found = seen("fvcore", Run(lambda x, w: x @ w.expand(4, 6, 5)), 3, 6)
    assert (found.value, found.flops) == (90, 2 * 360)
    assert found.missed.rows == [{"operator": "products of several matrices", "calls": 1, "flops": 2 * 270}]
    assert any("reads the first factor" in reason for reason in found.reasons)


def test_an_einsum_of_a_run_that_goes_on_is_not_counted_twice():
    """Four numbers are added up beforehand; what is left is six sums, each times a row of four."""
    a = torch.ones(2, 3, 4)
    with fk.counting() as report:
        torch.einsum("abc,abd->ad", a, a)
        for _ in range(2):
            assert report.as_seen_by("fvcore").flops == report.flops == 2 * 2 * 3 * 4


def test_what_a_tool_would_print_of_a_run_that_goes_on():
    """One layer of 8 · 8 for two rows after the other, asked for after each, inside of the model that calls them."""
    answers = []

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
                answers.append([report.as_seen_by(tool).value for tool in ("thop", "fvcore")])
            return x

    with fk.counting() as report:
        Model()(torch.ones(2, 8))
    assert answers == [[n * 2 * 64] * 2 for n in (1, 2, 3)]
    assert [report.as_seen_by(tool).value for tool in ("thop", "fvcore")] == answers[-1]


def test_a_shape_of_no_dimensions_stays_a_shape():
    """A layer without parameters has as many of them as a product of two vectors has dimensions."""
    for _ in range(2):
        seen("fvcore", nn.ReLU(), 2, 8)
        assert seen("fvcore", Run(lambda x, w: x[0] @ x[0]), 2, 6).failure.startswith("IndexError")


def test_a_model_without_parameters():
    """calflops asks the first parameter for its device; whether a layer that is called has it does not matter."""
    for model in (nn.ReLU(), nn.Sequential(nn.ReLU(), nn.Tanh())):
        assert seen("calflops", model, 2, 8).failure == "StopIteration: "
    for model in (nn.Sequential(nn.Linear(8, 8), nn.ReLU()), Run(lambda x, w: F.relu(x))):
        assert not seen("calflops", model, 2, 8).failure
    with fk.counting() as report:
        nn.MSELoss()(nn.Linear(8, 8)(torch.ones(2, 8)), torch.ones(2, 8))  # the model is the one that has parameters
    assert report.as_seen_by("calflops").value == 2 * 2 * 64


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
