"""The attention kernels called by themselves, each in its own layout; on meta, which knows their shapes."""

from types import SimpleNamespace

import pytest
import torch

import flopkit as fk
from flopkit.conventions import EXACT
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas import attention_kernels, rule_for
from flopkit.counter.formulas.attention_kernels import lengths_from
from flopkit.counter.formulas.attentions import Shape, backward_work, of_lengths, shape_of, split_of, wanted
from flopkit.macs import band_keys, band_pairs

aten = torch.ops.aten
B, H, Q, KV, D, DV = 2, 4, 6, 9, 8, 16
HEADS_FIRST = [(B, H, Q, D), (B, H, KV, D), (B, H, KV, DV)]
LENGTH_FIRST = [(B, Q, H, D), (B, KV, H, D), (B, KV, H, DV)]
PAIRS = B * H * Q * KV
TOP_LEFT = B * H * sum(j <= i for i in range(Q) for j in range(KV))
BOTTOM_RIGHT = B * H * sum(j <= i + KV - Q for i in range(Q) for j in range(KV))


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def three(shapes):
    return [empty(*shape) for shape in shapes]


def forward(pairs, d=D, dv=DV):
    return 2 * pairs * (d + dv)


def flops(fn, *args, **kwargs):
    report = fk.count(fn, *args, strict=True, **kwargs)
    return report.flops, report.under(EXACT).flops


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("op", "visible"),
    [
        (lambda q, k, v, c: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, c), BOTTOM_RIGHT),
        (lambda q, k, v, c: aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, c), TOP_LEFT),
        (lambda q, k, v, c: aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, c), TOP_LEFT),
        (lambda q, k, v, c: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, c), TOP_LEFT),
        (lambda q, k, v, c: aten._scaled_dot_product_fused_attention_overrideable(q, k, v, None, 0.0, c), TOP_LEFT),
    ],
    ids=["flash", "efficient", "cudnn", "cpu", "fused"],
)
def test_heads_before_length(op, visible, causal, request):
    fused = "aten::_scaled_dot_product_fused_attention_overrideable"
    if "fused" in request.node.callspec.id and not torch._C._dispatch_has_kernel_for_dispatch_key(fused, "Meta"):
        pytest.skip("this torch has no shapes for the kernel of other makers' devices")
    q, k, v = three(HEADS_FIRST)
    report = fk.count(op, q, k, v, causal, strict=True)
    assert report.flops == report.model_flops == forward(PAIRS)
    assert report.under(EXACT).flops == forward(visible if causal else PAIRS)
    assert report.bytes == 2 * (sum(t.numel() for t in (q, k, v)) + B * H * Q * DV)


def test_one_tensor_for_queries_keys_and_values():
    q, k, v = (empty(B, H, Q, D) for _ in range(3))
    lse, seed = empty(B, H, Q, dtype=torch.float32), empty(2, dtype=torch.int64)
    each = 2 * B * H * Q * D
    dense, packed = aten._scaled_dot_product_flash_attention, aten._flash_attention_forward
    back = aten._scaled_dot_product_flash_attention_backward
    for three, read in (((q, k, v), 3), ((q, q, q), 1), ((q, k, k), 2), ((q, q, v), 2), ((q, k, q), 2)):
        assert fk.count(dense, *three, 0.0, False).bytes == (read + 1) * each
        report = fk.count(back, k, *three, v, lse, None, None, Q, Q, 0.0, False, seed, seed)
        assert report.bytes == (read + 2 + 3) * each
    rows = empty(B, Q, H, D)
    assert fk.count(packed, rows, rows, rows, None, None, Q, Q, 0.0, False, False).bytes == 2 * each
    ends = torch.tensor([0, 2, 5])
    rows = empty(5, H, D)
    assert fk.count(packed, rows, rows, rows, ends, ends, 3, 3, 0.0, False, False).bytes == 2 * 2 * 5 * H * D


