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
        install = {"vl_convert": "vl-convert-python"}.get(package, package)
        extra = "widgets" if package == "ipywidgets" else "charts"
        raise ImportError(
            f'flopkit\'s figures need {install}, which is not installed: pip install "flopkit[{extra}]". '
            "The numbers of a figure, figure.at(...), do not need it."
        ) from error
