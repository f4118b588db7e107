"""Figures whose sliders run flopkit's formulas: in the published page, in a notebook, and (as a picture) on paper.

What a figure is made of: a model, controls, read-outs, a panel, and measurements on a roofline. The book's own figures and drawings are in
`flopkit.book.gallery` and `flopkit.book.drawings`.
"""

from __future__ import annotations

from flopkit.charts.figure import Figure
from flopkit.charts.panel import along, choice, column, grouped, readout, slider, steps, switch
from flopkit.charts.readings import pick
from flopkit.charts.roofs import Dots, measured, on_one_roof, published
from flopkit.charts.tasks import Tasks

__all__ = [
    "Dots",
    "Figure",
    "Tasks",
    "along",
    "choice",
    "column",
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
