"""What a cost is: numbers that add, multiply, translate and show themselves."""

import copy
import pickle
import random
from fractions import Fraction

import altair
import numpy
import pytest
import sympy
import vega
from formulas import FORMULAS
from hypothesis import given, settings, strategies as st

import flopkit as fk
from flopkit.arithmetic import vega as expression_of
from flopkit.conventions import EXACT, FVCORE, TORCH
from flopkit.published import presets

quick = settings(deadline=None, max_examples=60, derandomize=True)
QUANTITIES = ("flops", "macs", "vector_flops", "bytes", "params")

UP = fk.dense(tokens=4, d_in=8, d_out=16, bias=True).named("up")
CORE = fk.attention(batch=1, q=4, kv=4, heads=2, head_dim=4, mask="causal").named("core")
costs = st.sampled_from(
    [UP, CORE, fk.rms_norm(tokens=4, d=8), fk.moe(tokens=4, d_model=8, d_ff=4, experts=4, top_k=2),
     fk.embedding(tokens=4, vocab=10, d_model=8), UP + CORE]
)  # fmt: skip


def values(cost):
    return {name: getattr(cost, name) for name in QUANTITIES}


@quick
@given(one=costs, other=costs, convention=st.sampled_from([EXACT, TORCH, FVCORE]))
def test_costs_add(one, other, convention):
    one, other = one.under(convention), other.under(convention)
    total = one + other
    assert values(total) == {name: getattr(one, name) + getattr(other, name) for name in QUANTITIES}
    assert total.convention == convention
    assert total.intensity == total.flops / total.bytes
    assert values(sum([one, other])) == values(total) == values(other + one)
    assert values(one + (other + one)) == values((one + other) + one)


@quick
@given(cost=costs, n=st.integers(0, 10**20))
def test_costs_multiply(cost, n):
    for scaled in (n * cost, cost * n):
        assert values(scaled) == {name: n * getattr(cost, name) for name in QUANTITIES}
        assert all(type(value) is int for value in values(scaled).values())
    assert values(3 * cost) == values(cost + cost + cost)


@quick
@given(cost=costs)
def test_translating_there_and_back_loses_nothing(cost):
    assert cost.under(TORCH).under(FVCORE).under(EXACT) == cost
    assert type(cost.under(TORCH)) is type(cost)


def test_a_sum_keeps_its_parts():
    total = UP + CORE + UP
    assert [part.name for part in total.parts] == ["up", "core", "up"]
    named = fk.Cost.total("block", [UP, CORE])
    assert [part.name for part in (named + UP).parts] == ["block", "up"]
    assert [part.convention for part in named.under(TORCH).parts] == [TORCH, TORCH]
    assert [part.flops for part in (2 * named).parts] == [2 * UP.flops, 2 * CORE.flops]


def test_a_total_called_sum_is_one_part_like_any_other():
    for name in ("sum", "mlp"):
        both = fk.Cost.total(name, [UP, CORE])
        assert [part.name for part in (both + UP).parts] == [name, "up"]
        assert [part.name for part in (UP + both).parts] == ["up", name]
    total = UP + CORE
    for other in (total * 2, total.under(TORCH), copy.deepcopy(total)):
        assert [part.name for part in (other + UP.under(other.convention)).parts] == ["up", "core", "up"]
    assert [part.name for part in (total.named("block") + UP).parts] == ["block", "up"]  # a name of its own: one part
    assert total == fk.Cost.total("sum", [UP, CORE])  # how they came about is no part of the value


def test_what_a_kernel_saves_is_saved_in_a_sum_too():
    kernel = (UP + CORE).fused(not_read=4, not_written=6)
    for total in (kernel + UP, UP + kernel, 1 * kernel + UP):
        assert total.bytes == 2 * UP.bytes + CORE.bytes - 20 and len(total.parts) == 2


def test_a_total_of_one_part():
    alone = fk.Cost.total("alone", [CORE.under(TORCH)])
    assert values(alone) == values(CORE.under(TORCH)) and alone.convention is TORCH


def test_the_sum_of_nothing():
    nothing = fk.Cost.total("nothing", [])
    assert values(nothing) == dict.fromkeys(QUANTITIES, 0)
    assert nothing.intensity != nothing.intensity  # NaN, no error
    assert "nothing" in repr(nothing)


