"""Numbers as people write them: "33.55 MB", "7:3", "2 1/3", "314 ZFLOPs", "a third", "exp(-2)" or "2*3/4".

The built page has no kernel: book/_ext/exercises.js does there what `read` does here, with the patterns of this file.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

__all__ = ["READING", "Typed", "kind_of", "plain", "read"]

_BIG = {prefix: 1000.0**power for power, prefix in enumerate(["", *"kmgtpezy"])}
_BIG |= {f"{prefix}i": 1024.0**power for power, prefix in enumerate("kmgt", 1)}
_BIG |= {word: _BIG[word[0]] for word in ("kilo", "mega", "giga", "tera", "peta", "exa", "zetta", "yotta")}
_WORDS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_BIG |= _WORDS
_SMALL = {"": 1, "m": 1e-3, "µ": 1e-6, "μ": 1e-6, "u": 1e-6, "n": 1e-9, "milli": 1e-3, "micro": 1e-6, "nano": 1e-9}
_SPELLED = {  # fractions first: one third is not 1
    "(?:(?:a|one) )?half": "1/2",
    "(?:(?:a|one) )?third": "1/3",
    "two[ -]thirds": "2/3",
    "(?:(?:a|one) )?quarter": "1/4",
    "three[ -]quarters": "3/4",
    "zero|none|nothing|no more": "0",
    "twice|double": "2",
    **{
        f"{word}(?:-?fold)?": str(number)
        for number, word in enumerate("one two three four five six seven eight nine ten eleven twelve".split(), 1)
    },
}
_PREFIX = f"({'|'.join(sorted(_BIG, key=len))})[ -]?"  # the empty one first: MACs are no mega-ACs
_SECOND = r"(?: ?(?:\/|per|a) ?(?:second|sec|s)|ps)"
_NOT_PER = r"(?! ?(?:\/|per|a) ?(?:s|sec|second|b|byte)(?![a-z]))"
_TWICE = {prefix: 2 * by for prefix, by in _BIG.items()}  # the FLOPs of a multiply-add
_EIGHTH = {prefix: by / 8 for prefix, by in _BIG.items()}
_PER_CENT = [r"()(?:%|per ?cent|percentage points?|pct)", {"": 0.01}]

# Regular expressions that Python and JavaScript read in the same way, for text in small letters.
READING: dict[str, Any] = {
    "literal": r"(?:[1-9][0-9]{0,2}(?:[,_ '’][0-9]{3})+(?![0-9])(?:\.[0-9]*)?|[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:e[-+]?[0-9]+)?",
    "times": r" *([*\/])(?= *(?:[-+0-9.,(√]|e *\*\*|exp|sqrt))",  # "7,946/s" is no division
    "side": r"([0-9]+) *[x×] *\1[^0-9]*",  # of a square: a 5 × 5 kernel is 5
    "dollars": r"^ *\$ *",
    "rewritten": [  # in this order
        [r"[\u00a0\u2009\u202f\t]", " "],
        [
            r"^(?: *(?:[≈~=≥≤]|(?:it is|about|approximately|approx\.?|roughly|around|circa|ca\.?|nearly|exactly|at least|at most|up to|from|by|(?:a )?factor(?: of)?)(?= )))+ *",
            "",
        ],
        [r"^[x×] *(?=[0-9])", ""],
        *([rf"^(?:{word})(?![a-z])", number] for word, number in _SPELLED.items()),
        [r"(?<=[0-9)e])(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])", "**"],
        *([raised, sign] for raised, sign in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-", strict=True)),
        [r"([0-9)]) *x(?= *[0-9(])", r"\1*"],
        [r"[×·](?= *(?:[-0-9(√]|e *(?:\^|\*\*)|exp|sqrt))", "*"],
        [r"\^", "**"],
        [r"(?<=[0-9.]) *\* *10 *\*\* *([-+]?[0-9]+)", r"e\1"],
        [r"(?<=[0-9])-fold(?![a-z])", " fold"],
        [r" +to +(?=[0-9])", ":"],
        [r"^(-?)([0-9]+) +([0-9]+ *\/ *[0-9]+)(?= *[^0-9]*$)", r"\1(\2+\3)"],
    ],
    # What stands around a unit: "50 more MB at least".
    "beside": r"^(?:more|fewer|less|extra|additional)(?![a-z]) *| *(?:at least|at most|in all|altogether|each|or so)[.! ]*$",
    # What stands behind a number, by kind, and by how much its first group multiplies. More specific kinds stand first.
    "kinds": {
        "FLOPs per byte": [[_PREFIX + r"flops? ?(?:\/|per|a) ?(?:b|bytes?)", _BIG]],
        "MACs": [[_PREFIX + rf"(?:macs?|multiply-adds?){_NOT_PER}", _BIG]],
        "FLOPs": [
            [_PREFIX + rf"(?:flops?|(?:floating[- ]point )?op(?:eration)?s?){_NOT_PER}", _BIG],
            [_PREFIX + rf"(?:macs?|multiply-adds?){_NOT_PER}", _TWICE],
        ],
        "FLOP/s": [  # TFLOPS may be either
            [_PREFIX + rf"flops?(?:{_SECOND}|(?! ?(?:\/|per)))", _BIG],
            [_PREFIX + rf"macs?{_SECOND}", _TWICE],
        ],
        "bytes/s": [[_PREFIX + rf"(?:b|bytes?){_SECOND}", _BIG], [_PREFIX + rf"bits?{_SECOND}", _EIGHTH]],
        "bytes": [[_PREFIX + rf"(?:b|bytes?){_NOT_PER}", _BIG], [_PREFIX + rf"bits?{_NOT_PER}", _EIGHTH]],
        "s": [
            [f"({'|'.join(_SMALL)})[ -]?(?:s|secs?|seconds?)", _SMALL],
            [r"()min(?:ute)?s?", {"": 60}],
            [r"()h(?:ours?|rs?)?", {"": 3600}],
            [r"()d(?:ays?)?", {"": 86400}],
        ],
        "%": [_PER_CENT],
        "×": [[r"()(?:×|x|times|fold)", {"": 1}], _PER_CENT],
        "$": [[r"()(?:\$|dollars?|usd)", {"": 1}], [r"()(?:cents?|¢)", {"": 0.01}]],
    },
    "end": r"(?![a-z0-9]|-[a-z])[^0-9]*",
    # A prefix alone: "65.13 T", "1.1B parameters".
    "alone": [_PREFIX, _BIG],
    "billion": [r"(bn?)", {"b": 1e9, "bn": 1e9}],
    "strict": ["FLOPs per byte", "FLOP/s", "FLOPs", "bytes/s", "bytes", "s"],  # of these, any other word is refused
    "unprefixed": ["s", "%", "$"],  # these take no large prefix
    # What a word may come with: "It is a count.", "aten::mv.default".
    "around": [
        r"^[\"“”'‘’`* ]+|[\"“”'‘’`*.! ]+$",
        r"^(?:it is )?(?:(?:answer|option|choice|letter) )?(?:an? |the )?",
        r"^[\"“”'‘’`*]+|[\"“”'‘’`*]+$",
        r"^(?:torch\.ops\.)?(?:aten|torch)(?:\.|::)|(?:\.default)?(?:\(\))?$",
    ],
    "unread": "not a number that can be read here: write 1,234 or 7.25 GB or 12 %",
    "foreign": "asked for {}: “{}” is something else",
}


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
    text = written.lower()
    if kind == "side" and (square := re.fullmatch(READING["side"], text)):
        return Typed(float(square[1]))
    for pattern, into in READING["rewritten"]:
        text = re.sub(pattern, into, text)
    if kind in ("", "$"):
        text = re.sub(READING["dollars"], "", text)
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
        return str(READING["foreign"].format("as a factor" if unit == "×" else f"in {unit}", written[-len(rest) :]))
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


def _scale(rest: str, kind: str) -> float | None:
    """By how much what stands behind a number multiplies it, in the kind's own unit; 0 for no unit, None for a foreign one."""
    if not rest:
        return 0.0
    own = READING["kinds"].get(kind, [])
    alone = [] if kind in READING["unprefixed"] else [READING["alone"]]
    billion = [READING["billion"]] if kind not in ("", "bytes", "bytes/s", *READING["unprefixed"]) else []
    every = [pattern for patterns in READING["kinds"].values() for pattern in patterns]
    for pattern, scales in [*own, *billion, *(every if not kind else []), *alone]:
        found = re.fullmatch(pattern + READING["end"], rest)
        if found and (found[1] or pattern != READING["alone"][0]):
            return float(scales[found[1]])
    strict = kind in READING["strict"] or any(re.fullmatch(pattern + READING["end"], rest) for pattern, _ in every)
    return None if strict or re.search(r"[0-9]", rest) else 0.0


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
