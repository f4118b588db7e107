"""A figure: what a model answers, behind sliders, and how that shows itself in a static page, in a notebook and in a terminal."""

from __future__ import annotations

import copy
from typing import Any

from flopkit.charts import html
from flopkit.charts.answers import Answers

__all__ = ["Figure"]


class Figure(Answers):
    """A chart with controls and read-outs that answers in a static page, in a notebook and on paper.

    Parameters
    ----------
    name : str
        Short, with hyphens; the figure's anchor in the page and its key in a shared link.
    title : str
        What the figure shows.
    alt : str
        What it says, as a sentence: the alternative text of the picture. ``{tokens}`` or ``{seconds}`` stands for what that control or
        read-out says at the moment, so that the text stays true while the reader moves things.
    model : Callable[..., None]
        ``model(s, *, <a keyword for each control>)`` sets results on ``s``; no ``if`` on a size, use ``where``.
    controls : Sequence[Control]
        What can be set, from `slider`, `choice` and `switch`.
    readouts : Sequence[Shown], optional
        Results that are shown as text above the chart, from `readout`.
    presets : Mapping[str, Mapping[str, Any]], optional
        Label to settings; a slider's ladder gains the values that presets need.
    rows : Sweep, optional
        The data set behind the chart, from `along`.
    chart : Callable[[Any], Any], optional
        ``chart(s)`` gives an Altair chart (single or layered); ``s.rows`` is a chart of the rows, ``s.now("x", y=s.rate)``
        one of a single row that follows the controls, ``s.<result>`` an expression.
    table : Sequence[Shown], optional
        The columns of the data table, from `column`; they are taken from the rows, or from the results where there are none.
    caption : str, optional
        A note below the chart (source of the data, convention).
    height : int, optional
        Height of the chart in pixels.
    refused : str, optional
        A result of the model, a word: why these settings cannot be, or "" where they can. The page then shows this sentence, and
        no numbers. It may name controls, as *alt* does.
    paste : Paste, optional
        A box for a configuration, from which controls are set. A slider then takes every whole number from its first step on.
    code : Code, optional
        The library's calls that give the same answer, from `flopkit.charts.code`.
    presets_label : str, optional
        What the presets are.

    Examples
    --------
    >>> from flopkit.charts import Figure, readout, slider
    >>> def model(s, *, n):
    ...     s.flops = 2 * n**3
    >>> figure = Figure(name="square", title="A square product", alt="FLOPs grow with the cube of the size.", model=model,
    ...                 controls=[slider("n", "Size", [64, 128, 256])], readouts=[readout("flops", "Arithmetic", "FLOPs")])
    >>> figure.at(n=64)
    {'flops': 524288}
    """

    def numbered(self, number: str) -> Figure:
        """The same figure under "Figure 2.1." and its title, so that the text can refer to it wherever it is read."""
        figure = copy.copy(self)
        figure.number = number
        return figure

    def __str__(self) -> str:
        """Title, settings and read-outs, as text."""
        labels = {name: control.label for name, control in self.controls.items()}
        settings = ", ".join(f"{labels[name]} = {text}" for name, text in self.setting_texts().items())
        lines = [self.heading, *[f"  at {settings}"] * bool(settings)]
        texts = self.texts()
        said = {self.say(shown.label): texts[shown.name] for shown in self.readouts}
        width = max(map(len, said), default=0)
        return "\n".join(lines + [f"  {label:{width}}  {text}" for label, text in said.items()])

    def __repr__(self) -> str:
        return (
            f"<Figure {self.name!r}: {', '.join(self.controls)} -> {', '.join(shown.name for shown in self.readouts)}>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": html.show(self), "text/plain": str(self)}
