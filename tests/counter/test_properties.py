"""What holds for all sizes: linear in the batch, the same on every device, a product is the sum of its parts, backward is twice forward."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

import flopkit as fk

sizes = st.integers(1, 12)
few = settings(max_examples=25, deadline=None)


def numbers(*shape, device="meta", grad=False):
    return torch.ones(shape, device=device, requires_grad=grad)


def convolution(channels, groups, kernel, **options):
    return nn.Conv2d(channels * groups, 2 * channels * groups, kernel, groups=groups, **options)


PROGRAMS = {
    "linear": lambda n: (nn.Linear(6, 10), (n, 6)),
    "mlp": lambda n: (nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 6)), (n, 6)),
    "conv": lambda n: (convolution(2, 3, 3, padding="same"), (n, 6, 5, 5)),
    "transposed": lambda n: (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (n, 4, 5, 5)),
    "attention": lambda n: (lambda x: F.scaled_dot_product_attention(x, x, x), (n, 2, 6, 8)),
    "causal": lambda n: (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), (n, 2, 6, 8)),
    "einsum": lambda n: (lambda x: torch.einsum("nij,nkj->nik", x, x), (n, 3, 4)),
    "lstm": lambda n: (nn.LSTM(6, 8, num_layers=2, batch_first=True), (n, 5, 6)),
    "mha": lambda n: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (n, 5, 8)),
    "resnet": lambda n: (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (n, 3, 8, 8),
    ),
}


def built(name, n, device):
    fn, shape = PROGRAMS[name](n)
    return (fn.to(device) if isinstance(fn, nn.Module) else fn), numbers(*shape, device=device)


def step(fn, x):
    found = fn(x)
    (found[0] if isinstance(found, tuple) else found).sum().backward()


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=4, deadline=None)
@given(st.integers(2, 9))
def test_linear_in_the_batch(name, n):
    one, many = (fk.count(*built(name, size, "meta"), strict=True) for size in (1, n))
    assert many.model_flops == n * one.model_flops > 0
    assert many.under(fk.conventions.EXACT).model_flops == n * one.under(fk.conventions.EXACT).model_flops


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_on_every_device_and_with_or_without_gradients(name):
    found = set()
    for device in ("cpu", "meta"):
        fn, x = built(name, 3, device)
        for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            for training in (True, False):
                if isinstance(fn, nn.Module):
                    fn.train(training)
                with context():
                    report = fk.count(fn, x, strict=True)
                assert report.model_flops == report.forward.flops
                found.add((report.model_flops, report.under(fk.conventions.EXACT).model_flops))
    assert len(found) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_is_the_same_on_every_device(name):
    found = set()
    for device in ("cpu", "meta"):
        fn, x = built(name, 2, device)
        x.requires_grad_()
        report = fk.count(step, fn, x, strict=True)
        found.add((report.forward.flops, report.model_flops, report.under(fk.conventions.EXACT).model_flops))
    assert len(found) == 1


@few
@given(sizes, sizes, sizes, st.data())
def test_a_split_product_sums_to_the_whole(m, k, n, data):
    a, b = numbers(m, k), numbers(k, n)
    whole = fk.count(lambda: a @ b).flops
    assert whole == 2 * m * k * n
    cuts = {size: data.draw(st.integers(0, size)) for size in {m, k, n}}
    assert whole == fk.count(lambda: (a[: cuts[m]] @ b, a[cuts[m] :] @ b)).flops
    assert whole == fk.count(lambda: (a @ b[:, : cuts[n]], a @ b[:, cuts[n] :])).flops
    assert whole == fk.count(lambda: (a[:, : cuts[k]] @ b[: cuts[k]], a[:, cuts[k] :] @ b[cuts[k] :])).flops


@few
@given(sizes, sizes, sizes, st.booleans())
def test_backward_of_a_linear_layer(n, d_in, d_out, bias):
    layer, x = nn.Linear(d_in, d_out, bias, device="meta"), numbers(n, d_in, grad=True)
    report = fk.count(step, layer, x)
    assert report.forward.flops == 2 * n * d_in * d_out
    assert report.backward.flops == 2 * report.forward.flops
    assert (report.recompute.flops, report.model_flops) == (0, 3 * report.forward.flops)


@few
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.booleans())
def test_backward_of_a_convolution(batch, channels, groups, kernel, stride, transposed):
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(channels * groups, 2 * groups, kernel, stride=stride, groups=groups, device="meta")
    report = fk.count(step, layer, numbers(batch, channels * groups, 6, 6, grad=True))
    positions = 36 if transposed else ((6 - kernel) // stride + 1) ** 2
    assert report.forward.flops == 2 * batch * groups * channels * 2 * kernel**2 * positions
    assert report.backward.flops == 2 * report.forward.flops


@few
@given(st.integers(1, 3), st.integers(1, 3), sizes, sizes, st.integers(1, 8), st.booleans())
def test_backward_of_attention(batch, heads, q, kv, width, causal):
    args = [numbers(batch, heads, s, width, grad=True) for s in (q, kv, kv)]
    report = fk.count(lambda: F.scaled_dot_product_attention(*args, is_causal=causal).sum().backward())
    exact = report.under(fk.conventions.EXACT)
    pairs = sum(min(row + 1, kv) for row in range(q)) if causal else q * kv  # torch's own mask is top-left
    for seen, positions in ((report, q * kv), (exact, pairs)):
        assert seen.forward.flops >= 2 * 2 * batch * heads * positions * width
        assert seen.model_flops == 3 * 2 * 2 * batch * heads * positions * width
    # The fused backward computes the scores once more: half a forward pass.
    assert report.recompute.flops * 2 == report.forward.flops == 2 * 2 * batch * heads * q * kv * width


@few
@given(st.lists(sizes, min_size=1, max_size=4), sizes, sizes)
def test_batches_of_any_rank(batch, d_in, d_out):
    layer = nn.Linear(d_in, d_out, device="meta")
    rows = 1
    for size in batch:
        rows *= size
    assert fk.count(layer, numbers(*batch, d_in)).flops == 2 * rows * d_in * d_out


@few
@given(st.integers(1, 4), st.integers(1, 30))
def test_counting_again_and_again_is_counting_more(steps, n):
    layer, x = nn.Linear(4, 4), torch.ones(n, 4)
    one = fk.count(layer, x)
    many = fk.count(lambda: [layer(x) for _ in range(steps)])
    for name in ("flops", "model_flops", "vector_flops", "bytes", "macs"):
        assert getattr(many, name) == steps * getattr(one, name), name
