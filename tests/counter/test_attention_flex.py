"""FlexAttention: its mask function asked pair by pair, its kernel's blocks, and nothing of what stands in for it."""

import pytest
import torch

import flopkit as fk
from flopkit.conventions import EXACT
from flopkit.counter.formulas import block_masks

flex = pytest.importorskip("torch.nn.attention.flex_attention")
pytestmark = pytest.mark.filterwarnings(
    "ignore:flex_attention called without torch.compile",
    "ignore:return_lse is deprecated",
    "ignore:.*deprecated.*:DeprecationWarning",
)

B, H, D = 2, 4, 16


def three(q=40, kv=40, d=D, dv=D, kv_heads=H, **options):
    return [
        torch.randn(B, heads, n, size, **options)
        for heads, n, size in ((H, q, d), (kv_heads, kv, d), (kv_heads, kv, dv))
    ]


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j < 7)


def by_head(b, h, i, j):
    return (i + h) % 3 == (j + b) % 2


def mask(mod, q=40, kv=40, batch=None, heads=None, block=16):
    return flex.create_block_mask(mod, batch, heads, q, kv, device="cpu", BLOCK_SIZE=block)


def visible(mod, q=40, kv=40):
    """Asked of every pair, of every sequence and head."""
    return sum(bool(mod(b, h, i, j)) for b in range(B) for h in range(H) for i in range(q) for j in range(kv))


def blocks(mod, q=40, kv=40, size=16):
    """Pairs in the blocks with at least one visible pair."""
    total = 0
    for b in range(B):
        for h in range(H):
            for top in range(0, q, size):
                for left in range(0, kv, size):
                    rows, columns = range(top, min(top + size, q)), range(left, min(left + size, kv))
                    if any(mod(b, h, i, j) for i in rows for j in columns):
                        total += len(rows) * len(columns)
    return total


def test_every_position_without_a_mask():
    report = fk.count(flex.flex_attention, *three(dv=32), strict=True)
    assert report.model_flops == report.under(EXACT).model_flops == report.flops == 2 * B * H * 40 * 40 * (D + 32)
    assert not report.under(EXACT).notes
    assert [row["operator"] for row in report.by_op() if row["flops"]] == ["flex_attention"]


@pytest.mark.parametrize(
    ("mod", "batch", "heads"), [(causal, None, None), (window, None, None), (by_head, B, H), (causal, B, 1)]
)
@pytest.mark.parametrize("kv", [40, 70])
def test_the_mask_function_is_asked_pair_by_pair(mod, batch, heads, kv):
    block_mask = mask(mod, kv=kv, batch=batch, heads=heads)
    report = fk.count(flex.flex_attention, *three(kv=kv), block_mask=block_mask, strict=True)
    assert report.model_flops == 4 * B * H * 40 * kv * D
    assert report.under(EXACT).model_flops == 4 * visible(mod, kv=kv) * D
    # Uncompiled, torch makes the whole score matrix.
    assert report.flops == report.under(EXACT).flops == 4 * B * H * 40 * kv * D


def test_a_mask_that_reads_a_tensor():
    document = torch.tensor([0] * 11 + [1] * 29)
    same = lambda b, h, i, j: document[i] == document[j]
    report = fk.count(flex.flex_attention, *three(), block_mask=mask(same), strict=True)
    assert report.under(EXACT).model_flops == 4 * B * H * (11 * 11 + 29 * 29) * D


@pytest.mark.parametrize("mod", [causal, window])
def test_compiled_the_kernel_computes_whole_blocks(mod):
    compiled = torch.compile(flex.flex_attention, backend="aot_eager")
    report = fk.count(compiled, *three(), block_mask=mask(mod)).under(EXACT)
    assert report.model_flops == 4 * visible(mod) * D
    assert report.flops == 4 * blocks(mod) * D
    assert {row["kernel"] for row in report.by_op() if row["flops"]} == {"flex"}
    assert report.under(fk.conventions.TORCH).flops == 4 * B * H * 40 * 40 * D


def test_grouped_heads_scores_and_the_sum_of_exponentials():
    q, k, v = three(kv_heads=2)
    report = fk.count(
        flex.flex_attention, q, k, v, enable_gqa=True, score_mod=lambda s, b, h, i, j: s + (i - j), return_lse=True
    )
    assert report.model_flops == 4 * B * H * 40 * 40 * D
    assert report.bytes >= 4 * (q.numel() + k.numel() + v.numel() + q.numel() + 4 * B * H * 40 * 40)


