"""Checks of one argument each: what passes, and as what."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

from flopkit.arithmetic import brief, reading

__all__ = [
    "choice",
    "divides",
    "factor",
    "flag",
    "number",
    "offence",
    "pair",
    "positive",
    "several",
    "short",
    "size",
    "spread",
]

LARGEST = 10**30
"""Of larger sizes the products, in a sweep, would leave what a float holds."""


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
    if type(value) is int and minimum <= value <= LARGEST:
        return value
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


def positive(
    name: str, value: Any, unit: str = "", *, zero: bool = False, sweep: bool = False, most: float = sys.float_info.max, instead: str = "",
) -> Any:  # fmt: skip
    """Check that *value* is a finite number above 0: ints and fractions stay, the rest is a float.

    Parameters
    ----------
    name : str
        What the caller's argument is called.
    value : Any
        The number.
    unit : str, optional
        What it is a number of, for the error.
    zero : bool, optional
        Whether it may be 0, too.
    sweep : bool, optional
        Whether it may be an array of such numbers, a symbol or a parameter.
    most : float, optional
        The largest that will do: what a float holds.
    instead : str, optional
        What else would do, for the error.

    Raises
    ------
    ValueError
        For a number that is negative, infinite, NaN or too large, and for 0 where that
        is not allowed.
    TypeError
        For what is no number.

    Examples
    --------
    >>> positive("seconds", 1.5, "seconds")
    1.5
    >>> positive("seconds", 0, "seconds")
    Traceback (most recent call last):
        ...
    ValueError: seconds=0: must be a finite number of seconds above 0
    """
    kind, of = reading(value), unit and f" of {unit}"
    must = f"must be a finite number{of} {'of at least 0' if zero else 'above 0'}"
    if sweep and (kind == "altair" or (kind == "sympy" and _symbolic(value) and not value.is_number)):
        return value
    if sweep and kind == "numpy" and value.ndim:
        if value.dtype.kind not in "iuf":
            raise TypeError(f"{name} has dtype {value.dtype}: must be an array of numbers{of}")
        numbers = value.astype("float64")
        wrong = numbers[~((numbers >= 0 if zero else numbers > 0) & (numbers < math.inf))]
        if wrong.size:
            raise ValueError(f"{name} contains {wrong[0]:g}: each {must}")
        if numbers.size and numbers.max() > most:
            raise ValueError(f"{name} contains {numbers.max():g}: each must be at most {most:.2g}")
        return numbers
    plain = value.item() if kind == "numpy" and not getattr(value, "ndim", False) else value
    if not _is_number(plain):
        raise TypeError(f"{name}={short(value)}: must be a number{of}{instead}, not {type(plain).__name__}")
    found = plain if isinstance(plain, (int, Fraction)) else float(plain)
    if not (0 < found < math.inf or (zero and found == 0)):
        raise ValueError(f"{name}={short(plain)}: {must}")
    if found > most:
        raise ValueError(f"{name}={short(plain)}: must be at most {most:.2g}")
    return found


def _is_number(value: Any) -> bool:
    """Whether a float can be made of it, which is no text, switch, array or symbol."""
    if (
        isinstance(value, (bool, str, complex))
        or reading(value) in ("numpy", "altair")
        or getattr(value, "ndim", False)
    ):
        return False
    return bool(value.is_number) if reading(value) == "sympy" and _symbolic(value) else hasattr(value, "__float__")


def factor(name: str, value: Any) -> Any:
    """A positive number. A float is taken as the decimal that it prints, so that 1.1 of 10 is 11.

    >>> factor("capacity", 1.1) * 10
    Fraction(11, 1)
    >>> factor("capacity", -1)
    Traceback (most recent call last):
        ...
    ValueError: capacity=-1: must be a finite number above 0
    """
    found = positive(name, value, sweep=True, most=LARGEST)
    return Fraction(repr(found)) if isinstance(found, float) else found


def several(name: str, value: Any) -> tuple[Any, ...]:
    """Several values, in a tuple, a list or a range, as a tuple.

    >>> several("tensor", [4, 8])
    (4, 8)
    >>> several("tensor", 8)
    Traceback (most recent call last):
        ...
    TypeError: tensor=8: must be a tuple or a list; of one value (8,)
    """
    if not isinstance(value, (tuple, list, range, set, frozenset)):
        raise TypeError(f"{name}={short(value)}: must be a tuple or a list; of one value ({short(value)},)")
    return tuple(value)


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
