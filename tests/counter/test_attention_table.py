"""A table of small programs with attention, and the FLOPs that they take, by hand: under TORCH and EXACT, forward, backward and again.

A score matrix of ``pairs`` positions takes 2·d FLOPs a position for the scores and 2·dv for the values; backward, twice that, and a
fused kernel computes the scores once more.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from cases import WAYS, call, counted, g, learns, made, t
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import flopkit as fk

EXACT = fk.conventions.EXACT
sdpa = F.scaled_dot_product_attention


class Truth(NamedTuple):
    build: object
    forward: int  # every position
    backward: int
    visible: int  # the forward pass's pairs that are let through, and their FLOPs
    ways: tuple


CASES = {}


def case(name, build, forward, backward=None, visible=None, ways=WAYS):
    assert name not in CASES
    backward = 2 * forward if backward is None else backward
    CASES[name] = Truth(build, forward, backward, forward if visible is None else visible, ways)


def qkv(q=6, kv=6, heads=4, kv_heads=4, d=8, dv=8, batch=2):
    return g(batch, heads, q, d), g(batch, kv_heads, kv, d), g(batch, kv_heads, kv, dv)


PAIR = 2 * (8 + 8)  # FLOPs of a position where keys and values have 8 numbers
FULL = 2 * 4 * 36 * PAIR  # batch 2, 4 heads, 6 × 6 positions
CAUSAL = 2 * 4 * 21 * PAIR  # 6·7/2 of them visible

# fmt: off
case("full", lambda: call(sdpa, *qkv()), FULL)
case("causal", lambda: call(sdpa, *qkv(), is_causal=True), FULL, visible=CAUSAL)
case("no batch", lambda: call(sdpa, g(4, 6, 8), g(4, 6, 8), g(4, 6, 8)), FULL // 2)
case("2-D", lambda: call(sdpa, g(6, 8), g(6, 8), g(6, 8)), 36 * PAIR)
case("cross", lambda: call(sdpa, *qkv(q=3, kv=10)), 2 * 4 * 30 * PAIR)
# torch lets query i see keys 0 … i: with 3 queries and 10 keys, 1 + 2 + 3
case("causal, fewer queries", lambda: call(sdpa, *qkv(q=3, kv=10), is_causal=True), 2 * 4 * 30 * PAIR, visible=2 * 4 * 6 * PAIR)
# with 10 queries and 3 keys: 1 + 2 + 3·8
case("causal, fewer keys", lambda: call(sdpa, *qkv(q=10, kv=3), is_causal=True), 2 * 4 * 30 * PAIR, visible=2 * 4 * 27 * PAIR)
case("decoding with a cache", lambda: call(sdpa, *qkv(q=1, kv=100)), 2 * 4 * 100 * PAIR)
case("grouped queries", lambda: call(sdpa, *qkv(heads=8, kv_heads=2), enable_gqa=True), 2 * 8 * 36 * PAIR)
case("grouped queries, causal", lambda: call(sdpa, *qkv(heads=8, kv_heads=1), is_causal=True, enable_gqa=True), 2 * 8 * 36 * PAIR, visible=2 * 8 * 21 * PAIR)
case("grouped queries by repetition", lambda: call(lambda q, k, v: sdpa(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1)), *qkv(heads=8, kv_heads=2)),
     2 * 8 * 36 * PAIR)
case("one key head for all, expanded", lambda: call(lambda q, k, v: sdpa(q, k.expand(2, 8, 6, 8), v.expand(2, 8, 6, 8)), *qkv(heads=8, kv_heads=1)),
     2 * 8 * 36 * PAIR)
case("values of another size", lambda: call(sdpa, *qkv(d=8, dv=4)), 2 * 4 * 36 * 2 * 12)
case("values of another size, causal", lambda: call(sdpa, *qkv(d=4, dv=8), is_causal=True), 2 * 4 * 36 * 24, visible=2 * 4 * 21 * 24)
case("a mask of numbers", lambda: call(sdpa, *qkv(), attn_mask=t(6, 6)), FULL)
case("a mask of bools, broadcast", lambda: call(sdpa, *qkv(), attn_mask=torch.ones(2, 1, 1, 6, dtype=torch.bool)), FULL)
case("a mask that learns", lambda: call(sdpa, *qkv(), attn_mask=g(2, 4, 6, 6)), FULL)
case("dropout", lambda: call(sdpa, *qkv(), dropout_p=0.5), FULL)
case("scale", lambda: call(sdpa, *qkv(), scale=2.0), FULL)
case("keywords", lambda: call(lambda q, k, v: sdpa(query=q, key=k, value=v, is_causal=True), *qkv()), FULL, visible=CAUSAL)
case("torch.ops", lambda: call(torch.ops.aten.scaled_dot_product_attention, *qkv(), None, 0.0, True), FULL, visible=CAUSAL)
case("strided", lambda: call(lambda x: sdpa(*(x.view(2, 6, 3, 4, 8).permute(2, 0, 3, 1, 4)), is_causal=True), g(2, 6, 96)), FULL, visible=CAUSAL)
case("bfloat16", lambda: call(sdpa, *(g(2, 4, 6, 8, dtype=torch.bfloat16) for _ in "qkv"), is_causal=True), FULL, visible=CAUSAL)
case("float64", lambda: call(sdpa, *(g(2, 4, 6, 8, dtype=torch.double) for _ in "qkv"), is_causal=True), FULL, visible=CAUSAL)
case("empty batch", lambda: call(sdpa, *qkv(batch=0)), 0)
case("no keys", lambda: call(sdpa, *qkv(kv=0)), 0, ways=("no_grad", "inference", "meta"))
case("only queries learn", lambda: call(sdpa, g(2, 4, 6, 8), t(2, 4, 6, 8), t(2, 4, 6, 8)), FULL, FULL)  # of P, of Q
case("only keys learn", lambda: call(sdpa, t(2, 4, 6, 8), g(2, 4, 6, 8), t(2, 4, 6, 8)), FULL, FULL)
case("only values learn", lambda: call(sdpa, t(2, 4, 6, 8), t(2, 4, 6, 8), g(2, 4, 6, 8)), FULL, FULL // 2)
case("two calls", lambda: call(lambda q, k, v: sdpa(sdpa(q, k, v), k, v, is_causal=True), *qkv()), 2 * FULL, visible=FULL + CAUSAL)


def by_hand(q, k, v):
    scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), float("-inf"))
    return scores.softmax(-1) @ v


def chunked(q, k, v):
    return torch.cat([sdpa(part, k[:, :, : 3 * i + 3], v[:, :, : 3 * i + 3]) for i, part in enumerate(q.split(3, dim=2))], 2)


def biased(make, q, k, v):
    return sdpa(q, k, v, attn_mask=make(q.shape[2], k.shape[2]))


# torch calls its class, which it cannot do under a dispatch mode; lower right, as in a cache: 8 + 9 + 10
case("a lower right bias", lambda: call(biased, causal_lower_right, *qkv(q=3, kv=10)), 2 * 4 * 30 * PAIR, visible=2 * 4 * 27 * PAIR, ways=WAYS[:4])
case("an upper left bias", lambda: call(biased, causal_upper_left, *qkv(q=3, kv=10)), 2 * 4 * 30 * PAIR, visible=2 * 4 * 6 * PAIR, ways=WAYS[:4])
case("written by hand", lambda: call(by_hand, *qkv()), FULL)
case("in chunks", lambda: call(chunked, *qkv()), 2 * 4 * (9 + 18) * PAIR)
case("einsum", lambda: call(lambda q, k, v: torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1), v), *qkv()), FULL)

# -- layers: four projections, and the products between them ------------------------------------------------------

PROJECT = 2 * 2 * 6 * 32 * 32  # batch 2, length 6, width 32
LAYER = 4 * PROJECT + FULL


def layer(*args, **kwargs):
    return nn.MultiheadAttention(*args, batch_first=True, **kwargs)


case("MultiheadAttention", lambda: call(lambda m, x: m(x, x, x, need_weights=False)[0], layer(32, 4), g(2, 6, 32)), LAYER)
case("MultiheadAttention, evaluated", lambda: call(lambda m, x: m(x, x, x, need_weights=False)[0], layer(32, 4).eval(), g(2, 6, 32)), LAYER)
case("MultiheadAttention with weights", lambda: call(lambda m, x: m(x, x, x)[0], layer(32, 4), g(2, 6, 32)), LAYER)
case("MultiheadAttention with weights, evaluated", lambda: call(lambda m, x: m(x, x, x)[0], layer(32, 4).eval(), g(2, 6, 32)), LAYER)
case("MultiheadAttention of other sizes",
     lambda: call(lambda m, x, k, v: m(x, k, v, need_weights=False)[0], layer(32, 4, kdim=20, vdim=12), g(2, 6, 32), g(2, 5, 20), g(2, 5, 12)),
     2 * 2 * (2 * 6 * 32 * 32 + 5 * 20 * 32 + 5 * 12 * 32) + 2 * 4 * 30 * PAIR)
case("MultiheadAttention, unbatched", lambda: call(lambda m, x: m(x, x, x, need_weights=False)[0], layer(32, 4), g(6, 32)), LAYER // 2)
case("MultiheadAttention, causal",
     lambda: call(lambda m, x, mask: m(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)[0], layer(32, 4), g(2, 6, 32), torch.ones(6, 6).triu(1).bool()),
     LAYER, visible=4 * PROJECT + CAUSAL)
ENCODER = LAYER + 2 * 2 * 2 * 6 * 32 * 64
case("TransformerEncoderLayer", lambda: call(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), g(2, 6, 32)), ENCODER)
case("TransformerEncoderLayer, evaluated", lambda: call(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), g(2, 6, 32)), ENCODER)
case("TransformerEncoderLayer with padding",
     lambda: call(lambda m, x, p: m(x, src_key_padding_mask=p), nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), g(2, 6, 32), torch.zeros(2, 6, dtype=torch.bool)),
     ENCODER)
case("TransformerDecoderLayer", lambda: call(nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), g(2, 6, 32), g(2, 6, 32)), ENCODER + LAYER)
# fmt: on


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_flops(name, way):
    truth = CASES[name]
    if way not in truth.ways:
        pytest.skip("torch cannot")
    with made(way):
        run = truth.build()
        with counted(way) as report:
            result = run()
            if learns(way):
                (result * 2).sum().backward()
    exact = report.under(EXACT)
    assert report.uncounted == [] and report.coverage == 1
    assert report.forward.flops == truth.forward
    assert report.model_flops == truth.forward + truth.backward * learns(way)
    assert exact.model_flops == truth.visible + learns(way) * (truth.backward - 2 * (truth.forward - truth.visible))
    for one in (report, exact):
        assert one.hardware_flops == one.forward.flops + one.backward.flops + one.recompute.flops
        assert sum(row["flops"] for row in one.by_op()) == one.hardware_flops
        assert (
            sum(row["flops"] for row in one.by_module(depth=1) if not row["module"] or row["module"] == "(no module)")
            == one.flops
        )
    assert report.recompute.flops <= truth.forward


# -- what is executed, and bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("causal", [False, True])
def test_flash_computes_the_scores_once_more(device, causal):
    with torch.device(device), fk.counting() as report:
        (sdpa(*qkv(), is_causal=causal) * 2).sum().backward()
    for one, pairs in ((report, 36), (report.under(EXACT), 21 if causal else 36)):
        whole = 2 * 4 * pairs * PAIR
        assert (one.forward.flops, one.backward.flops, one.recompute.flops) == (whole, 2 * whole, whole // 2)
        assert (one.model_flops, one.hardware_flops) == (3 * whole, 3 * whole + whole // 2)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_math_keeps_the_scores_and_skips_nothing(device):
    with torch.device(device), sdpa_kernel(SDPBackend.MATH), fk.counting() as report:
        (sdpa(*qkv(), is_causal=True) * 2).sum().backward()
    exact = report.under(EXACT)
    assert (report.model_flops, report.hardware_flops, report.recompute.flops) == (3 * FULL, 3 * FULL, 0)
    assert (exact.model_flops, exact.hardware_flops) == (3 * CAUSAL, 3 * FULL)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("kernel", "more"), [("flash", 0), ("math", 4 * 2 * 8 * 6 * 10 * 4)])
def test_bytes(device, kernel, more):
    with torch.device(device):
        q, k, v = qkv(q=6, kv=10, heads=8, kv_heads=2)
        with torch.no_grad(), fk.counting(attention=kernel) as report:
            sdpa(q, k, v, enable_gqa=True)
    moved = 4 * 2 * (8 * 6 * 8 + 2 * 10 * 8 + 2 * 10 * 8 + 8 * 6 * 8)
    assert report.forward.bytes == moved + more
    assert report.flops == 2 * 8 * 60 * PAIR


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_forced_kernels_leave_model_flops_alone(device):
    found = []
    for kernel in ("auto", "flash", "math"):
        with torch.device(device), fk.counting(attention=kernel) as report:
            (sdpa(*qkv(), is_causal=True) * 2).sum().backward()
        found.append((report.model_flops, report.under(EXACT).model_flops))
    assert found == [(3 * FULL, 3 * CAUSAL)] * 3


def test_a_mask_in_a_tensor_is_named():
    report = fk.count(sdpa, *qkv(), attn_mask=t(6, 6))
    assert any("mask" in note for note in report.under(EXACT).notes)
    assert not any("mask" in note for note in fk.count(sdpa, *qkv(), is_causal=True).under(EXACT).notes)
