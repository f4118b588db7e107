"""A printed number beside ours: reproduced, inside what rounding allows, or not, with the reason."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import Any

from flopkit.names import Word

__all__ = ["Agreement", "Row", "read", "span"]


class Agreement(Word):
    """Whether ours is what is printed."""

    REPRODUCED = "reproduced"
    ROUNDING = "inside rounding"
    DIFFERENT = "not reproduced"


@dataclass(frozen=True)
class Row:
    """One number of a published table, and what flopkit gives for it.

    Parameters
    ----------
    table : str
        The table's name.
    row, quantity : str
        Which row, and which number of it.
    printed : str
        The number as it is printed: its digits say how it was rounded.
    ours : tuple[float, float]
        The smallest and largest value that we get from the printed inputs, which were rounded themselves; equal where they are exact.
    cut : bool, optional
        Whether the author cuts digits off instead of rounding.
    why : str, optional
        Why ours differs. A row that does not agree must say it.
    assumed : str, optional
        What we took from elsewhere because the source does not print it. It is shown whatever the verdict.

    Examples
    --------
    >>> Row("a table", "PaLM", "MFU, %", "46.2", (46.229, 46.229)).verdict
    'reproduced'
    >>> Row("a table", "PaLM", "MFU, %", "46.2", (46.24, 46.27)).verdict
    'inside rounding'
    >>> Row("a table", "GPT-3", "MFU, %", "21.3", (19.9, 19.9), why="the peak is not given").verdict
    'not reproduced'
    """

    table: str
    row: str
    quantity: str
    printed: str
    ours: tuple[float, float]
    cut: bool = False
    why: str = ""
    assumed: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """The values that are printed like this."""
        value = Decimal(self.printed)
        unit = Decimal(1).scaleb(int(value.as_tuple().exponent))
        low, high = (value, value + unit) if self.cut else (value - unit / 2, value + unit / 2)
        return float(low), float(high)

    @property
    def verdict(self) -> Agreement:
        """Reproduced: all of ours is printed like this; inside rounding: some of it is; not reproduced: none."""
        (low, high), (least, most) = self.interval, self.ours
        slack = 1e-9 * abs(high)  # the arithmetic of doubles
        if low - slack <= least and most <= high + slack:
            return Agreement.REPRODUCED
        return Agreement.ROUNDING if most >= low - slack and least <= high + slack else Agreement.DIFFERENT


def span(function: Any, value: float, half: float) -> tuple[float, float]:
    """The smallest and largest of *function* over an input that was printed as *value* and rounded by up to *half*.

    >>> span(lambda seconds: 100 / seconds, 4.0, 1.0)
    (20.0, 33.333333333333336)
    """
    ends = function(value - half), function(value + half)
    return min(ends), max(ends)


def read(name: str) -> Any:
    """A published table as it lies in ``flopkit/data/published``."""
    return json.loads((files("flopkit") / "data" / "published" / f"{name}.json").read_text("utf-8"))
