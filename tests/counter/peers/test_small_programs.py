"""Every tool on small programs, live: layers in odd forms, calls by name and by position, shared and foreign modules, threads, failures."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, rnn

import flopkit as fk
from flopkit.counter import peers
from flopkit.peers.asking import ask, sure


class Run(nn.Module):
    """A module that is a function of itself and its input, with a parameter unless told otherwise, and parts."""

    def __init__(self, run, bare=False, **parts):
        super().__init__()
        self.run = run
        if not bare:
            self.w = nn.Parameter(torch.rand(8, 8))
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *given):
        return self.run(self, *given)


def run(program, *shape, **parts):
    return Run(program, **parts), torch.rand(shape)


def one(layer, *shape):
    return layer, torch.rand(shape)


def in_a_thread(work):
    """What *work* returns in another thread, without gradients: a trace fails on what wants one."""
    found = []

    def watched():
        with torch.no_grad():
            found.append(work())

    thread = threading.Thread(target=watched)
    thread.start()
    thread.join()
    return found[0]


class OwnHeads(nn.MultiheadAttention):
    """A class derived from one that tools know."""


class Leaf(nn.Module):
    """A layer of one's own, that returns what it was told to."""

    def __init__(self, returned):
        super().__init__()
        self.weight, self.returned = nn.Parameter(torch.ones(8)), returned

    def forward(self, x):
        return self.returned(x * self.weight)


class Grown(nn.Linear):
    """A dense layer with another one below it."""

    def __init__(self):
        super().__init__(8, 4)
        self.more = nn.Linear(4, 4)

    def forward(self, x):
        return self.more(super().forward(x)) @ self.more.weight


class Cells(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        for row in x:
            state = self.cell(row)
        return state


def packed(layer):
    def program(self, x):
        return self.layer(rnn.pack_padded_sequence(x, [2, 5, 3], batch_first=True, enforce_sorted=False))[0].data

    return run(program, 3, 5, 4, layer=layer)


def heads(kind=nn.MultiheadAttention, **kwargs):
    return run(lambda self, x: self.a(x, x, x, need_weights=False)[0], 5, 2, 16, a=kind(16, 4, **kwargs))


def functional_heads(self, x):
    w = torch.ones(24, 8)
    plain, _ = F.multi_head_attention_forward(x, x, x, 8, 2, w, None, None, None, False, 0.0, self.w, None)
    other, _ = F.multi_head_attention_forward(
        x, x, x, 8, 2, w, None, None, None, False, 0.0, self.w, None, need_weights=False
    )
    return plain + other


def twice_in(layer):
    """A layer that three parents share, one of them twice, called by way of two."""
    parts = {
        "a": nn.ModuleList([nn.Sequential(layer)]),
        "b": nn.Sequential(layer, layer),
        "c": nn.ModuleDict({"x": layer}),
    }
    return run(lambda self, x: self.b(x) + self.a[0](x).add(1), 3, 8, **parts)


kept = {
    "a frozen cnn": nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AvgPool2d(2), nn.Softmax(1)).requires_grad_(
        False
    ),
    "a frozen lstm": nn.LSTM(8, 4).requires_grad_(False),
    "frozen attention": nn.MultiheadAttention(8, 2).requires_grad_(False),
    "a norm": nn.BatchNorm1d(8),
}
padded = nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1))

