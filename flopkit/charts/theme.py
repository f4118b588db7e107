"""One look for every chart: colours, fonts, axes.

The colours are those of Okabe and Ito (2008), which stay apart for colour-blind eyes, with a lighter twin for dark pages. In a page each
colour becomes a CSS variable (``BLUE`` is ``var(--fk-blue)``), so that a chart changes with the page's theme without being drawn again.

    alt.Chart(...).mark_line(color=theme.BLUE)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

INK = "#222832"
"""Text and axes."""
MUTED = "#5b6472"
"""Second thoughts: tick labels, notes in a chart."""
GRID = "#dfe3e8"
PAPER = "#fffffe"
"""The page behind the chart: a halo around a dot or a label."""
BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#00875f"
PURPLE = "#b0558f"
AMBER = "#c08000"
SKY = "#2f94cf"

HALO = 6
"""Pixels, half of them around each letter: as many as close the gap between two words."""

CATEGORIES = [BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY]
"""The order in which a chart with several series takes its colours."""

DARK = {
    INK: "#ced6dd",
    MUTED: "#9ca7b5",
    GRID: "#3d4654",
    PAPER: "#121212",
    BLUE: "#56b4e9",
    ORANGE: "#ff9248",
    GREEN: "#2dc798",
    PURPLE: "#e08fc2",
    AMBER: "#f0c541",
    SKY: "#a5d8f6",
}
"""The colour that stands for each of the above on a dark page."""

VARIABLES = {
    globals()[name]: f"--fk-{name.lower()}"
    for name in ("INK MUTED GRID PAPER BLUE ORANGE GREEN PURPLE AMBER SKY".split())
}
"""The CSS variable of each colour; ``static/figure.css`` sets them for light and dark pages."""

FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_HEX = re.compile("|".join(VARIABLES), re.IGNORECASE)


def config(mode: Literal["light", "dark"] = "light") -> dict[str, Any]:
    """The Vega-Lite configuration of every figure."""
    settings: dict[str, Any] = {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": MUTED,
            "titleColor": INK,
            "domainColor": MUTED,
            "tickColor": GRID,
            "gridColor": GRID,
            "labelFontSize": 12,
            "titleFontSize": 13,
            "titleFontWeight": 600,
            "labelPadding": 5,
            "titlePadding": 9,
            "tickSize": 4,
            "labelOverlap": "greedy",
        },
        # The title of the vertical axis lies above it: no reader tilts the head, and a phone keeps the width.
        "axisY": {
            "titleAngle": 0,
            "titleAlign": "left",
            "titleAnchor": "start",
            "titleX": 0,
            "titleY": -14,
            "domain": False,
            "ticks": False,
        },
        "axisX": {"grid": False, "tickCount": 6},
        "legend": {
            "labelColor": INK,
            "titleColor": INK,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "orient": "top",
            "offset": 8,
            "symbolStrokeWidth": 3,
            "labelLimit": 240,
        },
        "title": {"color": INK},
        "header": {"labelColor": INK, "titleColor": INK},
        "range": {"category": CATEGORIES},
        "line": {"color": BLUE, "strokeWidth": 2.5, "strokeCap": "round", "strokeJoin": "round"},
        "bar": {"color": BLUE},
        "area": {"color": BLUE},
        "point": {"color": ORANGE, "filled": True, "size": 110, "opacity": 1},
        "rule": {"color": MUTED},
        "text": {"color": INK, "fontSize": 12},
        "numberFormat": "~s",
        "tooltipFormat": {"numberFormat": ".4~s"},
        # "52 %", as in the text, wherever a format ends in "%".
        "locale": {
            "number": {"decimal": ".", "thousands": ",", "grouping": [3], "currency": ["$", ""], "percent": " %"}
        },
    }
    return settings if mode == "light" else swap(settings, DARK)


def swap(thing: Any, colours: dict[str, str]) -> Any:
    """``thing`` (a spec, a part of one, or SVG text) with each of the theme's colours replaced."""
    if isinstance(thing, str):
        return _HEX.sub(lambda found: colours[found[0].lower()], thing)
    if isinstance(thing, dict):
        return {key: swap(value, colours) for key, value in thing.items()}
    if isinstance(thing, list):
        return [swap(value, colours) for value in thing]
    return thing


def for_page(thing: Any) -> Any:
    """``thing`` with each of the theme's colours as a CSS variable, for a page that may be light or dark."""
    return swap(thing, {colour: f"var({variable})" for colour, variable in VARIABLES.items()})


def log_scale(lo: float, hi: float) -> dict[str, Any]:
    """Scale and axis of a logarithmic channel with a fixed range and a line at each power of ten (of 1,000 where there are many).

    A fixed range keeps the axis still while a slider moves the curve:
    ``alt.X("tokens:Q", title="Tokens", **theme.log_scale(1, 65536))``.
    """
    if not 0 < lo < hi:
        raise ValueError(f"log_scale({lo!r}, {hi!r}): give 0 < lo < hi")
    first, last = math.ceil(math.log10(lo) - 1e-9), math.floor(math.log10(hi) + 1e-9)
    decades = last - first + 1
    if decades < 3:
        values = [digit * 10.0**power for power in range(first - 1, last + 1) for digit in (1, 2, 5)]
    else:
        values = [10.0**power for power in range(first, last + 1) if decades <= 8 or power % 3 == 0]
    values = [int(value) if value >= 1 else value for value in values if lo * (1 - 1e-9) <= value <= hi * (1 + 1e-9)]
    return {"scale": {"type": "log", "domain": [lo, hi], "nice": False}, "axis": {"values": values}}


def words(rows: Any, look: Mapping[str, Any], ground: str = PAPER, **channels: Any) -> list[Any]:
    """Words of a chart: a halo in the colour of the ground, which keeps grid and lines off them, then the words.

    They come after the lines in a chart's layers.
    """
    halo = {"stroke": ground, "strokeWidth": HALO, "strokeJoin": "round"}
    return [rows.mark_text(**look, **behind).encode(**channels) for behind in (halo, {})]


def curves(
    rows: Any, named: Mapping[str, tuple[str, str, list[int]]], value: str, mark: Mapping[str, Any], **channels: Any
) -> Any:
    """A line for each of several results of the rows, under one name as *value*, with a legend below.

    *named* has each result's name, colour and dashes. Names beside lines that move would meet each other.
    """
    titles = {result: title for result, (title, *_) in named.items()}
    legend = {"title": None, "orient": "bottom", "columns": 2, "symbolType": "stroke", "symbolSize": 500}
    for channel, looks in zip(("color", "strokeDash"), list(zip(*named.values(), strict=True))[1:], strict=True):
        scale = {"domain": [*titles.values()], "range": [*looks]}
        channels[channel] = {"field": "curve", "type": "nominal", "legend": legend, "scale": scale}
    folded = rows.transform_fold([*named], as_=["result", value])
    return folded.transform_calculate(curve=f"({titles})[datum.result]").mark_line(**mark).encode(**channels)
