"""Experts, norms, pointwise work, embeddings and pooling: named values and relations. Counts are in test_counted."""

import pytest
from hypothesis import given, settings, strategies as st

import flopkit as fk
from flopkit.layers.pointwise import ACTIVATIONS

quick = settings(deadline=None, max_examples=60, derandomize=True)
few = st.integers(1, 6)
some = st.integers(1, 64)


def test_moe_of_mixtral():
    """Mixtral-8x7B (Jiang et al. 2024, table 1): 4096 features, 14336 hidden, 8 experts, 2 at work."""
    layer = fk.moe(tokens=1, d_model=4096, d_ff=14336, experts=8, top_k=2)
    expert = 3 * 4096 * 14336
    assert layer.params == 8 * expert + 4096 * 8
    assert layer.flops == 2 * (2 * expert + 4096 * 8)
    assert layer.bytes == 2 * (2 * 4096 + 4096 * 8 + 2 * expert)


@quick
@given(tokens=some, d=few, d_ff=few, experts=some, top_k=some, shared=st.integers(0, 3), gated=st.booleans())
def test_moe(tokens, d, d_ff, experts, top_k, shared, gated):
    top_k = min(top_k, experts)
    layer = fk.moe(tokens=tokens, d_model=d, d_ff=d_ff, experts=experts, top_k=top_k, shared=shared, gated=gated)
    matrices = 3 if gated else 2
    assert layer.macs_by_kind["router"] == tokens * d * experts
    assert layer.macs_by_kind["products"] == tokens * (top_k + shared) * matrices * d * d_ff
    assert layer.params == d * experts + (experts + shared) * matrices * d * d_ff
    read = (min(experts, tokens * top_k) + shared) * matrices * d * d_ff
    assert layer.bytes == 2 * (tokens * d + tokens * d + d * experts + read)


def test_a_convention_without_the_router_drops_its_vector_work_too():
    without = fk.Convention("no router", "an example", router=False)
    layer = fk.moe(tokens=3, d_model=4, d_ff=5, experts=6, top_k=2)
    assert layer.flops - layer.under(without).flops == 2 * 3 * 4 * 6
    assert layer.vector_flops - layer.under(without).vector_flops == 3 * (5 * 6 + 2 * 6 + 2 * 2)


def test_more_choices_than_experts_are_refused():
    with pytest.raises(ValueError, match="top_k=3 is more than experts=2: choose at most"):
        fk.moe(tokens=1, d_model=1, d_ff=1, experts=2, top_k=3)


@quick
@given(tokens=some, vocab=some, d=some)
def test_an_embedding_looks_like_a_product_and_is_none(tokens, vocab, d):
    table = fk.embedding(tokens=tokens, vocab=vocab, d_model=d)
    assert table.flops == 0
    one_hot = fk.Convention("one-hot", "an example", embedding=True)
    assert table.under(one_hot).flops == fk.matmul(m=tokens, k=vocab, n=d).flops
    assert table.params == vocab * d
    assert table.bytes == 2 * tokens * d * 2 + 8 * tokens


@quick
@given(rows=some, columns=some)
def test_softmax_in_attention_is_softmax(rows, columns):
    soft = fk.softmax(rows=rows, columns=columns).vector_flops
    scaled = fk.scale(elements=rows * columns).vector_flops
    assert fk.attention(batch=1, q=rows, kv=columns, heads=1, head_dim=1).vector_flops == soft + scaled


@quick
@given(tokens=some, d=some)
def test_one_group_of_one_position_is_layer_norm(tokens, d):
    group = fk.group_norm(batch=tokens, channels=d, positions=1, groups=1)
    layer = fk.layer_norm(tokens=tokens, d=d)
    assert (group.vector_flops, group.bytes, group.params) == (layer.vector_flops, layer.bytes, layer.params)


@quick
@given(tokens=some, d=some)
def test_rms_norm_is_a_layer_norm_without_mean_and_bias(tokens, d):
    layer, rms = fk.layer_norm(tokens=tokens, d=d, bias=False), fk.rms_norm(tokens=tokens, d=d)
    assert layer.vector_flops - rms.vector_flops == tokens * (2 * d + 1)
    assert (layer.bytes, layer.params) == (rms.bytes, rms.params)


