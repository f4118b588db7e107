"""Sequences of unequal length, in both layouts of nested tensors: their true lengths count, no padding."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nested._internal import ops as jagged

import flopkit as fk

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

LENGTHS, H, D, OUT = [3, 5, 2], 4, 8, 16
TOKENS = sum(LENGTHS)
PAIRS = H * sum(n * n for n in LENGTHS)
LAYOUTS = {"jagged": torch.jagged, "strided": torch.strided}


def nested(layout, d=D, grad=True):
    return torch.nested.nested_tensor([torch.randn(n, d) for n in LENGTHS], layout=LAYOUTS[layout], requires_grad=grad)


def total(out):
    return out.values().sum() if out.layout is torch.jagged else torch.nested.to_padded_tensor(out, 0.0).sum()


def heads(layout, d=D, grad=True):
    """(batch, heads, length, size)"""
    if layout == "jagged":
        return nested(layout, H * d, grad).unflatten(-1, [H, d]).transpose(1, 2)
    return torch.nested.nested_tensor([torch.randn(H, n, d) for n in LENGTHS], requires_grad=grad)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_linear(layout):
    layer, x = nn.Linear(D, OUT), nested(layout)
    report = fk.count(lambda: total(layer(x)).backward(), strict=True)
    assert report.forward.flops == 2 * TOKENS * D * OUT
    assert report.backward.flops == 2 * 2 * TOKENS * D * OUT
    x, layer = nested(layout, grad=False), nn.Linear(D, OUT)
    assert fk.count(lambda: total(layer(x)).backward()).model_flops == 2 * 2 * TOKENS * D * OUT


@pytest.mark.skipif(
    not hasattr(jagged, "matmul_backward_default"),
    reason="this torch does not differentiate products of jagged tensors",
)
def test_matmul():
    x, w = nested("jagged"), torch.randn(D, OUT, requires_grad=True)
    report = fk.count(lambda: total(torch.matmul(x, w)).backward(), strict=True)
    assert report.model_flops == 3 * 2 * TOKENS * D * OUT
    x = nested("strided")
    report = fk.count(lambda: total(torch.matmul(x, x.transpose(1, 2))).backward(), strict=True)
    assert report.model_flops == 3 * 2 * sum(n * n for n in LENGTHS) * D


def same_lengths(layout, dv, grad=True):
    """Query, key and value with one and the same set of lengths, as torch asks for in the jagged layout."""
    if layout == "strided":
        return heads(layout, D, grad), heads(layout, D, grad), heads(layout, dv, grad)
    x = nested(layout, H * D, grad)
    value = x @ torch.randn(H * D, H * dv)
    return tuple(t.unflatten(-1, [H, d]).transpose(1, 2) for t, d in ((x, D), (x * 1, D), (value, dv)))


@pytest.mark.parametrize("dv", [D, 12])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_attention(layout, dv):
    q, k, v = same_lengths(layout, dv)

    with fk.counting(strict=True) as report:
        out = F.scaled_dot_product_attention(q, k, v)
    assert report.flops == report.model_flops == 2 * PAIRS * (D + dv)
    whole = report.under(fk.conventions.EXACT)
    assert whole.flops == 2 * PAIRS * (D + dv)
    assert [row["operator"] for row in report.by_op() if row["flops"]] == [
        "matmul"
    ]  # as on the CPU it runs: two products

    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    with fk.counting(strict=True) as report:
        out = F.scaled_dot_product_attention(*leaves)
        total(out.transpose(1, 2).contiguous()).backward()
    assert report.model_flops == 3 * 2 * PAIRS * (D + dv)


def test_a_batch_of_one_sequence():
    x = torch.nested.nested_tensor([torch.randn(H, 3, D)])
    assert fk.count(F.scaled_dot_product_attention, x, x, x).flops == 2 * H * 3 * 3 * 2 * D


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attention_without_gradients(layout):
    q, k, v = same_lengths(layout, D, grad=False)
    # torch's jagged layout itself refuses to be transposed under inference_mode.
    for mode in (torch.no_grad, torch.inference_mode)[: 2 - (layout == "jagged")]:
        with mode():
            assert fk.count(F.scaled_dot_product_attention, q, k, v).model_flops == 4 * PAIRS * D


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layer_norm(layout):
    norm, x = nn.LayerNorm(D), nested(layout, grad=False)
    report, flat = fk.count(norm, x, strict=True), fk.count(norm, torch.ones(TOKENS, D))
    assert report.vector_flops == flat.vector_flops > 5 * TOKENS * D


def test_element_wise_work_is_that_of_the_numbers_there_are():
    for layout in LAYOUTS:
        report = fk.count(torch.relu, nested(layout, grad=False), strict=True)
        assert (report.vector_flops, report.bytes) == (TOKENS * D, 2 * 4 * TOKENS * D)


def test_jagged_tensors_by_their_true_lengths():
    x = torch.nested.nested_tensor([torch.rand(n, 2, 8) for n in LENGTHS], layout=torch.jagged).transpose(1, 2)
    report = fk.count(F.scaled_dot_product_attention, x, x, x)  # on the CPU torch has no causal form
    assert report.uncounted == []
    assert report.model_flops == report.under(fk.conventions.EXACT).model_flops == 2 * (9 + 25 + 4) * 2 * (8 + 8)
    flat = torch.nested.nested_tensor([torch.rand(n, 32) for n in LENGTHS], layout=torch.jagged)
    assert fk.count(nn.Linear(32, 16), flat).flops == 2 * 10 * 32 * 16
