"""One formula, four readings: each public formula with ints, NumPy arrays, SymPy symbols and Altair parameters.

The int reading is the exact one (Python's integers); the other three must give its values.
"""

import inspect
import itertools
import math
import random

import numpy
import pytest
import sympy
import vega
from formulas import CASE_IDS, CASES, FORMULAS, QUANTITIES, public_formulas

import flopkit as fk
from flopkit.arithmetic import vega as expression_of

CONVENTIONS = (fk.conventions.EXACT, fk.conventions.TORCH, fk.conventions.FVCORE)
EXACT_IN_A_DOUBLE = 2**53


def numbers_of(cost):
    """Every quantity under every convention."""
    return [getattr(cost.under(convention), name) for convention in CONVENTIONS for name in QUANTITIES]


def agree(found, exact, what):
    if isinstance(exact, int) and abs(exact) < EXACT_IN_A_DOUBLE:
        assert found == exact, what
    else:
        assert math.isclose(float(found), exact, rel_tol=1e-12), what


def draws(name, top, times):
    """Sizes up to *top*; "huge" stands for as large as a double holds exactly, one size alone up to int64's end."""
    rng = random.Random(f"{name} {top}")
    if top == "huge":
        top = 10**15 if len(FORMULAS[name].draw(rng, 2)) > 1 else 2**63 - 1
    return [FORMULAS[name].draw(rng, top) for _ in range(times)]


def altair_parameters(names, suffix=""):
    import altair

    return {name: altair.param(name=f"{name}{suffix}", value=1) for name in names}


def test_every_formula_has_a_case():
    listed, public = {formula.function for formula in FORMULAS.values()}, public_formulas()
    lacking = [name for name, function in public.items() if function not in listed]
    assert not lacking, f"add a line to FORMULAS in tests/formulas.py: {lacking}"
    strangers = sorted(function.__name__ for function in listed - set(public.values()))
    assert not strangers, f"FORMULAS in tests/formulas.py lists what no __all__ in flopkit/layers offers: {strangers}"


def test_every_formula_is_on_the_face():
    in_rooms = {"selective_scan", "sinusoidal_positions"}  # which few people type
    lacking = sorted(public_formulas().keys() - set(fk.__all__) - in_rooms)
    assert not lacking, f"name it in flopkit/__init__.pyi, or in in_rooms here if few people type it: {lacking}"


@pytest.mark.parametrize("name", sorted(public_formulas()))
def test_sizes_are_keyword_only_and_take_dtype(name):
    parameters = inspect.signature(public_formulas()[name]).parameters
    assert parameters["dtype"].default == "bf16"
    assert "convention" not in parameters  # .under() translates
    assert not {p.annotation for p in parameters.values()} & {"Any", inspect.Parameter.empty}
    positional = [p.name for p in parameters.values() if p.kind is not p.KEYWORD_ONLY]
    assert positional == (["kind"] if name == "activation" else [])


@pytest.mark.parametrize(("name", "variant"), CASES, ids=CASE_IDS)
def test_plain_ints_give_exact_ints(name, variant):
    for sizes in draws(name, "huge", 3):
        cost = FORMULAS[name].cost(sizes, **variant)
        for quantity in ("flops", "vector_flops", "bytes", "params"):
            value = getattr(cost, quantity)
            assert type(value) is int and value >= 0, (quantity, sizes)
        assert cost.macs * 2 == cost.flops and type(cost.macs) is int
        if cost.flops:
            assert math.isclose(cost.intensity, sympy.Rational(cost.flops, cost.bytes), rel_tol=1e-15)


@pytest.mark.parametrize(("name", "variant"), CASES, ids=CASE_IDS)
def test_numpy_integers_are_exact_ints(name, variant):
    sizes = draws(name, 2**40, 1)[0]
    cost = FORMULAS[name].cost({key: numpy.int64(value) for key, value in sizes.items()}, **variant)
    assert numbers_of(cost) == numbers_of(FORMULAS[name].cost(sizes, **variant))
    assert type(cost.bytes) is int


