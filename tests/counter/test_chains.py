"""Element-wise operators in a row: what a fused program would move, derived by hand."""

import gc

import pytest
import torch
import torch.nn.functional as F

import flopkit as fk
from flopkit.counter.watching.chains import ON_CHIP

N = 4 * 1000  # bytes of a tensor of 1,000 numbers


def numbers(*shape, device="meta", dtype=torch.float32):
    return torch.empty(*shape, device=device, dtype=dtype)


def fused(run):
    """Bytes apart and fused of what *run* does; its result is held, as a caller does."""
    with fk.counting(strict=True) as report:
        held = run()
    del held
    return report.bytes, report.bytes - saved(report)


def saved(report):
    """Bytes at one byte a second: the time is their number, and compute costs nothing."""
    timing = report.roofline(fk.Device("slow", peak={"fp32": 1e30}, bandwidth=1.0), "fp32")
    return round(timing.seconds - timing.fused_seconds)


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_gelu_written_out_reads_x_and_writes_y(device):
    x = numbers(1000, device=device)
    # Three products of two tensors and a sum (3 each), a last product (3); four with a number or a function (2 each).
    assert fused(lambda: gelu_tanh(x)) == (4 * 3 * N + 5 * 2 * N, 2 * N)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_with_autograd_what_it_saved_is_written_too(device):
    """Saved: the two factors of each product (k·x and x; k·x² and x), tanh's result, the two factors of the last product."""
    x = numbers(1000, device=device).requires_grad_()
    apart, together = fused(lambda: gelu_tanh(x))
    saved_by_autograd = 5 * N  # k·x, k·x², tanh, 0.5·x, 1 + tanh
    assert (apart, together) == (22 * N, 2 * N + saved_by_autograd)


def test_what_autograd_saved_stands_on_the_same_memory_under_another_name():
    """exp's result is saved as a tensor of autograd's own; the one that the program had is gone, the memory is not."""
    x = numbers(1000).requires_grad_()
    assert fused(lambda: x.exp() * 2) == (4 * N, 3 * N)
    with torch.no_grad():
        assert fused(lambda: x.exp() * 2) == (4 * N, 2 * N)


def test_what_the_program_holds_is_written():
    x = numbers(1000)

    def run():
        y = x + 1
        return y, y * 2

    assert fused(run) == (4 * N, 3 * N)


def test_what_came_from_outside_is_read_once():
    x, y = numbers(1000), numbers(1000)
    assert fused(lambda: (x + y) * x - y) == (9 * N, 3 * N)


def test_in_place_operators():
    x = numbers(1000)
    assert fused(lambda: x.add_(1).mul_(2).relu_()) == (6 * N, 2 * N)  # read once, written once
    assert fused(lambda: (x + 1).mul_(2).relu_()) == (6 * N, 2 * N)
    y = numbers(1000)
    assert fused(lambda: y.copy_(x * 2)) == (4 * N, 2 * N)  # what y held before is not read


def test_a_view_neither_ends_nor_leaves_a_chain():
    x = numbers(10, 100)
    assert fused(lambda: (x + 1).view(1000).exp().view(20, 50).mul(2)) == (6 * N, 2 * N)
    assert fused(lambda: (x * 2).T.contiguous() + 1) == (6 * N, 2 * N)
    gate = numbers(10, 200)  # 2 N

    def swiglu():
        a, b = gate.chunk(2, dim=1)
        return F.silu(a) * b

    assert fused(swiglu) == (5 * N, 3 * N)


def test_halves_of_what_was_made_inside_are_inside():
    x = numbers(10, 200)

    def run():
        a, b = (x * 2).chunk(2, dim=1)
        return a * b

    assert fused(run) == (4 * N + 3 * N, 2 * N + N)


def test_casts_masks_and_fills_belong_to_a_chain():
    x, mask = numbers(1000, dtype=torch.bfloat16), numbers(1000, dtype=torch.bool)
    # 2 and 4 bytes; 4 and 4; 4, 1 and 4; 4 and 2.
    assert fused(lambda: x.float().exp().masked_fill(mask, 0).bfloat16()) == (
        6000 + 8000 + 9000 + 6000,
        2000 + 1000 + 2000,
    )
    y = numbers(1000)
    assert fused(lambda: torch.zeros_like(y).add(y)) == (N + 3 * N, 2 * N)


