"""A figure whose controls a cell further down reads or moves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from flopkit.charts import html
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.tasks import Tasks

__all__ = ["Explorer", "explore"]

SCRIPTS = ("typed.js", "paste.js", "tasks.js", "code.js", "figure.js", "widget.js")


def explore(figure: Figure | Tasks) -> Explorer:
    """The figure as a widget. Of several tasks, the setting ``task`` says which one is open.

    >>> from flopkit.charts import Figure, readout, slider
    >>> def model(s, *, n):
    ...     s.flops = 2 * n**3
    >>> figure = Figure(name="square", title="A square product", alt="FLOPs grow with the cube of the size.", model=model,
    ...                 controls=[slider("n", "Size", [64, 128])], readouts=[readout("flops", "Arithmetic", "FLOPs")])
    >>> panel = explore(figure)
    >>> panel.set(n=64)
    >>> panel.results
    {'flops': 524288}
    """
    if not isinstance(figure, (Figure, Tasks)):
        raise TypeError(
            f"explore({type(figure).__name__}): give a figure, such as flopkit.book.gallery.dense_roofline()"
        )
    return Explorer(figure)


class Explorer:
    """A figure and its widget. `settings` and `results` are what the controls say now, and what the model says of it."""

    def __init__(self, figure: Figure | Tasks) -> None:
        self.figure = figure
        self.widget = _widget()(page=html.unscripted(figure), settings=figure.settings())

    @property
    def settings(self) -> dict[str, Any]:
        """What the controls say now, by name."""
        return dict(self.widget.settings)

    @property
    def results(self) -> dict[str, Any]:
        """The model's results at these settings, by name, computed in Python."""
        return self.figure.at(**self.settings)

    def set(self, **settings: Any) -> None:
        """Move controls. A slider only goes to values on its ladder."""
        self.figure.settings(settings)
        for name, value in settings.items():
            if name not in self.figure.controls:  # the task
                continue
            options = self.figure.controls[name].options
            if value not in options:
                nearest = min(options, key=lambda option: abs(option - value))
                raise ValueError(f"{name}={value!r} is not a step of this slider; the nearest is {nearest!r}")
        self.widget.settings = {**self.settings, **settings}

    def observe(self, told: Callable[[dict[str, Any]], Any]) -> None:
        """Call *told* with the settings, whenever a control has moved."""
        self.widget.observe(lambda change: told(dict(change["new"])), "settings")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self.widget._repr_mimebundle_(include=include, exclude=exclude)


@cache
def _widget() -> Any:
    """The class of the widgets, made where one is wanted: anywidget is loaded then."""
    anywidget, traitlets = need("anywidget"), need("traitlets")

    class FigureWidget(anywidget.AnyWidget):  # type: ignore[misc, name-defined]
        _esm = "".join((html.STATIC / name).read_text("utf8") for name in SCRIPTS)
        page = traitlets.Unicode().tag(sync=True)
        settings = traitlets.Dict().tag(sync=True)

    return FigureWidget
