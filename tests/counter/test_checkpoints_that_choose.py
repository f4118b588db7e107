"""Checkpoints that choose what to keep, around attention: what was kept is not made again, on meta either, where the kernel is one that would run."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import flopkit as fk
from flopkit.conventions import EXACT

aten = torch.ops.aten
FLASH = aten._scaled_dot_product_flash_attention.default
ON_CPU = aten._scaled_dot_product_flash_attention_for_cpu.default
EFFICIENT = aten._scaled_dot_product_efficient_attention.default
B, H, L, D = 2, 4, 6, 8
FULL = 2 * 2 * B * H * L * L * D
SEEN = 2 * 2 * B * H * (L * (L + 1) // 2) * D
EARLY = pytest.mark.parametrize("early", [True, False])


def three(device="meta", heads=H, dv=D):
    sizes = (B, H, L, D), (B, heads, L, D), (B, heads, L, dv)
    return [torch.randn(size, device=device, requires_grad=True) for size in sizes]


def counted(function, inputs, keep, early=True):
    """A forward and a backward pass of *function* in a checkpoint that keeps the results of the operators *keep*."""

    def run():
        out = checkpoint(
            function, *inputs, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(keep)
        )
        out.sum().backward()

    with set_checkpoint_early_stop(early):
        report = fk.count(run)
    assert [t.grad.shape for t in inputs if t.requires_grad] == [t.shape for t in inputs if t.requires_grad]
    return report


@EARLY
@pytest.mark.parametrize("heads", [H, 2])
def test_a_kernel_whose_result_is_kept(early, heads):
    def block(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v, is_causal=True, enable_gqa=heads != H) * 3

    report = counted(block, three(heads=heads), [FLASH], early)
    assert report.model_flops == 3 * FULL
    assert report.under(EXACT).model_flops == 3 * SEEN
    assert report.recompute.flops == FULL // 2  # the kernel's own: the scores
    assert report.under(EXACT).recompute.flops == SEEN // 2
    again = {row["operator"] for row in report.by_op() if row["phase"] == "recompute" and row["vector_flops"]}
    assert again == {"mul", "scaled_dot_product_attention"}
    assert {row["kernel"] for row in report.by_op() if row["flops"]} == {"flash (assumed: nothing runs on meta)"}


@EARLY
@pytest.mark.parametrize("keep", [[], [aten.bmm.default, aten._softmax.default], [EFFICIENT]])
def test_a_kernel_whose_result_is_not_kept(early, keep):
    """Products inside of a kernel are none that a checkpoint could keep."""
    report = counted(lambda q, k, v: F.scaled_dot_product_attention(q, k, v) * 3, three(), keep, early)
    assert report.model_flops == 3 * FULL
    assert report.recompute.flops == FULL + FULL // 2


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("mask", [None, torch.bool, torch.float32])
def test_the_other_kernel(kept, mask):
    """Flash attention takes no mask, and values of the keys' size."""
    dv = 4 if mask is None else D
    bias = None if mask is None else torch.ones(L, L, dtype=mask, device="meta")

    def block(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, bias) * 3

    report = counted(block, three(dv=dv), [EFFICIENT] if kept else [FLASH])
    forward, scores = 2 * B * H * L * L * (D + dv), 2 * B * H * L * L * D
    assert report.model_flops == 3 * forward
    assert report.recompute.flops == scores + (not kept) * forward


@pytest.mark.parametrize(
    ("device", "kernel"), [("meta", FLASH), ("cpu", aten._scaled_dot_product_flash_attention_for_cpu.default)]
)
@pytest.mark.parametrize("kept", [True, False])
def test_a_layer(device, kernel, kept):
    layer = nn.MultiheadAttention(32, H, batch_first=True, device=device)
    x = torch.randn(B, L, 32, device=device, requires_grad=True)
    report = counted(lambda x: layer(x, x, x, need_weights=False)[0], [x], [kernel] if kept else [])
    ins, outs = 2 * B * L * 32 * 96, 2 * B * L * 32 * 32
    assert report.model_flops == 3 * (ins + outs + FULL)
    assert report.recompute.flops == ins + FULL // 2 + (not kept) * FULL  # the last product is not needed again


@EARLY
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_products_that_are_kept_where_there_is_no_kernel(early, device):
    w = torch.randn(D, D, device=device)

    def block(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v) @ w).tanh()

    with sdpa_kernel(SDPBackend.MATH):
        kept = counted(block, three(device), [aten.bmm.default, aten.mm.default], early)
        none = counted(block, three(device), [], early)
    rest = 2 * B * H * L * D * D
    for report in (kept, none):
        assert report.model_flops == 3 * FULL + 2 * rest  # w needs no gradient
    assert kept.recompute.flops == 0
    assert none.recompute.flops == FULL + rest


@pytest.mark.parametrize(("device", "kernel"), [("cpu", ON_CPU), ("meta", FLASH)])
def test_a_plain_checkpoint_inside(device, kernel):
    """The inner one makes the call again by itself, where nobody keeps anything for it; the outer one takes what was kept."""

    def block(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v) * 3

    def around(q, k, v):
        return checkpoint(block, q, k, v, use_reentrant=False) + 1

    report = counted(around, three(device), [kernel])
    assert report.model_flops == 3 * FULL
    assert report.recompute.flops == FULL + FULL // 2


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_a_plain_checkpoint_beside_one_that_chooses(order):
    """The same call outside is saved as it was before, whichever came first."""

    def block(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v) * 3

    def forward(chooses):
        context = {"context_fn": lambda: create_selective_checkpoint_contexts([FLASH])} if chooses else {}
        return checkpoint(block, q, k, v, use_reentrant=False, **context).sum()

    q, k, v = three()
    report = fk.count(lambda: sum([forward(chooses) for chooses in order]).backward())
    assert report.model_flops == 2 * 3 * FULL
    assert report.recompute.flops == FULL + 2 * (FULL // 2)  # the plain one's call; the kernels' own scores


def test_who_chooses_is_asked_as_on_a_gpu():
    asked = []

    def choose(context, op, *args, **kwargs):
        if not context.is_recompute:
            asked.append(op)
        return CheckpointPolicy.MUST_SAVE if op is FLASH else CheckpointPolicy.PREFER_RECOMPUTE

    counted(lambda q, k, v: F.scaled_dot_product_attention(q, k, v) * 3, three(), choose)
    assert [op for op in asked if op in (FLASH, aten.mul.Tensor, aten.bmm.default)] == [FLASH, aten.mul.Tensor]


@pytest.mark.parametrize("shape", [(L, D), (H, L, D), (B, 1, H, L, D)])
def test_shapes_that_no_kernel_takes(shape):
    qkv = [torch.randn(shape, device="meta", requires_grad=True) for _ in range(3)]
    full = 2 * 2 * qkv[0].numel() * L
    report = counted(lambda q, k, v: F.scaled_dot_product_attention(q, k, v) * 3, qkv, [FLASH])
    assert report.model_flops == 3 * full
    assert report.recompute.flops == full + full // 2
