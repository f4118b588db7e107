"""Packages that figures need and formulas do not: loaded where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["need"]


def need(package: str) -> Any:
    """The optional package, or an error that says who needs it and how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        name = {"vl_convert": "vl-convert-python"}.get(package, package)
        own = package in ("anywidget", "ipywidgets")
        install = package if own else "altair vl-convert-python"  # as in the extra of that name
        without = "The numbers of a figure, figure.at(...), do not need it."
        if package == "ipywidgets":
            without = "flopkit.experiments.here(name) runs an experiment without it."
        raise ImportError(
            f"flopkit's figures need {name}, which is not installed: pip install {install}. {without}"
        ) from error