def test_a_product_ends_a_chain():
    x, w = numbers(10, 100), numbers(100, 100)
    square = 40_000

    def run():
        return F.relu((F.relu(x + 1) @ w) + 1)

    # Before and after the product: four passes, of which two are left; the product itself moves what it moves.
    assert fused(run) == (4 * N + (2 * N + square) + 4 * N, 2 * N + (2 * N + square) + 2 * N)


def test_a_row_operator_takes_in_what_is_before_and_goes_on_after_short_rows():
    x = numbers(10, 100)
    assert fused(lambda: F.softmax(x * 2, dim=-1)) == (4 * N, 2 * N)
    assert fused(lambda: F.softmax(x * 2, dim=-1) + 1) == (6 * N, 2 * N)
    assert fused(lambda: F.softmax(x * 2, dim=0) + 1) == (6 * N, 2 * N + 2 * N)  # not along the last dimension


def test_rms_norm_written_out():
    """Six operators and two casts, as transformers have them: x and the weight are read, y is written."""
    x, weight = numbers(10, 100, dtype=torch.bfloat16), numbers(100, dtype=torch.bfloat16)
    rows = 4 * 10

    def rms(x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * wide.to(torch.bfloat16)

    apart = (2000 + N) + 2 * N + (N + rows) + 2 * rows + 2 * rows + (2 * N + rows) + (N + 2000) + (200 + 2000 + 2000)
    assert fused(lambda: rms(x)) == (apart, 2000 + 200 + 2000)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("grad", [False, True])
def test_batch_normalisation_with_running_statistics_is_a_link_and_with_the_batch_s_an_end(device, grad):
    norm = torch.nn.BatchNorm2d(10, device=device).requires_grad_(grad)
    x, channels = (
        numbers(2, 10, 10, 10, device=device),
        4 * 10,
    )  # 2,000 numbers, 8,000 bytes; 40 bytes for one number a channel
    image = 4 * 2000

    def run():
        return norm(x).relu_() if not grad else norm(x).relu()

    # Four numbers a channel are read: scale, shift, mean and variance.
    norm.eval()
    apart, together = fused(run)
    assert (apart, together) == (4 * image + 4 * channels, 2 * image + 4 * channels)
    # Statistics of the batch are summed before anything can be scaled. They are kept for the backward pass; without one, nobody does.
    apart, together = fused(lambda: F.relu(F.batch_norm(x, None, None, norm.weight, norm.bias, training=True)))
    assert (apart, together) == (4 * image + 4 * channels, 4 * image + (4 if grad else 2) * channels)


def test_a_row_that_is_too_long_is_read_again():
    long = numbers(2, ON_CHIP + 1)
    size = 4 * long.numel()
    # The sum takes the exponential in, and its input was x; after it x's exponential is read where it was written.
    assert fused(lambda: F.softmax(long + 1, -1) * 2) == (6 * size, 2 * size + 2 * size)


def test_a_sum_of_everything_ends_a_chain():
    x = numbers(10, 100)
    assert fused(lambda: (x * 2).sum() + 1) == (2 * N + (N + 4) + 8, (N + 4) + 8)


def test_lists_of_tensors():
    a, b = [numbers(1000), numbers(500)], [numbers(1000), numbers(500)]

    def run():
        torch._foreach_mul_(a, 0.9)
        torch._foreach_add_(a, b, alpha=0.1)

    size = 4 * 1500
    assert fused(run) == (2 * size + 3 * size, 3 * size)


def test_phases_do_not_join():
    x = numbers(1000).requires_grad_()
    with fk.counting(strict=True) as report:
        y = x * 2
        y.backward(y.detach() + 1)
    # Forward: x·2 and the gradient's + 1 (read y there, of the same chain): 2·x, y and y + 1. Backward: read and written once each.
    assert saved(report) == N


def test_counting_holds_no_memory():
    """A chain that never ends remembers memory only by weak handles."""
    with fk.counting():
        x = torch.ones(1000)
        storage = torch.multiprocessing.reductions.StorageWeakRef(x.untyped_storage())
        x = x + 1
        gc.collect()
        assert storage.expired()


def test_sparse_tensors_have_no_storage_to_speak_of():
    matrix = torch.eye(4).to_sparse()
    with fk.counting(strict=True) as report:
        held = matrix * 2
    assert saved(report) == 0 and held.is_sparse


def test_parts_of_one_storage_are_no_more_than_all_of_it():
    """Two slices of 80 numbers, 60 of them in both: 100 are read once, 80 written."""
    base = numbers(100)
    assert fused(lambda: (base[:80] + base[20:]).relu()) == (4 * (80 + 80 + 80 + 80 + 80), 4 * (100 + 80))