def test_costs_of_different_conventions_do_not_add():
    for wrong in (lambda: UP + UP.under(TORCH), lambda: fk.Cost.total("t", [UP, CORE.under(FVCORE)])):
        with pytest.raises(ValueError, match=r"cannot add a cost under EXACT and .* \.under\(\), e\.g\. cost\.under"):
            wrong()


@pytest.mark.parametrize("times", [0.5, "2", True, -1, None])
def test_what_is_no_factor(times):
    with pytest.raises((TypeError, ValueError), match="times="):
        UP * times


def test_what_has_no_meaning():
    with pytest.raises(TypeError, match="a cost times a cost has no meaning"):
        UP * CORE
    for wrong in (lambda: UP + 1, lambda: 1 + UP, lambda: UP - CORE, lambda: UP / 2):
        with pytest.raises(TypeError):
            wrong()


def test_arrays_and_symbols_multiply_from_either_side():
    layers = numpy.array([1, 2, 4])
    for scaled in (layers * UP, UP * layers):
        assert isinstance(scaled, fk.Cost) and list(scaled.flops) == [UP.flops, 2 * UP.flops, 4 * UP.flops]
    n = altair.param(name="n", value=1)
    for scaled in (UP * n, UP * (n + 0)):
        assert isinstance(scaled, fk.Cost)
        assert vega.evaluate(expression_of(scaled.flops), {"n": 3}) == 3 * UP.flops
    x = sympy.Symbol("x", positive=True, integer=True)
    for scaled in (x * UP, UP * x):
        assert isinstance(scaled, fk.Cost) and scaled.flops == x * UP.flops


def test_a_parameter_on_the_left_is_told_to_change_sides():
    n = altair.param(name="n", value=1)
    for swallowed in (n * UP, (n + 1) * UP):
        with pytest.raises(TypeError, match=r"must have .flops .*; write cost \* parameter"):
            fk.roofline(swallowed, "h100-sxm")


def test_costs_of_different_readings_do_not_add():
    n, x, sweep = altair.param(name="n", value=1), sympy.Symbol("x"), numpy.array([1, 2])
    for one, other in ((n, x), (x, n), (n, sweep), (sweep, n), (x, sweep)):
        with pytest.raises(TypeError, match="cannot mix .* use one kind for all sizes"):
            fk.dense(tokens=one, d_in=2, d_out=3) + fk.dense(tokens=other, d_in=2, d_out=3)
        with pytest.raises(TypeError, match="cannot mix .* use one kind for all sizes"):
            fk.dense(tokens=other, d_in=2, d_out=3) * one
        with pytest.raises(TypeError, match="cannot mix .* use one kind for all sizes"):
            fk.residual(elements=one) * other


def test_numbers_are_plain():
    assert [type(value) for value in values(UP).values()] == [int] * 5
    assert type(UP.intensity) is float
    scaled = numpy.int64(3) * UP
    assert [type(value) for value in values(scaled).values()] == [int] * 5


def test_a_cost_is_a_value():
    assert UP == fk.dense(tokens=4, d_in=8, d_out=16, bias=True).named("up") != CORE
    assert copy.deepcopy(CORE) == CORE == pickle.loads(pickle.dumps(CORE))
    with pytest.raises(AttributeError):
        UP.bytes = 3


def test_equality_is_true_or_false_in_every_reading():
    x, n = sympy.Symbol("x", positive=True, integer=True), altair.param(name="n", value=1)
    for size in (numpy.array([1, 2]), x, n):
        one, other = fk.residual(elements=size), fk.residual(elements=5 * size)
        assert (one == fk.residual(elements=size)) is True and (one == other) is False and (one != other) is True
        assert (one + other == one + other) is True and (one + other == other + one) is False
    assert (UP == 3) is False
    with pytest.raises(TypeError, match="unhashable"):
        hash(UP)


def test_it_prints_its_convention_and_what_the_other_says():
    text = repr(CORE)
    assert "EXACT" in text and "320 FLOPs" in text and "512 FLOPs under TORCH" in text
    assert CORE.under(TORCH).flops == 512 and "320 FLOPs under EXACT" in repr(CORE.under(TORCH))
    assert "under" not in repr(UP)  # nothing is hidden: the conventions agree
    page = CORE._repr_html_()
    assert "EXACT" in page and "under TORCH" in page and "<table" in page


def test_tables():
    table = fk.Cost.total("block", [UP, CORE]).table()
    assert [row["part"] for row in table] == ["up", "core", "total"]
    assert [row["FLOPs"] for row in table] == [1024, 320, 1344]
    assert sum(row["share"] for row in table) == pytest.approx(2)
    assert table.rows[-1]["bytes"] == UP.bytes + CORE.bytes
    assert "76.2 %" in str(table) and "block, convention EXACT" in str(table)
    assert len(UP.table()) == 1