def test_length_before_heads():
    q, k, v = three(LENGTH_FIRST)
    v = v[..., :D]  # the flash kernel wants one size
    flash = lambda causal, **band: flops(
        aten._flash_attention_forward, q, k, v, None, None, Q, KV, 0.0, causal, False, **band
    )
    assert flash(False) == (forward(PAIRS, D, D),) * 2
    assert flash(True) == (forward(PAIRS, D, D), forward(BOTTOM_RIGHT, D, D))
    window = B * H * sum(i + KV - Q - 2 <= j <= i + KV - Q + 1 for i in range(Q) for j in range(KV))
    assert flash(False, window_size_left=2, window_size_right=1) == (forward(PAIRS, D, D), forward(window, D, D))
    v = empty(*LENGTH_FIRST[2])
    for kind, visible in enumerate((PAIRS, TOP_LEFT, BOTTOM_RIGHT)):
        found = flops(aten._efficient_attention_forward, q, k, v, None, None, None, None, None, 0.0, kind, True)
        assert found == (forward(PAIRS), forward(visible)), kind


CUQ, CUK = torch.tensor([0, 2, 3, 6], dtype=torch.int32), torch.tensor([0, 4, 5, 9], dtype=torch.int32)
LENGTHS = [(2, 4), (1, 1), (3, 4)]
PACKED = H * sum(q * k for q, k in LENGTHS)
PACKED_CAUSAL = H * sum(j <= i + k - q for q, k in LENGTHS for i in range(q) for j in range(k))


def packed(dv=D):
    return empty(6, H, D), empty(9, H, D), empty(9, H, dv)


def test_sequences_one_behind_the_other_by_their_true_lengths():
    q, k, v = packed()
    found = flops(aten._flash_attention_forward, q, k, v, CUQ, CUK, 3, 4, 0.0, True, False)
    assert found == (forward(PACKED, D, D), forward(PACKED_CAUSAL, D, D))
    q, k, v = (t.unsqueeze(0) for t in packed(DV))
    assert (
        flops(aten._efficient_attention_forward, q, k, v, None, CUQ, CUK, 3, 4, 0.0, 0, True) == (forward(PACKED),) * 2
    )


def test_packed_sequences_are_aligned_with_the_first_key_or_the_last():
    q, k, v = packed()
    top_left = H * sum(j <= i for q, k in LENGTHS for i in range(q) for j in range(k))
    assert top_left != PACKED_CAUSAL
    for kind, visible in ((1, top_left), (2, PACKED_CAUSAL)):
        found = flops(aten._efficient_attention_forward, q, k, v, None, CUQ, CUK, 3, 4, 0.0, kind, True)
        assert found == (forward(PACKED, D, D), forward(visible, D, D)), kind


def test_a_second_call_with_other_lengths_is_looked_at_again():
    q, k, v = packed()
    other = torch.tensor([0, 1, 5, 6], dtype=torch.int32)

    def both():
        for starts in (CUQ, other):
            aten._flash_attention_forward(q, k, v, starts, CUK, 4, 4, 0.0, False, False)

    assert fk.count(both).flops == forward(PACKED + H * (1 * 4 + 4 * 1 + 1 * 4), D, D)


def test_lengths_without_values_are_counted_as_unequal_as_they_can_be():
    q, k, v = packed()
    report = fk.count(aten._flash_attention_forward, q, k, v, CUQ.to("meta"), CUK.to("meta"), 3, 4, 0.0, False, False)
    assert report.flops == forward(H * (3 * 4 + 3 * 4 + 0 * 1), D, D)
    assert any("no values here" in note for note in report.notes)
    assert report.bytes == 2 * sum(t.numel() for t in (q, k, v, q))
    assert lengths_from(CUQ.to("meta"), 6, 2) == ([2, 2, 2], True)
    assert lengths_from(CUQ.to("meta"), 7, None) == ([3, 2, 2], False)
    assert lengths_from(torch.tensor([0]), 0, 3) == ([], True)
    offsets = lambda sequences: empty(sequences + 1, dtype=torch.int32)
    assert lengths_from(offsets(0), 0, 3) == lengths_from(empty(0, dtype=torch.int32), 0, None) == ([], True)
    assert lengths_from(offsets(3), 10, 4) == ([4, 4, 2], False)
    assert lengths_from(offsets(4), 8, 8) == ([8, 0, 0, 0], False)
    assert lengths_from(offsets(1), 10, None) == lengths_from(offsets(1), 10, 10) == ([10], True)
    # Keys and values are as many bytes as there are, none of them unseen.
    op, given = aten._flash_attention_forward.default, (q, k, v, offsets(3), offsets(3), 3, 4, 0.0, False, False)
    assert attention_kernels.shape_of_call(OpCall(op, given, {}, (q,))).unseen == 0


