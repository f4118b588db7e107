"""The edge: what passes, and as what. What is refused stands in test_bad_input."""

import altair
import numpy
import pytest
import sympy

from flopkit.sizes import choice, divides, flag, number, pair, size, spread


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64", "uint64"])
def test_numpy_integers_become_exact_ints(kind):
    value = size("n", numpy.array([100], dtype=kind)[0])
    assert type(value) is int and value**20 == 100**20
    assert type(size("n", numpy.array(7))) is int


def test_arrays_become_doubles_which_do_not_wrap():
    values = size("n", numpy.array([2**40], dtype="int64"))
    assert values.dtype == "float64" and (values * 2**40)[0] == 2.0**80


def test_an_array_is_not_changed_in_place():
    values = numpy.array([1.0, 2.0])
    size("n", values)[0] = 5
    assert values[0] == 1


def test_symbols_and_parameters_pass():
    n = sympy.Symbol("n")
    assert size("n", n) is n and size("n", n + 1) == n + 1
    parameter = altair.param(name="n", value=1)
    assert size("n", parameter) is parameter
    assert size("n", sympy.Integer(4)) == 4 and type(size("n", sympy.Integer(4))) is int


def test_anything_with_an_index_is_a_whole_number():
    class Four:
        def __index__(self):
            return 4

    assert size("n", Four()) == 4


def test_a_minimum_of_zero():
    assert size("shared", 0, minimum=0) == 0
    with pytest.raises(ValueError, match="shared=-1: a size must be at least 0"):
        size("shared", -1, minimum=0)


def test_one_size_an_axis():
    assert pair("kernel", 3) == pair("kernel", (3, 3)) == (3, 3)
    assert spread("kernel", [1, 2, 3], 3) == (1, 2, 3)
    with pytest.raises(ValueError, match=r"kernel=\(1, 2\): give one size, or 3 of them"):
        spread("kernel", (1, 2), 3)
    n = altair.param(name="n", value=1)
    assert pair("kernel", n) == (n, n)


def test_switches():
    assert [flag("bias", on) for on in (True, False, 1, 0, numpy.True_, numpy.int64(0))] == [1, 0, 1, 0, 1, 0]
    n = sympy.Symbol("n")
    assert flag("bias", n) is n


def test_choices():
    assert choice("kernel", "math", ("flash", "math")) == "math"
    with pytest.raises(ValueError, match="kernel='fast': must be one of 'flash', 'math'"):
        choice("kernel", "fast", ("flash", "math"))


def test_divisors():
    divides("groups", 4, "c_in", 8)
    divides("groups", sympy.Symbol("g"), "c_in", 8)  # cannot be known
    divides("groups", numpy.array([1, 2, 4]), "c_in", 8)
    for value, whole in ((3, 7), (10, 4), (7, 110), (5, 12), (6, 9), (2, 3), (40, 35)):
        by_distance = sorted((abs(n - value), n) for n in range(1, whole + 1) if whole % n == 0)
        hint = " and ".join(map(str, sorted(n for _, n in by_distance[:2])))
        with pytest.raises(
            ValueError, match=f"groups={value} does not divide c_in={whole}: near sizes that do are {hint}$"
        ):
            divides("groups", value, "c_in", whole)
    for value, whole, hint in (
        (4095, 8192, "2048 and 4096"),
        (5000, 2 * 4097, "241 and 482"),
    ):  # looked for up to 4,096
        with pytest.raises(
            ValueError, match=f"groups={value} does not divide c_in={whole}: near sizes that do are {hint}$"
        ):
            divides("groups", value, "c_in", whole)
    with pytest.raises(ValueError, match="groups=1000003 does not divide c_in=2000000: near sizes that do are"):
        divides("groups", 1_000_003, "c_in", 2_000_000)


def test_one_is_the_least_where_nothing_is_said():
    assert size("n", 1) == number("n", 1) == size("n", sympy.Integer(1)) == size("n", numpy.array([1]))[0] == 1
    for refused in (size, number):
        with pytest.raises(ValueError, match="n=0: a size must be at least 1"):
            refused("n", 0)


def test_a_symbol_that_may_be_zero_at_most():
    n = sympy.Symbol("n", integer=True, nonpositive=True)
    assert size("shared", n, minimum=0) is n
    with pytest.raises(ValueError, match="tokens=n: a size must be a whole number of at least 1"):
        size("tokens", n)


def test_a_long_value_is_cut():
    for letters, shown in ((56, repr(["x" * 56])), (57, "['" + "x" * 55 + "...")):
        with pytest.raises(TypeError) as caught:
            size("n", ["x" * letters])
        assert str(caught.value).startswith(f"n={shown}: for a sweep pass")
