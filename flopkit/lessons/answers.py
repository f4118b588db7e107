"""Answers as people write them, and what to say to one: "33.55 MB", "7:3", "2 1/3", "314 ZFLOPs", "a third" or "2*3/4".

The built page has no kernel: book/_ext/exercises.js does there what `read` and `remark` do here. It gets the patterns and the words
from this file, and both are tested with the rows of tests/data/answers.json.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["SHARED", "Typed", "plain", "read", "remark"]

_BIG = {prefix: 1000.0**power for power, prefix in enumerate(["", *"kmgtpezy"])}
_BIG |= {f"{prefix}i": 1024.0**power for power, prefix in enumerate("kmgt", 1)}
_BIG |= {word: _BIG[word[0]] for word in ("kilo", "mega", "giga", "tera", "peta", "exa", "zetta", "yotta")}
_WORDS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_SPELLED = {  # fractions first: one third is not 1
    "(?:(?:a|one) )?half": "1/2",
    "(?:(?:a|one) )?third": "1/3",
    "two[ -]thirds": "2/3",
    "(?:(?:a|one) )?quarter": "1/4",
    "three[ -]quarters": "3/4",
    "zero|none|nothing|no more": "0",
    **{
        word: str(number)
        for number, word in enumerate("one two three four five six seven eight nine ten eleven twelve".split(), 1)
    },
}
_PREFIX = "|".join(sorted(_BIG, key=len))  # the empty one first: MACs are no mega-ACs

# Regular expressions that Python and JavaScript read in the same way.
SHARED: dict[str, Any] = {
    "literal": r"(?:[1-9][0-9]{0,2}(?:[,_ ][0-9]{3})+(?![0-9])(?:\.[0-9]*)?|[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?",
    "side": r"([0-9]+) *[x×] *\1",  # of a square: a 5 × 5 kernel is 5
    "rewritten": [  # in this order
        [r"[\u00a0\u202f\t]", " "],
        [r"^ *(?:[≈~=]|about ) *", ""],
        [r"^ *\$ *", ""],  # dollars
        *([rf"^(?:{word})(?![a-z])", number] for word, number in _SPELLED.items()),
        [r"(?<=[0-9)])(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])", "**"],
        *([raised, sign] for raised, sign in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-", strict=True)),
        [r"([0-9]) *x(?= *[0-9(])", r"\1*"],
        [r"[×·]", "*"],
        [r"\^", "**"],
        [r"(?<=[0-9.]) *\* *10 *\*\* *([-+]?[0-9]+)", r"e\1"],
        [r" *\*? *$", ""],
        [r"^(-?)([0-9]+) +([0-9]+ *\/ *[0-9]+) *$", r"\1(\2+\3)"],
    ],
    # What stands behind a number, in small letters, and by how much its first group multiplies.
    "units": [
        [rf"({_PREFIX})[ -]?(?:flops?|macs?|b|bytes?|bits?)(?![a-z])[^0-9]*", _BIG],
        [r"(m|µ|μ|u|n)s(?:ec[^0-9]*)?", {"m": 1e-3, "µ": 1e-6, "μ": 1e-6, "u": 1e-6, "n": 1e-9}],
        [rf"({_PREFIX})", _BIG],
        [rf"({'|'.join(_WORDS)})(?![a-z])[^0-9]*", _WORDS],
        [
            r"(%|per ?cent|cents?(?![a-z]))[^0-9]*",
            {"%": 0.01, "percent": 0.01, "per cent": 0.01, "cent": 0.01, "cents": 0.01},
        ],
        [r"()[^0-9]*", {"": 1}],
    ],
    # What a word may come with: "It is a count.", "aten::mv.default".
    "around": [
        r"^[\"“”'‘’` ]+|[\"“”'‘’`.! ]+$",
        r"^(?:it is )?(?:an? |the )?",
        r"^[\"“”'‘’`]+|[\"“”'‘’`]+$",
        r"^(?:torch\.ops\.)?(?:aten|torch)(?:\.|::)|(?:\.default)?(?:\(\))?$",
    ],
    # A wrong answer's factor, what is said of it, and what more is said where the answer's name has this in it.
    "factors": [
        [2, "twice what is asked", "flop|mac|peak", ": is a multiply-add counted once here?"],
        [1 / 2, "half of what is asked", "flop|peak", ": multiply-adds, where FLOPs are asked for?"],
        [4, "four times what is asked", "byte", ": is a number's size in bytes in there that should not be?"],
        [1 / 4, "a quarter of what is asked", "byte", ": elements, where bytes are asked for?"],
        [8, "eight times what is asked", "byte", ": bits, where bytes are asked for?"],
        [1 / 8, "an eighth of what is asked", "", ""],
        [100, "a hundred times what is asked", "", ": if it is in per cent, write the sign, too: 12 %"],
        [1 / 100, "a hundredth of what is asked", "", ": a fraction, where per cent are asked for?"],
        [-1, "right but for its sign", "", ""],
    ],
    "inverse": "the other way round: divided by what should be divided?",
    "rest": "what is left of the whole: is the other part asked for?",
    "digit": "right so far: one more digit, please",
    "close": "close, but not to the last digit",
    "power": "off by a factor of 1000^{}: a prefix (k, M, G, T)?",
    "large": "too large",
    "small": "too small",
    "other": "not what is asked for",
    "unread": "not a number that can be read here: write 1,234 or 7.25 GB or 12 %",
}


class Typed(NamedTuple):
    """A number as it was written: its value, how many digits it has, and half of what the last one stands for (0 where exact)."""

    value: float
    digits: int = 99
    half: float = 0.0


def plain(text: str) -> str:
    """A word without case, quotes, article and torch's namespace.

    >>> plain("It is a “Count”."), plain("aten::mv.default")
    ('count', 'mv')
    """
    text = text.strip().lower()
    for around in SHARED["around"]:
        text = re.sub(around, "", text)
    return text


def read(text: str) -> Typed | None:
    """The number that ``text`` says, or None. A number alone is as exact as its last digit, a calculation is exact.

    >>> read("33.5 MB"), read("7:3").value == read("2 1/3").value, read("many")
    (Typed(value=33500000.0, digits=3, half=50000.0), True, None)
    """
    text = text.strip()
    text = text[:1].lower() + text[1:]  # "Eight"
    if square := re.fullmatch(SHARED["side"], text):
        return Typed(float(square[1]))
    if text.count(":") == 1:
        left, right = (read(part) for part in text.split(":"))
        if left is None or right is None or not right.value:
            return None
        # 1.97:1 is rounded as 1.97 is; 7:3 is exact
        return left if right.value == 1 else Typed(left.value / right.value)
    for pattern, into in SHARED["rewritten"]:
        text = re.sub(pattern, into, text)
    whole = re.match(f"-?(?:{SHARED['literal']})", text)
    try:
        value, end = _sum(text, 0)
        scale = _scale(text[end:].strip().lower())
        value = float(value * scale)
    except (ValueError, ArithmeticError, TypeError):  # TypeError: the root of a negative number is complex
        return None
    if not math.isfinite(value):
        return None
    if whole is None or whole.end() != end:
        return Typed(value)
    mantissa, _, power = _point(whole[0]).lower().partition("e")
    before, _, behind = mantissa.partition(".")
    return Typed(value, len((before + behind).lstrip("-0")), 0.5 * scale * 10.0 ** (int(power or 0) - len(behind)))


def remark(answer: Any, expected: Any, rel: float, hints: Mapping[Any, str], name: str = "") -> str:
    """What to say to an answer, a number or text; nothing where it is right. *name* is what the exercise calls it: ``"flops"``."""
    if isinstance(expected, (bool, str)):
        if str(answer) == str(expected) or plain(str(answer)) == plain(str(expected)):
            return ""
        known = (hint for key, hint in hints.items() if plain(str(key)) == plain(str(answer)))
        return next(known, SHARED["other"])
    if isinstance(answer, str):
        given = read(answer)
        if given is None:
            return str(SHARED["unread"])
        exact = False
    else:
        try:
            given = Typed(float(answer))
        except (TypeError, ValueError):
            return str(SHARED["other"])
        exact = rel <= 1e-9 and isinstance(expected, int) and given.value.is_integer()
    if isinstance(answer, bool) or math.isnan(given.value):
        return str(SHARED["other"])
    if answer == expected if exact else _near(given.value, expected, max(rel, 1e-9)):
        return ""
    if not exact and abs(given.value - expected) <= given.half * (1 + 1e-9):
        if given.digits > 1:
            return ""
        known = (hint for key, hint in hints.items() if not isinstance(key, str) and given.value == key)
        return next(known, str(SHARED["digit"]))  # "1" for 0.72 may be a wrong belief and no rounding
    return _reason(given, expected, hints, name)


def _reason(given: Typed, expected: float, hints: Mapping[Any, str], name: str) -> str:
    """Why a wrong number may have come out. A hint of the exercise goes first."""
    known: list[tuple[Any, str]] = [(key, hint) for key, hint in hints.items() if not isinstance(key, str)]
    if expected:
        known += [
            (factor * expected, said + (more if re.search(asked, name) else ""))
            for factor, said, asked, more in SHARED["factors"]
        ]
        known += [(1 / expected, SHARED["inverse"])]
    if 0 < expected < 1:
        known += [(1 - expected, SHARED["rest"])]
    for value, reason in known:
        if _near(given.value, value, 1e-3) or (given.digits > 1 and abs(given.value - value) <= given.half):
            return reason
    if _near(given.value, expected, 0.03):
        return str(SHARED["close"])
    ratio = given.value / expected if expected else 0.0
    thousands = round(math.log10(ratio) / 3) if 0 < ratio < math.inf else 0
    if thousands and _near(ratio, 1000.0**thousands, 1e-3):
        return str(SHARED["power"].format(thousands))
    return str(SHARED["large" if given.value > expected else "small"])


def _near(a: float, b: float, rel: float) -> bool:
    return abs(a - b) <= rel * abs(b)


def _scale(unit: str) -> float:
    for pattern, scales in SHARED["units"]:
        if found := re.fullmatch(pattern, unit):
            return float(scales[found[1]])
    raise ValueError(unit)


def _point(literal: str) -> str:
    """A literal with a decimal point and nothing between its thousands."""
    grouped = re.match(r"[1-9][0-9]{0,2}([,_ ][0-9]{3})+(?![0-9])", literal)
    return re.sub(r"[,_ ]", "", literal) if grouped else literal.replace(",", ".")


# Arithmetic without eval: each takes the text and a position, and gives a value and the position behind it.


def _sum(text: str, at: int) -> tuple[float, int]:
    value, at = _term(text, at)
    while sign := re.compile(r" *([-+])").match(text, at):
        right, at = _term(text, sign.end())
        value = value + right if sign[1] == "+" else value - right
    return value, at


def _term(text: str, at: int) -> tuple[float, int]:
    value, at = _factor(text, at)
    while sign := re.compile(r" *([*/])").match(text, at):
        right, at = _factor(text, sign.end())
        value = value * right if sign[1] == "*" else value / right
    return value, at


def _factor(text: str, at: int) -> tuple[float, int]:
    if sign := re.compile(r" *([-+])").match(text, at):
        value, at = _factor(text, sign.end())
        return (-value if sign[1] == "-" else value), at
    if opened := re.compile(r" *\(").match(text, at):
        value, at = _sum(text, opened.end())
        if not (closed := re.compile(r" *\)").match(text, at)):
            raise ValueError(text)
        at = closed.end()
    elif literal := re.compile(rf" *({SHARED['literal']})").match(text, at):
        value, at = float(_point(literal[1])), literal.end()
    else:
        raise ValueError(text)
    if power := re.compile(r" *\*\*").match(text, at):
        right, at = _factor(text, power.end())
        value = value**right
    return value, at
