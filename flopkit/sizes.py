"""The edge where a caller's arguments are checked, so that formulas need no branches.

Every message names the argument, the value and the way out. Symbols and Altair parameters have no
value yet and pass.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar

from flopkit.arithmetic import brief, reading
from flopkit.names import hint

__all__ = [
    "Count", "Factor", "Flag", "Size", "Sizes", "Whole", "checked", "choice", "divides", "factor", "flag", "number", "offence", "pair", "short",
    "size", "spread",
]  # fmt: skip


class Size(Protocol):
    """A whole number of at least 1: an int (exact), a NumPy array of them (a sweep), a SymPy symbol or an Altair parameter.

    To a type checker it is whatever can be added, subtracted, multiplied and divided: text and None are not.
    """

    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...


Count: TypeAlias = Size
"""A `Size` that may be 0."""

Flag: TypeAlias = bool | Size
"""True or False, or a parameter that holds 1 or 0."""

Factor: TypeAlias = float | Size
"""A positive number that need not be whole, such as 1.25, or a sweep or symbol of such."""

Sizes: TypeAlias = Size | Sequence[Size]
"""One `Size` for every axis, or a tuple or list with one for each."""

Whole: TypeAlias = int
"""A `Size` where a sweep or a symbol has no place: for an algorithm that runs."""

LARGEST = 10**30
"""Of larger sizes the products, in a sweep, would leave what a float holds."""

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a formula where a caller hands them over: those annotated `Size`, `Count`, `Flag` or `Whole`.

    The formula then gets ints, float64 arrays or symbols, and 1 or 0 for a switch. Others are left to the formula. Annotations are
    read as they are written, so the module has ``from __future__ import annotations``.

    >>> @checked
    ... def square(*, side: Size, bias: Flag = False):
    ...     return side * side + bias
    >>> square(side=3, bias=True)
    10
    >>> square(side=0)
    Traceback (most recent call last):
        ...
    ValueError: side=0: a size must be at least 1
    >>> square(3)
    Traceback (most recent call last):
        ...
    TypeError: square takes its sizes by name: square(side=3)
    """
    checks = {name: _CHECKS.get(text, _trust) for name, text in function.__annotations__.items() if name != "return"}
    by_place = function.__code__.co_argcount
    signature = inspect.signature(function)  # as it is written: True, and not 1
    defaults = function.__kwdefaults__ or {}
    defaults.update({name: flag(name, value) for name, value in defaults.items() if checks[name] is flag})

    @functools.wraps(function)
    def edge(*args: P.args, **sizes: P.kwargs) -> R:
        if len(args) > by_place:
            raise TypeError(_by_name(function.__name__, args[by_place:], list(checks)[by_place:]))
        if args:
            args = tuple(check(name, value) for (name, check), value in zip(checks.items(), args, strict=False))  # type: ignore[assignment]
        for name, value in sizes.items():
            check = checks.get(name)
            if check is None:
                raise TypeError(_unknown(function.__name__, name, list(checks)))
            # equivalent: 1 -> 2 (a size of 1 is looked at more closely, and passes)
            if type(value) is not int or not 1 <= value <= LARGEST or check is flag:
                sizes[name] = check(name, value)
        return function(*args, **sizes)

    edge.__signature__ = signature  # type: ignore[attr-defined]
    return edge


def size(name: str, value: Any, *, minimum: int = 1) -> Any:
    """Check that *value* can be a size: a whole number of at least *minimum*, or a sweep or symbol of such.

    NumPy integers become ints (exact); NumPy arrays become float64, which does not wrap at 2**63.

    >>> size("tokens", 4096)
    4096
    >>> size("tokens", 0)
    Traceback (most recent call last):
        ...
    ValueError: tokens=0: a size must be at least 1
    """
    kind = reading(value)
    if kind == "altair":
        if not hasattr(value, "__mul__"):  # alt.expr("p * 2") is a finished expression, of which no other is made
            raise TypeError(f"{name}={short(value)}: must be a parameter, such as altair.param(...), or made of such")
        return value
    if kind == "sympy":
        return _symbol(name, value, minimum)
    if isinstance(value, tuple):
        raise TypeError(f"{name}={short(value)}: one whole number is wanted here, not a pair")
    if isinstance(value, list) or type(value).__module__.startswith("pandas"):
        raise TypeError(f"{name}={short(value)}: for a sweep pass a NumPy array, e.g. numpy.array([1, 2, 4])")
    if kind == "numpy" and getattr(value, "ndim", False):
        return _sweep(name, value, minimum)
    if kind == "numpy":
        value = value.item()
    elif hasattr(value, "is_meta") and value.is_meta:
        raise TypeError(f"{name}={short(value)}: a tensor on meta has no value; pass an int")
    return _whole(name, value, minimum)


def _trust(name: str, value: Any) -> Any:
    return value


