"""Numbers as people write them: "33.55 MB", "7:3", "2 1/3", "a third" or "exp(-2)".

The built page has no kernel: book/book_ext/exercises.js does there what `read` does here,
with the patterns of `flopkit.book.lessons.notation`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from flopkit.book.lessons.notation import READING

__all__ = ["Typed", "kind_of", "letter", "plain", "read"]


class Typed(NamedTuple):
    """A number as it was written, in the unit that is asked for.

    How many digits it has, half of what the last one stands for (0 where exact), how many zeros it ends with ("5,900"), and whether
    it had no unit.
    """

    value: float
    digits: int = 99
    half: float = 0.0
    zeros: int = 0
    bare: bool = True


def plain(text: str) -> str:
    """A word without case, quotes, article and torch's namespace.

    >>> plain("It is a “Count”."), plain("aten::mv.default")
    ('count', 'mv')
    """
    text = text.strip().lower()
    for around in READING["around"]:
        text = re.sub(around, "", text)
    return text


def kind_of(unit: str) -> tuple[str, float]:
    """The kind of a unit, and how much of its kind's own unit it is.

    >>> kind_of("µs"), kind_of("GB"), kind_of("tokens/s")
    (('s', 1e-06), ('bytes', 1000000000.0), ('count', 1.0))
    """
    if unit in ("", "side", *READING["kinds"]):
        return unit, 1.0  # a share is kept as a share of 1
    for kind, patterns in READING["kinds"].items():
        for pattern, scales in patterns:
            if found := re.fullmatch(pattern, unit.lower()):
                return kind, float(scales[found[1]])
    return "count", 1.0


def read(text: str, unit: str = "", kind: str = "", scale: float = 1.0) -> Typed | str:
    """The number that *text* says, or what to say where it says none.

    Where an exercise asks for a *unit*, *kind* and *scale* are what `kind_of` says of it. A number alone is as exact as its last
    digit, a calculation is exact.

    >>> read("33.5 MB").value, round(read("0.12 ms", "µs", "s", 1e-6).value), read("7:3").value == read("2 1/3").value
    (33500000.0, 120, True)
    """
    written = text.strip()
    text = _rewritten(written, unit, kind)
    if text.count(":") == 1:
        left, right = (read(part, unit, kind, scale) for part in text.split(":"))
        if isinstance(left, str) or isinstance(right, str) or not right.value:
            return str(READING["unread"])
        # 1.97:1 is rounded as 1.97 is; 7:3 is exact
        return left if right.value == 1 else Typed(left.value / right.value, bare=False)
    whole = re.match(f"-?(?:{READING['literal']})", text)
    try:
        value, end = _sum(text, 0)
    except (ValueError, ArithmeticError, TypeError):  # TypeError: the root of a negative number is complex
        return str(READING["unread"])
    rest = text[end:].strip()
    by = _scale(re.sub(READING["beside"], "", rest).strip(), kind)
    if by is None:
        if not unit or re.search(r"[0-9]", rest):
            return str(READING["unread"])
        at = written.lower().rfind(rest)
        shown = written[at:][: len(rest)] if at >= 0 else rest  # as it was written: "GB"
        return str(READING["foreign"].format("as a factor" if unit == "×" else f"in {unit}", shown))
    bare = by == 0  # no unit: the number is in the unit that is asked for
    by = 1.0 if bare else by / scale
    if isinstance(value, complex) or not math.isfinite(value * by):
        return str(READING["unread"])
    if whole is None or whole.end() != end:
        return Typed(value * by, bare=bare)
    mantissa, _, power = _point(whole[0]).partition("e")
    before, _, behind = mantissa.partition(".")
    figures = (before + behind).lstrip("-0")
    zeros = 0 if "." in mantissa else len(figures) - len(figures.rstrip("0"))
    return Typed(value * by, len(figures), 0.5 * by * 10.0 ** (int(power or 0) - len(behind)), zeros, bare)


def letter(text: str, unit: str = "", kind: str = "", known: Iterable[str] = ()) -> str:
    """The letter of a formula, whose value is missing; empty where there is none. Alone it must be a *known* one.

    >>> letter("d = 20·R"), letter("20 k")
    ('R', '')
    """
    said = _rewritten(text, unit, kind)
    found = re.match(READING["formula"], said)
    name = found[1] if found else said if said in map(str.lower, known) else ""
    return name and text[text.lower().rfind(name)]


def _rewritten(text: str, unit: str, kind: str) -> str:
    text = text.strip().lower()
    for pattern, into, *kinds in READING["rewritten"]:
        if not kinds or kind in kinds or unit in kinds:
            text = re.sub(pattern, into, text)
    return text


def _scale(rest: str, kind: str) -> float | None:
    """By how much what stands behind a number multiplies it, in the kind's own unit; 0 for no unit, None for a foreign one."""
    if not rest:
        return 0.0
    own, small = READING["kinds"].get(kind, []), kind in READING["unprefixed"]
    billion = [] if kind in ("", "bytes", "bytes/s") or small else [READING["billion"]]
    every = [pattern for patterns in READING["kinds"].values() for pattern in patterns]
    for pattern, scales in [*own, *billion, *([] if kind else every)]:
        if found := re.fullmatch(pattern + READING["end"], rest):
            return float(scales[found[1]])
    prefix, scales = READING["alone"]
    strict = kind in READING["strict"]
    if (found := re.fullmatch(prefix + ("" if strict else READING["end"]), rest)) and found[1]:
        return None if small else float(scales[found[1]])
    foreign = strict or any(re.fullmatch(pattern + READING["end"], rest) for pattern, _ in every)
    return None if foreign or re.search(r"[0-9]", rest) else 0.0


