"""ptflops and calflops, which replace functions: each kind of call against the tools, and a few by hand."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import relu

import flopkit as fk
from flopkit.peers.asking import ask, sure


class Calls(nn.Module):
    """A module that is a function, so that a tool can be asked about it."""

    def __init__(self, run):
        super().__init__()
        self.run = run
        self.w = nn.Parameter(torch.ones(8, 8))

    def forward(self, x):
        return self.run(x, self.w)


class Heads(nn.Module):
    """An attention layer, called in one of the ways it can be."""

    def __init__(self, first=True, weights=True, mask=None, padding=None, **kwargs):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=first, **kwargs)
        self.how = {"need_weights": weights, "attn_mask": mask, "key_padding_mask": padding}
        self.sizes = kwargs.get("kdim", 16), kwargs.get("vdim", 16)

    def forward(self, x):
        k, v = (x[..., :size] for size in self.sizes)
        return self.attention(x, k, v, **self.how)[0]


class Twice(nn.Module):
    """A layer that two parents share."""

    def __init__(self):
        super().__init__()
        layer = nn.Linear(8, 8)
        self.a, self.b = nn.Sequential(layer), nn.Sequential(layer, nn.ReLU())

    def forward(self, x):
        return self.a(x) + self.b(x)


class Unregistered(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = [nn.Linear(8, 8), nn.ReLU()]
        self.seen = nn.Linear(8, 8)

    def forward(self, x):
        return self.hidden[1](self.hidden[0](self.seen(x)))


class OwnNorm(nn.BatchNorm1d):
    """A class derived from one that ptflops has in its table."""


class Nested(nn.Module):
    """Layers and functions in turn, as models have them."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.out = nn.Linear(8, 8), OwnNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        y = self.norm(F.silu(self.layer(x)) * self.layer(x) + x)
        return self.out(F.gelu(torch.add(y, x)))


class Kept(nn.Module):
    """A function that was looked up before any tool came."""

    def __init__(self):
        super().__init__()
        self.gelu = F.relu
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.gelu(self.layer(x))


def masked(*shape):
    return torch.zeros(shape, dtype=torch.bool)


def called(run, *shape):
    return Calls(run), shape


