"""Numbers in prose that cannot go stale: each is said (computed and compared) or cited (and attributed)."""

from __future__ import annotations

import html
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

from flopkit import units

__all__ = ["cites", "number_text", "numbers_in", "says"]

_RAISED = re.compile("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_LOWERED = {ord(high): low for high, low in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)}
_PLAINER = [
    (re.compile(r"\s+"), " "),
    (re.compile(r"^(?:about|roughly|around|some|nearly|almost|~|≈) ?", re.IGNORECASE), ""),
    (re.compile(r" ?(?:per cent|percent)\b"), " %"),
    (re.compile(r"(?<=\d) times\b.*"), "×"),
    (re.compile(r"(?<=\d)-(?=[A-Za-z])"), " "),  # a 2-byte number
    (re.compile(r"^10\^(?=-?\d)"), "1e"),
]


def says(text: str, value: Any) -> None:
    """Assert that the prose, which prints *text*, prints *value*.

    Parameters
    ----------
    text : str
        The number as it stands in the prose, with its unit: "137.4 GFLOPs", "0.3 %", "13.6×", "26,624 tokens".
    value : Any
        What it should be, in the base unit: FLOPs, bytes, seconds; a fraction for "%".

    Raises
    ------
    AssertionError
        Where it does not, with the text the prose should have.
    ValueError
        Where *text* holds no number that can be read.

    Notes
    -----
    The value must round to the digits that are printed. After "about", zeros at the end are not digits:
    "about 300 tokens" may be 325, "300 tokens" may not.

    Examples
    --------
    >>> says("137.4 GFLOPs", 2 * 4096**3)
    >>> says("137.5 GFLOPs", 2 * 4096**3)
    Traceback (most recent call last):
        ...
    AssertionError: the prose says '137.5 GFLOPs', the value is 137,438,953,472 FLOPs: write '137.4 GFLOPs'
    """
    plain = number_text(text)
    printed = units.parse(plain)
    exact = _exact(text, value)
    half = Fraction(printed.half_ulp)
    digits = re.sub(r"\D", "", _digits(plain))
    if plain != text.strip() and "." not in _digits(plain) and digits.strip("0"):
        half *= 10 ** (len(digits) - len(digits.rstrip("0")))
    slack = abs(exact) / 10**12  # the last bits of a float
    if not abs(exact - _printed(plain, printed)) <= half + slack:
        raise AssertionError(
            f"the prose says {text!r}, the value is {_spelled(exact, printed.unit)}: write {_rewritten(text, plain, exact, printed)!r}"
        )


def cites(text: str, source: str) -> None:
    """Mark a number in the prose as somebody else's.

    Parameters
    ----------
    text : str
        The number as it stands in the prose.
    source : str
        Who says so: a paper, a thread, an address, a file of data.

    Raises
    ------
    ValueError
        Where there is no number or no source.

    Examples
    --------
    >>> cites("21.3 %", "Chowdhery et al., PaLM, 2022, table 3")
    """
    if not isinstance(text, str) or not re.search(r"\d", text):
        raise ValueError(f"text={text!r}: must be the number as the prose prints it, e.g. '21.3 %'")
    if not isinstance(source, str) or len(source.strip()) < 8:
        raise ValueError(f"source={source!r}: say where {text!r} comes from: author, title and year, or an address")


def number_text(text: str) -> str:
    """A number as printed without "about" before it, with plain spaces.

    >>> number_text("about 325 tokens")
    '325 tokens'
    """
    if not isinstance(text, str):
        raise TypeError(f"text={text!r}: must be the number as the prose prints it, e.g. '137.4 GFLOPs'")
    plain = _plain_powers(text).strip()
    for pattern, plainer in _PLAINER:
        plain = pattern.sub(plainer, plain)
    return plain


def _plain_powers(text: str) -> str:
    """10⁹ as 10^9."""
    return _RAISED.sub(lambda raised: "^" + raised.group().translate(_LOWERED), text)


# -- finding them -----------------------------------------------------------------------------------------------

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?:[eE][-+−]?\d+|\s?[×·]\s?10\^-?\d+|(?<=10)\^-?\d+)?(?:\s?(?:thousand|million|billion|trillion))?"
_PREFIX = r"(?:[kKMGTPEZ]|(?:kilo|mega|giga|tera|peta|exa))?"
_PER = r"(?:(?:/| per )(?:s|second|B|byte|token|step|clock|sample|image|layer|parameter|position|pair|element|number|multiply-add)s?\b)?"
_UNIT = (
    rf"(?:{_PREFIX}(?:FLOPS|FLOPs?|flops?|MACs?|macs?)\b{_PER}"
    rf"|(?:[kKMGTP]i?)?B\b{_PER}|{_PREFIX}bytes?\b{_PER}"
    r"|(?:[mµunp]s|s|seconds?|minutes?|min|hours?|days)\b"
    r"|%|per cent\b|percent\b)"
)
_RATIO = (
    r"(?:×(?!\s?\d|[\w(])| times(?= (?:as|more|fewer|less|larger|smaller|bigger|faster|slower|higher|lower|too|the)\b))"
)
_NUMBER = re.compile(
    rf"(?<![\w.,×^/\-−])(?<![·×]\s)(?:(?P<low>{_DIGITS})(?:\s?[–-]\s?| (?:to|and|or|or an?|against) ))?"
    rf"(?P<high>[−-]?{_DIGITS})(?P<unit>(?:\s|-)?{_UNIT}|{_RATIO})"
)
_NOT_PROSE = [
    re.compile(r"^(```+|~~~+).*?^\1", re.DOTALL | re.MULTILINE),  # code blocks
    re.compile(r"\$\$.*?\$\$", re.DOTALL),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"`[^`\n]+`"),
    re.compile(r"(?<!\\)\$(?!\s)[^$\n]+?(?<!\s)\$"),
    re.compile(r"(?<=\])\([^)\s]+\)"),  # the address of a link
    re.compile(r"<?https?://\S+"),
    re.compile(r"<[a-zA-Z/][^>]*>"),  # HTML tags
    re.compile(r"^\*\*Time\*\*.*$", re.MULTILINE),  # how long a chapter takes is no claim
]


