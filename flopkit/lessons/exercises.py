"""Answers to exercises, checked: right, not answered yet, or wrong by a factor that has a name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["NotYet", "check"]

_FACTORS = {
    2: "twice what is asked: is a multiply-add counted once here?",
    1 / 2: "half of what is asked: multiply-adds, where FLOPs are asked for?",
    4: "four times what is asked: is a number's size in bytes in there that should not be?",
    1 / 4: "a quarter of what is asked: elements, where bytes are asked for?",
    8: "eight times what is asked: bits, where bytes are asked for?",
    1 / 8: "an eighth of what is asked: bytes, where bits are asked for?",
    100: "a hundred times what is asked: per cent, where a fraction is asked for?",
    1 / 100: "a hundredth of what is asked: a fraction, where per cent are asked for?",
    -1: "right but for its sign",
}


class NotYet(AssertionError):
    """A wrong answer. In a notebook it shows as one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"Not yet: {self}"]


def check(answer: Any, expected: Any, rel: float = 0) -> None:
    """Tell the reader whether *answer* is right.

    Parameters
    ----------
    answer : Any
        The reader's: a number, text, or a tuple, list or mapping of such; ``...`` where there is none yet.
    expected : Any
        The right one, computed where the exercise stands.
    rel : float, optional
        Relative tolerance for numbers; 0 asks for the exact one.

    Raises
    ------
    NotYet
        For a wrong answer. It is an ``AssertionError``; it names the factor where that explains the mistake, and does not
        tell the answer.

    Notes
    -----
    A right answer prints so. No answer yet is no error, so that a chapter with open exercises runs.

    Examples
    --------
    >>> check(2 * 5 * 3 * 7, 210)
    Right: 210
    >>> check(..., 210)
    Not answered yet: put your answer in place of the three dots.
    >>> check(105, 210)
    Traceback (most recent call last):
        ...
    flopkit.lessons.exercises.NotYet: 105 is half of what is asked: multiply-adds, where FLOPs are asked for?
    """
    if isinstance(rel, bool) or not isinstance(rel, (int, float)) or not 0 <= rel < 1:
        raise ValueError(f"rel={rel!r}: must be a relative tolerance from 0 to below 1, e.g. 0.01")
    if answer is ... or answer is None:
        print("Not answered yet: put your answer in place of the three dots.")
        return
    if not _same(answer, expected, rel):
        raise NotYet(_hint(answer, expected))
    print(f"Right: {_shown(answer)}")


def _same(answer: Any, expected: Any, rel: float) -> bool:
    if isinstance(expected, Mapping):
        return (
            isinstance(answer, Mapping)
            and answer.keys() == expected.keys()
            and all(_same(answer[key], expected[key], rel) for key in expected)
        )
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(answer, (list, tuple))
            and len(answer) == len(expected)
            and all(_same(a, e, rel) for a, e in zip(answer, expected, strict=True))
        )
    if isinstance(expected, str) or isinstance(answer, str):
        return str(answer).strip().lower() == str(expected).strip().lower()
    if isinstance(expected, bool) or isinstance(answer, bool):
        return isinstance(answer, bool) and isinstance(expected, bool) and answer == expected
    if rel == 0:
        return bool(answer == expected)
    return math.isclose(float(answer), float(expected), rel_tol=rel)


def _hint(answer: Any, expected: Any) -> str:
    shown = _shown(answer)
    try:
        ratio = float(answer) / float(expected)
    except (TypeError, ValueError, ZeroDivisionError):
        return f"{shown} is not what is asked for"
    if isinstance(answer, bool) or isinstance(expected, bool) or math.isnan(ratio):
        return f"{shown} is not what is asked for"
    for factor, reason in _FACTORS.items():
        if math.isclose(ratio, factor, rel_tol=1e-3):
            return f"{shown} is {reason}"
    if abs(ratio - 1) < 0.02:
        return f"{shown} is within 2% of what is asked: an approximation, where the exact number is asked for?"
    thousands = round(math.log(ratio, 1000)) if ratio > 0 else 0
    if thousands and math.isclose(ratio, 1000.0**thousands, rel_tol=1e-3):
        return f"{shown} is off by a factor of 1000^{thousands}: a prefix (k, M, G, T)?"
    return f"{shown} is too {'large' if ratio > 1 else 'small'}"


def _shown(answer: Any) -> str:
    if isinstance(answer, int) and not isinstance(answer, bool):
        return f"{answer:,}"
    return f"{answer:,.6g}" if isinstance(answer, float) else str(answer)
