"""The edge where a caller's arguments are checked, so that formulas need no branches.

Every message names the argument, the value and the way out. Symbols and Altair parameters have no
value yet and pass.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from flopkit.arithmetic import reading

__all__ = ["choice", "divides", "flag", "number", "offence", "pair", "size", "spread"]


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
        return value
    if kind == "sympy":
        return _symbol(name, value, minimum)
    if isinstance(value, tuple):
        raise TypeError(f"{name}={_short(value)}: one whole number is wanted here, not a pair")
    if isinstance(value, list) or type(value).__module__.startswith("pandas"):
        raise TypeError(f"{name}={_short(value)}: for a sweep pass a NumPy array, e.g. numpy.array([1, 2, 4])")
    if kind == "numpy" and getattr(value, "ndim", False):
        return _sweep(name, value, minimum)
    if kind == "numpy":
        value = value.item()
    return _whole(name, value, minimum)


def number(name: str, value: Any, *, minimum: int = 1) -> int:
    """A size where a sweep or a symbol has no place: for an algorithm that runs, or a division rounded down.

    >>> number("tokens", 4096)
    4096
    """
    value = size(name, value, minimum=minimum)
    if not isinstance(value, int):
        raise TypeError(
            f"{name}={_short(value)}: one whole number is wanted here, not a sweep or a symbol; pass an int"
        )
    return value


def _whole(name: str, value: Any, minimum: int) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name}={value}: a size must be a whole number, not a bool")
    if isinstance(value, str):
        raise TypeError(f"{name}={value!r}: a size must be a whole number, not text; pass int({value!r})")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name}={value}: a size must be a finite whole number")
        remedy = f"pass {int(value)}" if value == int(value) else f"round it first, e.g. {round(value)}"
        raise TypeError(f"{name}={value}: a size must be an int, not a float; {remedy}")
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={_short(value)}: a size must be a whole number, not {type(value).__name__}") from None
    if whole < minimum:
        raise ValueError(f"{name}={whole}: a size must be at least {minimum}")
    return whole


def _sweep(name: str, values: Any, minimum: int) -> Any:
    if values.dtype.kind not in "iuf":
        raise TypeError(f"{name} has dtype {values.dtype}: a sweep of sizes must be an integer array")
    numbers = values.astype("float64")
    if numbers.size:
        wrong = numbers[~((numbers >= minimum) & (numbers == numbers.round()) & (numbers < math.inf))]
        if wrong.size:
            raise ValueError(f"{name} contains {wrong[0]:g}: each size must be a whole number of at least {minimum}")
    return numbers


def _symbol(name: str, value: Any, minimum: int) -> Any:
    if value.is_number:
        impossible = not (value.is_integer and value >= minimum)
    else:
        impossible = value.is_integer is False or value.is_negative or (minimum > 0 and value.is_nonpositive)
    if impossible:
        raise ValueError(f"{name}={value}: a size must be a whole number of at least {minimum}")
    return int(value) if value.is_number else value


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
            raise ValueError(f"{name}={_short(value)}: give one size, or {axes} of them")
        return tuple(check(f"{name}[{axis}]", one) for axis, one in enumerate(value))
    return (check(name, value),) * axes


def flag(name: str, value: Any) -> Any:
    """A switch: True or False (as 1 or 0), or a parameter that holds 1 or 0.

    >>> flag("bias", True)
    1
    """
    if reading(value) in ("altair", "sympy"):
        return value
    if isinstance(value, str) or getattr(value, "ndim", False) or value not in (0, 1):
        raise TypeError(f"{name}={_short(value)}: must be True or False")
    return int(value)


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
    wrong = offence(lambda part, total: total % part != 0, value, whole)
    if wrong and reading(value, whole) == "numpy":
        raise ValueError(
            f"{name} must divide {whole_name} everywhere in the sweep, and {wrong[0]} does not divide {wrong[1]}"
        )
    if wrong:
        parts = [n for n in range(1, min(whole, 4096) + 1) if whole % n == 0]
        near = sorted(sorted(parts, key=lambda n: (abs(n - value), n))[:2])
        hint = " and ".join(map(str, near))
        raise ValueError(f"{name}={value} does not divide {whole_name}={whole}: near sizes that do are {hint}")


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


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
