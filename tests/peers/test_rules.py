"""What `book/counter_details.md` says of the rules that other counters take, and of what still counts beside a rule."""

import contextlib
import io

import pytest
import torch
from torch import nn

from flopkit.peers.asking import sure
from flopkit.peers.installed import load


class Child(nn.Module):
    """A layer with a linear layer of 64 weights inside."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return self.inner(x)


class Product(nn.Module):
    """A layer that calls a function of 64 multiply-adds."""

    def forward(self, x):
        return torch.matmul(x, torch.ones(8, 8))


def seven_for_thop(layer, inputs, output):
    layer.total_ops += 7


def seven_for_ptflops(layer, inputs, output):
    layer.__flops__ += 7


def printed(tool, layer):
    """What a tool prints whose rule for the layer gives 7."""
    kind, quiet = type(layer), {"verbose": False}
    if tool != "ptflops":
        [answer, *_] = load(tool).profile(nn.Sequential(layer), (torch.ones(1, 8),), custom_ops={kind: seven_for_thop}, **quiet)  # fmt: skip
        return answer
    options = {"custom_modules_hooks": {kind: seven_for_ptflops}, "as_strings": False, "print_per_layer_stat": False}
    with contextlib.redirect_stdout(io.StringIO()):
        return load(tool).get_model_complexity_info(nn.Sequential(layer), (8,), **options, **quiet)[0]


@pytest.mark.parametrize(
    "tool, layer, total",
    [
        ("thop", Child, 7),
        ("thop", Product, 7),
        ("ultralytics-thop", Child, 7 + 64),
        ("ultralytics-thop", Product, 7),
        ("ptflops", Child, 7),
        ("ptflops", Product, 7 + 64),
    ],
)
def test_what_counts_beside_a_rule_for_a_layer(tool, layer, total):
    if not sure(tool):
        pytest.skip(f"{tool} is missing, or another version")
    assert printed(tool, layer()) == total


def test_fvcore_takes_a_rule_for_an_operator():
    if not sure("fvcore"):
        pytest.skip("fvcore is missing, or another version")

    class Attention(nn.Module):
        def forward(self, q):
            return nn.functional.scaled_dot_product_attention(q, q, q)

    shapes = []

    def rule(inputs, outputs):
        shapes.append([value.type().sizes() for value in (inputs[0], outputs[0])])
        return 7

    analysis = load("fvcore").FlopCountAnalysis(Attention(), torch.ones(1, 4, 16, 8))
    assert analysis.set_op_handle("aten::scaled_dot_product_attention", rule).total() == 7
    assert shapes == [[[1, 4, 16, 8]] * 2]
