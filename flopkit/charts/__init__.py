"""Figures whose sliders run flopkit's formulas: in the published page, in a notebook, and (as a picture) on paper.

What a figure is made of stands here; the book's own figures stand in `flopkit.charts.gallery`, which lists them. Pictures without
sliders, which explain what touches what, stand in `flopkit.charts.drawings`.
"""

from __future__ import annotations

from flopkit.charts import drawings, gallery
from flopkit.charts.figure import Figure, pick
from flopkit.charts.gallery import *  # noqa: F403
from flopkit.charts.panel import along, choice, column, grouped, readout, slider, steps, switch
from flopkit.charts.roofs import Dots, measured, on_one_roof, published

__all__ = [
    "Dots",
    "Figure",
    "along",
    "choice",
    "column",
    "drawings",
    "grouped",
    "measured",
    "on_one_roof",
    "pick",
    "published",
    "readout",
    "slider",
    "steps",
    "switch",
]
__all__ += gallery.__all__
