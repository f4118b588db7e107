"""Figures whose sliders run flopkit's formulas: in the published page, in a notebook, and (as a picture) on paper."""

from __future__ import annotations

from flopkit.charts.attention import attention_pairs
from flopkit.charts.attention_length import attention_crossing
from flopkit.charts.cnns import cnn_anatomy
from flopkit.charts.conventions import what_counts
from flopkit.charts.convolutions import convolution_cost
from flopkit.charts.dense import dense_roofline
from flopkit.charts.figure import Figure, pick
from flopkit.charts.one_run import one_run
from flopkit.charts.panel import along, choice, column, readout, slider, steps, switch

__all__ = [
    "Figure",
    "along",
    "attention_crossing",
    "attention_pairs",
    "choice",
    "cnn_anatomy",
    "column",
    "convolution_cost",
    "dense_roofline",
    "one_run",
    "pick",
    "readout",
    "slider",
    "steps",
    "switch",
    "what_counts",
]