@pytest.mark.parametrize("top", [40, "huge"])
@pytest.mark.parametrize(("name", "variant"), CASES, ids=CASE_IDS)
def test_numpy_arrays(name, variant, top):
    rows = draws(name, top, 5)
    sweep = {key: numpy.array([row[key] for row in rows], dtype="int64") for key in rows[0]}
    cost = FORMULAS[name].cost(sweep, **variant)
    exact = [FORMULAS[name].cost(row, **variant) for row in rows]
    if top == "huge":
        assert max(max(c.flops, c.vector_flops, c.bytes) for c in exact) > 2**63
    for i, row in enumerate(rows):
        found = [numpy.broadcast_to(value, len(rows))[i] for value in numbers_of(cost)]
        for value, right in zip(found, numbers_of(exact[i]), strict=True):
            agree(value, right, (row, found))


@pytest.mark.parametrize(("name", "variant"), CASES, ids=CASE_IDS)
def test_sympy_symbols(name, variant):
    rows = draws(name, 40, 3)
    symbols = {key: sympy.Symbol(key, positive=True, integer=True) for key in rows[0]}
    found = numbers_of(FORMULAS[name].cost(symbols, **variant))
    for row in rows:
        values = {symbols[key]: value for key, value in row.items()}
        for formula, right in zip(found, numbers_of(FORMULAS[name].cost(row, **variant)), strict=True):
            value = sympy.sympify(formula).subs(values)
            if isinstance(right, int):
                assert value == right, (formula, row)
            else:
                agree(value, right, (formula, row))


@pytest.mark.parametrize(("name", "variant"), CASES, ids=CASE_IDS)
def test_altair_parameters(name, variant):
    rows = draws(name, 40, 5)
    found = numbers_of(FORMULAS[name].cost(altair_parameters(rows[0]), **variant))
    expressions = [expression_of(value) for value in found]
    for row in rows:
        for expression, right in zip(expressions, numbers_of(FORMULAS[name].cost(row, **variant)), strict=True):
            agree(vega.evaluate(expression, row), right, (expression, row))


@pytest.mark.parametrize("name", [name for name, formula in FORMULAS.items() if formula.switches])
def test_a_switch_may_be_a_parameter(name):
    formula = FORMULAS[name]
    row = draws(name, 40, 1)[0]
    symbols = {key: sympy.Symbol(key, positive=True, integer=True) for key in row}
    on_off = {key: sympy.Symbol(key, integer=True) for key in formula.switches}
    in_sympy = numbers_of(formula.cost({**symbols, **on_off}))
    in_altair = numbers_of(formula.cost(altair_parameters([*row, *formula.switches])))
    for setting in itertools.product((0, 1), repeat=len(formula.switches)):
        switched = dict(zip(formula.switches, setting, strict=True))
        exact = numbers_of(formula.cost(row, **{key: bool(value) for key, value in switched.items()}))
        values = {symbols[key]: value for key, value in row.items()} | {on_off[k]: v for k, v in switched.items()}
        for symbolic, drawn, right in zip(in_sympy, in_altair, exact, strict=True):
            agree(sympy.sympify(symbolic).subs(values), right, (symbolic, switched))
            agree(vega.evaluate(expression_of(drawn), row | switched), right, (switched,))


def test_vega_itself_evaluates_the_expressions():
    signals, expressions, exact = {}, [], []
    for i, (name, variant) in enumerate(CASES):
        row = draws(name, 4096, 1)[0]
        parameters = altair_parameters(row, suffix=f"_{i}")
        signals |= {parameters[key].name: value for key, value in row.items()}
        cost, right = FORMULAS[name].cost(parameters, **variant), FORMULAS[name].cost(row, **variant)
        for quantity in QUANTITIES:
            expressions.append(expression_of(getattr(cost, quantity)))
            exact.append(getattr(right, quantity))
    for expression, value, right in zip(expressions, vega.in_vega(signals, expressions), exact, strict=True):
        agree(value, right, expression)


def test_the_contract_spells_the_expression_as_to_dict():
    import altair

    n = altair.param(name="n", value=4096, bind=altair.binding_range(min=64, max=16384, step=64))
    for cost in (fk.dense(tokens=1, d_in=n, d_out=4 * n), fk.attention(batch=1, q=n, kv=n, heads=8, head_dim=64)):
        for quantity in ("flops", "bytes", "intensity"):
            spelled = getattr(cost, quantity).to_dict()["expr"]
            assert "n" in spelled and vega.evaluate(spelled, {"n": 4096}) > 0