def number(name: str, value: Any, *, minimum: int = 1) -> int:
    """A size where a sweep or a symbol has no place: for an algorithm that runs, or a division rounded down.

    >>> number("tokens", 4096)
    4096
    """
    value = size(name, value, minimum=minimum)
    if not isinstance(value, int):
        raise TypeError(f"{name}={short(value)}: one whole number is wanted here, not a sweep or a symbol; pass an int")
    return value


def _whole(name: str, value: Any, minimum: int) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name}={value}: a size must be a whole number, not a bool")
    if isinstance(value, str):
        raise TypeError(f"{name}={short(value)}: a size must be a whole number, not text; pass int({short(value)})")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name}={value}: a size must be a finite whole number")
        remedy = f"pass {int(value)}" if value == int(value) else f"round it first, e.g. {round(value)}"
        raise TypeError(f"{name}={value}: a size must be an int, not a float; {remedy}")
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={short(value)}: a size must be a whole number, not {type(value).__name__}") from None
    if whole < minimum:
        raise ValueError(f"{name}={short(whole)}: a size must be at least {minimum}")
    if whole > LARGEST:
        raise ValueError(f"{name}={short(whole)}: a size must be at most {LARGEST:.0e}")
    return whole


def _sweep(name: str, values: Any, minimum: int) -> Any:
    if values.dtype.kind not in "iuf":
        raise TypeError(f"{name} has dtype {values.dtype}: a sweep of sizes must be an integer array")
    numbers = values.astype("float64")
    if numbers.size:
        if numbers.max() > LARGEST and numbers.max() < math.inf:
            raise ValueError(f"{name} contains {numbers.max():g}: a size must be at most {LARGEST:.0e}")
        wrong = numbers[~((numbers >= minimum) & (numbers == numbers.round()) & (numbers < math.inf))]
        if wrong.size:
            raise ValueError(f"{name} contains {wrong[0]:g}: each size must be a whole number of at least {minimum}")
    return numbers


def _symbol(name: str, value: Any, minimum: int) -> Any:
    if not _symbolic(value):
        raise TypeError(f"{name}={short(value)}: a size must be a whole number or a symbol, not {type(value).__name__}")
    if value.is_number:
        impossible = not (value.is_integer and value >= minimum)
    else:
        impossible = value.is_integer is False or value.is_negative or (minimum > 0 and value.is_nonpositive)
    if impossible:
        raise ValueError(f"{name}={short(value)}: a size must be a whole number of at least {minimum}")
    return _whole(name, int(value), minimum) if value.is_number else value


def _symbolic(value: Any) -> bool:
    """Whether something of SymPy stands for a number: no matrix, no relation, no truth value."""
    return hasattr(value, "is_integer") and not any(getattr(value, no, False) for no in ("is_Boolean", "is_Relational"))


def pair(name: str, value: Any) -> tuple[Any, Any]:
    """A kernel or stride: one size for both axes, or a pair (height, width).

    A pair is a tuple or a list. A NumPy array is a sweep, here as everywhere, also where it holds two numbers.

    >>> pair("kernel", 3)
    (3, 3)
    """
    return spread(name, value, 2)


def spread(name: str, value: Any, axes: int, check: Callable[..., Any] = size) -> tuple[Any, ...]:
    """One size for every axis, or one size per axis, in a tuple or a list; an array is a sweep.

    >>> spread("kernel", (1, 7), 2)
    (1, 7)
    """
    if isinstance(value, (tuple, list)):
        if len(value) != axes:
            raise ValueError(f"{name}={short(value)}: give one size, or {axes} of them")
        return tuple(check(f"{name}[{axis}]", one) for axis, one in enumerate(value))
    return (check(name, value),) * axes


def flag(name: str, value: Any) -> Any:
    """A switch: True or False (as 1 or 0), or a parameter that holds 1 or 0.

    >>> flag("bias", True)
    1
    """
    kind = reading(value)
    if (kind == "sympy" and _symbolic(value) and not value.is_number) or (
        kind == "altair" and hasattr(value, "__mul__")
    ):
        return value
    try:
        known = not isinstance(value, str) and not getattr(value, "ndim", False) and bool(value in (0, 1))
        return int(value) if known else _no_flag(name, value)
    except (
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        RuntimeError,
    ):  # of what cannot be compared with a number
        return _no_flag(name, value)


def _no_flag(name: str, value: Any) -> NoReturn:
    raise TypeError(f"{name}={short(value)}: must be True or False") from None


