"""What the box of an exercise is called, and what it asks for: a row of flopkit/book/data/exercises.toml, or what its name says."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flopkit.book.lessons.typed import kind_of

__all__ = ["Box", "box_of", "boxes"]

_FILE = Path(__file__).parents[1] / "data" / "exercises.toml"
_NAMES = {"flops": "FLOPs", "bytes": "bytes"}  # these say their unit


@dataclass(frozen=True)
class Box:
    """An answer that an exercise asks for.

    ``unit`` is the one of a number without any, and ``digits`` how many it needs at least. ``choices`` are letters or words, each with
    the words that also mean it. ``same`` is what "the same" means here, and ``letters`` are the values of letters that the exercise knows.
    """

    label: str = ""
    unit: str = ""
    digits: int = 2
    choices: Mapping[str, list[str]] = field(default_factory=dict)
    same: str = ""
    letters: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        known = self.unit in ("", "×", "side") or self.label.endswith(self.unit)
        return self.label if known else f"{self.label}, {self.unit}"

    @property
    def kind(self) -> str:
        return kind_of(self.unit)[0]

    @property
    def scale(self) -> float:
        """What 1 of the kept answer is in its kind's own unit."""
        return kind_of(self.unit)[1]

    def kept(self) -> dict[str, Any]:
        """What the page needs to know."""
        return {
            "unit": self.unit,
            "kind": self.kind,
            "scale": self.scale,
            "digits": self.digits,
            "choices": dict(self.choices),
            "same": self.same,
            "letters": dict(self.letters),
        }


def boxes() -> Mapping[str, Mapping[str, Box]]:
    """The boxes of every exercise, by its number and their names.

    >>> str(boxes()["11.1"]["least_us"])
    'least time, µs'
    """
    return _read()


def box_of(number: str, name: str) -> Box:
    """A box. One that no row describes is called by its name, and takes every unit."""
    described = boxes().get(number, {}).get(name)
    return described or Box(_NAMES.get(name, name.replace("_", " ")), _NAMES.get(name, ""))


@functools.cache
def _read() -> Mapping[str, Mapping[str, Box]]:
    rows = tomllib.loads(_FILE.read_text("utf8"))
    return {number: {name: Box(**row) for name, row in asked.items()} for number, asked in rows.items()}