def test_a_cache_with_room_to_spare():
    q, k, v = packed()
    op = aten._flash_attention_forward.default
    used = torch.tensor([3, 1, 2], dtype=torch.int32)
    call = OpCall(op, (q, k, v, CUQ, CUK, 3, 4, 0.0, False, False), dict(seqused_k=used), (q,))
    work = rule_for(op).formula(call)
    assert work.model == {"scores": H * (2 * 3 + 1 * 1 + 3 * 2) * 2 * D}
    assert work.bytes == 2 * H * D * (6 + 6 + (3 + 1 + 2) * 2)
    # Without values each cache is taken to be as long as the longest may be, or, where that is not said, empty.
    for longest, keys in ((4, 4), (None, 0)):
        call = OpCall(op, (q, k, v, CUQ, CUK, 3, longest, 0.0, False, False), dict(seqused_k=used.to("meta")), (q,))
        assert sum(rule_for(op).formula(call).model.values()) == H * 6 * keys * 2 * D


def test_windows_by_the_names_that_kernels_give_them():
    """Efficient: *window_size* keys, that of the query included. Flash: so many to the left, so many to the right, none of them if negative."""
    q, k, v = three(LENGTH_FIRST)
    pairs = lambda sees: B * H * sum(sees(j - i) for i in range(Q) for j in range(KV))
    for kind, offset in ((1, 0), (2, KV - Q)):
        call = OpCall(
            aten._efficient_attention_forward.default,
            (q, k, v, None, None, None, None, None, 0.0, kind),
            dict(window_size=3),
            (q,),
        )
        shape = attention_kernels.shape_of_call(call)
        assert (shape.visible, shape.pairs) == (pairs(lambda step, o=offset: -2 <= step - o <= 0), PAIRS)
    for left, right, sees in (
        (2, 0, lambda step: -2 <= step - 3 <= 0), (-1, 0, lambda step: step - 3 <= 0), (0, -1, lambda step: step - 3 >= 0),
        (1, 1, lambda step: -1 <= step - 3 <= 1), (-1, -1, lambda step: True),
    ):  # fmt: skip
        call = OpCall(aten._flash_attention_forward.default, (q, k, v, None, None, Q, KV, 0.0, False, False),
                    dict(window_size_left=left, window_size_right=right), (q,))  # fmt: skip
        assert attention_kernels.shape_of_call(call).visible == pairs(sees)


def test_backward_of_each():
    q, k, v = three(HEADS_FIRST)
    out, lse, seed, none = (
        empty(B, H, Q, DV),
        empty(B, H, Q, dtype=torch.float32),
        empty(2, dtype=torch.int64),
        empty(0),
    )
    whole = 2 * PAIRS * (2 * D + 2 * DV)
    again = 2 * PAIRS * D

    def check(op, *args, model=whole):
        report = fk.count(op, *args, strict=True)
        assert (report.model_flops, report.forward.flops + report.backward.flops, report.recompute.flops) == (
            model,
            whole,
            again,
        ), op

    efficient = aten._scaled_dot_product_efficient_attention_backward
    check(efficient, out, q, k, v, none, out, lse, seed, seed, 0.0, [True, True, True, False])
    check(efficient, out, q, k, v, none, out, lse, seed, seed, 0.0, [False, False, True, False], model=2 * PAIRS * DV)
    check(
        efficient,
        out,
        q,
        k,
        v,
        none,
        out,
        lse,
        seed,
        seed,
        0.0,
        [True, False, False, False],
        model=2 * PAIRS * (DV + D),
    )
    check(efficient, out, q, k, v, none, out, lse, seed, seed, 0.0, [False, False, False, True], model=2 * PAIRS * DV)
    cpu = aten._scaled_dot_product_flash_attention_for_cpu_backward
    check(cpu, out, q, k, v, out, lse, 0.0, False)
    q, k, v = three(LENGTH_FIRST)
    out = empty(B, Q, H, DV)
    check(
        aten._efficient_attention_backward, out, q, k, v, None, out, None, None, Q, KV, lse, 0.0, seed, seed, 0, False
    )


