"""A figure as ipywidgets, for notebooks with a kernel: the numbers and the picture then come from Python itself.

    from flopkit import charts, widgets
    panel = widgets.explore(charts.dense_roofline())
    panel                       # shows the panel
    panel.settings              # {'tokens': 64, 'd_in': 4096, ...}
    panel.results["flops"]      # what the model says at these settings

A figure shown by itself already has sliders. This version adds a way back: a cell further down can read what the sliders say. It needs
core ipywidgets only, no other front-end package and no network; the picture is drawn in the kernel. There is no arithmetic here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from typing import Any

from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.html import STATIC
from flopkit.charts.packages import need
from flopkit.charts.panel import Control
from flopkit.charts.svg import shrink

__all__ = ["Explorer", "explore"]

CUSTOM = "Custom"


def explore(figure: Figure, *, picture: bool = True) -> Explorer:
    """The figure as ipywidgets. ``picture=False`` leaves the chart out.

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
    if not isinstance(figure, Figure):
        raise TypeError(f"explore({type(figure).__name__}): give a figure, such as flopkit.charts.dense_roofline()")
    return Explorer(figure, picture)


class Explorer:
    """The widgets of a figure. ``controls`` holds them by name, ``settings`` and ``results`` what they say now."""

    def __init__(self, figure: Figure, picture: bool = True) -> None:
        widgets = need("ipywidgets")
        self.figure = figure
        self.controls: dict[str, Any] = {name: _control(widgets, control) for name, control in figure.controls.items()}
        self.preset = widgets.Dropdown(
            options=[CUSTOM, *figure.presets], value=CUSTOM, description="Preset", style=_STYLE, layout=_LAYOUT
        )
        self.reset = widgets.Button(description="Reset")
        self._text, self._picture = widgets.HTML(), widgets.HTML()
        self._drawing = picture and figure.chart is not None
        self._quiet = False
        for control in self.controls.values():
            control.observe(self._moved, "value")
        self.preset.observe(self._chosen, "value")
        self.reset.on_click(lambda _: self.set(**figure.settings()))
        head = [widgets.HTML(f"<b>{escape(figure.title)}</b>")]
        presets = [self.preset] if figure.presets else []
        self.box = widgets.VBox([*head, *presets, *self.controls.values(), self.reset, self._text, self._picture])
        self._show()

    @property
    def settings(self) -> dict[str, Any]:
        """What the controls say now, by name."""
        return {name: control.value for name, control in self.controls.items()}

    @property
    def results(self) -> dict[str, Any]:
        """The model's results at these settings, by name."""
        return self.figure.at(**self.settings)

    def set(self, **settings: Any) -> None:
        """Move controls. A slider only goes to values on its ladder."""
        self.figure.settings(settings)
        for name, value in settings.items():
            options = self.figure.controls[name].options
            if value not in options:
                nearest = min(options, key=lambda option: abs(option - value))
                raise ValueError(f"{name}={value!r} is not a step of this slider; the nearest is {nearest!r}")
        self._quiet = True
        try:
            for name, value in settings.items():
                self.controls[name].value = value
            self.preset.value = self._preset()
        finally:
            self._quiet = False
        self._show()

    def _preset(self) -> str:
        now = self.settings
        fitting = [label for label, values in self.figure.presets.items() if values.items() <= now.items()]
        return self.preset.value if self.preset.value in fitting else next(iter(fitting), CUSTOM)

    def _moved(self, change: Any) -> None:
        if not self._quiet:
            self.set()

    def _chosen(self, change: Any) -> None:
        if not self._quiet and self.preset.value != CUSTOM:
            self.set(**self.figure.presets[self.preset.value])

    def _show(self) -> None:
        texts = self.figure.texts(**self.settings)
        cells = (
            f"<div>{escape(each.label)}<br><b>{escape(texts[each.name])}</b></div>" for each in self.figure.readouts
        )
        self._text.value = f'<div role="status" style="display:flex;flex-wrap:wrap;gap:.3em 1.8em;line-height:1.4">{"".join(cells)}</div>'
        if self._drawing:
            svg = theme.for_page(shrink(self.figure.svg(**self.settings), f"fk-widget-{self.figure.name}"))
            self._picture.value = f'{_colours()}<div role="img" aria-label="{escape(self.figure.alt)}">{svg}</div>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self.box._repr_mimebundle_(include=include, exclude=exclude)


_STYLE = {"description_width": "16em"}
_LAYOUT = {"width": "40em", "max_width": "100%"}


@cache
def _colours() -> str:
    """The style that says what each colour is on a light and on a dark page: the first rules of figure.css."""
    rules = (STATIC / "figure.css").read_text("utf8").partition(".fk-figure.fk-figure")[0]
    return f"<style>{rules}</style>"


def _control(widgets: Any, control: Control) -> Any:
    options = {"description": control.label, "style": _STYLE}
    if control.kind == "switch":
        return widgets.Checkbox(value=control.value, **options)
    choices = [(control.text(option), option) for option in control.options]
    make: Callable[..., Any] = widgets.SelectionSlider if control.kind == "slider" else widgets.Dropdown
    return make(options=choices, value=control.value, layout=_LAYOUT, **options)
