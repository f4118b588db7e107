"""Numbers as a reader sees them, and back: ``si(137438953472, "FLOPs") == "137.4 GFLOPs"``.

The page's script (``charts/static/figure.js``) formats by the same rules and gives the same text to the byte; a browser test
compares the two. Rounding is half up on the exact decimal value, as JavaScript's ``toExponential`` does, and prefixes are set by
moving the decimal point, so no division can spoil a digit.

    four significant digits     FLOPs, FLOP/s, B, s and what else takes an SI prefix; plain numbers and counts
    three                       "%" (from a fraction) and "×"
    two places, with a sign     "+%", a difference (from a fraction): "+5.12 %"
    trailing zeros              are cut: "2 FLOPs", "1.5 TB"
    counts, "%", "×"            never lose a digit before the point: "14,336 tokens", "1,234×" (below 10²¹)

Everything is SI: GB is 10⁹ bytes. `parse` also reads GiB.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import NamedTuple

PREFIXES = dict(zip(range(-5, 11), ["f", "p", "n", "µ", "m", "", *"kMGTPEZYRQ"], strict=True))
PREFIXED = ("FLOPs", "FLOP", "MACs", "MAC", "B", "b", "s", "W", "Hz", "J")
"""Units that take an SI prefix, alone or before a slash ("TB/s"). "FLOP/B" does not: an intensity is a plain number."""
ALIASES = {"bytes": "B", "byte": "B", "bytes/s": "B/s", "seconds": "s", "second": "s", "percent": "%"}
ALIASES |= {"x": "×", "ratio": "×"}
LONG_TIMES = (("days", 86400), ("h", 3600), ("min", 60))


class Quantity(NamedTuple):
    """A printed number: its value in the base unit, that unit, and half of the last printed digit in the same unit.

    The number that was rounded to this text lies within ``value - half_ulp`` and ``value + half_ulp``.
    """

    value: int | float
    unit: str
    half_ulp: int | float


def si(value: float, unit: str, digits: int = 4) -> str:
    """``value`` with an SI prefix, rounded to ``digits`` significant digits.

    >>> si(137438953472, "FLOPs"), si(3.35e12, "B/s"), si(2, "FLOPs"), si(0.0012, "s")
    ('137.4 GFLOPs', '3.35 TB/s', '2 FLOPs', '1.2 ms')
    """
    special = _special(value)
    if special:
        return _join(special, unit)
    sign, figures, exponent = _round(value, digits)
    power = min(max(exponent // 3, min(PREFIXES)), max(PREFIXES)) if figures.strip("0") else 0
    if power == 0:
        return _join(sign + _place(figures, exponent), unit)
    return f"{sign}{_place(figures, exponent - 3 * power)} {PREFIXES[power]}{unit}"


def count(value: float, unit: str = "", digits: int = 4) -> str:
    """A plain number or a count of things, with thousands separators; every digit before the point is kept.

    >>> count(14336, "tokens"), count(1, "tokens"), count(682.6667, "tokens"), count(295.34)
    ('14,336 tokens', '1 token', '682.7 tokens', '295.3')
    """
    return _join(_special(value) or _plain(value, digits), unit)


def percent(value: float, digits: int = 3) -> str:
    """A fraction as per cent.

    >>> percent(0.52734), percent(1), percent(0.000123)
    ('52.7 %', '100 %', '0.0123 %')
    """
    return (_special(value) or _plain(value, digits, shift=2)) + " %"


def difference(value: float) -> str:
    """How far one thing is from another, a fraction, as per cent with its sign, to a hundredth.

    >>> difference(0.0512), difference(-0.4), difference(-0.0000259)
    ('+5.12 %', '−40 %', '0 %')
    """
    if not _special(value):
        value = int(_half_up(abs(Decimal(float(value))), -4)) / 10**4 * (-1 if value < 0 else 1)
    return ("+" if value > 0 else "") + (_special(value) or _plain(value, 9, shift=2)) + " %"


def times(value: float, digits: int = 3) -> str:
    """A ratio.

    >>> times(13.61), times(2), times(1234.5)
    ('13.6×', '2×', '1,235×')
    """
    return (_special(value) or _plain(value, digits)) + "×"


def seconds(value: float, digits: int = 4) -> str:
    """A time: SI below two minutes, then minutes, hours and days.

    >>> seconds(1.2e-3), seconds(90), seconds(7200), seconds(3e6)
    ('1.2 ms', '90 s', '2 h', '34.72 days')
    """
    size = abs(value)
    if size < 120 or _special(value):
        return si(value, "s", digits)
    name, length = next((name, length) for name, length in LONG_TIMES if size >= 2 * length)
    return count(value / length, name, digits)


_FORMATS: dict[str, Callable[[float], str]] = {"%": percent, "+%": difference, "×": times, "s": seconds}


def format_value(value: float | str, unit: str = "") -> str:
    """The text of ``value`` in ``unit``: one of the functions above, chosen by the unit. Text passes through; NaN is "–".

    >>> format_value(989.4e12, "FLOP/s"), format_value(0.5, "%"), format_value(4096, "tokens"), format_value(295.3, "FLOP/B")
    ('989.4 TFLOP/s', '50 %', '4,096 tokens', '295.3 FLOP/B')
    """
    if isinstance(value, str):
        return value
    if value != value:  # no number, and so no unit
        return "–"
    if isinstance(value, bool):
        raise TypeError(
            f"format_value got the truth value {value}; give its words instead, as in readout(..., text={{True: 'yes', False: 'no'}})"
        )
    unit = ALIASES.get(unit, unit)
    if unit in _FORMATS:
        return _FORMATS[unit](value)
    if unit != "FLOP/B" and unit.partition("/")[0] in PREFIXED:
        return si(value, unit)
    return count(value, unit)


def rounded(value: float, digits: int) -> float:
    """``value`` in so many significant digits, rounded half up: for a number that is worth no more.

    >>> rounded(541901.6, 3), rounded(0.8701, 2)
    (542000.0, 0.87)
    """
    if _special(value):
        return value
    sign, figures, exponent = _round(value, digits)
    return float(f"{sign.replace('−', '-')}{figures}e{exponent - len(figures) + 1}")


def parse(text: str) -> Quantity:
    """Read a printed number back. ``half_ulp`` is half of its last printed digit.

    Also read: "4,096 tokens", "1.07e15 FLOP/s", "3.4 × 10^8 FLOPs", "8.03 billion parameters", "80 GiB", "34.7 days".

    Raises
    ------
    ValueError
        For text without a number, and for FLOPS, which could be a count or a rate.

    Examples
    --------
    >>> parse("137.4 GFLOPs")
    Quantity(value=137400000000, unit='FLOPs', half_ulp=50000000)
    >>> parse("52.7 %"), parse("13.6×")
    (Quantity(value=0.527, unit='%', half_ulp=0.0005), Quantity(value=13.6, unit='×', half_ulp=0.05))
    """
    match = _NUMBER.match(text)
    if not match or match["unit"][:1] in tuple(".,_0123456789"):  # "1,2 B" is no number here, and not one of ",2 B"
        raise ValueError(
            f"no number at the start of {text!r}; write it as in '137.4 GFLOPs', '4,096 tokens' or '52.7 %'"
        )
    number = Decimal(match["sign"].replace("−", "-") + match["digits"].replace(",", ""))
    exponent = int((match["e"] or match["ten"] or "0").replace("−", "-"))
    last = Decimal(1).scaleb(int(number.as_tuple().exponent) + exponent)
    scale, unit = _unit(match["unit"].strip(), text)
    scale *= {"thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, None: 1}[match["word"]]
    return Quantity(_number(number.scaleb(exponent) * scale), unit, _number(last * scale / 2))


_NUMBER = re.compile(
    r"\s*(?P<sign>[-−+]?)(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?:[eE](?P<e>[-−+]?\d+))?(?:\s*[×·]\s*10\^(?P<ten>[-−]?\d+))?"
    r"(?:\s*(?P<word>thousand|million|billion|trillion)\b)?\s*(?P<unit>.*)",
    re.DOTALL,
)
_SCALES = {prefix: Decimal(1).scaleb(3 * power) for power, prefix in PREFIXES.items()}
_SCALES |= {"K": Decimal(1000), "u": Decimal("1e-6"), "μ": Decimal("1e-6")}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_TIMES = dict.fromkeys(("min", "minute", "minutes"), 60) | dict.fromkeys(("h", "hour", "hours"), 3600)
_TIMES |= dict.fromkeys(("d", "day", "days"), 86400)


def _unit(unit: str, text: str) -> tuple[Decimal, str]:
    """Scale and base unit of what stands behind a number."""
    unit = unit.replace(" per ", "/")
    unit = ALIASES.get(unit, unit)
    if unit == "%":
        return Decimal("0.01"), "%"
    if unit in _TIMES:
        return Decimal(_TIMES[unit]), "s"
    head, slash, tail = unit.partition("/")
    tail = {"byte": "B", "second": "s", "sec": "s"}.get(tail, tail)
    if re.fullmatch("[kKMGTPEZYRQ]?FLOPS", head):
        raise ValueError(f"{text!r} could be a count or a rate: write FLOPs for a count, FLOP/s for a rate")
    scale = Decimal(1)
    if head not in PREFIXED:
        for known in PREFIXED:
            prefix = head[: -len(known)]
            if head.endswith(known) and (prefix in _SCALES or (known in "Bb" and prefix in _BINARY)):
                scale, head = Decimal(_BINARY.get(prefix) or _SCALES[prefix]), known
                break
        else:
            for word, short in (("bytes", "B"), ("FLOPs", "FLOPs"), ("FLOP", "FLOP")):
                if re.fullmatch(f"(kilo|mega|giga|tera|peta|exa){word.lower()}", head.lower()):
                    scale, head = _SCALES[head[0].upper()], short
    if not slash and head in ("FLOP", "MAC"):
        head += "s"
    elif slash and head in ("FLOPs", "MACs") and tail in ("s", "B"):
        head = head[:-1]
    return scale, head + slash + tail


def _special(value: float) -> str:
    if value != value:
        return "–"
    if value in (float("inf"), float("-inf")):
        # equivalent: 0 -> 1 (an infinity is larger than both or smaller than both)
        return "∞" if value > 0 else "−∞"
    return ""


def _round(value: float, digits: int) -> tuple[str, str, int]:
    """Sign, ``digits`` significant figures and the decimal exponent of the first, rounded half up."""
    exact = Decimal(value) if isinstance(value, (int, float)) else Decimal(float(value))
    sign, exact = ("−" if exact < 0 else ""), abs(exact)
    if not exact:
        # equivalent: 0 -> 1 (zeros before the point make one zero)
        return "", "0", 0
    exponent = exact.adjusted()
    whole = _half_up(exact, exponent - digits + 1)
    if len(whole) > digits:
        # equivalent: 1 -> 2 [1] (these figures are a one and zeros)
        return sign, whole[:-1], exponent + 1
    return sign, whole, exponent


def _half_up(exact: Decimal, exponent: int) -> str:
    """``exact / 10**exponent``, rounded half up to a whole number, without any limit on digits."""
    return str(floor(Fraction(exact) / Fraction(10) ** exponent + Fraction(1, 2)))


def _place(figures: str, exponent: int) -> str:
    """Figures with the decimal point set, thousands grouped and trailing zeros cut."""
    # equivalent: 0 -> 1 (no zero is put before)
    if exponent < 0:
        figures, exponent = "0" * -exponent + figures, 0
    # equivalent: 1 -> 2 (zeros behind the point are cut)
    figures = figures.ljust(exponent + 1, "0")
    whole, rest = figures[: exponent + 1], figures[exponent + 1 :].rstrip("0")
    return f"{int(whole):,}" + ("." + rest if rest else "")


def _plain(value: float, digits: int, shift: int = 0) -> str:
    """``value * 10**shift`` in ``digits`` significant digits, or to the unit where it has more digits before the point."""
    sign, figures, exponent = _round(value, digits)
    if exponent + shift >= digits and exponent < 21:
        exact = abs(Decimal(value) if isinstance(value, (int, float)) else Decimal(float(value)))
        figures = _half_up(exact, -shift)
        exponent = len(figures) - 1 - shift
    return sign + _place(figures, exponent + shift)


def _join(text: str, unit: str) -> str:
    if text in ("1", "−1") and len(unit) > 2:
        head, slash, tail = unit.partition("/")
        unit = re.sub(r"(?<=ch|sh|ss)es$|(?<=x)es$|(?<!s)s$", "", head) + slash + tail
    return f"{text} {unit}" if unit else text


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)