def numbers_in(markdown: str) -> list[str]:
    """The numbers with one of the book's units that stand in the prose of *markdown*, in order, each once.

    FLOPs, MACs, FLOP/s, bytes, seconds, per cent and ratios, with their prefixes. A range gives both its ends. Code,
    formulas, addresses and the line of a chapter that says how long it takes are not prose.

    >>> numbers_in("A `3 GB` tensor of 137.4 GFLOPs takes 1–2 ms, which is 13.6× less and 0.3 % of 4,096 tokens.")
    ['137.4 GFLOPs', '1 ms', '2 ms', '13.6×', '0.3 %']
    """
    for pattern in _NOT_PROSE:
        markdown = pattern.sub(" ", markdown)
    text = html.unescape(re.sub(r"[*_]{2}|\\(?=[%$])", "", markdown))
    text = _plain_powers(re.sub(r"\s+", " ", text))
    found: dict[str, None] = {}
    for match in _NUMBER.finditer(text):
        for digits in (match["low"], match["high"]):
            if digits:
                found[number_text(digits + match["unit"])] = None
    return list(found)


# -- comparing --------------------------------------------------------------------------------------------------


def _exact(text: str, value: Any) -> Fraction:
    if isinstance(value, (bool, str)) or value is None:
        raise TypeError(f"value={value!r} for {text!r}: must be the computed number")
    if hasattr(value, "flops"):
        raise TypeError(f"value for {text!r} is a whole {type(value).__name__}: pass one of its numbers, e.g. .flops")
    try:
        number = value.item() if hasattr(value, "item") else value
        return Fraction(number) if isinstance(number, (int, float, Fraction, Decimal)) else Fraction(float(number))
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"value={value!r} for {text!r}: must be one finite number") from error


def _digits(plain: str) -> str:
    match = re.match(r"[-−+]?[\d,]*\.?\d*", plain)
    return match.group() if match else ""


def _printed(plain: str, printed: units.Quantity) -> Fraction:
    """The printed number without the last bits of a float: a whole number of printed steps."""
    step = 2 * Fraction(printed.half_ulp)
    return round(Fraction(printed.value) / step) * step


def _spelled(exact: Fraction, unit: str) -> str:
    number = f"{int(exact):,}" if exact.denominator == 1 else f"{float(exact):.10g}"
    return f"{number} (a fraction)" if unit == "%" else f"{number} {unit}".strip()


def _rewritten(text: str, plain: str, exact: Fraction, printed: units.Quantity) -> str:
    """*text* with the number it should hold: the same unit and decimals, or a better prefix where that would be silly."""
    digits = _digits(plain)
    decimals = len(digits.partition(".")[2])
    scale = 2 * Fraction(printed.half_ulp) * 10**decimals
    number = float(exact / scale)
    if not 0.1 <= abs(number) < 10_000 and printed.unit not in ("%", "×"):
        return text.replace(plain, units.format_value(float(exact), printed.unit))
    return text.replace(digits, f"{number:,.{decimals}f}", 1)