MODELS = {
    "sum of signs": called(lambda x, w: x + x * 2 - x, 2, 8),
    "sum by name": called(lambda x, w: x.add(x).mul(2), 2, 8),
    "sum in torch's name": called(lambda x, w: torch.mul(torch.add(x, w[:2]), 3.0), 2, 8),
    "sum of several": called(lambda x, w: sum([x, x, x]), 2, 8),
    "number first": called(lambda x, w: torch.mul(x[..., :1], torch.ones(3, 1, 8)), 2, 8),
    "products": called(lambda x, w: torch.matmul(x, w) @ w, 2, 3, 8),
    "product by name": called(lambda x, w: x.matmul(w).mm(w), 2, 8),
    "products by batch": called(lambda x, w: torch.bmm(x, x.transpose(1, 2)).bmm(x), 2, 3, 8),
    "product and sum": called(lambda x, w: torch.addmm(x, x, w).addmm(x, w, beta=0), 2, 8),
    "product and sum by batch": called(lambda x, w: torch.baddbmm(x[:1], x, x, beta=0.5), 2, 8, 8),
    "einsum": called(lambda x, w: torch.einsum("b i j, j k -> b i k", x, w), 2, 3, 8),
    "einsum, in a list": called(lambda x, w: torch.einsum("bij,jk->bik", [x, w]), 2, 3, 8),
    "padded, no batch": (nn.Conv2d(3, 4, 3, padding="same"), (3, 9, 9)),
    "one dimension, no batch": called(lambda x, w: F.conv1d(x, torch.ones(4, 8, 3)), 8, 8),
    "einsum, three": called(lambda x, w: torch.einsum("bij,jk,kl->bil", x, w, w), 2, 3, 8),
    "activations": called(lambda x, w: F.relu(F.relu6(F.elu(F.leaky_relu(F.silu(F.gelu(x)))))), 2, 8),
    "methods": called(lambda x, w: torch.relu(x).relu().softmax(-1), 2, 8),
    "imported": called(lambda x, w: relu(x), 2, 8),
    "kept": (Kept(), (2, 8)),
    "softmax": called(lambda x, w: F.softmax(x, dim=-1) + torch.softmax(x, -1), 2, 8),
    "pools": called(lambda x, w: F.max_pool2d(x, 2, return_indices=True)[0] + F.avg_pool2d(x, 2), 2, 3, 8, 8),
    "pools to a size": called(lambda x, w: F.adaptive_avg_pool2d(F.adaptive_max_pool2d(x, 4), 1), 2, 3, 8, 8),
    "pools that are layers": (nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 1, 1)), (4, 3, 8, 8)),
    "resized by a factor": called(lambda x, w: F.interpolate(x, scale_factor=1.5), 2, 3, 8, 8),
    "resized to a size": called(lambda x, w: F.interpolate(x, (5, 7)) + F.interpolate(x, size=[5, 7]), 2, 3, 8, 8),
    "activations that are layers": (nn.Sequential(nn.Linear(8, 8), nn.ReLU6(), nn.ELU(), nn.PReLU(), nn.SiLU(), nn.LeakyReLU(), nn.ReLU(inplace=True)), (3, 5, 8)),
    "padded": (nn.Sequential(nn.Conv2d(3, 4, 4, padding="same"), nn.Conv2d(4, 4, 3, stride=2, dilation=2, padding=1, groups=2, bias=False)), (3, 3, 9, 9)),
    "three dimensions": (nn.Sequential(nn.Conv3d(2, 4, 3), nn.BatchNorm3d(4), nn.ConvTranspose3d(4, 2, 2, stride=2)), (2, 2, 6, 5, 4)),
    "transposed": (nn.Sequential(nn.ConvTranspose1d(4, 8, 3, stride=2, output_padding=1, groups=2), nn.ConvTranspose1d(8, 2, 3, dilation=2)), (3, 4, 7)),
    "norms": (nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm1d(4), nn.BatchNorm1d(4, affine=False), nn.BatchNorm1d(4, track_running_stats=False), nn.LayerNorm(8)), (2, 4, 8)),
    "lstm": (nn.LSTM(8, 6, num_layers=2, bidirectional=True), (5, 2, 8)),
    "lstm, projected, no biases": (nn.LSTM(8, 6, proj_size=3, bias=False), (5, 2, 8)),
    "gru": (nn.GRU(8, 6, batch_first=True), (5, 2, 8)),
    "cells": (nn.Sequential(nn.GRUCell(8, 6), nn.RNNCell(6, 4, bias=False)), (5, 8)),
    "heads": (Heads(weights=False), (2, 5, 16)),
    "heads, length first": (Heads(first=False, weights=False), (5, 2, 16)),
    "heads and weights": (Heads(), (2, 5, 16)),
    "heads, masked": (Heads(mask=masked(5, 5)), (2, 5, 16)),
    "heads, masked each": (Heads(mask=masked(8, 5, 5)), (2, 5, 16)),
    "heads, padded": (Heads(padding=masked(2, 5)), (2, 5, 16)),
    "heads, padded and masked": (Heads(padding=masked(2, 5), mask=masked(5, 5), first=True), (2, 5, 16)),
    "heads of other sizes": (Heads(weights=False, kdim=8, vdim=4), (2, 5, 16)),
    "heads with more keys": (Heads(add_bias_kv=True, add_zero_attn=True, bias=False), (2, 5, 16)),
    "encoder": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 5, 16)),
    "not registered": (Unregistered(), (3, 8)),
    "nested": (Nested(), (3, 8)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "grad"), [*((name, True) for name in MODELS), ("encoder", False), ("heads", False), ("gru", False)]
)
@pytest.mark.parametrize("tool", ["ptflops", "calflops"])
def test_the_same_number_as_the_tool(tool, name, grad):
    if not sure(tool):
        pytest.skip(f"{tool} is not here in the version that was looked at")
    model, shape = MODELS[name]
    x = torch.ones(shape)
    with contextlib.nullcontext() if grad else torch.no_grad():
        answer = ask(tool, model.eval(), x)
        report = fk.count(model, x)
    seen = report.as_seen_by(tool)
    assert (seen.value, seen.failure) == (answer.value, answer.said)
    assert sum(row.flops for row in seen.rows) == report.flops == seen.flops
    assert sum(row.seen for row in seen.rows) == (seen.value or 0) * (2 if seen.unit == "MACs" else 1)