def test_bytes_by_kernel():
    q, k, v = three()
    for attention, scores in (("flash", 0), ("math", 4 * B * H * 40 * 40)):
        with fk.counting(attention=attention) as report:
            flex.flex_attention(q, k, v, block_mask=mask(causal))
        row = next(row for row in report.by_op() if row["operator"] == "flex_attention")
        assert row["bytes"] == 4 * (4 * q.numel() + scores)


@pytest.mark.parametrize("need", [(True, True, True), (False, False, True), (True, False, False)])
@pytest.mark.parametrize("dtype", [torch.float32])
def test_forward_and_backward(need, dtype):
    """The function refuses to differentiate on the CPU; the operator beneath does not."""
    q, k, v = (t.requires_grad_(n) for t, n in zip(three(dv=24), need, strict=True))
    block_mask = mask(causal).as_tuple()
    with fk.counting(strict=True) as report:
        out = torch.ops.higher_order.flex_attention(
            q, k, v, lambda s, b, h, i, j: s * 2, block_mask, 0.25, {"BACKWARD": True}
        )[0]
        out.sum().backward()
    each = 2 * B * H * 40 * 40
    seen = 2 * visible(causal)
    done = 2 * blocks(causal)
    asked = 24 * need[2] + 24 * (need[0] or need[1]) + D * need[0] + D * need[1]
    assert (report.forward.flops, report.backward.flops, report.recompute.flops) == (
        each * (D + 24),
        each * 2 * (D + 24),
        each
        * (
            2 * D + 24
        ),  # a pass for the queries' gradient, and one for those of keys and values: the scores twice, and dO·Vᵀ
    )
    assert report.model_flops == each * (D + 24 + asked)
    exact = report.under(EXACT)
    assert exact.model_flops == seen * (D + 24 + asked)
    assert (exact.forward.flops, exact.backward.flops, exact.recompute.flops) == (
        done * (D + 24),
        done * 2 * (D + 24),
        done * (2 * D + 24),
    )
    # Of each score in each pass: scale, subtract, exponential; through softmax: subtract, multiply, scale. One of the passes is again.
    assert exact.recompute.vector_flops == (done // 2) * (2 * 3 + 3)
    # Tracing the score function, in order to differentiate it, is not the program's work.
    assert {row["operator"] for row in report.by_op() if row["vector_flops"]} == {
        "flex_attention",
        "flex_attention_backward",
        "sum",
    }


def test_a_mask_is_looked_at_once(monkeypatch):
    asked = []
    look = block_masks._look
    monkeypatch.setattr(block_masks, "_look", lambda *args: asked.append(1) or look(*args))
    block_mask, qkv = mask(causal), three()
    report = fk.count(lambda: [flex.flex_attention(*qkv, block_mask=block_mask) for _ in range(3)])
    assert len(asked) == 1
    assert report.under(EXACT).model_flops == 3 * 4 * visible(causal) * D
    block_masks._seen.clear()


def test_a_mask_too_large_to_be_asked_counts_by_blocks(monkeypatch):
    monkeypatch.setattr(block_masks, "LIMIT", 100)
    report = fk.count(flex.flex_attention, *three(), block_mask=mask(window)).under(EXACT)
    assert report.model_flops == 4 * blocks(window) * D
    assert any("too large" in note for note in report.notes)
    block_masks._seen.clear()


def test_asking_in_parts(monkeypatch):
    monkeypatch.setattr(block_masks, "_CHUNK", 50)
    report = fk.count(flex.flex_attention, *three(), block_mask=mask(by_head, batch=B, heads=H)).under(EXACT)
    assert report.model_flops == 4 * visible(by_head) * D
    block_masks._seen.clear()


def test_a_mask_without_values_is_named():
    block_mask = [part.to("meta") if isinstance(part, torch.Tensor) else part for part in mask(causal).as_tuple()]
    pairs = block_masks.pairs_of(tuple(block_mask), (), B, H, 40, 40)
    assert pairs.visible is None
    assert "no values" in pairs.note


def test_an_error_inside_leaves_nothing_behind():
    q, k, v = three()

    def wrong(score, b, h, i, j):
        raise ZeroDivisionError

    with fk.counting() as report:
        with pytest.raises(ZeroDivisionError):
            flex.flex_attention(q, k, v, score_mod=wrong)
        flex.flex_attention(q, k, v)
    assert report.flops == 4 * B * H * 40 * 40 * D


def test_blocks_that_are_all_full_and_none_that_are():
    """Steps of 16: six of the nine blocks of 48 × 48 are visible as a whole, and nobody is asked. A mask made of partial blocks alone lists no full ones."""
    pairs = block_masks.pairs_of(mask(lambda b, h, i, j: i // 16 >= j // 16, 48, 48).as_tuple(), (), B, H, 48, 48)
    assert pairs == (B * H * 6 * 16 * 16, B * H * 6 * 16 * 16, "")
    number, places = (
        torch.full((1, 1, 3), 1, dtype=torch.int32),
        torch.arange(3, dtype=torch.int32).view(1, 1, 3, 1).expand(1, 1, 3, 3),
    )
    diagonal = flex.BlockMask.from_kv_blocks(number, places.contiguous(), BLOCK_SIZE=16, mask_mod=causal)
    pairs = block_masks.pairs_of(diagonal.as_tuple(), (), B, H, 48, 48)
    assert pairs == (B * H * 3 * 16 * 17 // 2, B * H * 3 * 16 * 16, "")


def test_a_mask_for_more_positions_than_there_are():
    """Blocks behind the last query, or the last key, hold nothing."""
    for q, kv in ((16, 40), (40, 16), (20, 20)):
        pairs = block_masks.pairs_of(mask(lambda b, h, i, j: i + j >= 0).as_tuple(), (), B, H, q, kv)
        assert pairs == (B * H * q * kv, B * H * q * kv, "")
        pairs = block_masks.pairs_of(mask(by_head, batch=B, heads=H).as_tuple(), (), B, H, q, kv)
        assert pairs == (visible(by_head, q, kv), B * H * q * kv, "")


def test_a_mask_knows_sequence_from_head():
    apart = lambda b, h, i, j: i + j < 9 * b + 2 * h + 1
    found = flex.create_block_mask(apart, B, H, 40, 40, device="cpu", BLOCK_SIZE=16)
    assert block_masks.pairs_of(found.as_tuple(), (), B, H, 40, 40).visible == sum(
        (n := 9 * b + 2 * h + 1) * (n + 1) // 2 for b in range(B) for h in range(H)
    )


def test_of_a_mask_too_large_both_numbers_are_of_blocks(monkeypatch):
    monkeypatch.setattr(block_masks, "LIMIT", 100)
    assert block_masks.pairs_of(mask(causal).as_tuple(), (), B, H, 40, 40)[:2] == (blocks(causal), blocks(causal))
    block_masks._seen.clear()


def test_a_causal_mask_in_blocks_of_128_of_200_positions():
    masked = flex.create_block_mask(causal, None, None, 200, 200, device="cpu")
    q, k, v = (torch.rand(1, 2, 200, 16) for _ in "qkv")
    report = fk.count(flex.flex_attention, q, k, v, block_mask=masked)
    assert report.uncounted == []
    assert report.model_flops == 2 * 200 * 200 * 2 * 32
    assert report.under(EXACT).model_flops == 2 * (200 * 201 // 2) * 2 * 32
    full = fk.count(flex.flex_attention, q, k, v)
    assert full.model_flops == full.under(EXACT).model_flops == 2 * 200 * 200 * 2 * 32


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bf16"), (torch.float16, "fp16"), (None, "fp32")])
@pytest.mark.parametrize("casts", ["qkv", "q", "kv", ""])
def test_what_autocast_casts_runs_in_its_format(dtype, name, casts):
    q, k, v = three(128, 128)
    if dtype is not None:  # some are cast already
        q, k, v = (t if letter in casts else t.to(dtype) for letter, t in zip("qkv", (q, k, v), strict=True))
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        report = fk.count(flex.flex_attention, q, k, v)
    assert list(report.flops_by_dtype()) == [name]
    (row,) = [row for row in report.by_op() if row["flops"]]
    assert row["bytes"] == (2 if dtype else 4) * (4 * q.numel() + 4 * B * H * 128 * 128)  # uncompiled: the scores move


WIDTH = torch.tensor(3)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["captured", "global"])
def test_a_tensor_that_the_mask_reads_may_change(mode, name):
    with mode():
        width = torch.tensor(3) if name == "captured" else WIDTH
        mods = {
            "captured": lambda b, h, i, j: (i >= j) & (i - j < width),
            "global": lambda b, h, i, j: (i >= j) & (i - j < WIDTH),
        }
        width.fill_(3)
        block_mask = mask(mods[name])
        seen = []
        for each in (3, 5):
            width.fill_(each)
            report = fk.count(flex.flex_attention, *three(), block_mask=block_mask)
            seen.append(report.under(EXACT).model_flops // (B * H * 4 * D))
        assert seen == [sum(min(i + 1, each) for i in range(40)) for each in (3, 5)]
