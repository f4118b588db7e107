"""The few operations a formula needs beyond ``+ - *``, in all four readings.

A closed form in flopkit is written once and read four ways: with Python ints (an exact count),
NumPy arrays (a sweep), SymPy symbols (the formula itself) and Altair parameters (a Vega
expression that a slider evaluates in a static page). ``max``, ``//`` and ``if`` do not survive
that: an Altair parameter is silently truthy and has no ``//``. These functions do.

Nothing here imports NumPy, SymPy or Altair unless an argument already comes from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from importlib import import_module
from typing import Any, Literal, TypeAlias, get_args

Reading = Literal["plain", "numpy", "sympy", "altair"]

Number: TypeAlias = Any
"""A number in one of the four readings: an int (exact), a float or a fraction; a NumPy
array of them; a SymPy symbol; an Altair parameter; and whatever is made of such. The
four have no common type, so a type checker takes it for anything."""

__all__ = [
    "Number",
    "Reading",
    "brief",
    "ceil_div",
    "divided",
    "exact_div",
    "is_zero",
    "log2",
    "maximum",
    "minimum",
    "reading",
    "reduced",
    "same",
    "total",
    "unmixed",
    "vega",
    "where",
]


def reading(*values: Any) -> Reading:
    """Say how *values* are to be read: ``"plain"``, ``"numpy"``, ``"sympy"`` or ``"altair"``.

    Python numbers go with anything. Two symbolic systems, or a symbol beside an array, do not mix.

    >>> reading(3, 4)
    'plain'
    """
    types = set(map(type, values))
    if types <= _NUMBERS:
        return "plain"
    found: set[Reading] = {kind for each in types if (kind := _reading_of(each)) != "plain"}
    if not found:
        return "plain"
    if len(found) > 1:
        raise TypeError(f"cannot mix {' and '.join(sorted(found))} values in one formula: use one kind for all sizes")
    return found.pop()


def unmixed(*values: Any) -> None:
    """Refuse *values* of different readings, also where one hides in another.

    Altair's operators take any operand, a symbol or an array too, and NumPy puts one that it does not know into an
    array of objects: the result looks like a formula and is none.

    >>> unmixed(3, 4)
    """
    kind = reading(*values)
    if kind == "numpy":
        _unboxed(values)
    if kind == "altair":
        for value in values:
            leaves = list(_leaves(value))
            if any(hasattr(leaf, "macs_by_kind") for leaf in leaves):
                raise TypeError("a parameter on the left has swallowed a cost: write cost * parameter")
            reading(value, *(leaf for leaf in leaves if getattr(leaf, "ndim", True)))


def _unboxed(values: Iterable[Any]) -> None:
    if any(getattr(getattr(value, "dtype", None), "kind", "") == "O" for value in values):
        raise TypeError("cannot mix NumPy arrays with symbols or parameters in one formula: use one kind for all sizes")


def _leaves(expression: Any) -> Iterator[Any]:
    """What an Altair expression is made of."""
    waiting, seen = [expression], set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, (list, tuple)):
            waiting.extend(node)
        elif _reading_of(type(node)) != "altair":
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            inside = vars(node)
            waiting.extend([inside["expr"]] if "expr" in inside else inside.get("_kwds", {}).values())


_NUMBERS = {int, float, bool, Fraction}
_SEEN: dict[type, Reading] = {}


def _reading_of(kind: type) -> Reading:
    if kind not in _SEEN:
        homes = {base.__module__.partition(".")[0] for base in kind.__mro__}
        _SEEN[kind] = next((reading for reading in get_args(Reading) if reading in homes), "plain")
    return _SEEN[kind]


def _read(*values: Any) -> tuple[Reading, tuple[Any, ...]]:
    """The reading of *values*, and the values, NumPy's scalars as the plain numbers that they are."""
    if _NUMBERS.issuperset(map(type, values)):
        return "plain", values
    if reading(*values) == "numpy":
        _unboxed(values)
        values = tuple(
            value.item() if _reading_of(type(value)) == "numpy" and not getattr(value, "ndim", True) else value
            for value in values
        )
    return reading(*values), values


def maximum(a: Number, b: Number) -> Number:
    """The larger of *a* and *b*.

    Parameters
    ----------
    a, b : Number
        Numbers, arrays, symbols or parameters.

    Examples
    --------
    >>> maximum(3, 5)
    5
    """
    return _each_way(max, "maximum", "Max", "max", a, b)


def minimum(a: Number, b: Number) -> Number:
    """The smaller of *a* and *b*.

    Parameters
    ----------
    a, b : Number
        Numbers, arrays, symbols or parameters.

    Examples
    --------
    >>> minimum(3, 5)
    3
    """
    return _each_way(min, "minimum", "Min", "min", a, b)