def seen(tool, model, *shape):
    return fk.count(model.eval(), torch.ones(shape)).as_seen_by(tool)


def test_ptflops_by_hand():
    """A dense layer 8 → 6 with a bias once for one of two samples of 5 rows; its activation in that, and again for the whole batch."""
    found = seen("ptflops", nn.Sequential(nn.Linear(8, 6), nn.ReLU()), 2, 5, 8)
    assert (found.value, found.unit) == (5 * (48 + 6) + 5 * 6 + 2 * 5 * 6, "MACs")
    assert found.flops == 2 * 10 * 48
    assert "by the batch" in " ".join(found.reasons)
    assert found.missed.rows == [{"operator": "all of the batch but one", "calls": 0, "flops": 2 * 5 * (48 + 6 + 6)}]


def test_ptflops_counts_each_call_of_a_root():
    layer = nn.Linear(8, 6, bias=False)
    with fk.counting() as report:
        layer(torch.ones(3, 8))
        layer(torch.ones(3, 8))
    assert report.as_seen_by("ptflops").value == 2 * 48


def test_calflops_by_hand():
    """Six filters of 4 · 9 at 9 places, with a bias; and a norm of 54 numbers, two operations each."""
    found = seen("calflops", nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)), 1, 4, 5, 5)
    assert (found.value, found.unit) == (2 * 6 * 36 * 9 + 54 + 2 * 54, "FLOPs")
    assert found.flops == 2 * 6 * 36 * 9 and len(found.missed) == 0


def test_a_sign_is_not_seen_and_a_name_is():
    for tool in ("ptflops", "calflops"):
        assert seen(tool, Calls(lambda x, w: x @ w + x), 2, 8).value == 0
        assert (
            seen(tool, Calls(lambda x, w: x.matmul(w).add(x)), 2, 8).value == (1 if tool == "ptflops" else 2) * 128 + 16
        )


def test_what_parents_share_counts_for_each_of_them():
    """A dense layer 8 → 8 called twice, and added up twice: of one sample for ptflops, whose rule has the bias, too. And its function once."""
    relu = 2 * 8
    assert seen("ptflops", Twice(), 2, 8).value == 2 * 2 * (64 + 8) + 8 + relu
    assert seen("calflops", Twice(), 2, 8).value == 2 * 2 * (2 * 2 * 64) + relu
    assert seen("thop", Twice(), 2, 8).value == 2 * 2 * (2 * 2 * 64)  # hooked twice as well


def test_what_is_not_in_the_number_is_said():
    """An encoder layer that ran as one operator is run once more, as its parts; not while somebody counts, who would count that, too."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    with torch.no_grad(), fk.counting() as report:
        layer(torch.ones(2, 5, 16))
        before = report.flops
        found = report.as_seen_by("calflops")
        assert (found.value, report.flops) == (0, before)
    assert any("encoder layer as one" in reason for reason in found.reasons)
    found = report.as_seen_by("calflops")
    assert found.value == 2 * (2 * 10 * 16 * 32) + 2 * 5 * 160  # its dense layers, and two norms
    assert not any("encoder layer as one" in reason for reason in found.reasons)


def test_parts_of_an_encoder_layer_are_those_that_ran_wherever_one_asks():
    """A default device is a function mode, and where one is at work, or the fast path is off, attention's projections run otherwise."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    with torch.no_grad():
        report = fk.count(layer, torch.ones(2, 5, 16))
    by_hand = 2 * (2 * 10 * 16 * 32) + 2 * 5 * 160
    with torch.device("cpu"), torch.device("meta"):
        assert report.as_seen_by("calflops").value == by_hand
        assert [torch.empty(1).device.type, torch._C._len_torch_function_stack()] == ["meta", 2]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert report.as_seen_by("calflops").value == by_hand
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_a_tool_that_fails_leaves_torch_as_it_was():
    before = dict(vars(F)), torch.add, torch.Tensor.add

    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            raise RuntimeError("no such thing")

    for tool in ("ptflops", "calflops"):
        ask(tool, Fails(), torch.ones(1, 8))
    assert (dict(vars(F)), torch.add, torch.Tensor.add) == before