def test_what_there_is_none_of_is_not_shown():
    bare = fk.matmul(m=5, k=3, n=7)  # no parameters, no vector work
    assert repr(bare) == "matmul: 210 FLOPs, 142 B, 1.479 FLOP/B [EXACT]"
    assert "params" not in bare.table().rows[0] and UP.table().rows[0]["params"] == 8 * 16 + 16
    one = fk.Cost("one", vector_by_kind={"elementwise": 1}, params_by_role={"weight": 1})
    assert (
        "1 FLOP element-wise, 0 B" in repr(one) and "1 parameter " in repr(one) and one.table().rows[0]["params"] == 1
    )


def test_a_symbolic_cost_shows_itself():
    n = altair.param(name="n", value=1)
    x = sympy.Symbol("x", positive=True, integer=True)
    for size in (n, x, numpy.array([1, 2, 3])):
        cost = fk.dense(tokens=size, d_in=8, d_out=16) + fk.rms_norm(tokens=size, d=8)
        assert "FLOPs" in repr(cost) and "<table" in cost._repr_html_() and "total" in str(cost.table())


def test_a_long_formula_is_cut():
    for letters, shown in ((40, "x" * 40), (41, "x" * 37 + "...")):
        text = repr(fk.residual(elements=sympy.Symbol("x" * letters, positive=True, integer=True)))
        assert f" {shown} FLOPs element-wise" in text


def test_a_cost_of_nothing_in_particular():
    assert values(fk.Cost()) == dict.fromkeys(QUANTITIES, 0)


def test_halves_that_come_out_whole_are_ints():
    """Formulas of the user's own may count in halves."""
    whole, half = (fk.Cost("odd", {"products": Fraction(n, 4)}) for n in (6, 7))
    assert whole.flops == 3 and type(whole.flops) is int
    assert half.flops == Fraction(7, 2)


# -- in one kernel ----------------------------------------------------------------------------------------------------


def moved(program, wanted):
    """Numbers that kernels move, each a list of steps (name of its result, names it reads): from the tensors, no formula.

    A kernel reads each tensor once that it does not make, and writes what another kernel reads or what is *wanted*.
    """
    numbers = 0
    for kernel in program:
        made = {name for name, _ in kernel}
        read = {name for _, names in kernel for name in names} - made
        later = {name for other in program if other is not kernel for _, names in other for name in names}
        numbers += sum(wanted[name] for name in read) + sum(
            wanted[name] for name in made if name in later or name == "out"
        )
    return numbers


def test_a_fused_kernel_moves_what_its_neighbours_need():
    """Three programs, kernel by kernel and fused, against the tensors that then cross a kernel's border."""
    t, d, f = 6, 4, 10
    wide, mid = t * d, t * f
    sizes = {"branch": wide, "x": wide, "sum": wide, "gain": d, "normed": wide, "next": wide, "out": wide}
    add, norm, later = ("sum", ("branch", "x")), ("normed", ("sum", "gain")), ("out", ("sum", "normed"))
    costs = fk.residual(elements=wide) + fk.rms_norm(tokens=t, d=d)
    others = moved([[later]], sizes)
    assert costs.bytes == 2 * (moved([[add], [norm], [later]], sizes) - others)
    assert costs.fused(not_read=wide).bytes == 2 * (moved([[add, norm], [later]], sizes) - others)

    sizes = {"x": wide, "a": d * f, "b": d * f, "gate": mid, "up": mid, "out": mid}
    gate, up, act = ("gate", ("x", "a")), ("up", ("x", "b")), ("out", ("gate", "up"))
    product = fk.dense(tokens=t, d_in=d, d_out=f)
    costs = product + product + fk.activation("swiglu", elements=mid)
    assert costs.bytes == 2 * moved([[gate], [up], [act]], sizes)
    both = costs.fused(not_written=2 * mid, not_read=2 * mid + wide)
    assert both.bytes == 2 * moved([[gate, up, act]], sizes)
    assert values(both) == values(costs) | {"bytes": both.bytes} and both.parts == costs.parts

    silu = fk.activation("silu", elements=mid, dtype="fp32") + fk.scale(elements=mid, factors=mid, dtype="fp32")
    apart, together = ([[("s", ("gate",))], [("out", ("s", "up"))]], [[("s", ("gate",)), ("out", ("s", "up"))]])
    sizes |= {"s": mid}
    assert silu.bytes == 4 * moved(apart, sizes)
    assert silu.fused(not_written=mid, not_read=mid, dtype="fp32").bytes == 4 * moved(together, sizes)