PRODUCTS = {
    "tensordot": run(lambda self, x: torch.tensordot(x, self.w, 1) + torch.tensordot(x, self.w, ([2], [1])), 2, 3, 8),
    "tensordot, all": run(lambda self, x: torch.tensordot(x, x, dims=([0, 1], [0, 1])) + torch.tensordot(x, x, 3), 2, 3, 8),
    "tensordot and a layer": run(lambda self, x: self.l(torch.tensordot(x, self.w, 1)), 2, 3, 8, l=nn.Linear(8, 4)),
    "inner": run(lambda self, x: torch.inner(x, self.w) + x.inner(self.w), 2, 3, 8),
    "chains": run(lambda self, x: torch.linalg.multi_dot([x, self.w, self.w]) + torch.chain_matmul(x, self.w), 3, 8),
    "powers": run(lambda self, x: torch.linalg.matrix_power(x, 3) + x.matrix_power(4), 2, 4, 4),
    "covariances": run(lambda self, x: torch.cov(x) + x.corrcoef() + torch.cov(x[0]), 3, 8),
    "by name": run(lambda self, x: torch.matmul(input=x, other=self.w).matmul(other=self.w), 3, 8),
    "by a name that ptflops has not": run(lambda self, x: torch.mm(x, mat2=self.w), 3, 8),
    "into a tensor": run(lambda self, x: torch.matmul(x, self.w.detach(), out=torch.empty(3, 8)), 3, 8),
    "einsum, spread": run(lambda self, x: torch.einsum("bij,bjk->bik", x[:1], x), 2, 4, 4),
    "einsum, dots": run(lambda self, x: torch.einsum("...ij,jk->...ik", x, self.w) + torch.einsum("...ij,jk", x, self.w), 2, 3, 8),
    "a row": run(lambda self, x: F.linear(x, self.w), 8),
    "a sum of rows after dense layers": run(lambda self, x: self.l(x) + self.l(x.transpose(0, 1)).transpose(0, 1) + self.w[0], 2, 3, 8, l=nn.Linear(8, 8)),
    "a sum of rows after attention": run(lambda self, x: self.e(x) + self.w[0], 2, 3, 8, e=nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)),
}  # fmt: skip
FUNCTIONS = {
    "torch's and not F's": run(lambda self, x: torch.conv1d(x, self.w[:6].view(4, 3, 4)), 2, 3, 6),
    "F's of torch's": run(lambda self, x: F.conv1d(torch.conv1d(x, self.w[:6].view(4, 3, 4)), torch.ones(2, 4, 1)), 2, 3, 6),
    "torch's of F's": run(lambda self, x: torch.prelu(F.prelu(x, self.w[0]), self.w[0]), 3, 8),
    "by its whole name": run(lambda self, x: torch.nn.functional.avg_pool1d(torch.avg_pool1d(x, 2), 1), 2, 3, 6),
    "instance norm": run(lambda self, x: torch.instance_norm(x, self.w[0], None, None, None, True, 0.1, 1e-5, True), 3, 8, 2),
    "upsample": run(lambda self, x: F.upsample(x, scale_factor=2) + F.upsample_nearest(x, (6, 10)), 1, 2, 3, 5),
    "area": run(lambda self, x: F.interpolate(x, size=9, mode="area"), 2, 4, 7, 8),
    "area, one dimension": one(nn.Upsample(scale_factor=2, mode="area"), 2, 4, 7),
    "factors in a tuple": run(lambda self, x: F.interpolate(x, scale_factor=(1.5, 2.0)), 2, 4, 6, 8),
    "factors in a tuple, another batch": run(lambda self, x: F.interpolate(x, scale_factor=(1.5, 2.0)), 3, 4, 6, 8),
    "factors in a list": run(lambda self, x: F.interpolate(x, scale_factor=[2.0, 2.0]), 2, 4, 6, 8),
    "pools by powers": run(lambda self, x: F.lp_pool2d(x, 2, 2) + F.lp_pool2d(x, float("inf"), 2), 2, 3, 6, 4),
    "a pool by powers": one(nn.LPPool1d(2, 2), 2, 4, 7),
    "local response norm": one(nn.LocalResponseNorm(3), 2, 4, 5, 5),
    "local response norm, one dimension": run(lambda self, x: F.local_response_norm(x, 2), 2, 4, 6),
    "a pool's size by name": run(lambda self, x: F.adaptive_avg_pool1d(x, output_size=2), 2, 3, 6),
    **{
        f"a convolution's {what} in a list": run(lambda self, x, what=what: F.conv2d(x, self.w[:6].view(4, 3, 2, 2), **{what: [1, 1]}), 2, 3, 5, 5)
        for what in ("stride", "padding", "dilation")
    },
}  # fmt: skip
LAYERS = {
    "a gru cell, again and again": one(Cells(nn.GRUCell(4, 6)), 5, 2, 4),
    "cells of other kinds": one(nn.Sequential(nn.GRUCell(4, 6, bias=False), nn.RNNCell(6, 4)), 2, 4),
    "a cell without a batch": one(nn.GRUCell(4, 6), 4),
    "packed": packed(nn.LSTM(4, 6, 2, bidirectional=True, batch_first=True)),
    "packed, gated": packed(nn.GRU(4, 6, batch_first=True)),
    "an lstm that projects": one(nn.LSTM(4, 6, 2, proj_size=3), 5, 2, 4),
    "heads with more keys": heads(add_bias_kv=True, add_zero_attn=True),
    "heads of a class of one's own": heads(OwnHeads),
    "heads without a batch": run(lambda self, x: self.a(x, x, x)[0], 5, 16, a=nn.MultiheadAttention(16, 4)),
    "heads by name": run(lambda self, x: self.a(query=x, key=x, value=x)[0], 5, 2, 16, a=nn.MultiheadAttention(16, 4)),
    "heads as a function": run(functional_heads, 5, 2, 8),
    "softmax of channels": one(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Softmax2d(), nn.LogSoftmax(1), nn.Softmin(-1)), 2, 3, 4, 5),
    "softmax of nothing named": one(nn.Sequential(nn.Linear(8, 4), nn.Softmax()), 3, 8),
    "softmax of a number": run(lambda self, x: self.s(x.sum()), 3, 8, s=nn.Softmax(0)),
    "a pool without a batch": one(nn.Sequential(nn.Conv2d(3, 3, 1), nn.AvgPool2d((2, 3), (1, 2), 1)), 3, 6, 7),
    "parametrised": one(parametrizations.weight_norm(nn.Linear(8, 6)), 3, 8),
    "parametrised by products": run(lambda self, x: self.l(x), 3, 8, l=parametrizations.orthogonal(nn.Linear(8, 8))),
    "a layer below a layer": one(nn.Sequential(Grown(), nn.Linear(4, 2)), 3, 8),
    "a lazy layer": one(nn.Sequential(nn.LazyLinear(4), nn.ReLU()), 3, 8),
    "a leaf that returns two": one(nn.Sequential(Leaf(lambda y: y)), 2, 8),
    "a leaf that returns a list": run(lambda self, x: self.l(x)[0][0], 3, 8, l=Leaf(lambda y: [[y], y[0]])),
    "a leaf that returns a dict": run(lambda self, x: self.l(x)["b"], 3, 8, l=Leaf(lambda y: {"a": y[0], "b": y})),
    "nothing in the batch": one(nn.Sequential(nn.Linear(8, 6), nn.ReLU()), 0, 8),
    **{
        f"by name, {type(kind).__name__}": run(lambda self, x: self.l(input=x), 2, 3, 6, 6, l=kind)
        for kind in (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.AvgPool2d(2), nn.Upsample(scale_factor=2))
    },
    "by name, a dense layer": run(lambda self, x: self.l(input=x), 3, 8, l=nn.Linear(8, 4)),
    "by name, an lstm": run(lambda self, x: self.l(input=x)[0], 5, 2, 8, l=nn.LSTM(8, 4)),
}  # fmt: skip
MODELS = {
    "no parameters": one(nn.Sequential(nn.ReLU(), nn.Tanh()), 3, 8),
    "no parameters, nested": one(nn.Sequential(nn.Sequential(nn.ReLU()), nn.MaxPool1d(2)), 3, 8),
    "no parameters, of one's own": run(lambda self, x: self.r(x) @ x.T, 3, 8, bare=True, r=nn.ReLU()),
    "parameters that nothing uses": run(lambda self, x: F.relu(x), 3, 8, bare=True, l=nn.Linear(8, 8)),
    "a parameter of the model's own": run(lambda self, x: F.relu(x), 3, 8),
    "shared": twice_in(nn.Linear(8, 8)),
    "shared, nested": twice_in(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Softmax(-1))),
    "shared, functions": twice_in(Run(lambda self, x: F.gelu(x.matmul(self.w)))),
    "kept in a list, a cnn": run(lambda self, x: kept["a frozen cnn"](x), 2, 3, 6, 6),
    "kept in a list, an lstm": run(lambda self, x: kept["a frozen lstm"](x)[0], 2, 3, 8),
    "kept in a list, attention": run(lambda self, x: kept["frozen attention"](x, x, x)[0], 2, 3, 8),
    "kept in a list, and learning": run(lambda self, x: kept["a norm"](x), 3, 8),
    "made on the spot, with parameters": run(lambda self, x: nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))(x), 3, 8),
    "made on the spot": run(lambda self, x: nn.AvgPool1d(2)(nn.GELU()(x)), 3, 8, 6),
    "scripted": run(lambda self, x: self.l(x), 3, 8, l=torch.jit.script(nn.Linear(8, 4))),
    "in a thread, products": run(lambda self, x: x @ self.w + in_a_thread(lambda: (x @ self.w).matmul(self.w)), 3, 8),
    "in a thread, functions": run(lambda self, x: x + in_a_thread(lambda: F.linear(F.layer_norm(F.relu(x), (8,)), self.w)), 3, 8),
    "in a thread, layers": run(lambda self, x: self.l(x) + in_a_thread(lambda: self.l(x)), 2, 3, 6, 6, l=padded),
    "in a thread, attention": run(lambda self, x: x + in_a_thread(lambda: F.scaled_dot_product_attention(x, x, x)), 2, 3, 8),
    "in a thread, einsum": run(lambda self, x: x + in_a_thread(lambda: torch.einsum("ij,jk->ik", x, self.w)), 3, 8),
}  # fmt: skip


