"""Bytes and parameters by hand, where no other test of a layer derives them; and that every formula has such a test.

The tally counts arithmetic only and the four readings agree with each other, so a wrong number of bytes shows in these tests alone.
"""

import ast
from pathlib import Path

import pytest
from formulas import public_formulas

import flopkit as fk
from flopkit import training

HERE = Path(__file__).parent


# -- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "width"), [("bf16", 2), ("fp32", 4), ("complex64", 8)])
def test_bytes_of_convolutions_in_one_and_three_dimensions(dtype, width):
    """Two groups, a stride of 2: c_in/groups·c_out·kernel weights, and a side that is *n* on one end is 2·n on the other."""
    sizes = dict(batch=3, c_in=4, c_out=6, groups=2, stride=2, bias=True, dtype=dtype)
    line, solid = 2 * 6 * 5, 2 * 6 * (1 * 2 * 3)
    conv1d = fk.conv1d(**sizes, l_out=7, kernel=5)
    assert conv1d.params == line + 6
    assert conv1d.bytes == width * (3 * 4 * 14 + line + 6 + 3 * 6 * 7)
    conv3d = fk.conv3d(**sizes, d_out=3, h_out=4, w_out=5, kernel=(1, 2, 3))
    assert conv3d.params == solid + 6
    assert conv3d.bytes == width * (3 * 4 * (6 * 8 * 10) + solid + 6 + 3 * 6 * (3 * 4 * 5))
    up1d = fk.conv_transpose1d(**sizes, l_in=7, kernel=5)
    assert up1d.params == line + 6
    assert up1d.bytes == width * (3 * 4 * 7 + line + 6 + 3 * 6 * 14)
    up3d = fk.conv_transpose3d(**sizes, d_in=3, h_in=4, w_in=5, kernel=(1, 2, 3))
    assert up3d.params == solid + 6
    assert up3d.bytes == width * (3 * 4 * (3 * 4 * 5) + solid + 6 + 3 * 6 * (6 * 8 * 10))


def test_bytes_of_multi_head_attention():
    """Two queries, five keys of which two are new; four heads of 6 and two of keys and values; numbers of 4 bytes."""
    layer = fk.multi_head_attention(
        batch=3, q=2, kv=5, d_model=8, heads=4, head_dim=6, kv_heads=2, qkv_bias=True, out_bias=True, dtype="fp32"
    )
    tokens = 3 * 2
    queries = tokens * 8 + (8 * 24 + 24) + tokens * 24
    keys = tokens * 8 + (8 * 12 + 12) + tokens * 12
    core = 3 * 4 * 2 * 6 + 2 * (3 * 2 * 5 * 6) + 3 * 4 * 2 * 6  # queries; the cache of keys and values; outputs
    out = tokens * 24 + (24 * 8 + 8) + tokens * 8
    assert layer.bytes == 4 * (queries + 2 * keys + core + out)
    assert layer.params == (8 * 24 + 24) + 2 * (8 * 12 + 12) + (24 * 8 + 8)


@pytest.mark.parametrize(("dtype", "width"), [("bf16", 2), ("fp32", 4)])
def test_bytes_of_sinusoidal_positions(dtype, width):
    """The features come and go; three rows of the table serve both sequences. Nothing of it is trained."""
    added = fk.layers.embeddings.sinusoidal_positions(batch=2, seq=3, d_model=4, dtype=dtype)
    assert added.bytes == width * (2 * 3 * 4 + 3 * 4 + 2 * 3 * 4)
    assert added.params == 0


