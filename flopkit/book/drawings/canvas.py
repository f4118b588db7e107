"""What a drawing is drawn with: boxes, words, lines, arrows and grids on a canvas that remembers each of them.

A canvas is 360 units wide, about the width of a phone's page in pixels, so that its words are as large there as they say they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from flopkit.charts.theme import INK, MUTED, PAPER

WIDTH = 360
_SHIFT = {"start": 0.0, "middle": 0.5, "end": 1.0}


@dataclass(frozen=True)
class Mark:
    """One thing on a canvas. *name* says what it stands for, so that a test can ask which marks touch. A line runs from x, y by w, h."""

    kind: str
    name: str
    x: float
    y: float
    w: float
    h: float
    svg: str
    text: str = ""

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        (left, right), (top, bottom) = sorted((self.x, self.x + self.w)), sorted((self.y, self.y + self.h))
        return left, top, right, bottom


class Canvas:
    """A sheet on which marks are put, the later above the earlier. Lengths are pixels on a phone; y runs downwards."""

    def __init__(self, height: float) -> None:
        self.width, self.height = WIDTH, height
        self.marks: list[Mark] = []

    def named(self, name: str) -> list[Mark]:
        """The marks that stand for *name*."""
        return [mark for mark in self.marks if mark.name == name]

    def box(
        self, x: float, y: float, w: float, h: float, *lines: str, name: str = "", colour: str = MUTED, fill: float = 0.14,
        dash: bool = False, bold: bool = False, size: float = 12, edge: float = 1.2, round: float = 2,
    ) -> Mark:  # fmt: skip
        """A rectangle with lines of text in its middle. *fill* is how much of its colour fills it; *edge* the line around it."""
        style = f' rx="{round:g}"' * bool(round) + ' stroke-dasharray="4 3"' * dash
        style += f' stroke="{colour}" stroke-width="{edge:g}"' * bool(edge)
        paint = f'fill="{colour}" fill-opacity="{fill:g}"' if fill else 'fill="none"'
        drawn = f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" {paint}{style}/>'
        mark = self._put(Mark("box", name, x, y, w, h, drawn, " ".join(lines)))
        first = y + h / 2 - (len(lines) - 1) * size * 0.62
        for i, line in enumerate(lines):
            self.text(x + w / 2, first + i * size * 1.24, line, size=size, bold=bold and i == 0)
        return mark

    def bars(
        self, y: float, height: float, spans: Sequence[tuple[float, float]], *, name: str = "", colour: str = MUTED, fill: float = 0.14
    ) -> None:  # fmt: skip
        """Rectangles in one row that look alike, each from its first x to its second, drawn as one path: for a picture of hundreds."""
        self.rows_of_bars(height, [(y, spans)], name=name, colour=colour, fill=fill)

    def rows_of_bars(
        self, height: float, rows: Sequence[tuple[float, Sequence[tuple[float, float]]]], *, name: str = "", colour: str = MUTED, fill: float = 0.14
    ) -> None:  # fmt: skip
        """The same in several rows, each with its y, as one path."""
        way = "".join(f"M{_n(a)} {_n(y + height / 2)}H{_n(b)}" for y, spans in rows for a, b in spans)
        style = f'stroke="{colour}" stroke-opacity="{fill:g}" stroke-width="{_n(height)}" stroke-linecap="butt"'
        drawn = f'<path d="{way}" {style}/>'
        for y, spans in rows:
            for a, b in spans:
                self._put(Mark("box", name, a, y, b - a, height, drawn))
                drawn = ""

    def text(
        self, x: float, y: float, words: str, *, size: float = 12, anchor: str = "middle", colour: str = INK, bold: bool = False,
        name: str = "", halo: bool = False,
    ) -> Mark:  # fmt: skip
        """Words whose middle height is *y*; *anchor* is the part of them that stands at *x*. A halo keeps them off the lines behind."""
        style = f' text-anchor="{anchor}"' * (anchor != "start") + ' font-weight="650"' * bold
        style += f' fill="{colour}"' * (colour != INK)
        style += f' stroke="{PAPER}" stroke-width="4" stroke-linejoin="round" paint-order="stroke"' * halo
        wide = 0.56 * size * len(words)  # roughly: a browser knows better, and a test asks one
        drawn = f'<text x="{_n(x)}" y="{_n(y + 0.35 * size)}" font-size="{size:g}"{style}>{escape(words)}</text>'
        return self._put(Mark("text", name, x - _SHIFT[anchor] * wide, y - size / 2, wide, size, drawn, words))

    def lines(self, x: float, y: float, *lines: str, size: float = 12, step: float = 1.4, **style: Any) -> None:
        """Several lines of text, the first at *y*."""
        for i, line in enumerate(lines):
            self.text(x, y + i * size * step, line, size=size, **style)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, colour: str = MUTED, width: float = 1.2, dash: bool = False, name: str = "",
        arrow: bool = False,
    ) -> Mark:  # fmt: skip
        """A straight line, with a head at its end if it is an *arrow*."""
        head = ""
        if arrow:
            angle = math.atan2(y2 - y1, x2 - x1)
            corners = [(x2 - 7 * math.cos(angle + s * 0.42), y2 - 7 * math.sin(angle + s * 0.42)) for s in (-1, 1)]
            points = " ".join(f"{_n(a)},{_n(b)}" for a, b in [(x2, y2), *corners])
            head = f'<polygon points="{points}" fill="{colour}"/>'
        end = (x2 - 4 * math.cos(angle), y2 - 4 * math.sin(angle)) if arrow else (x2, y2)
        style = f'stroke="{colour}" stroke-width="{width:g}"' + ' stroke-dasharray="4 3"' * dash
        drawn = f'<path d="M{_n(x1)} {_n(y1)}L{_n(end[0])} {_n(end[1])}" {style}/>{head}'
        return self._put(Mark("arrow" if arrow else "line", name, x1, y1, x2 - x1, y2 - y1, drawn))

    def arrow(self, x1: float, y1: float, x2: float, y2: float, **style: Any) -> Mark:
        """A line with a head at its end."""
        return self.line(x1, y1, x2, y2, arrow=True, **style)

    def grid(self, x: float, y: float, rows: int, columns: int, cell: float, *, name: str = "") -> Mark:
        """The lines of a table of square cells."""
        w, h = columns * cell, rows * cell
        down = "".join(f"M{_n(x + i * cell)} {_n(y)}v{_n(h)}" for i in range(columns + 1))
        along = "".join(f"M{_n(x)} {_n(y + i * cell)}h{_n(w)}" for i in range(rows + 1))
        drawn = f'<path d="{down}{along}" stroke="{MUTED}" fill="none"/>'
        return self._put(Mark("grid", name, x, y, w, h, drawn))

    def _put(self, mark: Mark) -> Mark:
        self.marks.append(mark)
        return mark


def _n(value: float) -> str:
    """One decimal is finer than a screen."""
    return f"{value:.1f}".removesuffix(".0")