@pytest.mark.skipif(not hasattr(aten, "_cudnn_attention_backward"), reason="this torch has no such operator")
def test_backward_of_flash_and_cudnn():
    q, k, v = (empty(*shape[:-1], D) for shape in HEADS_FIRST)
    lse, seed, none = empty(B, H, Q, dtype=torch.float32), empty(2, dtype=torch.int64), empty(0)
    each = 2 * PAIRS * D
    flash = aten._scaled_dot_product_flash_attention_backward
    report = fk.count(flash, q, q, k, v, q, lse, None, None, Q, KV, 0.0, False, seed, seed)
    assert (report.model_flops, report.recompute.flops) == (4 * each, each)
    for op, args in {
        aten._scaled_dot_product_cudnn_attention_backward.default: (
            q,
            q,
            k,
            v,
            q,
            lse,
            seed,
            seed,
            none,
            None,
            None,
            Q,
            KV,
            0.0,
            True,
        ),
        aten._cudnn_attention_backward.default: (q, q, k, v, q, lse, seed, seed, none, none, none, Q, KV, 0.0, True),
    }.items():
        work = rule_for(op).formula(OpCall(op, args, {}, (q, k, v)))
        assert work.model == {"scores": TOP_LEFT * 4 * D, "hidden": (PAIRS - TOP_LEFT) * 4 * D}, op
        assert sum(work.recomputed.values()) == PAIRS * D
    q, k, v = (t.transpose(1, 2).contiguous() for t in (q, k, v))
    report = fk.count(aten._flash_attention_backward, q, q, k, v, q, lse, None, None, Q, KV, 0.0, True, seed, seed)
    assert report.under(EXACT).model_flops == 2 * BOTTOM_RIGHT * 4 * D
    q, k, v = packed()
    report = fk.count(aten._flash_attention_backward, q, q, k, v, q, lse, CUQ, CUK, 3, 4, 0.0, True, seed, seed)
    assert (report.model_flops, report.under(EXACT).model_flops) == (2 * PACKED * 4 * D, 2 * PACKED_CAUSAL * 4 * D)


@pytest.mark.parametrize("lengths", [None, (CUQ, CUK, 3, 4)])
def test_under_a_window_the_gradients_of_keys_that_nobody_sees_are_written_nevertheless(lengths):
    q, k, v = packed() if lengths else (empty(*LENGTH_FIRST[n][:-1], D) for n in range(3))
    queries, keys = (CUQ.diff(), CUK.diff()) if lengths else (torch.tensor([Q] * B), torch.tensor([KV] * B))
    lse, seed = empty(B, H, Q, dtype=torch.float32), empty(2, dtype=torch.int64)
    where = lengths or (None, None, Q, KV)
    report = fk.count(
        aten._flash_attention_backward,
        q,
        q,
        k,
        v,
        q,
        lse,
        *where,
        0.0,
        False,
        seed,
        seed,
        window_size_left=0,
        window_size_right=0,
    )  # a query sees one key: the diagonal that ends at the last key
    seen = sum(min(n, m) for n, m in zip(queries.tolist(), keys.tolist(), strict=True))
    read = 3 * q.numel() + 2 * seen * k.shape[-2] * D
    assert seen < keys.sum()
    assert report.bytes == q.element_size() * (read + q.numel() + k.numel() + v.numel())


@pytest.mark.skipif(not hasattr(aten, "_cudnn_attention_forward"), reason="this torch has no such operator")
def test_cudnn_forward_reads_heads_before_length():
    op = aten._cudnn_attention_forward.default
    q, k, v = three(HEADS_FIRST)
    work = rule_for(op).formula(OpCall(op, (q, k, v, None, None, None, Q, KV, True, 0.0, True), {}, (q,)))
    assert work.model == {"scores": TOP_LEFT * (D + DV), "hidden": (PAIRS - TOP_LEFT) * (D + DV)}
    assert work.kernel == "cudnn"


def test_varlen_attn():
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    q, k, v = (t.requires_grad_() for t in packed())
    with fk.counting(strict=True) as report:
        varlen.varlen_attn(q, k, v, CUQ, CUK, 3, 4).sum().backward()
    assert report.model_flops == 3 * forward(PACKED, D, D)
    assert report.hardware_flops == 3.5 * forward(PACKED, D, D)