def ceil_div(a: Number, b: Number) -> Number:
    """*a* / *b*, rounded up. Exact for ints of any size, as a double elsewhere.

    Parameters
    ----------
    a, b : Number
        Numbers, arrays, symbols or parameters.

    Examples
    --------
    >>> ceil_div(7, 2)
    4
    """
    kind, (a, b) = _read(a, b)
    return -(-a // b) if kind == "plain" else _each_way(math.ceil, "ceil", "ceiling", "ceil", a / b)


def exact_div(a: Number, b: Number) -> Number:
    """*a* / *b* where *b* is known to divide *a*: an int stays an int.

    Parameters
    ----------
    a, b : Number
        Numbers, arrays, symbols or parameters.

    Raises
    ------
    ValueError
        Where both are ints and there is a remainder.

    Examples
    --------
    >>> exact_div(12, 4)
    3
    >>> exact_div(13, 4)
    Traceback (most recent call last):
        ...
    ValueError: 13 is not divisible by 4: remainder 1
    """
    kind, (a, b) = _read(a, b)
    if kind != "plain" or not (isinstance(a, int) and isinstance(b, int)):
        return a / b
    quotient, remainder = divmod(a, b)
    if remainder:
        raise ValueError(f"{a} is not divisible by {b}: remainder {remainder}")
    return quotient


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """*then* where *condition* holds, else *otherwise*; both are formulas and both are evaluated.

    Parameters
    ----------
    condition : Any
        A comparison, in any reading.
    then, otherwise : Any
        What to choose from; text, too, such as a label.

    Examples
    --------
    >>> where(3 > 2, "compute", "memory")
    'compute'
    """
    kind, (condition, then, otherwise) = _read(condition, then, otherwise)
    if kind == "plain":
        return then if condition else otherwise
    if kind == "altair":
        return _call("if", condition, then, otherwise)
    package = import_module(kind)
    if kind == "numpy":
        return package.where(condition, then, otherwise)
    then, otherwise = (package.Symbol(one) if isinstance(one, str) else one for one in (then, otherwise))
    return package.Piecewise((then, condition), (otherwise, True))


def log2(a: Number) -> Number:
    """The logarithm of *a* to base 2.

    Parameters
    ----------
    a : Number
        A number, an array, a symbol or a parameter.

    Examples
    --------
    >>> log2(8)
    3.0
    """
    kind, (a,) = _read(a)
    if kind == "altair":
        return _call("log", a) / math.log(2)
    if kind == "sympy":
        return import_module(kind).log(a, 2)
    return math.log2(a) if kind == "plain" else import_module(kind).log2(a)


def ratio(a: Number, b: Number) -> Number:
    """*a* / *b* as a real number, and NaN (not an error) for 0 / 0 of plain numbers.

    >>> ratio(6, 4)
    1.5
    """
    kind, (a, b) = _read(a, b)
    if kind != "plain":
        return a / b
    if b == 0:
        return math.nan if a == 0 else math.inf
    return a / b  # of ints the nearest double, however large they are


def total(values: Iterable[Number]) -> Number:
    """The sum of *values*; a zero adds nothing, so that a formula stays as short as it can be.

    >>> total([0, 3, 4])
    7
    """
    found: Number = 0
    for value in values:
        found = value if is_zero(found) else found + value
    return found


def divided(value: Number, among: int) -> Number:
    """*value* / *among*, an int where it is one, and exact where a double would round.

    >>> divided(6, 2), divided(5, 2)
    (3, 2.5)
    """
    if isinstance(value, int):
        quotient, rest = divmod(value, among)
        return value / among if rest and abs(value) < 2**53 else quotient if not rest else Fraction(value, among)
    return reduced(value / among)


def reduced(value: Number) -> Number:
    """*value*, an int where it is a fraction of denominator 1, as two halves are.

    >>> reduced(Fraction(4, 2)), reduced(Fraction(1, 2))
    (2, Fraction(1, 2))
    """
    return int(value) if isinstance(value, Fraction) and value.denominator == 1 else value


def same(a: Any, b: Any) -> bool:
    """Whether *a* and *b* are equal, as True or False in every reading.

    ``==`` of two arrays is an array, and of two Altair parameters an expression, which is always truthy.

    >>> same({"weight": 3}, {"weight": 4})
    False
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    kinds = {_reading_of(type(a)), _reading_of(type(b))}
    if "altair" in kinds:
        return kinds == {"altair"} and vega(a) == vega(b)
    if "numpy" in kinds:
        return bool(import_module("numpy").array_equal(a, b))
    return bool(a == b)


def vega(expression: Any) -> str:
    """The Vega expression of *expression* as text: a parameter's name, a formula of parameters, a number.

    >>> vega(4096)
    '4096'
    """
    if isinstance(expression, str) or reading(expression) != "altair":
        return repr(expression)
    name = getattr(expression, "name", None)
    if type(expression).__name__ == "Parameter" and isinstance(name, str):
        return name
    spelled = expression.to_dict()
    return str(spelled["expr"] if isinstance(spelled, dict) else spelled)


def is_zero(value: Any) -> bool:
    """Whether *value* is a plain zero, which a formula leaves out, and no array or symbol.

    >>> is_zero(False), is_zero(3)
    (True, False)
    """
    return isinstance(value, int) and value == 0


def brief(value: Any, longest: int = 40) -> str:
    """Its text, cut where it is long.

    >>> brief("x" * 50)
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'
    """
    text = vega(value) if reading(value) == "altair" else str(value)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _each_way(plain: Callable[..., Any], numpy: str, sympy: str, vega: str, *values: Any) -> Any:
    """What *plain* does with numbers, by the name that each of the others has for it."""
    kind, values = _read(*values)
    if kind == "plain":
        return plain(*values)
    if kind == "altair":
        return _call(vega, *values)
    return getattr(import_module(kind), numpy if kind == "numpy" else sympy)(*values)


def _call(function: str, *arguments: Any) -> Any:
    """A Vega function call that, like any formula of parameters, answers ``.to_dict()["expr"]``."""
    import altair
    from altair.expr.core import FunctionExpression

    # equivalent: altair.param(name='any', value=0) + 0 -> altair.param(name='any', value=0) - 0 | 0 -> 1 [1] | 0 -> 1 [2] (only the type of the sum is taken)
    formula_type: Any = type(altair.param(name="any", value=0) + 0)
    return formula_type(expr=FunctionExpression(function, arguments))