@pytest.mark.parametrize(("dtype", "width"), [("bf16", 2), ("fp32", 4)])
def test_bytes_of_states(dtype, width):
    """Token by token the state of each head is read and written; in chunks it stays where it is."""
    sizes = dict(batch=5, seq=3, heads=4, dtype=dtype)
    delta, space = dict(**sizes, k_heads=2, k_dim=8, v_dim=12), dict(**sizes, head_dim=16, state=24, groups=2)
    queries, values = 2 * (5 * 3 * 2 * 8), 2 * (5 * 3 * 4 * 12)
    assert fk.gated_delta(**delta).bytes == width * (queries + values)
    assert fk.gated_delta(**delta, algorithm="recurrent").bytes == width * (queries + values + 2 * 5 * 4 * 8 * 12)
    inputs, shared = 2 * (5 * 3 * 4 * 16), 2 * (5 * 3 * 2 * 24)
    assert fk.state_space(**space).bytes == width * (inputs + shared)
    assert fk.state_space(**space, algorithm="recurrent").bytes == width * (inputs + shared + 2 * 5 * 4 * 16 * 24)
    assert fk.gated_delta(**delta).params == fk.state_space(**space).params == 0
    scan = fk.layers.states.selective_scan(batch=5, seq=3, channels=7, state=2, dtype=dtype)
    assert scan.bytes == width * (3 * (5 * 3 * 7) + 2 * (5 * 3 * 2) + 7 * 2 + 2 * (5 * 7 * 2))
    assert scan.params == 0


def test_parameters_of_what_has_few():
    """A table of learned positions is whole, however few are used; softmax, pooling, dropout and sums have none."""
    positions = fk.learned_positions(batch=3, seq=5, d_model=7, positions=11)
    assert positions.params == 11 * 7
    pool = dict(batch=2, channels=3, h_out=4, w_out=5, kernel=3)
    without = [fk.max_pool2d(**pool), fk.avg_pool2d(**pool), fk.softmax(rows=3, columns=5), fk.residual(elements=7)]
    without += [fk.scale(elements=7, factors=3), fk.dropout(elements=7), fk.cross_entropy(tokens=3, vocab=5)]
    without += [fk.rotary(batch=2, seq=3, heads=4, head_dim=6)]
    assert [cost.name for cost in without if cost.params] == []


# -- no formula without -----------------------------------------------------------------------------------------------


def asserted(source, quantity):
    """`fk.NAME(…)`, or `fk.training.NAME(…)`, in a test that has this quantity, `.bytes` or `.params`, in an assertion."""
    found = set()
    for test in ast.walk(ast.parse(source)):
        if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
            continue
        claims = [node for line in ast.walk(test) if isinstance(line, ast.Assert) for node in ast.walk(line)]
        if any(isinstance(node, ast.Attribute) and node.attr == quantity for node in claims):
            calls = [node.func for node in ast.walk(test) if isinstance(node, ast.Call)]
            found |= {
                call.attr
                for call in calls
                if isinstance(call, ast.Attribute) and ast.unparse(call.value).split(".")[0] == "fk"
            }
    return found


def test_the_search_finds_what_it_should():
    """A call alone is not enough, nor are bytes that nobody asserts, nor a helper outside of a test."""
    assert asserted(
        "def test_a():\n    assert fk.dense(m=1).bytes == 2\n"
        "def test_b():\n    fk.conv1d(m=1).bytes\n    assert True\n"
        "def test_c():\n    assert fk.softmax(rows=1).flops == 0\n"
        "def test_d():\n    assert fk.matmul(m=1).params == 0\n"
        "def helper():\n    assert fk.moe(tokens=1).bytes\n",
        "bytes",
    ) == {"dense"}


@pytest.mark.parametrize("quantity", ["bytes", "params"])
def test_every_formula_s_bytes_and_parameters_are_derived_by_hand(quantity):
    files = [*sorted(HERE.glob("test_*.py")), HERE.parent / "test_training.py"]
    derived = set().union(*(asserted(path.read_text("utf8"), quantity) for path in files))
    lacking = sorted({*public_formulas(), *(training.backward.__all__ if quantity == "bytes" else ())} - derived)
    assert not lacking, f"no test in tests/layers calls fk.NAME(…) and asserts its .{quantity}, for NAME in {lacking}"
