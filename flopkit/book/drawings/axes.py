"""Two logarithmic axes of a drawing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from flopkit.book.drawings.canvas import Canvas
from flopkit.charts.theme import MUTED
from flopkit.units import count

__all__ = ["BOTTOM", "LEFT", "RIGHT", "TOP", "LogAxes"]

LEFT, RIGHT, TOP, BOTTOM = 50.0, 350.0, 36.0, 206.0


class LogAxes:
    """Two logarithmic axes with ticks."""

    def __init__(self, canvas: Canvas, across: tuple[float, float], up: tuple[float, float]) -> None:
        self.canvas, self.across, self.up = canvas, across, up
        canvas.line(LEFT, BOTTOM, RIGHT, BOTTOM)
        canvas.line(LEFT, TOP, LEFT, BOTTOM)

    def x(self, value: float) -> float:
        return LEFT + (RIGHT - LEFT) * math.log(value / self.across[0]) / math.log(self.across[1] / self.across[0])

    def y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * math.log(value / self.up[0]) / math.log(self.up[1] / self.up[0])

    def ticks(self, across: Sequence[int], title: str, said: Callable[[float], str]) -> None:
        for tick in across:
            self.canvas.line(self.x(tick), BOTTOM, self.x(tick), BOTTOM + 4)
            self.canvas.text(self.x(tick), BOTTOM + 13, count(tick), colour=MUTED)
        self.canvas.text((LEFT + RIGHT) / 2, BOTTOM + 31, title, colour=MUTED)
        for power in range(math.ceil(math.log10(self.up[0])), math.floor(math.log10(self.up[1])) + 1):
            self.canvas.line(LEFT - 4, self.y(10.0**power), LEFT, self.y(10.0**power))
            self.canvas.text(LEFT - 6, self.y(10.0**power), said(10.0**power), anchor="end", colour=MUTED)
