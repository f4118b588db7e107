"""Figures whose sliders run flopkit's formulas: in the published page, in a notebook, and (as a picture) on paper.

What a figure is made of stands here; the book's own figures stand in `flopkit.charts.gallery`.
"""

from __future__ import annotations

from flopkit.charts.figure import Figure, pick
from flopkit.charts.gallery import (
    attention_crossing,
    attention_pairs,
    backward_stack,
    cnn_anatomy,
    convolution_cost,
    dense_roofline,
    eight_tools,
    one_run,
    what_counts,
)
from flopkit.charts.panel import along, choice, column, readout, slider, steps, switch

__all__ = [
    "Figure",
    "along",
    "attention_crossing",
    "attention_pairs",
    "backward_stack",
    "choice",
    "cnn_anatomy",
    "column",
    "convolution_cost",
    "dense_roofline",
    "eight_tools",
    "one_run",
    "pick",
    "readout",
    "slider",
    "steps",
    "switch",
    "what_counts",
]