def test_fusing_in_the_other_readings():
    n = sympy.Symbol("n", positive=True, integer=True)
    counts = numpy.array([1, 5, 9])
    parameter = altair.param(name="n", value=5)

    def together(n):
        return (fk.residual(elements=8 * n) + fk.rms_norm(tokens=n, d=8)).fused(not_read=8 * n).bytes

    assert int(together(n).subs(n, 5)) == together(counts)[1] == together(5) == 2 * (4 * 40 + 8)
    assert vega.evaluate(expression_of(together(parameter)), {"n": 5}) == together(5)


# What a single layer has and does not say how often: by presets that count it, a refusal that names it, and by no other one.
OF_PARAMETERS = {"PALM", "LLM_FOUNDRY", "NANOGPT", "TORCHTITAN_2024", "TORCHTITAN", "SIX_N", "SIX_N_ACTIVE"}
ASKED = {
    "norms and biases": OF_PARAMETERS,
    "learned positions": OF_PARAMETERS - {"NANOGPT"},
    "experts that a token does not choose": {"LLM_FOUNDRY", "SIX_N"},
    "all positions of the score matrix": {"CHINCHILLA", "CHINCHILLA_TABLE"},
}
HAS = {
    "moe": ["experts that a token does not choose"], "learned_positions": ["learned positions"],
    **{name: ["all positions of the score matrix"] for name in ("attention", "multi_head_attention", "mla")},
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_a_preset_refuses_a_layer_for_what_the_layer_has_and_for_nothing_else(name):
    formula = FORMULAS[name]
    sizes = formula.draw(random.Random(name), 6)
    for switched in (False, True):
        cost = formula.cost(sizes, **dict.fromkeys(formula.switches, switched))
        vectors = any(cost.params_by_role.get(role) for role in ("norm", "bias"))
        has = HAS.get(formula.function.__name__, []) + ["norms and biases"] * vectors
        for preset in presets():
            wanted = [what for what in ASKED if what in has and preset in ASKED[what]]
            try:
                cost.under(preset)
                found = []
            except ValueError as error:
                found = [what for what in ASKED if what in str(error)]
                assert str(error).startswith(f"{preset} counts {' and '.join(wanted)} from per-token totals, which ")
            assert found == wanted, (name, preset, switched)


def test_a_dense_layer_has_neither_norm_nor_bias():
    one = fk.dense(tokens=3, d_in=2, d_out=5)
    assert one.under("PALM").flops == one.under("SIX_N").flops == 2 * 3 * one.params == one.flops
    table = fk.embedding(tokens=3, vocab=7, d_model=2)
    assert table.under("PALM").flops == 2 * 3 * table.params and table.under("MEGATRON").flops == 0
    with pytest.raises(ValueError, match="NANOGPT counts norms and biases"):
        (one + fk.rms_norm(tokens=3, d=2)).under("NANOGPT")


def test_no_more_is_saved_than_is_moved():
    add = fk.residual(elements=10)
    assert add.fused(not_read=20, not_written=10).bytes == 0
    with pytest.raises(ValueError, match="not_read=31 save 62 bytes, and residual moves only 60"):
        add.fused(not_read=31)
    with pytest.raises(ValueError, match="not_written"):
        add.fused(not_written=-1)


@pytest.mark.parametrize(
    "amounts, error, message",
    [
        ({"bytes": -5}, ValueError, "'mine' has an amount of -5: each must be a number, bytes at least 0"),
        ({"params_by_role": {"weight": -8}}, ValueError, "an amount of -8"),
        ({"macs_by_kind": {"products": float("nan")}}, ValueError, "an amount of nan"),
        ({"vector_by_kind": {"norm": None}}, ValueError, "an amount of None"),
        ({"bytes": "x"}, ValueError, "an amount of 'x'"),
        ({"params_by_role": 5}, TypeError, "params_by_role=5: must be a dictionary of amounts"),
        ({"macs_by_kind": [8]}, TypeError, "macs_by_kind=.8.: must be a dictionary of amounts"),
    ],
)
def test_what_is_no_cost(amounts, error, message):
    with pytest.raises(error, match=message):
        fk.Cost("mine", **amounts)
