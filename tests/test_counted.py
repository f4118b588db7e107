"""Every formula against Tally: a naive algorithm runs at small sizes and each of its operations is counted.

The algorithms know nothing of the formulas. What they do is right by `test_tally_values`, which compares their results
with torch's; what they count is compared here.
"""

import random

import pytest
from formulas import CASES, FORMULAS
from hypothesis import given, settings, strategies as st

import flopkit as fk
from flopkit import tally

small = settings(deadline=None, max_examples=12, derandomize=True)
seeds = st.integers(0, 10**6)

# dtype and kernel say what moves; Tally sees what is computed. Of the chunked delta rule a test of its own says what differs.
COUNTED = [
    (n, v) for n, v in CASES if not v.keys() & {"dtype"} and v.get("kernel") is None and (n, v) != ("gated_delta", {})
]
TOP = {"multi_head_attention": 4, "multi_head_attention crossing": 4, "mla": 3, "mla with latent queries": 3, "moe": 4, "conv3d": 2,
       "conv_transpose3d": 2}  # fmt: skip


def run(name, sizes, variant):
    """The algorithm of the same name and sizes."""
    formula = FORMULAS[name]
    arguments = {**sizes, **variant}
    if "window" in arguments:
        arguments["mask"] = fk.window(arguments.pop("window"))
    return getattr(tally, formula.function.__name__)(*formula.args, **arguments)


def drawn(name, seed):
    return FORMULAS[name].draw(random.Random(seed), TOP.get(name, 5))


def reached(name, sizes):
    """Without a size of its own, a transposed convolution's output is taken as input times stride, for its bytes and bias."""
    if not name.startswith("conv_transpose"):
        return {}
    span = sizes["dilation"] * (sizes["kernel"] - 1) + 1
    return {
        f"{key[0]}_out": (sizes[key] - 1) * sizes["stride"] + span
        for key in sizes
        if key[1:] == "_in" and key != "c_in"
    }


def shown(counts):
    """Kinds that are there at all; what a mask hides and what is only looked up is not run."""
    return {kind: n for kind, n in counts.items() if n and kind not in ("hidden", "hidden_softmax", "embedding")}


def outputs(values):
    return sum(map(outputs, values)) if isinstance(values, list) else 1


def test_every_formula_has_an_algorithm():
    lacking = sorted({formula.function.__name__ for formula in FORMULAS.values()} - set(tally.__all__))
    assert not lacking, f"flopkit/tally/__init__.py does not offer {lacking}"


@pytest.mark.parametrize(("name", "variant"), COUNTED, ids=[f"{n} {v}" for n, v in COUNTED])
@small
@given(seed=seeds)
def test_multiply_adds_and_vector_work(name, variant, seed):
    sizes = drawn(name, seed)
    cost, counted = FORMULAS[name].cost(sizes, **reached(name, sizes), **variant), run(name, sizes, variant)
    assert shown(cost.macs_by_kind) == counted.macs_by_kind, counted.title
    assert shown(cost.vector_by_kind) == counted.vector_by_kind, counted.title
    assert (cost.flops, cost.macs, cost.vector_flops) == (counted.flops, counted.macs, counted.vector_flops)


@pytest.mark.parametrize("name", ["matmul", "dense", "conv1d", "conv2d", "conv3d"])
@small
@given(seed=seeds)
def test_a_dot_product_saves_its_first_addition(name, seed):
    """K multiplications and K − 1 additions an output: the convention of 2K counts one addition that nobody does."""
    sizes = drawn(name, seed)
    counted = run(name, sizes, {})
    assert counted.multiplies == FORMULAS[name].cost(sizes).macs
    assert counted.adds == counted.multiplies - outputs(counted.output)
    assert counted.operations == counted.multiplies + counted.adds


@pytest.mark.parametrize("name", ["attention", "attention windowed"])
@small
@given(seed=seeds)
def test_attention_saves_one_addition_a_score_and_an_output(name, seed):
    sizes = drawn(name, seed)
    mask = fk.window(sizes["window"]) if "window" in sizes else "causal"
    counted = run(name, sizes, {} if "window" in sizes else {"mask": "causal"})
    pairs = fk.visible_pairs(sizes["q"], sizes["kv"], mask)
    rows = min(sizes["q"], sizes["kv"])  # queries before the first key see nothing
    spared = sizes["batch"] * sizes["heads"] * (pairs + rows * sizes["v_head_dim"])
    in_softmax = sizes["batch"] * sizes["heads"] * pairs
    assert counted.adds == counted.macs - spared + in_softmax


@small
@given(seed=seeds, padding=st.integers(0, 2), bias=st.booleans())
def test_padding_is_multiplied_too(seed, padding, bias):
    sizes = drawn("conv2d", seed)
    try:
        counted = tally.conv2d(**sizes, padding=padding, bias=bias)
    except ValueError as error:  # an output so small that it needs no input at all
        assert "does not give" in str(error)
        return
    cost = fk.conv2d(**sizes, bias=bias)
    assert (counted.macs, counted.vector_flops) == (cost.macs, cost.vector_flops)


@small
@given(seed=seeds, padding=st.integers(0, 1))
def test_cropped_products_of_a_transposed_convolution_are_made(seed, padding):
    sizes = drawn("conv_transpose2d", seed)
    try:
        counted = tally.conv_transpose2d(**sizes, padding=padding)
    except ValueError as error:
        assert "crops the whole output" in str(error)
        return
    assert counted.macs == fk.conv_transpose2d(**sizes).macs


@small
@given(seed=seeds)
def test_a_triangular_system_is_counted_as_if_its_diagonal_were_divided_by(seed):
    """n² FLOPs a column in LAPACK, n·(n − 1) where the diagonal is 1: n/2 multiply-adds fewer for each of the chunk's columns."""
    sizes = drawn("gated_delta", seed)
    cost, counted = fk.gated_delta(**sizes), tally.gated_delta(**sizes)
    chunks = -(-sizes["seq"] // sizes["chunk"])
    spared = chunks * sizes["chunk"] // 2 * (sizes["k_dim"] + sizes["v_dim"])
    assert cost.macs - counted.macs == sizes["batch"] * sizes["heads"] * spared
    assert cost.vector_flops == counted.vector_flops == 0


def test_operations_apart():
    """The recipes in the docstrings, operation by operation."""
    soft = tally.softmax(rows=3, columns=4)
    assert soft.comparisons == soft.subtracts == soft.exponentials == soft.adds == soft.divides == 12
    norm = tally.layer_norm(tokens=2, d=5)
    assert (norm.adds, norm.subtracts, norm.multiplies) == (2 * (3 * 5 + 1), 2 * 5, 2 * 3 * 5)
    assert (norm.divides, norm.square_roots) == (2 * 3, 2)
    turned = tally.rotary(batch=1, seq=2, heads=1, head_dim=6)
    assert (turned.multiplies, turned.adds, turned.subtracts) == (24, 6, 6)
    scored = tally.attention(batch=1, q=2, kv=3, heads=1, head_dim=4)
    assert (scored.comparisons, scored.exponentials, scored.divides, scored.subtracts) == (6, 6, 6, 6)
    assert scored.multiplies == 6 * (4 + 4) + 6  # two products and the scale