def encoder(**kwargs):
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **kwargs)


FUSED = {
    "an encoder layer": one(encoder(activation="gelu", norm_first=True), 2, 5, 8),
    "encoder layers": one(nn.Sequential(nn.Linear(4, 8), nn.TransformerEncoder(encoder(), 3, norm=nn.LayerNorm(8))), 2, 5, 4),
    "encoder layers with a mask": run(lambda self, x: self.e(x, torch.zeros(5, 5)), 2, 5, 8, e=encoder()),
    "encoder layers, padded": run(lambda self, x: self.e(x, src_key_padding_mask=torch.zeros(2, 5, dtype=torch.bool)), 2, 5, 8, e=encoder()),
    "encoder layers, padded and masked": run(lambda self, x: self.e(x, torch.zeros(5, 5), torch.zeros(2, 5)), 2, 5, 8, e=encoder()),
    "an encoder layer that parents share": twice_in(Run(lambda self, x: self.e(x[None])[0], e=encoder())),
    "an encoder layer in a thread": run(lambda self, x: self.e(x) + in_a_thread(lambda: self.e(x)), 2, 5, 8, e=encoder()),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", [tool for tool in peers.TOOLS if tool not in ("torch", "torch.profiler")])
@pytest.mark.parametrize("name", FUSED)
def test_what_torch_runs_as_one_where_no_hook_hangs(tool, name):
    if not sure(tool):
        pytest.skip(f"{tool} is not here in the version that was looked at")
    model, x = FUSED[name]
    with torch.no_grad():
        answer = ask(tool, model.eval(), x)
        report = fk.count(model, x)
    seen = report.as_seen_by(tool)
    assert (seen.value, seen.failure) == (answer.value, answer.said)
    assert sum(row.flops for row in seen.rows) == report.flops == seen.flops


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", peers.TOOLS)
@pytest.mark.parametrize(
    "programs", [PRODUCTS, FUNCTIONS, LAYERS, MODELS], ids=["products", "functions", "layers", "models"]
)
def test_the_same_number_as_the_tool(tool, programs):
    if not sure(tool):
        pytest.skip(f"{tool} is not here in the version that was looked at")
    wrong = {}
    for name, (model, x) in programs.items():
        model.eval()
        answer = ask(tool, model, x)
        report = fk.count(model, x)
        seen = report.as_seen_by(tool)
        fma = 2 if tool in ("torch", "torch.profiler", "calflops") else 1
        if (seen.value, seen.failure) != (answer.value, answer.said):
            wrong[name] = (seen.value, seen.failure), (answer.value, answer.said)
        assert sum(row.flops for row in seen.rows) == report.flops == seen.flops, name
        assert sum(row.seen for row in seen.rows) * fma == (seen.value or 0) * 2, name
    assert not wrong
