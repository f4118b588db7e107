"""A report under a convention: every score position, the visible ones, or a MAC as one FLOP. Model FLOPs follow; what ran stays what ran."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopkit as fk
from flopkit.conventions import EXACT, FVCORE, TORCH, Convention

B, H, S, D = 2, 3, 16, 8
FULL = 2 * 2 * B * H * S * S * D  # two products
VISIBLE = 2 * 2 * B * H * (S * (S + 1) // 2) * D


def qkv(device="cpu", grad=False):
    return [torch.ones(B, H, S, D, device=device, requires_grad=grad) for _ in range(3)]


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_causal_attention_both_ways(device):
    report = fk.count(attend, *qkv(device))
    assert report.convention is TORCH
    assert report.model_flops == FULL
    exact = report.under(EXACT)
    assert exact.model_flops == VISIBLE
    assert exact.under(TORCH).model_flops == FULL
    assert report.model_flops == FULL  # a report is not changed by being read another way


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_and_backward(device):
    q, k, v = qkv(device, grad=True)
    report = fk.count(lambda: attend(q, k, v).sum().backward())
    assert (report.forward.flops, report.backward.flops) == (FULL, 2 * FULL)
    assert report.model_flops == 3 * FULL
    assert report.under(EXACT).model_flops == 3 * VISIBLE


def test_products_are_the_same_under_both():
    report = fk.count(lambda: torch.ones(4, 8) @ torch.ones(8, 16))
    assert report.flops == report.under(EXACT).flops == 2 * 4 * 8 * 16


def test_a_mac_as_one_flop():
    report = fk.count(lambda: (torch.ones(4, 8) @ torch.ones(8, 16), attend(*qkv())))
    macs = report.under(FVCORE)
    assert macs.model_flops == 4 * 8 * 16 + FULL // 2
    assert macs.flops * 2 == report.flops
    assert macs.macs == report.macs == macs.flops
    assert macs.vector_flops == report.vector_flops and macs.bytes == report.bytes


def test_half_of_the_scores():
    half = Convention("HALF", "an example", scores=0.5, hidden=0.5)
    report = fk.count(lambda: (torch.ones(4, 8) @ torch.ones(8, 16), attend(*qkv())))
    assert report.under(half).model_flops == 2 * 4 * 8 * 16 + FULL // 2


@pytest.mark.parametrize(("name", "value"), [("router", False), ("head", False), ("embedding", True)])
def test_what_a_running_program_does_not_say(name, value):
    asks = replace(TORCH, name="ASKS", **{name: value})
    with pytest.raises(ValueError, match=rf"ASKS asks for the {name}.*fk.load"):
        fk.count(attend, *qkv()).under(asks)


@pytest.mark.parametrize("wrong", [None, 1, 2, ["EXACT"], {"EXACT"}])
def test_what_is_no_convention(wrong):
    with pytest.raises(TypeError, match="must be a flopkit.Convention"):
        fk.count(attend, *qkv()).under(wrong)


def test_a_convention_may_be_given_by_name():
    report = fk.count(attend, *qkv())
    assert report.under("exact").flops == report.under(EXACT).flops != report.under("TORCH").flops == report.flops


def test_a_mask_in_a_tensor_is_named_where_pairs_are_asked_for():
    mask = torch.ones(S, S).tril().bool()
    q, k, v = qkv()
    report = fk.count(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    assert report.model_flops == report.under(EXACT).model_flops == FULL
    assert any("mask" in note and "1 call" in note for note in report.under(EXACT).notes)


@pytest.mark.parametrize(("attention", "again"), [("auto", None), ("flash", 1), ("math", 0)])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_model_flops_are_the_same_whatever_kernel_ran(attention, again, device):
    q, k, v = qkv(device, grad=True)
    with fk.counting(attention=attention) as report:
        attend(q, k, v).sum().backward()
    assert report.model_flops == 3 * FULL
    assert report.under(EXACT).model_flops == 3 * VISIBLE
    if again is not None:  # flash computes one of the two products once more
        assert report.recompute.flops == again * FULL // 2
        assert report.flops == 3 * FULL + again * FULL // 2
    kernels = {row["kernel"] for row in report.by_op() if row["operator"] == "scaled_dot_product_attention"}
    assert all(kernels)


def test_inside_of_the_block_too():
    with fk.counting() as report:
        attend(*qkv())
        assert report.under(EXACT).model_flops == VISIBLE
        attend(*qkv())
    assert report.under(EXACT).model_flops == 2 * VISIBLE


def small():
    q = torch.ones(1, 4, 6, 8)
    return fk.count(attend, q, q, q)


def test_each_number_of_a_report_is_under_its_convention():
    report = small()
    assert report.convention == TORCH and report.under(EXACT).convention == EXACT
    assert type(report.under(EXACT)) is type(report)
    assert (report.model_flops, report.under(EXACT).model_flops) == (2 * 4 * 36 * 16, 2 * 4 * 21 * 16)
    assert report.under(EXACT).under(TORCH).model_flops == report.model_flops
    assert report.model_flops == 2 * 4 * 36 * 16  # the report itself is as it was
    assert report.forward.convention == TORCH and report.under(EXACT).forward.convention == EXACT
    assert report.forward.under(EXACT).flops == report.under(EXACT).forward.flops
    assert report.bytes == report.under(EXACT).bytes


def test_a_layer_under_fvcore():
    one = fk.count(lambda: nn.Linear(8, 8)(torch.ones(4, 8)))
    assert one.under(FVCORE).flops == 2 * 4 * 8 * 8 // 2  # a multiply-add is one
    assert one.under(FVCORE).convention == FVCORE


PRESETS = [name for name in vars(fk.conventions) if isinstance(getattr(fk.conventions, name), fk.Convention)]


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_counts_or_names_what_it_needs(name):
    convention = getattr(fk.conventions, name)
    report = small()
    try:
        found = report.under(convention)
        assert found.flops >= 0 and found.model_flops >= 0 and repr(found)
    except ValueError as error:
        assert re.search(r"router|head|embedding|\bN\b|parameters|model", str(error)), error
