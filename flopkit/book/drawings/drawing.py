"""A drawing: one or more canvases with a title that says what they show, for a page of the book, a notebook or paper."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from flopkit.book.drawings.canvas import Canvas, Mark
from flopkit.charts import theme

__all__ = ["Drawing"]

_LOOK = 'fill="currentColor" stroke-linecap="round"'


@dataclass(frozen=True)
class Drawing:
    """A picture that explains, as SVG.

    In the book it takes the colours of the page, light or dark, and its canvases stand beside each other where there is room. In a notebook it
    is an SVG image with its title and its own ground, which JupyterLab, Colab and GitHub show.

    Parameters
    ----------
    name : str
        What it is called in a page.
    title : str
        What it says, in a sentence.
    alt : str
        The same for those who do not see it, with its numbers.
    canvases : Sequence[Canvas]
        What is drawn.
    number : str, optional
        In its chapter, such as "2.1"; see `numbered`.

    Examples
    --------
    >>> from flopkit.book import drawings
    >>> drawings.matrix_product(m=4, k=6, n=5).numbered("2.1").heading
    'Figure 2.1. K multiply-adds make one result; each element of A is used N times, each of B M times'
    """

    name: str
    title: str
    alt: str
    canvases: Sequence[Canvas]
    number: str = ""

    def numbered(self, number: str) -> Drawing:
        """The same drawing under "Figure 2.1." and its title, in one row with the figures of the chapter."""
        return replace(self, number=number)

    @property
    def heading(self) -> str:
        """The title, with the number before it where the drawing has one."""
        return f"Figure {self.number}. {self.title}" if self.number else self.title

    def marks(self, name: str) -> list[Mark]:
        """What stands for *name* on any of its canvases."""
        return [mark for canvas in self.canvases for mark in canvas.named(name)]

    def html(self) -> str:
        """The drawing in a page that has ``figure.css``, in the colours of that page."""
        colours = {colour: f"var({variable},{colour})" for colour, variable in theme.VARIABLES.items()}
        anchor = f" id=drawing-{self.number.replace('.', '-')}" if self.number else ""
        parts = "".join(
            f'<svg viewBox="0 0 {c.width:g} {c.height:g}" {_LOOK} aria-hidden="true">{_drawn(c)}</svg>' for c in self.canvases
        )  # fmt: skip
        return (
            f'<figure class="fk-figure fk-drawing"{anchor} data-name="{self.name}" data-ready="drawn">'
            f"<figcaption>{escape(self.heading)}</figcaption>"
            f'<div class="fk-sheets" role="img" aria-label="{escape(self.alt)}">{theme.swap(parts, colours)}</div></figure>'
        )

    def svg(self, mode: str = "light") -> str:
        """The drawing as one SVG file, heading included, in the colours of ``mode="light"`` or ``"dark"``."""
        if mode not in ("light", "dark"):
            raise ValueError(f"mode={mode!r}: must be 'light' or 'dark'")
        lines = textwrap.wrap(self.heading, 48)
        width, top = max(c.width for c in self.canvases), 12 + 18 * len(lines)
        words = "".join(
            f'<text x="0" y="{14 + 18 * i}" font-size="14" font-weight="650">{escape(line)}</text>'
            for i, line in enumerate(lines)
        )
        for canvas in self.canvases:
            words += f'<g transform="translate(0 {top})">{_drawn(canvas)}</g>'
            top += round(canvas.height) + 16
        frame = f"-10 -8 {width + 20:g} {top}"
        drawn = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{frame}" width="{1.25 * (width + 20):g}" height="{1.25 * top:g}" role="img" '
            f'{_LOOK} color="{theme.INK}" font-family="{theme.FONT}"><title>{escape(self.heading)}</title><desc>{escape(self.alt)}</desc>'
            f'<rect x="-10" y="-8" width="100%" height="100%" fill="{theme.PAPER}"/>{words}</svg>'
        )
        return str(drawn if mode == "light" else theme.swap(drawn, theme.DARK))

    def __str__(self) -> str:
        """Heading and alternative text."""
        return f"{self.heading}\n  {self.alt}"

    def __repr__(self) -> str:
        return f"<Drawing {self.name!r}: {self.title}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        # Outside of the book no HTML: a notebook that is not trusted would strip the picture from it and leave its words in a heap.
        if os.environ.get("FLOPKIT_BOOK"):
            return {"text/html": self.html(), "text/plain": str(self)}
        return {"image/svg+xml": self.svg(), "text/plain": str(self)}


def _drawn(canvas: Canvas) -> str:
    return "".join(mark.svg for mark in canvas.marks)