@quick
@given(elements=some)
def test_each_activation_costs_what_its_recipe_says(elements):
    for kind, recipe in ACTIVATIONS.items():
        cost = fk.activation(kind, elements=elements)
        assert cost.vector_flops == recipe.flops * elements
        assert cost.bytes == 2 * (recipe.inputs + 1) * elements
        assert (cost.flops, cost.params, cost.name) == (0, 0, kind)


def test_an_unknown_activation_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="kind='swish': must be one of 'relu', .*'silu'"):
        fk.activation("swish", elements=1)


@quick
@given(batch=few, channels=some, h=some, kernel=few)
def test_pooling_is_a_depthwise_window(batch, channels, h, kernel):
    sizes = dict(batch=batch, channels=channels, h_out=h, w_out=h, kernel=kernel)
    taps = fk.conv2d(batch=batch, c_in=channels, c_out=channels, h_out=h, w_out=h, kernel=kernel, groups=channels).macs
    largest, mean = fk.max_pool2d(**sizes), fk.avg_pool2d(**sizes)
    assert largest.vector_flops == taps
    assert mean.vector_flops == taps + batch * channels * h * h
    assert largest.bytes == mean.bytes == 2 * batch * channels * h * h * (kernel**2 + 1)


def test_a_pooling_kernel_larger_than_its_input_is_refused():
    with pytest.raises(ValueError, match="kernel=5 reaches over 5 positions.*h_in=3"):
        fk.max_pool2d(batch=1, channels=1, h_out=2, w_out=1, kernel=5, stride=1, h_in=3, w_in=5)


def test_what_is_turned_comes_in_pairs():
    with pytest.raises(ValueError, match="head_dim=63: .* pass an even number"):
        fk.rotary(batch=1, seq=1, heads=1, head_dim=63)
    with pytest.raises(ValueError, match="qk_rope=3: .* pass an even number"):
        fk.mla(batch=1, q=1, kv=1, d_model=1, heads=1, kv_lora=1, qk_nope=1, qk_rope=3, v_head_dim=1)


def test_a_sequence_longer_than_its_table_is_refused():
    with pytest.raises(ValueError, match="seq=1025 is longer than the table of positions=1024"):
        fk.learned_positions(batch=1, seq=1025, positions=1024, d_model=768)


REAL_ONLY = {
    "layer_norm": dict(tokens=1, d=1), "rms_norm": dict(tokens=1, d=1), "softmax": dict(rows=1, columns=1),
    "batch_norm": dict(batch=1, channels=1, positions=1), "group_norm": dict(batch=1, channels=1, positions=1, groups=1),
    "residual": dict(elements=1), "scale": dict(elements=1), "dropout": dict(elements=1),
    "cross_entropy": dict(tokens=1, vocab=1), "attention": dict(batch=1, q=1, kv=1, heads=1, head_dim=1),
    "embedding": dict(tokens=1, vocab=1, d_model=1), "rotary": dict(batch=1, seq=1, heads=1, head_dim=2),
    "moe": dict(tokens=1, d_model=1, d_ff=1, experts=1, top_k=1),
    "max_pool2d": dict(batch=1, channels=1, h_out=1, w_out=1, kernel=1),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL_ONLY)
def test_complex_numbers_are_refused_where_they_would_be_miscounted(name):
    with pytest.raises(ValueError, match="dtype='complex64'.*pass a real format"):
        getattr(fk, name)(**REAL_ONLY[name], dtype="complex64")


# -- all formulas ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["matmul", "conv2d", "conv_transpose2d", "attention", "multi_head_attention", "mla",
                                  "batch_norm", "rotary", "max_pool2d"])  # fmt: skip
@quick
@given(seed=st.integers(0, 1000), times=st.integers(2, 9))
def test_linear_in_the_batch(name, seed, times):
    """FLOPs are; vector FLOPs too but for the statistics of a batch norm; parameters do not grow."""
    import random

    from formulas import FORMULAS

    sizes = FORMULAS[name].draw(random.Random(seed), 20) | {"batch": 1}
    one, many = FORMULAS[name].cost(sizes), FORMULAS[name].cost(sizes | {"batch": times})
    assert many.flops == times * one.flops
    assert many.params == one.params
    assert one.bytes < many.bytes <= times * one.bytes
    if name != "batch_norm":
        assert many.vector_flops == times * one.vector_flops
