"""Attention: pairs by brute force, and what must hold for all sizes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flopkit as fk
from flopkit.conventions import EXACT, TORCH
from flopkit.layers.attentions import around, chunks, visible_rows

quick = settings(deadline=None, max_examples=60, derandomize=True)
few = st.integers(1, 6)
lengths = st.integers(1, 24)
QUANTITIES = ("flops", "macs", "vector_flops", "bytes", "params")


def pairs(q, kv, mask):
    """Pairs that see each other, one by one. The last query stands at the last key."""
    width = getattr(mask, "width", q + kv)
    return sum(
        mask == "full" or kv - q + i - width < j <= kv - q + i for i in range(q) for j in range(kv)
    )  # fmt: skip


def test_values_of_the_contract():
    sizes = dict(batch=5, q=3, kv=3, heads=4, head_dim=8)
    assert fk.attention(**sizes, mask="causal").flops == 2 * 5 * 4 * 6 * 16 == 3_840
    assert fk.attention(**sizes).flops == fk.attention(**sizes, mask="full").flops == 2 * 5 * 4 * 9 * 16 == 5_760
    assert fk.attention(**sizes, mask=fk.window(2)).flops == 2 * 5 * 4 * 5 * 16 == 3_200


@quick
@given(q=lengths, kv=lengths, width=lengths)
def test_visible_pairs(q, kv, width):
    for mask in ("full", "causal", fk.window(width)):
        assert fk.visible_pairs(q, kv, mask) == pairs(q, kv, mask), mask
    if q <= kv:
        assert fk.visible_pairs(q, kv, "causal") == q * kv - q * (q - 1) // 2


@quick
@given(q=lengths, extra=st.integers(0, 24), width=lengths)
def test_chunks(q, extra, width):
    """Pair by pair, and the rows that any query sees."""
    kv, mask = q + extra, chunks(width)
    seen = [(i, j) for i in range(extra, kv) for j in range(i + 1) if i // width == j // width]
    assert fk.visible_pairs(q, kv, mask) == len(seen)
    assert visible_rows(q, kv, mask) == len({j for _, j in seen})
    swept = fk.visible_pairs(np.array([q]), np.array([kv]), chunks(np.array([width])))
    assert swept.tolist() == [len(seen)]


@quick
@given(q=lengths, extra=st.integers(0, 24), reach=st.integers(0, 24))
def test_around(q, extra, reach):
    """Pair by pair, and the rows that any query sees."""
    kv, mask = q + extra, around(reach)
    seen = [(i, j) for i in range(extra, kv) for j in range(kv) if abs(i - j) <= reach]
    assert fk.visible_pairs(q, kv, mask) == len(seen)
    assert visible_rows(q, kv, mask) == len({j for _, j in seen})
    swept = fk.visible_pairs(np.array([q]), np.array([kv]), around(np.array([reach])))
    assert swept.tolist() == [len(seen)]
    sizes = {"batch": 2, "q": q, "kv": kv, "heads": 3, "head_dim": 4, "mask": mask}
    assert fk.attention(**sizes).flops == 2 * 2 * 3 * 2 * 4 * len(seen)
    assert fk.attention(**sizes).under(TORCH).flops == 2 * 2 * 3 * 2 * 4 * q * kv
    if extra:
        with pytest.raises(
            ValueError, match=f"q={kv} is more than kv={q}: with around.* each query has a key of its own"
        ):
            fk.visible_pairs(kv, q, mask)


@quick
@given(q=lengths, kv=lengths, width=lengths)
def test_a_wide_window_is_causal_and_each_mask_is_within_the_next(q, kv, width):
    assert fk.visible_pairs(q, kv, fk.window(q + kv)) == fk.visible_pairs(q, kv, "causal")
    narrow, wide = (fk.visible_pairs(q, kv, fk.window(w)) for w in (width, width + 1))
    assert narrow <= wide <= fk.visible_pairs(q, kv, "causal") <= fk.visible_pairs(q, kv, "full")


@quick
@given(q=lengths, extra=st.integers(0, 24), width=lengths)
def test_visible_rows(q, extra, width):
    kv = q + extra
    seen = {j for i in range(q) for j in range(kv) if kv - q + i - width < j <= kv - q + i}
    assert visible_rows(q, kv, fk.window(width)) == len(seen)


@quick
@given(batch=few, q=lengths, kv=lengths, heads=few, head_dim=few, v_head_dim=few, width=lengths)
def test_counts(batch, q, kv, heads, head_dim, v_head_dim, width):
    sizes = dict(batch=batch, q=q, kv=kv, heads=heads, head_dim=head_dim, v_head_dim=v_head_dim)
    for mask in ("full", "causal", fk.window(width)):
        cost, n = fk.attention(**sizes, mask=mask), batch * heads * pairs(q, kv, mask)
        assert cost.flops == 2 * n * (head_dim + v_head_dim) == 2 * cost.macs
        assert cost.vector_flops == 6 * n
        assert cost.params == 0
        full = cost.under(TORCH)
        assert full.flops == 2 * batch * heads * q * kv * (head_dim + v_head_dim)
        assert full.vector_flops == 6 * batch * heads * q * kv
        assert full.bytes == cost.bytes and full.under(EXACT).flops == cost.flops


@quick
@given(batch=few, q=lengths, kv=lengths, heads=few, head_dim=few)
def test_as_many_key_value_heads_as_heads_is_mha(batch, q, kv, heads, head_dim):
    sizes = dict(batch=batch, q=q, kv=kv, heads=heads, head_dim=head_dim)
    one, other = fk.attention(**sizes), fk.attention(**sizes, kv_heads=heads, v_head_dim=head_dim)
    assert all(getattr(one, name) == getattr(other, name) for name in QUANTITIES)
    d_model = heads * head_dim
    layer = dict(batch=batch, q=q, kv=q + kv, d_model=d_model, heads=heads)
    one = fk.multi_head_attention(**layer)
    other = fk.multi_head_attention(**layer, kv_heads=heads, head_dim=head_dim)
    assert all(getattr(one, name) == getattr(other, name) for name in QUANTITIES)


@quick
@given(q=lengths, kv=lengths, kv_heads=few, share=few)
def test_sharing_heads_saves_bytes_and_no_flops(q, kv, kv_heads, share):
    sizes = dict(batch=2, q=q, kv=kv, heads=kv_heads * share, head_dim=8)
    shared, own = fk.attention(**sizes, kv_heads=kv_heads), fk.attention(**sizes)
    assert (shared.flops, shared.vector_flops) == (own.flops, own.vector_flops)
    assert own.bytes - shared.bytes == 2 * 2 * 2 * kv * 8 * kv_heads * (share - 1)


@quick
@given(total=lengths, heads=few)
def test_decoding_step_by_step_is_the_prefill(total, heads):
    """One query against 1, 2, …, T keys: the causal pairs of T, whatever the mask."""
    sizes = dict(batch=2, heads=heads, head_dim=8)
    for mask in ("causal", fk.window(5)):
        steps = [fk.attention(q=1, kv=t, mask=mask, **sizes) for t in range(1, total + 1)]
        prefill = fk.attention(q=total, kv=total, mask=mask, **sizes)
        assert sum(steps).flops == prefill.flops
        assert sum(steps).vector_flops == prefill.vector_flops


@quick
@given(chunks=st.lists(lengths, min_size=1, max_size=5))
def test_a_prefill_in_chunks_is_the_prefill(chunks):
    done, costs = 0, []
    for chunk in chunks:
        done += chunk
        costs.append(fk.attention(batch=1, q=chunk, kv=done, heads=2, head_dim=8, mask="causal"))
    assert sum(costs).flops == fk.attention(batch=1, q=done, kv=done, heads=2, head_dim=8, mask="causal").flops


def test_causal_is_a_little_more_than_half():
    for n in (1, 2, 100, 8192):
        share = fk.visible_pairs(n, n, "causal") / fk.visible_pairs(n, n, "full")
        assert share == pytest.approx((1 + 1 / n) / 2)


# -- whole layers ---------------------------------------------------------------------------------------------


def by_name(cost):
    return {part.name: part for part in cost.parts}


def test_multi_head_attention_is_its_parts():
    """Llama-3-8B: 4096 features, 32 heads of 128, 8 key-value heads (Grattafiori et al. 2024, table 3)."""
    layer = fk.multi_head_attention(batch=2, q=100, kv=100, d_model=4096, heads=32, kv_heads=8, mask="causal")
    parts = by_name(layer)
    assert list(parts) == ["q_proj", "k_proj", "v_proj", "attention", "o_proj"]
    assert parts["q_proj"].params == parts["o_proj"].params == 4096 * 4096
    assert parts["k_proj"].params == parts["v_proj"].params == 4096 * 1024
    assert parts["attention"].flops == 2 * 2 * 32 * 5050 * 256
    assert layer.flops == 2 * 200 * (2 * 4096 * 4096 + 2 * 4096 * 1024) + parts["attention"].flops
    for name in QUANTITIES:
        assert getattr(layer, name) == sum(getattr(part, name) for part in layer.parts)


def test_a_decode_step_projects_one_token():
    step = fk.multi_head_attention(batch=1, q=1, kv=4096, d_model=1024, heads=8)
    assert by_name(step)["k_proj"].flops == 2 * 1024 * 1024
    crossing = fk.multi_head_attention(batch=1, q=1, kv=4096, kv_new=4096, d_model=1024, heads=8)
    assert by_name(crossing)["k_proj"].flops == 2 * 4096 * 1024 * 1024
    assert by_name(crossing)["attention"].flops == by_name(step)["attention"].flops


# DeepSeek-AI 2024, DeepSeek-V3 technical report (arXiv 2412.19437), section 4.2
V3 = dict(d_model=7168, heads=128, q_lora=1536, kv_lora=512, qk_nope=128, qk_rope=64, v_head_dim=128)


def test_mla_of_deepseek_v3():
    layer = fk.mla(batch=1, q=4096, kv=4096, **V3)
    parts = by_name(layer)
    assert list(parts) == [
        "q_down", "q_norm", "q_up", "kv_down", "kv_norm", "rotary", "kv_up", "attention", "o_proj",
    ]  # fmt: skip
    weights = {
        "q_down": 7168 * 1536, "q_norm": 1536, "q_up": 1536 * 128 * 192, "kv_down": 7168 * (512 + 64), "kv_norm": 512,
        "kv_up": 512 * 128 * 256, "o_proj": 128 * 128 * 7168,
    }  # fmt: skip
    assert {name: part.params for name, part in parts.items() if part.params} == weights
    assert layer.params == sum(weights.values()) == 187_107_328
    assert parts["attention"].flops == 2 * 128 * (4096 * 4097 // 2) * (192 + 128)
    products = sum(n for name, n in weights.items() if not name.endswith("norm"))
    assert layer.flops == 2 * 4096 * products + parts["attention"].flops


def test_mla_absorbed():
    """In the latent space: one key-value head of 576, values of 512, and the latents move once."""
    layer = fk.mla(batch=32, q=1, kv=4096, form="absorbed", **V3)
    core = by_name(layer)["attention"]
    assert core.flops == 2 * 32 * 128 * 4096 * (576 + 512)
    queries_and_outputs = 32 * 128 * (576 + 512)
    assert core.bytes == 2 * (queries_and_outputs + 32 * 4096 * 576)  # the cache, once
    assert by_name(layer)["key_absorb"].flops == 2 * 32 * 128 * 128 * 512
    assert by_name(layer)["key_absorb"].bytes == 2 * (32 * 128 * 128 + 128 * 128 * 512 + 32 * 128 * 512)


@quick
@given(
    batch=few, q=few, old=st.integers(0, 6), d=few, heads=few, kv_lora=few, nope=few, rope=few, v=few,
    q_lora=st.none() | few, width=lengths,
)  # fmt: skip
def test_the_forms_of_mla(batch, q, old, d, heads, kv_lora, nope, rope, v, q_lora, width):
    """The same parameters; the keys and values come up once a token, or the queries and outputs once a query."""
    sizes = dict(
        batch=batch, q=q, kv=q + old, d_model=d, heads=heads, q_lora=q_lora, kv_lora=kv_lora, qk_nope=nope,
        qk_rope=2 * rope, v_head_dim=v,
    )  # fmt: skip
    expanded, absorbed = fk.mla(**sizes), fk.mla(**sizes, form="absorbed")
    assert expanded.params == absorbed.params
    seen = batch * heads * pairs(q, q + old, "causal")
    up = batch * kv_lora * heads * (nope + v)
    assert expanded.macs - absorbed.macs == up * (q + old - q) + seen * (nope + v - 2 * kv_lora)
    assert expanded.vector_flops == absorbed.vector_flops
    windowed = fk.mla(**sizes, form="absorbed", mask=fk.window(width))
    rows = min(q + old, q + width - 1)
    moved = 2 * batch * (heads * q * (2 * kv_lora + 2 * rope) + rows * (kv_lora + 2 * rope))
    assert by_name(windowed)["attention"].bytes == moved


def test_more_new_tokens_than_tokens_are_refused():
    with pytest.raises(ValueError, match="q=5 is more than kv=4"):
        fk.mla(batch=1, q=5, kv=4, **V3)
    with pytest.raises(ValueError, match="kv_new=5 is more than kv=4"):
        fk.multi_head_attention(batch=1, q=1, kv=4, kv_new=5, d_model=8, heads=2)


def test_masks_and_kernels_that_are_not_known_are_refused():
    sizes = dict(batch=1, q=2, kv=2, heads=1, head_dim=4)
    with pytest.raises(ValueError, match=r"mask='causl': must be 'full', 'causal' or fk.window\(w\)"):
        fk.attention(**sizes, mask="causl")
    for mask in (None, 3, True, ("causal",)):
        with pytest.raises(ValueError, match=r"mask=.*fk.window\(w\)"):
            fk.attention(**sizes, mask=mask)
    with pytest.raises(ValueError, match="kernel='flsh': must be one of 'flash', 'math'"):
        fk.attention(**sizes, kernel="flsh")
    with pytest.raises(ValueError, match="form='naive': must be one of 'expanded', 'absorbed'"):
        fk.mla(batch=1, q=1, kv=1, form="naive", **V3)
    with pytest.raises(ValueError, match="kv_heads=3 does not divide heads=32: near sizes that do are 2 and 4"):
        fk.attention(batch=1, q=2, kv=2, heads=32, head_dim=4, kv_heads=3)
    with pytest.raises(ValueError, match="heads=3 does not divide d_model=32"):
        fk.multi_head_attention(batch=1, q=2, kv=2, heads=3, d_model=32)


def test_pairs_of_narrow_integers_do_not_wrap():
    n = 131072
    assert fk.visible_pairs(np.int32(n), np.int32(n), "causal") == n * (n + 1) // 2 == 8_590_000_128
    assert fk.visible_pairs(np.array([n], dtype=np.int32), n, "full").tolist() == [float(n * n)]


def test_the_math_kernel_reads_every_row_whatever_the_mask_hides():
    """One query, 131,072 keys of 8 heads of 128 in bf16: K and V are 537 MB, of which a window of 4 shows 16 KB."""
    sizes = dict(batch=1, q=1, kv=131072, heads=32, kv_heads=8, head_dim=128)
    rows = 2 * 8 * 131072 * 128 * 2
    query_and_output, scores = 2 * 32 * 128 * 2, 4 * 32 * 131072 * 2
    for mask in ("full", "causal", fk.window(4)):
        assert fk.attention(**sizes, mask=mask, kernel="math").bytes == rows + query_and_output + scores
    assert fk.attention(**sizes, mask=fk.window(4)).bytes == 2 * 8 * 4 * 128 * 2 + query_and_output


def test_a_window_in_a_sweep_of_many_keys():
    """What is far behind the window costs nothing, however many keys there are: no difference of two large floats."""
    for kv in (10**9, 10**12, 10**15):
        for q, width in ((1, 4), (4096, 4), (100, 10**6)):
            exact = fk.visible_pairs(q, kv, fk.window(width))
            assert exact == q * width == fk.visible_pairs(np.array([q]), np.array([kv]), fk.window(width))[0]
            causal = fk.visible_pairs(np.array([q]), np.array([kv]), "causal")[0]
            assert causal == pytest.approx(q * kv - q * (q - 1) // 2, rel=1e-15)
    swept = fk.attention(batch=1, q=1, kv=np.array([10**9]), heads=1, head_dim=1, mask=fk.window(4))
    assert swept.flops[0] == 16
