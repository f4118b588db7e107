"""The Python that gives the same answer as a figure: a template, filled with the settings here and by ``static/code.js`` in the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MODEL", "Code", "above", "literal", "unless", "value", "when"]

Piece = str | Mapping[str, Any]
"""Text that stands as it is, or what `value`, `when` or `MODEL` gave."""

MODEL: Mapping[str, Any] = {"model": True}
"""Where the expression of the model stands."""


def value(name: str, texts: Mapping[Any, str] | None = None, over: int = 1) -> Mapping[str, Any]:
    """A setting as Python writes it: a number, divided by *over*, or the text of an option.

    >>> Code((value("count"), ", ", value("share", over=100))).text({"count": 16384, "share": 40})
    '16_384, 0.4'
    """
    return {"of": name, **({"over": over} if over != 1 else {}), **({"texts": dict(texts)} if texts else {})}


def when(name: str, values: Collection[Any], then: Sequence[Piece] | str, other: Sequence[Piece] | str = ()) -> Piece:
    """The pieces *then* where the setting is one of the *values*, and *other* elsewhere."""
    return {"if": name, "in": list(values), "then": _pieces(then), "else": _pieces(other)}


def unless(name: str, values: Collection[Any], then: Sequence[Piece] | str) -> Piece:
    """The pieces *then* where the setting is none of the *values*.

    >>> Code(("f(", unless("n", [1], ["n=", value("n")]), ")")).text({"n": 2})
    'f(n=2)'
    """
    return when(name, values, (), then)


def above(name: str, other: str, then: Sequence[Piece] | str, otherwise: Sequence[Piece] | str) -> Piece:
    """The pieces *then* where one setting is larger than another."""
    return {"if": name, "above": other, "then": _pieces(then), "else": _pieces(otherwise)}


def literal(number: Any) -> str:
    """A number as a reader of Python writes it.

    >>> literal(8192), literal(131072), literal(15_000_000_000_000), literal(2.5)
    ('8192', '131_072', '15e12', '2.5')
    """
    if isinstance(number, bool) or not isinstance(number, int):
        return repr(number)
    for power in (12, 9):
        if number >= 10**power and number % 10**power == 0:
            return f"{number // 10**power}e{power}"
    return str(number) if number < 10_000 else f"{number:_}"


@dataclass(frozen=True)
class Code:
    """A template of the calls of the library that give a figure's read-outs.

    Parameters
    ----------
    pieces : tuple[Any, ...]
        The template.
    sizes : tuple[Any, ...], optional
        What stands at ``MODEL`` where the settings are those of no model that has a name.
    models : Mapping[str, str], optional
        What stands there where the settings *of_model* are those of a preset, by its label.
    of_model : tuple[str, ...], optional
        The controls that say which model it is.
    defaults : Mapping[str, Any], optional
        Values of controls that a figure leaves out.
    """

    pieces: tuple[Any, ...]
    sizes: tuple[Any, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict, hash=False)
    of_model: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def text(self, settings: Mapping[str, Any], presets: Mapping[str, Mapping[str, Any]] | None = None) -> str:
        """The template filled with *settings*."""
        said = {**self.defaults, **settings}
        known = (
            expression
            for label, expression in self.models.items()
            if all(said[name] == preset for name, preset in (presets or {})[label].items() if name in self.of_model)
        )
        model = next(known, None)

        def filled(pieces: Sequence[Piece]) -> str:
            return "".join(map(one, pieces))

        def one(piece: Piece) -> str:
            if isinstance(piece, str):
                return piece
            if "model" in piece:
                return filled(self.sizes) if model is None else model
            if "if" in piece:
                asked = said[piece["if"]]
                holds = asked > said[piece["above"]] if "above" in piece else asked in piece["in"]
                return filled(piece["then" if holds else "else"])
            if "texts" in piece:
                return str(piece["texts"][said[piece["of"]]])
            number = said[piece["of"]]
            return literal(number / piece["over"] if "over" in piece else number)

        return filled(self.pieces)

    def data(self, presets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The template as the page's script reads it; a preset is named by its place."""
        places = list(presets)
        models = [[places.index(label), text] for label, text in self.models.items()]
        found = {"pieces": _plain(self.pieces), "sizes": _plain(self.sizes), "models": models}
        return {**found, "about": list(self.of_model), "defaults": dict(self.defaults)}


def _pieces(given: Sequence[Piece] | str) -> list[Piece]:
    return [given] if isinstance(given, str) else list(given)


def _plain(pieces: Sequence[Piece]) -> list[Any]:
    return [piece if isinstance(piece, str) else dict(piece) for piece in pieces]
