"""The operations of a formula, each in all four readings."""

import math

import altair
import numpy
import pytest
import sympy
import vega
from hypothesis import given, settings, strategies as st

from flopkit.arithmetic import (
    ceil_div,
    exact_div,
    log2,
    maximum,
    minimum,
    ratio,
    reading,
    same,
    unmixed,
    vega as expression_of,
    where,
)

quick = settings(deadline=None, max_examples=60, derandomize=True)
numbers = st.integers(1, 10**6)

OPERATIONS = {
    "maximum": maximum,
    "minimum": minimum,
    "ceil_div": ceil_div,
    "where": lambda a, b: where(a > b, a - b, 2 * b),
    "log2": lambda a, b: log2(a) + b,
    "exact_div": lambda a, b: exact_div(a * b, b),
    "ratio": ratio,
}


@pytest.mark.parametrize("name", OPERATIONS)
@quick
@given(a=numbers, b=numbers)
def test_four_readings(name, a, b):
    operation = OPERATIONS[name]
    right = operation(a, b)
    in_numpy = operation(numpy.array([a, 1.0]), numpy.array([b, 1.0]))
    x, y = sympy.symbols("x y", positive=True, integer=True)
    in_sympy = operation(x, y).subs({x: a, y: b})
    parameters = altair.param(name="a", value=1), altair.param(name="b", value=1)
    in_vega = vega.evaluate(expression_of(operation(*parameters)), {"a": a, "b": b})
    for found in (in_numpy[0], in_sympy, in_vega):
        assert math.isclose(float(found), right, rel_tol=1e-12)


@given(a=st.integers(0, 10**40), b=st.integers(1, 10**20))
def test_whole_numbers_of_any_size_stay_exact(a, b):
    up = ceil_div(a, b)
    assert type(up) is int and (up - 1) * b < a <= up * b
    assert exact_div(a * b, b) == a
    assert maximum(a, b) in (a, b) and type(maximum(a, b)) is int


def test_a_remainder_is_an_error_where_it_is_known():
    with pytest.raises(ValueError, match="13 is not divisible by 4: remainder 1"):
        exact_div(13, 4)
    assert exact_div(13.0, 4) == 3.25
    assert exact_div(sympy.Symbol("n"), 4) == sympy.Symbol("n") / 4


def test_ratio_of_nothing():
    assert math.isnan(ratio(0, 0)) and ratio(1, 0) == math.inf
    assert ratio(1.5, 4) == 0.375 and ratio(3, 0.5) == 6  # bytes of a user's own may be floats
    assert ratio(10**400, 10**399) == 10.0  # too large for a float, and yet a number


def test_where_takes_words_as_well():
    n = altair.param(name="n", value=1)
    assert expression_of(where(n > 2, "compute", "memory")) == "if((n > 2),'compute','memory')"
    assert where(3 > 2, "compute", "memory") == "compute"
    assert list(where(numpy.array([1, 3]) > 2, "compute", "memory")) == ["memory", "compute"]


def test_reading():
    assert reading() == reading(1, 2.5, "text", None) == "plain"
    assert reading(1, numpy.array([1])) == reading(numpy.int64(1)) == "numpy"
    assert reading(sympy.Symbol("n"), 2) == "sympy"
    n = altair.param(name="n", value=1)
    assert reading(n) == reading(n + 1) == reading(maximum(n, 2)) == reading(altair.datum.x) == "altair"


def test_readings_do_not_mix():
    n, x = altair.param(name="n", value=1), sympy.Symbol("x")
    for pair in ((n, x), (n, numpy.array([1])), (x, numpy.array([1]))):
        with pytest.raises(TypeError, match="cannot mix .* use one kind for all sizes"):
            maximum(*pair)


def test_readings_do_not_hide_in_one_another():
    """What each library makes of the other's values by itself."""
    n, x, sweep = altair.param(name="n", value=1), sympy.Symbol("x"), numpy.array([1, 2])
    for mixed in (
        n * x,
        x * n,
        n * sweep,
        sweep * n,
        sweep * x,
        maximum(n, 2 * n + x),
        altair.expr.floor(n / x),
        -(n + x),
    ):
        with pytest.raises(TypeError, match="cannot mix .* use one kind for all sizes"):
            unmixed(mixed)
    for pure in (
        7,
        x + 1,
        sweep * 2,
        n,
        3 * n + numpy.int64(2),
        maximum(n, 2),
        altair.datum.tokens * 2,
        altair.datum["tokens"],
    ):
        unmixed(pure, 4)


def test_numpy_s_scalars_are_numbers():
    """Exact beyond a double, with a remainder refused, and as plain numbers."""
    big = numpy.int64(2**62)
    assert ceil_div(big, numpy.int64(3)) == -(-(2**62) // 3)
    assert [type(value) for value in (ceil_div(big, 3), maximum(big, 3), minimum(3, big), exact_div(big, 2))] == [
        int
    ] * 4
    assert type(log2(numpy.int64(8))) is type(ratio(numpy.array(6), 4)) is float
    assert where(numpy.bool_(True), 1, 2) == 1
    with pytest.raises(ValueError, match="7 is not divisible by 2: remainder 1"):
        exact_div(numpy.int64(7), 2)
    assert maximum(numpy.array([1, 5]), numpy.int64(3)).tolist() == [3, 5]


def test_same():
    n, m = altair.param(name="n", value=1), altair.param(name="m", value=1)
    assert same(n, n) is same(2 * n, 2 * n) is same({"a": n}, {"a": n}) is True
    assert (
        same(n, m) is same(2 * n, 3 * n) is same(n, 1) is same({"a": n}, {"a": m}) is same({"a": 1}, {"b": 1}) is False
    )
    assert same(numpy.array([1, 2]), numpy.array([1.0, 2.0])) is True
    assert same(numpy.array([1, 2]), numpy.array([1, 3])) is same(numpy.array([1, 2]), 1) is False
    x = sympy.Symbol("x")
    assert same(x + 1, 1 + x) is True and same(x, 2 * x) is False and same("a", "a") is True


def test_expressions_as_text():
    n = altair.param(name="n", value=1)
    assert expression_of(n) == "n"
    assert expression_of(2 * n + 1) == "((2 * n) + 1)"
    assert expression_of("a word") == "'a word'"
    assert expression_of(0.1) == "0.1"


def test_the_evaluator_refuses_what_formulas_do_not_use():
    for foreign in ("n ** 2", "n // 2", "len(n)", "n and 2", "[n]", "n.x", "'text'"):
        with pytest.raises((ValueError, KeyError)):
            vega.evaluate(foreign, {"n": 4})
    assert vega.evaluate("if((n > 2),max(n, 7),pow(n,2))", {"n": 4}) == 7


def test_the_evaluator_agrees_with_vega():
    expressions = [
        "n * 3 / 7 - -2",
        "if(n <= 10,min(n,3),ceil(n / 4))",
        "log(n) / log(2)",
        "pow(n, 0.5)",
        "max(1e300 * n, 2)",
    ]
    for expression, found in zip(expressions, vega.in_vega({"n": 10}, expressions), strict=True):
        assert found == vega.evaluate(expression, {"n": 10}), expression
