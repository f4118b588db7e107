"""Small random programs, made of pieces whose FLOPs are known by hand: counted right, on CPU and on meta, with nothing left patched."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from cases import Product
from hypothesis import HealthCheck, given, settings, strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import flopkit as fk
from flopkit.counter.watch import mode, patches


def patched():
    """What counting patches and must put back. Read before each count: a library imported in between may have set its own."""
    return (
        nn.Module.__call__,
        nn.Module.__call__.__code__,
        threading.Thread.start,
        torch.compile,
        torch.overrides.has_torch_function,
    )


@dataclass
class Truth:
    """What the program so far comes to; `needs`: whether what flows asks for a gradient."""

    n: int
    d: int
    needs: bool
    forward: int = 0
    backward: int = 0
    recompute: int = 0

    def product(self, flops, trained=True, times=1):
        """A product of what flows with a weight."""
        for _ in range(times):
            self.forward += flops
            self.backward += flops * (self.needs + trained)
            self.needs = self.needs or trained


# Each piece notes its truth, and gives the function that runs. What flows is n × d.


def linear(t, device, e, frozen=False):
    layer = nn.Linear(t.d, e, device=device).requires_grad_(not frozen)
    t.product(2 * t.n * t.d * e, trained=not frozen)
    t.d = e
    return layer


def frozen(t, device, e):
    return linear(t, device, e, frozen=True)


def matmul(t, device, e):
    w = torch.ones(t.d, e, device=device, requires_grad=True)
    t.product(2 * t.n * t.d * e)
    t.d = e
    return lambda x: x @ w


def einsum(t, device, e):
    w = torch.ones(e, t.d, device=device, requires_grad=True)
    t.product(2 * t.n * t.d * e)
    t.d = e
    return lambda x: torch.einsum("nd,ed->ne", x, w)


def custom_function(t, device, e):
    w = torch.ones(t.d, e, device=device, requires_grad=True)
    # Its backward computes both products, asked or not.
    t.forward += 2 * t.n * t.d * e
    t.backward += 2 * 2 * t.n * t.d * e
    t.needs, t.d = True, e
    return lambda x: Product.apply(x, w)


def residual(t, device, e):
    layer = nn.Linear(t.d, t.d, device=device)
    t.product(2 * t.n * t.d * t.d)
    return lambda x: x + layer(x)


def shared(t, device, e):
    layer = nn.Linear(t.d, t.d, device=device)
    t.product(2 * t.n * t.d * t.d, times=2)
    return lambda x: layer(layer(x))


def lora(t, device, e):
    base = nn.Linear(t.d, t.d, device=device).requires_grad_(False)
    down, up = nn.Linear(t.d, 2, False, device=device), nn.Linear(2, t.d, False, device=device)
    whole, thin = 2 * t.n * t.d * t.d, 2 * t.n * t.d * 2
    t.forward += whole + 2 * thin
    t.backward += (whole + thin) * t.needs + thin + 2 * thin  # dx of base and down; dW of down; both of up
    t.needs = True
    return lambda x: base(x) + up(down(x))


def pointwise(t, device, e):
    norm = nn.LayerNorm(t.d, device=device).requires_grad_(False)
    return lambda x: F.dropout(F.gelu(norm(x)).relu() * 2, 0.1)


def attention(t, device, e):
    flops = 2 * 2 * t.n * t.n * t.d
    t.forward += flops
    if t.needs:
        t.backward += 2 * flops
        t.recompute += flops // 2  # flash, which runs here on the CPU and is assumed on meta
    return lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])[0, 0]


def convolution(t, device, e):
    layer = nn.Conv1d(2, 4, 3, padding=1, groups=2, device=device)  # d becomes 2 channels × d / 2, then 4 × d / 2
    t.product(2 * t.n * 4 * (t.d // 2) * 1 * 3)
    t.d *= 2
    return lambda x: layer(x.view(x.shape[0], 2, -1)).flatten(1)


def transposed(t, device, e):
    layer = nn.ConvTranspose1d(2, 2, 2, stride=2, device=device)
    t.product(2 * t.n * 2 * (t.d // 2) * 2 * 2)
    t.d *= 2
    return lambda x: layer(x.view(x.shape[0], 2, -1)).flatten(1)


def depthwise(t, device, e):
    layer = nn.Conv2d(t.d, t.d, 1, groups=t.d, bias=False, device=device)
    t.product(2 * t.n * t.d)
    return lambda x: layer(x[..., None, None])[..., 0, 0]


def batched(t, device, e):
    w = torch.ones(t.n, t.d, e, device=device, requires_grad=True)
    t.product(2 * t.n * t.d * e)
    t.d = e
    return lambda x: torch.bmm(x[:, None], w)[:, 0]


def beside(t, device, e):
    w = torch.ones(t.d, e, device=device)
    t.forward += 2 * t.n * t.d * e

    def run(x):
        with torch.no_grad():
            x @ w
        return x

    return run


def threaded(t, device, e):
    layer = nn.Linear(t.d, e, device=device)
    t.product(2 * t.n * t.d * e)
    t.d = e

    def run(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(layer(x)))
        thread.start()
        thread.join()
        return found[0]

    return run


def early_stop(t, device, e):
    block = nn.Sequential(nn.Linear(t.d, e, device=device), nn.Tanh(), nn.Linear(e, t.d, device=device))
    each = 2 * t.n * t.d * e
    t.product(each, times=2)
    t.recompute += each
    return lambda x: checkpoint(block, x, use_reentrant=False)


def reentrant(t, device, e):
    if not t.needs:  # that kind refuses
        return residual(t, device, e)
    block = nn.Sequential(nn.Linear(t.d, e, device=device), nn.Tanh(), nn.Linear(e, t.d, device=device))
    each = 2 * t.n * t.d * e
    t.product(each, times=2)
    t.recompute += 2 * each
    return lambda x: checkpoint(block, x, use_reentrant=True)


PIECES = [linear, frozen, matmul, einsum, custom_function, residual, shared, lora, pointwise, attention, convolution, transposed,
          depthwise, batched, beside, threaded, early_stop, reentrant]  # fmt: skip


def check(pieces, n, needs, device):
    truth = Truth(n, 4, needs)
    x = torch.ones(n, 4, device=device, requires_grad=needs)
    steps = [piece(truth, device, e) for piece, e in pieces]

    def program():
        y = x
        for step in steps:
            y = step(y)
        if truth.needs:
            y.sum().backward()

    before = patched()
    report = fk.count(program, strict=True)
    if not truth.needs:
        truth.backward = truth.recompute = 0
    found = report.forward.flops, report.backward.flops, report.recompute.flops
    assert found == (truth.forward, truth.backward, truth.recompute), report.by_op()
    assert report.model_flops == truth.forward + truth.backward
    assert report.optimizer.flops == 0
    assert patched() == before
    assert (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()) == (0, 0)
    assert (patches._users, list(patches._changes._exit_callbacks), mode.thread_states()) == (0, [], ())


programs = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from([4, 6, 8])), min_size=1, max_size=6)
options = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@settings(max_examples=40, **options)
@given(programs, st.integers(1, 4), st.booleans(), st.sampled_from(["cpu", "meta"]))
def test_small_random_programs(pieces, n, needs, device):
    check(pieces, n, needs, device)


@pytest.mark.slow
@settings(max_examples=600, **options)
@given(programs, st.integers(1, 4), st.booleans(), st.sampled_from(["cpu", "meta"]))
def test_many_random_programs(pieces, n, needs, device):
    check(pieces, n, needs, device)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.__name__)
def test_each_piece_by_itself(piece, device):
    for needs in (False, True):
        check([(piece, 6)], 3, needs, device)