@pytest.mark.parametrize("q", [0, 1, 3, 6])
@pytest.mark.parametrize("kv", [0, 1, 4, 6])
def test_bands_are_counted_as_one_counts_by_hand(q, kv):
    for offset in (0, kv - q, 2, -2):
        for left in (None, 0, 1, 4):
            for right in (None, 0, 2):
                inside = [
                    (i, j)
                    for i in range(q)
                    for j in range(kv)
                    if (left is None or j >= i + offset - left) and (right is None or j <= i + offset + right)
                ]
                assert band_pairs(q, kv, left, right, offset) == len(inside)
                assert band_keys(q, kv, left, right, offset) == len({j for _, j in inside})


def test_every_kernel_that_torch_names_has_a_formula():
    known = {*attention_kernels.BACKWARD, *attention_kernels.KERNELS}
    names = {n.split(".")[0] for n in torch._C._dispatch_get_all_op_names()}
    fused = {
        n
        for n in names
        if n.startswith("aten::") and ("attention_forward" in n or ("dot_product" in n and "choice" not in n))
    }
    composite = {"aten::scaled_dot_product_attention", "aten::_scaled_dot_product_attention_math"}
    assert fused - known - composite == set()


# One call, each of whose numbers can be told from the others.
ONE = Shape(pairs=100, visible=60, head_dim=8, v_head_dim=16, q_bytes=7, k_bytes=11, v_bytes=13, o_bytes=17, outputs=19, width=2, hides=True,
            computed=70, unseen=23)  # fmt: skip


def test_products_inside_of_a_call_are_shared_out_as_its_pairs_are():
    assert split_of({"products": 10}, ONE) == {"scores": 6, "hidden": 4}
    assert shape_of(empty(1, 1, 6, 8), empty(9, 8), empty(9, 8)).pairs == 6 * 9
    nothing = shape_of(*three([(0, 4, 6, 8)] * 3), causal=True)
    assert (nothing.pairs, nothing.visible, nothing.outputs, nothing.o_bytes) == (0, 0, 0, 0)
    keyless = shape_of(empty(2, 4, 6, 8), *three([(2, 4, 0, 8)] * 2))
    assert (keyless.pairs, keyless.k_bytes, keyless.v_bytes, keyless.unseen) == (0, 0, 0, 0)
    assert split_of({"products": 0}, nothing) == {"scores": 0, "hidden": 0}


def test_numbers_of_the_output_of_unequal_sequences():
    shape = of_lengths([(3, 5), (2, 2)], heads=4, kv_heads=2, head_dim=8, v_head_dim=16, width=2)
    assert (shape.outputs, shape.o_bytes) == ((3 + 2) * 4 * 16, 2 * (3 + 2) * 4 * 16)


@pytest.mark.parametrize(
    ("gradients", "macs", "vector", "bytes"),
    [
        # scores of 2 bytes: 200. Values: probabilities and the output's gradient in, the values' out.
        ((False, False, True), 16, 0, 200 + 17 + 13),
        # a mask that is added: the output's gradient and the values in, the probabilities' out; softmax: two in, one out
        ((False, False, False, True), 16, 5, 17 + 13 + 200 + 600),
        ((True, False, False), 16 + 8, 5, 17 + 13 + 200 + 600 + 200 + 7 + 11),
        ((True, True, True), 16 + 16 + 8 + 8, 5, 200 + 17 + 13 + 17 + 13 + 200 + 600 + 2 * (200 + 7 + 11)),
    ],
)
def test_the_fallback_computes_the_gradients_that_are_wanted(gradients, macs, vector, bytes):
    work = backward_work(ONE, "math", gradients)
    assert (work.model, work.executed) == ({"scores": 60 * macs, "hidden": 40 * macs}, {"scores": 100 * macs})
    assert (work.vector, work.bytes) == ({"softmax": 100 * vector}, bytes)


def test_three_gradients_are_asked_for_and_that_of_a_mask():
    """Of a node's inputs the first four may be q, k, v and an additive mask; what comes behind them (offsets, a seed) is none of them."""
    call = OpCall(aten._flash_attention_backward.default, (), {}, None)
    assert wanted(call) == (True, True, True)
    for inputs in (3, 4, 6):
        call.node = SimpleNamespace(next_functions=((None, 0),) * inputs)
        assert wanted(call) == (True,) * min(inputs, 4)  # where nobody asks, all are taken
