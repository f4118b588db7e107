"""Several figures over one set of controls, of which a reader sees one at a time: a page that answers questions of several sorts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from flopkit.charts import html
from flopkit.charts.figure import Figure
from flopkit.charts.panel import Control, Paste
from flopkit.names import hint

__all__ = ["Tasks"]


class Tasks:
    """Figures that share controls, presets, a box and a link. In the page a tab chooses one; on paper they stand one below the other.

    Parameters
    ----------
    name : str
        Short, with hyphens; the anchor in the page and the key in a shared link.
    title : str
        What the tabs choose among.
    figures : Mapping[str, Figure]
        By a word for each. The title of a figure stands on its tab, and its name is ``{name}-{word}``. What two figures both have as a
        control has the same values and the same start in both, and moves in both.
    paste : Paste, optional
        A box for a configuration or a name, which sets the controls of all.

    Examples
    --------
    >>> from flopkit.charts import Figure, Tasks, readout, slider
    >>> def area(s, *, n):
    ...     s.area = n * n
    >>> def edge(s, *, n):
    ...     s.edge = 4 * n
    >>> n = slider("n", "Size", [1, 2, 4])
    >>> both = {model.__name__: Figure(name=f"square-{model.__name__}", title=model.__name__.title(), alt=f"A square of {{n}}.", model=model,
    ...                                controls=[n], readouts=[readout(model.__name__, "It is")]) for model in (area, edge)}
    >>> square = Tasks(name="square", title="A square", figures=both)
    >>> print(square)
    Area
      at Size = 2
      It is  4
    <BLANKLINE>
    Edge
      at Size = 2
      It is  8
    >>> square["edge"].at(n=4)
    {'edge': 16}
    """

    def __init__(self, *, name: str, title: str, figures: Mapping[str, Figure], paste: Paste | None = None) -> None:
        self.name, self.title, self.figures, self.paste = name, title, dict(figures), paste
        self.controls: dict[str, Control] = {}
        for word, figure in self.figures.items():
            if figure.name != f"{name}-{word}":
                raise ValueError(f"figure {figure.name!r}: in tasks {name!r} it is called {name}-{word!s}")
            for key, control in figure.controls.items():
                alone = replace(control, group="", idle="")
                known = self.controls.setdefault(key, alone)
                if known != alone:
                    raise ValueError(
                        f"tasks {name!r}: control {key!r} is not the same in {word!r}: {alone} and {known}"
                    )

    def __getitem__(self, word: str) -> Figure:
        """The figure of a task."""
        if word not in self.figures:
            raise KeyError(f"tasks {self.name!r} has no {word!r}; {hint(word, self.figures)}")
        return self.figures[word]

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.figures.values())

    def settings(self, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The task that is open and the value of every control: those given, and the start values of the others."""
        found = {"task": next(iter(self.figures)), **{name: control.value for name, control in self.controls.items()}}
        for name, value in (given or {}).items():
            if name not in found:
                raise ValueError(f"tasks {self.name!r} have no control {name!r}; {hint(name, found)}")
            if name == "task":
                self[value]
            else:
                self.controls[name].check(value)
            found[name] = value
        return found

    def at(self, task: str = "", **settings: Any) -> dict[str, Any]:
        """The results of a task, the first one if none is named, at these settings."""
        found = self.settings({**({"task": task} if task else {}), **settings})
        figure = self[found["task"]]
        return figure.at(**{name: found[name] for name in figure.controls})

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    def __repr__(self) -> str:
        return f"<Tasks {self.name!r}: {', '.join(self.figures)}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": html.show(self), "text/plain": str(self)}
