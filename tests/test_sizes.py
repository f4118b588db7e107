"""The edge: what passes, and as what. What is refused stands in test_bad_input."""

from __future__ import annotations

import dataclasses
import math
import typing
from decimal import Decimal
from fractions import Fraction

import altair
import numpy
import pytest
import sympy

from flopkit.sizes import (
    Count,
    Flag,
    Size,
    check_fields,
    checked,
    choice,
    divides,
    factor,
    flag,
    number,
    pair,
    positive,
    size,
    spread,
)


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


def test_an_annotation_that_is_not_known_is_refused_where_it_is_written():
    def optional(*, n: typing.Optional[Size] = None): ...  # noqa: UP045
    def quoted(*, n: "Size"): ...  # noqa: UP037
    def misspelt(*, n: Seize): ...  # noqa: F821
    def bare(*, n): ...

    for function in (optional, quoted, misspelt, bare):
        with pytest.raises(
            TypeError, match=rf"{function.__name__}: n is (not )?annotated.*; write one of Size, Size \| None, .*DType"
        ):
            checked(function)
    typed = eval("lambda *, n: n")
    typed.__annotations__ = {"n": Size}
    with pytest.raises(TypeError, match="from __future__ import annotations"):
        checked(typed)


def test_what_may_be_left_out_is_checked_where_it_is_given():
    @checked
    def cube(*, n: Size | None = None) -> typing.Any:
        return n

    assert cube() is None and cube(n=3) == 3
    with pytest.raises(ValueError, match="n=-3: a size must be at least 1"):
        cube(n=-3)


def test_the_fields_of_a_dataclass_are_checked_by_their_annotations():
    @dataclasses.dataclass(frozen=True)
    class Box:
        side: Size
        depth: Size | None = None
        holes: Count | None = None
        lid: Flag = False
        name: str = ""

        def __post_init__(self) -> None:
            check_fields(self)

    box = Box(numpy.int64(3), lid=True, name="a box")
    assert (box.side, box.depth, box.holes, box.lid, box.name) == (3, None, None, 1, "a box")
    assert type(box.side) is type(box.lid) is int and Box(1, holes=0).holes == 0
    n = sympy.Symbol("n", positive=True, integer=True)
    assert Box(n, depth=n).depth is n
    for wrong, message in (
        ({"side": 0}, "side=0: a size must be at least 1"),
        ({"side": 1, "depth": 0}, "depth=0: a size must be at least 1"),
        ({"side": 1, "holes": -1}, "holes=-1: a size must be at least 0"),
        ({"side": 1, "lid": 2}, "lid=2: must be True or False"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            Box(**wrong)


@pytest.mark.parametrize(
    ("value", "found"),
    [(3, 3), (1.5, 1.5), (Fraction(1, 3), Fraction(1, 3)), (Decimal("0.5"), 0.5), (numpy.float32(2), 2.0), (numpy.int64(7), 7),
     (numpy.array(2.5), 2.5), (sympy.Rational(1, 4), 0.25), (5e-324, 5e-324), (1.7e308, 1.7e308)],
)  # fmt: skip
def test_a_positive_number(value, found):
    for sweep in (False, True):
        got = positive("n", value, sweep=sweep)
        assert got == found and type(got) is type(found)


def test_what_is_no_positive_number():
    n, many = sympy.Symbol("n"), numpy.array([1.0, 2.0])
    for wrong in (0, -1, math.nan, math.inf, -math.inf, numpy.float64(-2), sympy.Integer(-3)):
        with pytest.raises(ValueError, match=r"rate=.*: must be a finite number of bytes/s above 0$"):
            positive("rate", wrong, "bytes/s")
    for wrong in (
        "3 TB/s",
        None,
        True,
        1j,
        [1],
        (1, 2),
        numpy.True_,
        sympy.true,
        b"1",
        many,
        n,
        altair.param(name="n", value=1),
    ):
        with pytest.raises(TypeError, match=r"rate=.*: must be a number of bytes/s or a Device, not \w+$"):
            positive("rate", wrong, "bytes/s", instead=" or a Device")
    assert positive("rate", n, sweep=True) is n and list(positive("rate", many, sweep=True)) == [1, 2]
    for wrong in (numpy.array([1, 0]), numpy.array([2.0, math.nan])):
        with pytest.raises(ValueError, match=r"rate contains (0|nan): each must be a finite number of bytes/s above 0"):
            positive("rate", wrong, "bytes/s", sweep=True)
    with pytest.raises(TypeError, match="rate has dtype <U1: must be an array of numbers of bytes/s"):
        positive("rate", numpy.array(["1"]), "bytes/s", sweep=True)


def test_a_number_that_may_be_nothing():
    assert positive("bytes", 0, zero=True) == 0 and list(
        positive("bytes", numpy.array([0, 3]), zero=True, sweep=True)
    ) == [0, 3]
    for wrong in (-1, numpy.array([0, -1])):
        with pytest.raises(ValueError, match="must be a finite number of bytes of at least 0"):
            positive("bytes", wrong, "bytes", zero=True, sweep=True)


def test_a_factor_is_the_decimal_that_it_prints():
    assert factor("capacity", 1.1) == Fraction(11, 10) and factor("capacity", 2) == 2
    for large in (1e31, 10**31, numpy.array([1.0, 1e31])):
        with pytest.raises(ValueError, match="capacity.*: (each )?must be at most 1e[+]30"):
            factor("capacity", large)
    with pytest.raises(ValueError, match=r"n=1e[+]400: must be at most 1\.8e[+]308"):
        positive("n", 10**400)
