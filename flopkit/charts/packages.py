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
        install = "anywidget" if package == "anywidget" else "altair vl-convert-python"  # as in the extra of that name
        raise ImportError(
            f"flopkit's figures need {name}, which is not installed: pip install {install}. "
            "The numbers of a figure, figure.at(...), do not need it."
        ) from error