def _point(literal: str) -> str:
    """A literal with a decimal point and nothing between its thousands."""
    grouped = re.match(r"[1-9][0-9]{0,2}([,_ '’][0-9]{3})+(?![0-9])", literal)
    return re.sub(r"[,_ '’]", "", literal) if grouped else literal.replace(",", ".")


# Arithmetic without eval: each takes the text and a position, and gives a value and the position behind it.


def _sum(text: str, at: int) -> tuple[float, int]:
    value, at = _term(text, at)
    while sign := re.compile(r" *([-+])").match(text, at):
        right, at = _term(text, sign.end())
        value = value + right if sign[1] == "+" else value - right
    return value, at


def _term(text: str, at: int) -> tuple[float, int]:
    value, at = _factor(text, at)
    while sign := re.compile(READING["times"]).match(text, at):
        right, at = _factor(text, sign.end())
        value = value * right if sign[1] == "*" else value / right
    return value, at


def _factor(text: str, at: int) -> tuple[float, int]:
    if sign := re.compile(r" *([-+])").match(text, at):
        value, at = _factor(text, sign.end())
        return (-value if sign[1] == "-" else value), at
    value, at = _atom(text, at)
    if power := re.compile(r" *\*\*").match(text, at):
        right, at = _factor(text, power.end())
        value = value**right
    return value, at


def _atom(text: str, at: int) -> tuple[float, int]:
    """A number, something in brackets, an exponential, a root, or the e of a power."""
    if called := re.compile(r" *(exp|sqrt|√)").match(text, at):
        value, at = _atom(text, called.end())
        return (math.exp(value) if called[1] == "exp" else value**0.5), at
    if opened := re.compile(r" *\(").match(text, at):
        value, at = _sum(text, opened.end())
        if not (closed := re.compile(r" *\)").match(text, at)):
            raise ValueError(text)
        return value, closed.end()
    if base := re.compile(r" *e(?= *\*\*)").match(text, at):
        return math.e, base.end()
    if literal := re.compile(rf" *({READING['literal']})").match(text, at):
        return float(_point(literal[1])), literal.end()
    raise ValueError(text)
