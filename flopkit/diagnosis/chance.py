"""Which of many mistakes explain a reported number, and how often they would explain one that none of them made.

A mistake, with the digits of all inputs, allows a small window of numbers. Mistakes are
taken in the order of prior probability by width of window, which is the order in which
a share of all numbers, once it is fixed, holds as many true explanations as possible
(Neyman and Pearson 1933). The chance of an accident is the share of all numbers,
printed with as many digits, that lie in the window of a mistake or in one before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["BAR", "BAR_OF_TWO_DIGITS", "Fit", "Window", "bar_of", "fits"]

BAR = 0.05
"""The chance of an accident up to which a mistake explains a number of three digits or more."""

BAR_OF_TWO_DIGITS = 0.15
"""The same for a number of two digits, which says less."""

_RANGES = ((0.0005, 0.005), (0.005, 0.05), (0.05, 1.0), (1.0, 10.0), (10.0, 100.0))
_USUAL = (0.1, 0.7)
_MOST = 100_000  # numbers in a range: of more digits than that none is needed


class Window(NamedTuple):
    """Numbers that a mistake may have made: which one it is, its prior, the middle, how far it reaches, and how the numbers that make it
    were read or rounded."""

    which: int
    prior: float
    middle: float
    reach: float
    note: str = ""


class Fit(NamedTuple):
    """A mistake that may have made the number, and the chance that it fits by accident."""

    window: Window
    chance: float


def bar_of(step: float) -> float:
    """The bar for a number whose last digit is worth *step*.

    >>> bar_of(0.01), bar_of(0.001)
    (0.15, 0.05)
    """
    return BAR if step < 0.0075 else BAR_OF_TWO_DIGITS


def fits(windows: Iterable[Window], said: float, step: float) -> list[Fit]:
    """The windows in which *said* lies, a number whose last digit is worth *step*, likeliest first.

    The numbers among which an accident may happen are those from 5 to 100 %, where MFUs
    lie; for others those of a power of ten. Their number is taken to be that of those
    from 10 % on, so that the chance is as small there. Most MFUs lie from 10 to 70 %,
    and so do most windows: the chance is never below the share of these numbers that
    windows hold.

    >>> [round(each.chance, 3) for each in fits([Window(0, 1.0, 0.4, 0.0), Window(1, 0.1, 0.2, 0.0)], 0.2, 0.01)]
    [0.033]
    """
    import numpy

    low, high = next((each for each in _RANGES if said < each[1]), (said / 2, said * 2))
    grid = max(step, (high - low) / _MOST)
    first = math.ceil(low / grid - 1e-6)
    taken = numpy.zeros(max(math.ceil(high / grid - 1e-6) - first, 1), dtype=bool)
    least = max((high - max(low, high / 10)) / grid, 1.0)
    here = said / grid
    found: list[Fit] = []
    covered, usual = 0, 0
    begins, ends = (min(max(round(each / grid) + more - first, 0), len(taken)) for more, each in enumerate(_USUAL))
    many = max(ends - begins, 1)
    likely = sorted(windows, key=lambda each: each.prior / max(1.0, 2 * each.reach / grid + step / grid), reverse=True)
    for each in likely:
        reach = each.reach / grid + step / grid / 2 + 1e-9
        middle = each.middle / grid
        begin = min(max(math.ceil(middle - reach) - first, 0), len(taken))
        end = min(max(math.floor(middle + reach) - first + 1, 0), len(taken))
        if end > begin:
            part = taken[begin:end]
            covered += len(part) - int(part.sum())
            inner = taken[max(begin, begins) : max(min(end, ends), begins)]
            usual += len(inner) - int(inner.sum())
            part[:] = True
        if abs(middle - here) <= reach:
            found.append(Fit(each, max(covered / least, usual / many)))
    return found
