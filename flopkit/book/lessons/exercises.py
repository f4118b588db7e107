"""Exercises: the chapter keeps the answers, the reader gives theirs, and a wrong one is told by which factor it is off."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flopkit.book.lessons.answers import remark
from flopkit.book.lessons.boxes import Box, box_of
from flopkit.names import hint as near

__all__ = ["NotYet", "Reply", "check", "solution"]

_WAITING = "not answered yet"


class NotYet(AssertionError):
    """A wrong answer. In a notebook it shows as one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"Not yet: {self}"]


@dataclass(frozen=True)
class _Solution:
    answers: Mapping[str, Any]
    rel: float
    hints: Mapping[str, Mapping[Any, str]]  # of each answer
    boxes: Mapping[str, Box]


_SOLUTIONS: dict[str, _Solution] = {}


def solution(number: str, *, rel: float = 1e-9, hints: Mapping[Any, Any] | None = None, **answers: Any) -> None:
    """Keep the answers of an exercise, for `check`. It prints nothing, so that running a whole chapter gives nothing away.

    Parameters
    ----------
    number : str
        The exercise: "2.1".
    rel : float, optional
        Relative tolerance of numbers; whole numbers stay exact where it is not given.
    hints : Mapping[Any, Any], optional
        What to say to a certain wrong answer, a number or text: ``{295: "that is the ridge point itself"}``. In one of several boxes alone:
        ``{"full": {5: "there are two such gradients"}}``.
    **answers : Any
        The right answers by the names that the reader fills in: numbers or text. What their boxes are called, and in which unit a
        bare number is read, stands in flopkit/book/data/exercises.toml.

    Raises
    ------
    ValueError
        Where there is no answer, or where a hint is for what is right in every box.

    Examples
    --------
    >>> solution("0.1", flops=210)
    """
    if isinstance(rel, bool) or not isinstance(rel, (int, float)) or not 0 <= rel < 1:
        raise ValueError(f"rel={rel!r}: must be a relative tolerance from 0 to below 1, e.g. 0.01")
    if not answers:
        raise ValueError(f'solution("{number}") has no answer: name one, e.g. solution("{number}", flops=210)')
    kept = {name: _plain(value) for name, value in answers.items()}
    asked = {name: box_of(number, name) for name in kept}
    told: dict[str, dict[Any, str]] = {name: {} for name in kept}
    for key, hint in (hints or {}).items():
        alone = isinstance(hint, Mapping)
        if alone and key not in kept:
            raise ValueError(f"hints: {key!r} is no answer of exercise {number}; {near(key, kept)}")
        places = [key] if alone else [*kept]
        for value, words in hint.items() if alone else [(key, hint)]:
            value = _plain(value)  # the answer of another box may be a hint
            if not any(remark(value, kept[name], rel, {}, asked[name]) for name in places):
                raise ValueError(f"hints: {value!r} is a right answer, and gets the hint {words!r}")
            for name in places:
                told[name][value] = words
    _SOLUTIONS[number] = _Solution(kept, rel, told, asked)


@dataclass(frozen=True)
class Reply:
    """What `flopkit.book.lessons.check` answers: a line for each name. In the built page, boxes to type into stand for those without an answer."""

    number: str
    lines: Mapping[str, str]
    kept: _Solution

    def __repr__(self) -> str:
        return "\n".join(f"{self._label(name)}: {line}" for name, line in self.lines.items())

    def _repr_html_(self) -> str:
        return "\n".join(self._line(name, line) for name, line in self.lines.items())

    def _line(self, name: str, line: str) -> str:
        """Text for a notebook. The script of the book takes the box out of the template, puts it in the text's place, and needs no kernel."""
        label, box = html.escape(self._label(name)), self.kept.boxes[name]
        shown = f"<p>{label}: {html.escape(line)}</p>"
        if line != _WAITING:
            return shown
        kept = {
            **box.kept(),
            "answer": self.kept.answers[name],
            "rel": self.kept.rel,
            "hints": list(self.kept.hints[name].items()),
        }
        return (
            f'<div class="fk-exercise" data-kept="{html.escape(json.dumps(kept))}">{shown}<form hidden>'
            f"<label>{label}: <input type=text autocomplete=off></label><button>Check</button><output></output></form></div>"
        )

    def _label(self, name: str) -> str:
        return f"Exercise {self.number}, {self.kept.boxes[name]}"


def check(number: str, **answers: Any) -> Reply:
    """Tell the reader whether their answers are right.

    Parameters
    ----------
    number : str
        The exercise: "2.1".
    **answers : Any
        The reader's, by the names that the exercise gives; ``...`` where there is none yet. A number may also be text
        such as "33.55 MB" or "exp(-2)", and is right where it is rounded correctly. A share is right as 0.332, 33.2 and "33.2 %".

    Returns
    -------
    Reply
        A line for each answer: right, or not answered yet. Open exercises are no error, so that a chapter runs.

    Raises
    ------
    NotYet
        For a wrong answer. It is an ``AssertionError``; it names the factor where that explains the mistake, and does not
        tell the answer.
    ValueError
        Where the exercise is not known, or asks for other names.

    Examples
    --------
    >>> solution("0.1", flops=210)
    >>> check("0.1", flops=2 * 5 * 3 * 7)
    Exercise 0.1, FLOPs: right
    >>> check("0.1", flops=...)
    Exercise 0.1, FLOPs: not answered yet
    >>> check("0.1", flops=105)
    Traceback (most recent call last):
        ...
    flopkit.book.lessons.exercises.NotYet: FLOPs: 105: half of what is asked: multiply-adds, where FLOPs are asked for?
    """
    if number not in _SOLUTIONS:
        raise ValueError(f'exercise "{number}" is not known here: run the folded cell above this one first')
    kept = _SOLUTIONS[number]
    if answers.keys() != kept.answers.keys():
        raise ValueError(
            f'exercise "{number}" asks for {", ".join(kept.answers)}, and was given {", ".join(answers) or "nothing"}'
        )
    lines = {}
    wrong = []
    for name, answer in answers.items():
        if answer is ... or answer is None:
            lines[name] = _WAITING
        elif said := remark(answer, kept.answers[name], kept.rel, kept.hints[name], kept.boxes[name]):
            wrong.append(f"{kept.boxes[name]}: {_shown(answer)}: {said}")
        else:
            lines[name] = "right"
    if wrong:
        raise NotYet("; ".join(wrong))
    return Reply(number, lines, kept)


def _plain(value: Any) -> Any:
    """An int, a float or text, whatever NumPy or SymPy made of it."""
    if isinstance(value, (bool, str)):
        return value
    return int(value) if value == int(value) else float(value)


def _shown(answer: Any) -> str:
    if isinstance(answer, int) and not isinstance(answer, bool):
        return f"{answer:,}"
    return f"{answer:,.6g}" if isinstance(answer, float) else str(answer)
