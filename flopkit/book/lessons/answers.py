"""What to say to an answer as people write it. `flopkit.book.lessons.typed` reads the numbers.

The built page has no kernel: book/book_ext/exercises.js does there what `remark` does here.
It gets the patterns from `flopkit.book.lessons.notation` and the words from here. Both are
tested with the rows of tests/data/answers.json and tests/data/exercises.json.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from flopkit.book.lessons.boxes import Box
from flopkit.book.lessons.notation import READING
from flopkit.book.lessons.typed import Typed, letter, plain, read

__all__ = ["SHARED", "remark"]

_ANY = Box()  # takes every unit

SHARED: dict[str, Any] = {
    **READING,
    # A wrong answer's factor, what is said of it, and what more is said where these kinds of numbers are asked for ("": any).
    "factors": [
        [2, "twice what is asked", ["FLOPs", "FLOP/s"], ": is a multiply-add counted once here?"],
        [1 / 2, "half of what is asked", ["FLOPs", "FLOP/s"], ": multiply-adds, where FLOPs are asked for?"],
        [4, "four times what is asked", ["bytes"], ": is a number's size in bytes in there that should not be?"],
        [1 / 4, "a quarter of what is asked", ["bytes"], ": elements, where bytes are asked for?"],
        [8, "eight times what is asked", ["bytes"], ": bits, where bytes are asked for?"],
        [1 / 8, "an eighth of what is asked", [], ""],
        [100, "a hundred times what is asked", ["", "×"], ": if it is in per cent, write the sign, too: 12 %"],
        [1 / 100, "a hundredth of what is asked", [""], ": a fraction, where per cent are asked for?"],
        [-1, "right but for its sign", [], ""],
    ],
    "inverse": "the other way round: divided by what should be divided?",
    "more": "that is how much more, not how many times as much",
    "rest": "what is left of the whole: is the other part asked for?",
    "digit": "right so far, but give at least {} digits",
    "digits": {"2": "two", "3": "three", "4": "four"},
    "close": "close, but not to the last digit",
    "outside": "“more than” and “less than” leave the number out: write the one that is asked for",
    "symbol": "put in the value of {}",
    "decimal": r"([kmgt])(?=b(?:ytes?)?(?![a-z])|$)",
    "binary": "{}B is a power of 1,000 here: write {}iB for the power of 1,024",
    "powers": ["", "a thousand", "a million", "a billion", "a trillion"],
    "power": "{} times {}",
    "large": "too large",
    "small": "too small",
    "taken": ": without a unit it is read in {}",
    "comma": ": a comma before three digits marks thousands, so write a decimal point",
    "other": "not what is asked for",
    "none": "none of the choices: give one of {}",
    "several": "more than one of the choices: give one of {}",
    # "(b)", "b)" or "b: the norm"; a letter and words need something between them, for "a cache" is no (a).
    "letter": r"[(\[]?([a-z])[)\].:]*|[(\[]?([a-z])(?:[)\].:]+| is) [^(]*",
}


def remark(answer: Any, expected: Any, rel: float, hints: Mapping[Any, str], box: Box = _ANY) -> str:
    """What to say to an answer, a number or text; nothing where it is right. The *box* says what is asked for."""
    if isinstance(expected, (bool, str)):
        return _of_words(str(answer), str(expected), hints, box)
    text = _text(answer)
    if box.same and re.fullmatch(SHARED["stays"], text.lower()):
        text = box.same
    if symbol := letter(text, box.unit, box.kind, box.letters):
        known = (f"{name}: {value}" for name, value in box.letters.items() if name.lower() == symbol.lower())
        return str(SHARED["symbol"].format(next(known, symbol)))
    given = read(text, box.unit, box.kind, box.scale) if text else str(SHARED["other"])
    if isinstance(given, str):
        return given
    readings = [given]
    if box.kind == "%" and given.bare:  # per cent or a share: right if either is
        readings.append(given._replace(value=given.value / 100, half=given.half / 100))
    whole = rel <= 1e-9 and float(expected).is_integer()
    if whole and box.kind in SHARED["counted"] and re.match(SHARED["bound"], text.lower()):
        return str(SHARED["outside"])
    unlike = (
        isinstance(answer, int) and whole and answer != expected and not given.zeros
    )  # beyond 2⁵³ floats can't tell
    near = 0.0 if whole and given.half == 0.5 else max(rel, 1e-9)  # a whole number is exact
    if not unlike and any(_near(each.value, expected, near) for each in readings):
        return ""
    for each in readings:
        # Neither 160 nor 0.16k tokens are a rounded 161, but 5,900 may be a rounded 5,907, and 115,600,000 FLOPs are 115.6 MFLOPs.
        rounded = [] if whole and box.kind in SHARED["counted"] and each.half > 0.5 else [(each.digits, each.half)]
        if not whole or (box.kind in SHARED["strict"] and each.digits - each.zeros >= box.digits):
            rounded.append((each.digits - each.zeros, each.half * 10.0**each.zeros))
        enough = [digits for digits, half in rounded if _rounds(expected, each.value, half)]
        if unlike or not enough:
            continue
        if max(enough) >= box.digits:
            return ""
        known = (hint for key, hint in hints.items() if not isinstance(key, str) and each.value == key)
        # "1" for 0.72 may be a wrong belief and no rounding
        return next(known, str(SHARED["digit"]).format(SHARED["digits"][str(box.digits)]))
    return _reason(text, readings, expected, rel, hints, box)


def _of_words(answer: str, expected: str, hints: Mapping[Any, str], box: Box) -> str:
    found = _chosen(answer, box)
    if len(found) > 1:
        return str(SHARED["several"].format(", ".join(box.choices)))
    said = {plain(answer), *map(plain, found)}
    if plain(expected) in said:
        return ""
    known = (hint for key, hint in hints.items() if said & {plain(str(key)), *map(plain, _chosen(str(key), box))})
    none = SHARED["none"].format(", ".join(box.choices)) if box.choices and not found else SHARED["other"]
    return next(known, str(none))


def _chosen(answer: str, box: Box) -> list[str]:
    """The choices that an answer names, by letter or by words."""
    said = plain(answer)
    letter = re.fullmatch(SHARED["letter"], said)
    named = [key for key in box.choices if letter and plain(key) == (letter[1] or letter[2])]
    return named or [
        key
        for key, words in box.choices.items()
        if any(re.search(rf"(?<![a-z]){word}(?![a-z])", said) for word in (*words, *[key] * (len(key) > 1)))
    ]


def _text(answer: Any) -> str:
    """An answer as it would be typed; empty where it is no number."""
    if isinstance(answer, str):
        return answer.strip() or "?"
    try:
        number = float(answer)
    except (TypeError, ValueError):
        return ""
    if isinstance(answer, bool) or not math.isfinite(number):
        return ""
    if isinstance(answer, int):
        return str(int(answer))
    rounded = abs(number) >= 1e4 and number % 100 == 0  # 115.6e6 has four digits
    return f"{Decimal(repr(number)).normalize():e}" if rounded else repr(number)


def _reason(text: str, readings: list[Typed], expected: float, rel: float, hints: Mapping[Any, str], box: Box) -> str:
    """Why a wrong number may have come out. A hint of the exercise goes first."""
    own: list[tuple[float, str]] = [(key, hint) for key, hint in hints.items() if not isinstance(key, str)]
    # Of 16.6, which may be per cent or a share, the nearer one is meant.
    given = min(readings, key=lambda each: _apart(each.value, expected))
    known: list[tuple[float, str]] = []
    if expected:
        known = [(1 / expected, SHARED["inverse"])]
        known += [
            (factor * expected, said + (more if box.kind in kinds else ""))
            for factor, said, kinds, more in SHARED["factors"]
        ]
    if 0 < expected < 1 and box.kind in ("", "%", "×"):
        known.append((1 - expected, SHARED["rest"]))
    if expected > 1 and box.kind == "×":
        known.append((expected - 1, SHARED["more"]))
    believed = [(abs(each.value - value), said) for each in readings for value, said in own if _meets(each, value)]
    if believed:  # the nearest of them
        return min(believed, key=lambda hint: hint[0])[1]
    if box.kind in ("bytes", "bytes/s") and (prefix := re.search(SHARED["decimal"], text.lower())):
        in_binary = f"{text[: prefix.end()]}i{text[prefix.end() :]}"
        if not remark(in_binary, expected, rel, {}, box):
            return str(SHARED["binary"].format(text[prefix.start()], prefix[1].upper()))
    if said := next((said for value, said in known if _meets(given, value)), ""):
        return said
    if _near(given.value, expected, 0.03):
        return str(SHARED["close"])
    ratio = given.value / expected if expected else 0.0
    thousands = round(math.log10(ratio) / 3) if 0 < ratio < math.inf else 0
    words = str(SHARED["large" if given.value > expected else "small"])
    if not thousands or not _near(ratio, 1000.0**thousands, max(1e-3, rel, given.half / abs(given.value))):
        return words
    powers, power = SHARED["powers"], abs(thousands)
    times = powers[power] if power < len(powers) else f"10^{3 * power}"
    more = SHARED["taken"].format(box.unit) if given.bare and box.kind in SHARED["strict"] else ""
    if thousands == 1 and text.count(",") == 1:
        more = SHARED["comma"]
    return str(SHARED["power"].format(times, words) + more)


def _rounds(expected: float, value: float, half: float) -> bool:
    """Whether a number is the rounded answer, or rounded from an answer that was printed with one more digit: 24, from 23.5, from 23.4976."""
    apart, most, step = abs(value - expected), half * (1 + 1e-9), half / 5
    return apart <= most or (apart < 1.2 * half and abs(value - step * math.floor(expected / step + 0.5)) <= most)


def _meets(given: Typed, value: float) -> bool:
    return _near(given.value, value, 1e-3) or (given.digits > 1 and abs(given.value - value) <= given.half)


def _apart(value: float, expected: float) -> float:
    ratio = value / expected if expected else 0.0
    return abs(math.log(ratio)) if ratio > 0 else math.inf


def _near(a: float, b: float, rel: float) -> bool:
    return abs(a - b) <= rel * abs(b)