def factor(name: str, value: Any, *, minimum: float = 0) -> Any:
    """A positive number of at least *minimum*. A float is taken as the decimal that it prints, so that 1.1 of 10 is 11.

    >>> factor("capacity", 1.1) * 10
    Fraction(11, 1)
    >>> factor("capacity", -1)
    Traceback (most recent call last):
        ...
    ValueError: capacity=-1: must be a finite number above 0
    """
    kind = reading(value)
    bound = f"of at least {minimum}" if minimum else "above 0"
    if kind == "altair" or (kind == "sympy" and not value.is_number):
        return value
    if kind == "numpy" and getattr(value, "ndim", False):
        if value.dtype.kind not in "iuf":
            raise TypeError(f"{name} has dtype {value.dtype}: must be an array of numbers")
        numbers = value.astype("float64")
        wrong = numbers[~((numbers > 0) & (numbers >= minimum) & (numbers < math.inf))]
        if wrong.size:
            raise ValueError(f"{name} contains {wrong[0]:g}: each must be a finite number {bound}")
        if numbers.size and numbers.max() > LARGEST:
            raise ValueError(f"{name} contains {numbers.max():g}: each must be at most {LARGEST:.0e}")
        return numbers
    plain = value.item() if kind == "numpy" else value
    if isinstance(plain, bool) or not isinstance(plain, (int, float, Fraction)):
        raise TypeError(f"{name}={short(value)}: must be a number, not {type(plain).__name__}")
    if not (plain > 0 and minimum <= plain < math.inf):
        raise ValueError(f"{name}={plain}: must be a finite number {bound}")
    if plain > LARGEST:
        raise ValueError(f"{name}={short(plain)}: must be at most {LARGEST:.0e}")
    return Fraction(repr(plain)) if isinstance(plain, float) else plain


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "Size": size,
    "Size | None": lambda name, value: None if value is None else size(name, value),
    "Count": functools.partial(size, minimum=0),
    "Factor": factor,
    "Factor | None": lambda name, value: None if value is None else factor(name, value),
    "Flag": flag,
    "Whole": number,
}

_ELSEWHERE = {  # what other libraries call it
    "in_features": "d_in", "out_features": "d_out", "in_channels": "c_in", "out_channels": "c_out", "kernel_size": "kernel",
    "batch_size": "batch", "num_heads": "heads", "n_heads": "heads", "num_key_value_heads": "kv_heads", "embed_dim": "d_model",
    "hidden_size": "d_model", "seq_len": "q", "seq": "q", "is_causal": "mask", "causal": "mask", "num_experts": "experts",
}  # fmt: skip


def _by_name(function: str, values: Sequence[Any], names: Sequence[str]) -> str:
    given = ", ".join(f"{name}={short(value)}" for name, value in zip(names, values, strict=False))
    if not names:
        return f"{function} got {len(values)} more arguments than it takes: {', '.join(map(short, values))}"
    return f"{function} takes its sizes by name: {function}({given})"


def _unknown(function: str, name: str, names: Sequence[str]) -> str:
    if name == "convention":
        return f"{function} has no argument 'convention': it answers under EXACT; {function}(...).under(convention) translates"
    elsewhere = {other: own for other, own in _ELSEWHERE.items() if own in names}
    return f"{function} has no argument {name!r}; {hint(name, names, elsewhere)}"


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """One of a few names. A parameter, which is equal to anything, is none of them.

    >>> choice("kernel", "flash", ("flash", "math"))
    'flash'
    """
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, options))}")
    return str(value)


def divides(name: str, value: Any, whole_name: str, whole: Any) -> None:
    """Check that *value* divides *whole*, where both are known numbers.

    >>> divides("kv_heads", 3, "heads", 32)
    Traceback (most recent call last):
        ...
    ValueError: kv_heads=3 does not divide heads=32: near sizes that do are 2 and 4
    """
    if not (wrong := offence(lambda part, total: total % part != 0, value, whole)):
        return
    if reading(value, whole) == "numpy":
        raise ValueError(
            f"{name} must divide {whole_name} everywhere in the sweep, and {wrong[0]} does not divide {wrong[1]}"
        )
    parts = [n for n in range(1, min(whole, 4096) + 1) if whole % n == 0]
    near = " and ".join(map(str, sorted(sorted(parts, key=lambda n: (abs(n - value), n))[:2])))
    raise ValueError(f"{name}={value} does not divide {whole_name}={whole}: near sizes that do are {near}")


def offence(wrong: Callable[..., Any], *sizes: Any) -> tuple[int, ...] | None:
    """The first of *sizes* for which *wrong* holds, None where it never does.

    In a sweep that is one row of it. Symbols and parameters have no value yet and pass.

    >>> offence(lambda top_k, experts: top_k > experts, 3, 2)
    (3, 2)
    """
    kind = reading(*sizes)
    if kind == "plain":
        return tuple(sizes) if wrong(*sizes) else None
    if kind == "numpy":
        import numpy

        rows = numpy.broadcast_arrays(*sizes)
        found = numpy.flatnonzero(wrong(*rows))
        return tuple(int(row.flat[found[0]]) for row in rows) if found.size else None
    return None


def short(value: Any) -> str:
    """*value* for an error: in one line, and no longer than one.

    >>> short([1, 2]), short(-(10**5000))
    ('[1, 2]', '-1e+5000')
    """
    if isinstance(value, int) and abs(value) >= 10**60:  # Python prints no ints of more than 4300 digits
        return f"{'-' * (value < 0)}1e+{int(abs(value).bit_length() * math.log10(2))}"
    try:
        return brief(" ".join(repr(value).split()), longest=60)
    except Exception:  # somebody's own class
        return f"<{type(value).__name__}>"
