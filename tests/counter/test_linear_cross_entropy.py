"""torch 2.13's chunked cross-entropy of a linear layer: the logits, and a product for each gradient, whatever is computed when."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.nn import functional as F

import flopkit as fk

torch_options = pytest.importorskip("torch.nn.modules.linear_cross_entropy_options", reason="this torch has none")
linear_cross_entropy = F.linear_cross_entropy

ROWS, WIDTH, CLASSES, CHUNK = 16, 8, 10, 4
PRODUCT = 2 * ROWS * WIDTH * CLASSES


def options(policy="auto"):
    return torch_options.LinearCrossEntropyOptions(batch_chunk_size=CHUNK, chunking_method=None, acc_policy=policy)


def inputs(wanted="xwb", device="cpu", dtype=torch.float32):
    def made(name, *shape):
        return torch.randn(*shape, dtype=dtype, device=device, requires_grad=name in wanted)

    answers = torch.zeros(ROWS, dtype=torch.int64, device=device)
    return made("x", ROWS, WIDTH), made("w", CLASSES, WIDTH), answers, made("b", CLASSES)


def step(given, reduction, chosen):
    x, w, answers, bias = given
    linear_cross_entropy(x, w, answers, linear_bias=bias, reduction=reduction, options=chosen).sum().backward()


def phases(report):
    return [getattr(report, phase).flops for phase in ("forward", "backward", "recompute")]


def policies():
    """Those that this torch takes ("balanced" was one in 2.13 alone)."""
    for policy in ("accurate", "balanced", "compact"):
        with contextlib.suppress(ValueError):
            yield options(policy).acc_policy


def test_there_is_more_than_one_policy():
    assert {"accurate", "compact"} <= set(policies())


@pytest.mark.parametrize("policy", list(policies()))
@pytest.mark.parametrize("wanted", ["xwb", "xw", "x", "w", "b"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_model_asks_for_the_same(reduction, wanted, policy):
    plain = fk.count(step, inputs(wanted), reduction, None, strict=True)
    report = fk.count(step, inputs(wanted), reduction, options(policy), strict=True)
    gradients = PRODUCT * len(set(wanted) - {"b"})
    assert plain.model_flops == report.model_flops == PRODUCT + gradients
    assert phases(report) == [PRODUCT, gradients, PRODUCT if reduction == "none" else 0]


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_on_meta_and_in_half_precision(reduction):
    for given in (inputs(device="meta"), inputs(dtype=torch.bfloat16)):
        report = fk.count(step, given, reduction, options(), strict=True)
        assert report.model_flops == 3 * PRODUCT
        assert phases(report) == [PRODUCT, 2 * PRODUCT, PRODUCT if reduction == "none" else 0]
    assert report.flops_by_dtype() == {"bf16": report.flops}


def test_without_gradients_it_is_one_product():
    for reduction in ("mean", "none"):
        with torch.no_grad():
            report = fk.count(linear_cross_entropy, *inputs()[:3], reduction=reduction, options=options())
        assert phases(report) == [PRODUCT, 0, 0] and report.vector_flops > 0


def test_a_checkpoint_computes_all_of_it_again():
    from torch.utils.checkpoint import checkpoint

    x, w, answers, _ = inputs()

    def loss(x, w):
        return linear_cross_entropy(x, w, answers, options=options()) * 2

    report = fk.count(lambda: checkpoint(loss, x, w, use_reentrant=True).backward())
    assert phases(report) == [PRODUCT, 0, 3 * PRODUCT]


def test_vector_flops_by_hand():
    """A logit: a bias, then compare, subtract, exponential, add; a gradient multiplies it, and the bias's adds it up."""
    plain, all_of_it = inputs(), ROWS * CLASSES
    forward = 5 * all_of_it + 4 * ROWS + 1
    report = fk.count(linear_cross_entropy, *plain[:3], linear_bias=plain[3], options=options())
    gradients = all_of_it + 2 * 2 * ROWS * WIDTH + all_of_it + ROWS
    assert report.vector_flops == forward + gradients
    weight = torch.ones(CLASSES)
    for given, more in ({}, 0), ({"weight": weight}, ROWS):  # a weight is a multiply a row
        with torch.no_grad():
            report = fk.count(linear_cross_entropy, *plain[:3], reduction="none", options=options(), **given)
        assert report.vector_flops == 4 * all_of_it + 3 * ROWS + more


def test_the_modules_and_the_values_are_those_of_the_program():
    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(CLASSES, WIDTH))

        def forward(self, x, answers, reduction):
            return linear_cross_entropy(x, self.weight, answers, reduction=reduction, options=options()).sum()

    x, _, answers, _ = inputs()
    for reduction in ("mean", "none"):
        head = Head()
        head(x, answers, reduction).backward()
        plain, x.grad, head.weight.grad = (x.grad, head.weight.grad), None, None
        report = fk.count(lambda: head(x, answers, reduction).backward())  # noqa: B023
        assert torch.equal(plain[0], x.grad) and torch.equal(plain[1], head.weight.grad)
        x.grad = None
        [row] = [row for row in report.by_module() if row["module"] == ""]
        assert (row["flops"], row["backward"]) == (report.flops, 2 * PRODUCT)


def test_what_torchs_counter_prints_is_what_it_saw():
    from torch.utils.flop_counter import FlopCounterMode

    for reduction in ("mean", "none"):
        for policy in ("accurate", "compact"):
            with FlopCounterMode(display=False) as counter:
                step(inputs(), reduction, options(policy))
            report = fk.count(step, inputs(), reduction, options(policy))
            assert int(report.as_seen_by("torch")) == counter.get_total_flops()


def test_a_roofline_has_all_of_it():
    report = fk.count(step, inputs(), "mean", options())
    [row] = [row for row in report.roofline("h100-sxm", "tf32").table() if row["operator"].startswith("torch_nn")]
    assert row["flops"] == report.flops == 3 * PRODUCT
