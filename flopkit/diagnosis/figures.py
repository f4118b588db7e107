"""Numbers as people print them: a value, and how far from it the number may lie that was printed like this."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from flopkit.sizes import positive, short
from flopkit.sizes.values import LARGEST

__all__ = ["FLOP_RATES", "HOURS", "MANY", "THOUSANDS", "Figure", "Reported", "figure", "in_short", "reported_share"]

_PARTED = r"\d{1,3}(?:(?P<part>[,'’_\u00a0\u2009\u202f ])\d{3})(?:(?P=part)\d{3})*"  # 51,000, 51'000 and 51 000
_NUMBER = rf"(?P<digits>(?:{_PARTED}|\d+(?:_\d+)*)(?:\.\d+)?|\.\d+)(?:[eE](?P<power>[+-]?\d+))?"

# Letters that may stand for a power of ten, by what there are so many of. What a time has is a unit: "2m" are two minutes.
THOUSANDS = {"k": 3, "K": 3}
HOURS = THOUSANDS | {"M": 6}
MANY = HOURS | {"m": 6, "B": 9, "b": 9, "G": 9, "T": 12}

FLOP_RATES = {
    f"{letter}{unit}{one}": scale
    for letter, scale in {"t": 1e12, "p": 1e15, "g": 1e9, "": 1.0}.items()
    for unit in ("flop/s", "flops", "flops/s", *(("f/s", "f") if letter else ()))
    for one in ("", "/gpu", "/device", "/chip", "/gpu/s", "/device/s")
}
"""FLOP/s by the words for them, as `in_short` has them."""
_FEWEST = 2  # an int is taken to have at least two digits that mean something: 400 is 395 to 405


@dataclass(frozen=True)
class Figure:
    """A printed number.

    Attributes
    ----------
    value : float
        The number.
    half : float
        Half of its last digit: as far from it the number may lie.
    loose : float
        The same where the zeros at the end of a whole number are no digits: of 14,000
        it is 500. Where there are none, *half*.

    Examples
    --------
    >>> figure("rate", "1.42e14").half, figure("rate", 51_000)
    (500000000000.0, Figure(value=51000.0, half=0.5, loose=500.0))
    """

    value: float
    half: float
    loose: float

    @property
    def errors(self) -> tuple[float, float]:
        """*half* and *loose* as shares of the number."""
        return self.half / self.value, self.loose / self.value

    @property
    def loosely(self) -> str:
        """How it reads where zeros at its end are no digits; empty where they make no difference.

        >>> figure("rate", 400).loosely, figure("rate", "400.0").loosely
        ('400 read as 395 to 405', '')
        """
        low, high = self.value - self.loose, self.value + self.loose
        return f"{self.value:,.6g} read as {low:,.6g} to {high:,.6g}" if self.loose > self.half * 1.001 else ""


def figure(
    name: str, given: Any, unit: str = "", units: Mapping[str, float] | None = None, letters: Mapping[str, int] = MANY
) -> Figure:
    """Read a number and the digits that it was printed with.

    Text: its digits. A whole number, as text or not: zeros at its end may be digits or
    not, and at least two digits are; ``"24k"`` is such a number. A float has no zeros at its end; the digits of its
    repr count, at least three of them.

    Parameters
    ----------
    name : str
        What the argument is called.
    given : Any
        A number, or text such as ``"1.42e14"``, ``"51,000"``, ``"51'000"``, ``"51 000"``,
        ``"3.7k"`` or ``"5912.1 ms"``.
    unit : str, optional
        What it is a number of, for the error.
    units : Mapping[str, float], optional
        The words that may stand behind it, in lower case, and what each multiplies it
        by.
    letters : Mapping[str, int], optional
        The letters that may stand behind it, and the power of ten that each is.

    Raises
    ------
    ValueError
        For what is not above 0 and finite, and for text that is no number.
    TypeError
        For what is neither a number nor text.

    Examples
    --------
    >>> figure("tokens", "16.384M").value, figure("step_seconds", "5912.1 ms", units={"ms": 1e-3}).half
    (16384000.0, 5e-05)
    """
    if isinstance(given, str):
        return _of_text(name, given, unit, units or {}, letters)
    value = positive(name, given, unit, most=float(LARGEST), instead=", or text with its digits, such as '51.2k'")
    if isinstance(value, int) or float(value).is_integer():
        return _whole(int(value))
    exact = Decimal(_printed(given))
    digits, exponent = len(exact.as_tuple().digits), int(exact.as_tuple().exponent)
    half = float(Decimal(1).scaleb(exponent)) / 2
    return Figure(float(value), half / 10 ** max(0, 3 - digits), half)


def in_short(unit: str) -> str:
    """A unit in lower case and in letters: ``"Tokens per second per GPU"`` is ``"tokens/s/gpu"``."""
    return re.sub(r"\bsec(?:ond)?s?\b", "s", re.sub(r"\s*\bper\b\s*|\s*/\s*", "/", unit.strip().lower()))


def _of_text(name: str, given: str, unit: str, units: Mapping[str, float], letters: Mapping[str, int]) -> Figure:
    match = re.fullmatch(rf"\s*{_NUMBER}\s*(?P<letter>[kKmMbBGT]?)\s*(?P<word>[^\d.,+-]*?)\s*", given)
    letter, word = (match["letter"], in_short(match["word"])) if match else ("", "")
    if (letter if not word else letter.lower()) + word in units:
        letter, word = "", letter.lower() + word  # the "m" of "ms" is no million
    if not match and (plain := _plain(given)) is not None:
        return figure(name, plain, unit)  # -5, nan: an error that says what is wrong
    if not match or word not in ("", *units) or letter not in ("", *letters):
        also = f", or with a unit: {', '.join(list(units)[:4])}" if units else ""
        raise ValueError(
            f"{name}={short(given)}: must be a number{unit and f' of {unit}'} such as '51,000', '51.0k' or '5.1e4'{also}"
        )
    scale = units.get(word, 1.0)
    text = _digits(match)
    power = int(match["power"] or 0) + letters.get(letter, 0)
    if abs(power) > 400 or len(text) > 60:
        raise ValueError(f"{name}={short(given)}: must be a finite number{unit and f' of {unit}'} above 0")
    printed = Decimal(text)
    value = float(printed.scaleb(power) * Decimal(repr(scale)))
    positive(name, value, unit, most=float(LARGEST))
    if "." not in text and not match["power"] and not letter:
        whole = _whole(int(printed))
        return Figure(value, whole.half * scale, whole.loose * scale)
    half = float(Decimal(1).scaleb(int(printed.as_tuple().exponent) + power)) / 2 * scale
    return Figure(value, 0.5 * scale if "." not in text and letter else half, half)


def _digits(match: re.Match[str]) -> str:
    """The digits of a number without what parts its thousands."""
    return re.sub(r"[^\d.]", "", match["digits"])


def _printed(value: Any) -> str:
    """The digits of a float: of one in single precision those that it has."""
    return str(value) if type(value).__module__ == "numpy" else repr(float(value))


def _plain(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else value


def _whole(value: int) -> Figure:
    digits = len(str(value).rstrip("0"))
    zeros = len(str(value)) - max(digits, min(_FEWEST, len(str(value))))
    return Figure(float(value), 0.5, 10**zeros / 2)


# -- a reported utilisation -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reported:
    """An MFU as somebody printed it: a share, the step of its last digit, whether it was printed in TFLOP/s, and whether as an HFU."""

    share: float
    step: float
    of_rate: bool = False
    executed: bool = False


def reported_share(reported: Any, peak: float) -> Reported:
    """A reported MFU or HFU: a share, per cent, or TFLOP/s of one device, of which *peak* makes a share.

    >>> reported_share("45.51 %", 1e15).share, reported_share("220.9 TFLOP/s", 989.4e12).of_rate, reported_share("HFU 41 %", 1e15).executed
    (0.4551, True, True)
    """
    given = reported if isinstance(reported, str) else positive("reported", reported, most=float(LARGEST))
    text = str(given).strip() if isinstance(given, (str, int)) else _printed(reported)
    match = re.fullmatch(
        rf"(?i:(?P<before>[mh]fu)\s*[:=]?\s*)?{_NUMBER}\s*(?P<word>[a-zA-Z/% ]*?)\s*(?i:(?P<behind>[mh]fu))?", text
    )
    word = in_short(match["word"]) if match else ""
    exponent = f"e{match['power']}" if match and match["power"] else ""
    value = Decimal(_digits(match) + exponent) if match else Decimal(0)
    known = word in FLOP_RATES or word in ("", "%", "percent", "cent", "/cent")
    if (
        not match
        or not known
        or not 0 < float(value) <= LARGEST
        or len({each.lower() for each in (match["before"], match["behind"]) if each}) > 1
    ):
        raise ValueError(
            f"reported={short(reported)}: must be a share such as 0.41, or per cent such as '41 %', or '405 TFLOP/s' of a device"
        )
    executed = "hfu" in ((match["before"] or "") + (match["behind"] or "")).lower()
    step = float(Decimal(1).scaleb(int(value.as_tuple().exponent)))
    if word in FLOP_RATES:
        scale = FLOP_RATES[word] / peak
        return Reported(float(value) * scale, step * scale, of_rate=True, executed=executed)
    if not word and 1 <= value < 10:
        raise ValueError(
            f"reported={reported!r} may be a share ({100 * value:f} %) or per cent: write '{value:f} %' or '{100 * value:f} %'"
        )
    if not word and value > 10_000:
        raise ValueError(
            f"reported={reported!r}: is no per cent; of FLOP/s, write TFLOP/s of a device, such as '405 TFLOP/s'"
        )
    per_cent = bool(word) or value >= 10
    scale = 0.01 if per_cent else 1.0
    if not per_cent:
        step = min(step, 0.01)  # 0.4 is also how people write 0.40
    return Reported(float(value) * scale, step * scale, executed=executed)
