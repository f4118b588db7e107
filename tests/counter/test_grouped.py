"""Products in groups (a mixture's experts) and of scaled eight-bit numbers, on CPU and meta, forward and backward."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from programs import backward, count

import flopkit as fk
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas import registry

if not hasattr(torch, "_grouped_mm"):
    pytest.skip("this torch has no grouped products", allow_module_level=True)
grouped_mm = torch._grouped_mm


def half(*shape, device="cpu"):
    return torch.zeros(*shape, dtype=torch.bfloat16, device=device)


def ends(*offsets, device="cpu"):
    return torch.tensor(offsets, dtype=torch.int32, device=device)


def one_by_one(sizes, k, n):
    """Each row of each group against each column."""
    return sum(k for size in sizes for _ in range(size) for _ in range(n))


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4), k=st.integers(1, 3), n=st.integers(1, 3))
def test_rows_in_groups_are_the_sum_of_their_products(sizes, k, n):
    k, n = 8 * k, 8 * n
    offsets = ends(*itertools.accumulate(sizes))
    report = fk.count(grouped_mm, half(sum(sizes), k), half(len(sizes), k, n), offsets)
    assert (report.flops, report.uncounted) == (2 * one_by_one(sizes, k, n), [])


def test_every_arrangement():
    """12 rows in three groups; 16 columns in three; an inner dimension in three; one product each."""
    assert fk.count(grouped_mm, half(12, 16), half(3, 16, 8), ends(4, 5, 12)).flops == 2 * 12 * 16 * 8
    assert fk.count(grouped_mm, half(3, 8, 16), half(16, 24), ends(4, 8, 24)).flops == 2 * 8 * 16 * 24
    assert fk.count(grouped_mm, half(8, 16), half(16, 8), ends(4, 8, 16)).flops == 2 * 8 * 16 * 8
    assert fk.count(grouped_mm, half(3, 8, 16), half(3, 16, 8)).flops == 2 * 3 * 8 * 16 * 8


def test_what_lies_behind_the_last_offset_is_not_computed():
    assert fk.count(grouped_mm, half(12, 16), half(3, 16, 8), ends(4, 5, 8)).flops == 2 * 8 * 16 * 8
    assert fk.count(grouped_mm, half(8, 16), half(16, 8), ends(4, 8, 12)).flops == 2 * 8 * 12 * 8
    assert fk.count(grouped_mm, half(3, 8, 16), half(16, 24), ends(4, 8, 16)).flops == 2 * 8 * 16 * 16
    with fk.counting() as report:  # the same shapes twice: the offsets are looked at each time
        for last in (8, 12):
            grouped_mm(half(12, 16), half(3, 16, 8), ends(4, 5, last))
    assert report.flops == 2 * 20 * 16 * 8


def test_meta_has_no_offsets_to_read():
    meta = dict(device="meta")
    report = fk.count(
        grouped_mm, half(12, 16, **meta), half(3, 16, 8, **meta), torch.empty(3, dtype=torch.int32, **meta)
    )
    assert (report.flops, report.uncounted) == (2 * 12 * 16 * 8, [])


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_backward_is_twice_forward(device):
    rows, experts = half(12, 16, device=device).requires_grad_(), half(3, 16, 8, device=device).requires_grad_()
    report = count(lambda: grouped_mm(rows, experts, ends(4, 5, 12, device=device)))
    assert (report.forward.flops, report.backward.flops) == (2 * 12 * 16 * 8, 4 * 12 * 16 * 8)
    report = count(lambda: grouped_mm(rows, experts.detach(), ends(4, 5, 12, device=device)))
    assert report.backward.flops == 2 * 12 * 16 * 8


def test_bytes():
    report = fk.count(grouped_mm, half(12, 16), half(3, 16, 8), ends(4, 5, 12))
    assert report.bytes == 2 * (12 * 16 + 3 * 16 * 8 + 12 * 8) + 4 * 3


def fp8(*shape, device="cpu"):
    return torch.zeros(*shape, device=device).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_scaled_products(device):
    a, b, one = fp8(16, 32, device=device), fp8(48, 32, device=device).t(), torch.ones((), device=device)
    report = fk.count(torch._scaled_mm, a, b, one, one, out_dtype=torch.bfloat16)
    assert (report.flops, report.uncounted) == (2 * 16 * 32 * 48, [])
    assert report.bytes == 16 * 32 + 32 * 48 + 4 + 2 * 16 * 48
    assert report.vector_flops == 16 * 48


@pytest.mark.skipif(not hasattr(F, "scaled_mm"), reason="a torch before scaled_mm")
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_scaled_products_second_edition(device):
    a, b, one = fp8(16, 32, device=device), fp8(48, 32, device=device).t(), torch.ones((), device=device)
    kind = F.ScalingType.TensorWise
    report = fk.count(lambda: F.scaled_mm(a, b, one, kind, one, kind, output_dtype=torch.bfloat16))
    assert (report.flops, report.uncounted) == (2 * 16 * 32 * 48, [])


def test_scaled_groups_on_meta():
    meta = dict(device="meta")
    a, b = fp8(32, 64, **meta), fp8(2, 48, 64, **meta).transpose(-2, -1)
    scales = torch.ones(32, **meta), torch.ones(2, 48, **meta)
    report = fk.count(
        torch._scaled_grouped_mm, a, b, *scales, torch.empty(2, dtype=torch.int32, **meta), out_dtype=torch.bfloat16
    )
    assert (report.flops, report.uncounted) == (2 * 32 * 64 * 48, [])


def test_two_four_bit_numbers_share_a_byte():
    from flopkit.counter.formulas.products import grouped_macs

    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("a torch before four-bit floats")
    a = torch.empty(3, 16, dtype=torch.float4_e2m1fn_x2, device="meta")
    b = torch.empty(2, 16, 8, dtype=torch.float4_e2m1fn_x2, device="meta")
    assert grouped_macs(a, b) == 3 * 32 * 8


def test_backward_reaches_the_experts():
    experts = half(3, 16, 8).requires_grad_()
    out = grouped_mm(half(12, 16), experts, ends(4, 5, 12))
    backward(out)
    assert experts.grad is not None


def test_a_bias_and_the_scales_are_one_flop_a_number():
    with torch.device("meta"):
        a, b, out, bias = torch.empty(12, 16), torch.empty(3, 16, 8), torch.empty(12, 8), torch.empty(3, 8)
        offsets = torch.empty(3, dtype=torch.int32)
        for given, vector in ((None, {}), (bias, {"elementwise": 12 * 8})):
            assert (
                registry.FORMULAS["aten::_grouped_mm"](
                    OpCall(torch.ops.aten._grouped_mm.default, (a, b, offsets, given), {}, out)
                ).vector
                == vector
            )
        one, out = torch.empty(()), torch.empty(16, 48)
        kinds = [(torch.float8_e4m3fn, 32)]
        if hasattr(torch, "float4_e2m1fn_x2"):
            kinds.append((torch.float4_e2m1fn_x2, 16))  # two numbers in each
        for dtype, stored in kinds:
            a, b = torch.empty(16, stored, dtype=dtype), torch.empty(stored, 48, dtype=dtype)
            for given, adds in ((None, 1), (torch.empty(48), 2)):
                work = registry.FORMULAS["aten::_scaled_mm"](
                    OpCall(torch.ops.aten._scaled_mm.default, (a, b, one, one, given), {}, out)
                )
                assert (work.model, work.vector) == ({"products": 16 * 32 * 48}, {"elementwise": adds * 16 * 48})
