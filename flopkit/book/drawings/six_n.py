"""The two errors of 6N, side by side: the look-up that it counts and the scores that it misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import INK, MUTED, ORANGE, PURPLE
from flopkit.models import Model, load
from flopkit.units import count, percent

__all__ = ["two_errors"]

LEFT, ZERO, RIGHT, ROW = 106.0, 212.0, 262.0, 34.0
"""Where the longest bar to the left ends, where both bars start, where the longest to the right ends; the height of a row."""


def two_errors(model: str = "llama-3-8b", tokens: Sequence[int] = (1024, 2048, 8192, 16384)) -> Drawing:
    """What 6N counts too much and too little of a training token, as shares of EXACT: an untied model, and the same model tied.

    Parameters
    ----------
    model : str, optional
        A name that `flopkit.load` knows, of an untied model with equal layers.
    tokens : Sequence[int], optional
        The lengths of the sequences, one to five of them; causal masks, the visible pairs counted.

    Raises
    ------
    ValueError or TypeError
        For a model that is not known or that is tied, and for other numbers of lengths.

    Examples
    --------
    >>> two_errors().title
    'The look-up makes 6N too high, scores and values make it too low: Llama-3-8B, untied and tied'
    """
    found = load(model)
    if found.tied or len(found.blocks) != 1 or not 1 <= len(tokens) <= 5:
        raise ValueError(
            f"two_errors({model!r}, tokens={tokens!r}): give an untied model with equal layers, and one to five lengths"
        )
    cases = {"untied, as published": found, "with one table for both": replace(found, tied=True)}
    errors = {title: [_errors(each, length) for length in tokens] for title, each in cases.items()}
    reach = [max(row[i] for rows in errors.values() for row in rows) for i in (0, 1)]
    scale = min((ZERO - LEFT) / reach[0], (RIGHT - ZERO) / reach[1])  # pixels for all of EXACT
    said = "; ".join(
        f"{title}: " + ", ".join(f"at {count(n)} tokens −{percent(a)} and +{percent(b)}, together {_signed(c)}" for n, (a, b, c) in zip(tokens, rows, strict=True))
        for title, rows in errors.items()
    )  # fmt: skip
    return Drawing(
        "two-errors",
        f"The look-up makes 6N too high, scores and values make it too low: {model_title(model)}, untied and tied",
        f"Bars to the left are the scores and values that 6N misses, bars to the right the look-up that it counts, as shares of EXACT for a training token. {said}.",
        [_sheet(title, tokens, rows, scale) for title, rows in errors.items()],
    )


def _errors(model: Model, length: int) -> tuple[float, float, float]:
    """The scores that 6N misses, the look-up that it counts, and 6N's error, as shares of EXACT."""
    exact: float = model.train_step(seq=length).flops_per_token
    parts = {part.name: part.flops for part in model.layer(seq=length).parts}
    missed = 3 * model.layers * parts["attention"] / length
    looked_up = 0 if model.tied else 6 * model.vocab * model.d_model
    return float(missed / exact), float(looked_up / exact), float(6 * model.params / exact - 1)


def _signed(error: float) -> str:
    return f"{'−' if error < 0 else '+'}{percent(abs(error), 2)}"


def _sheet(title: str, tokens: Sequence[int], rows: Sequence[tuple[float, float, float]], scale: float) -> Canvas:
    canvas = Canvas(62 + ROW * len(rows))
    canvas.text(0, 10, title.capitalize(), anchor="start", bold=True)
    looked_up = any(added for _, added, _ in rows)
    canvas.text(0, 36, "tokens", anchor="start", colour=MUTED)
    canvas.text(ZERO - 6, 36, "misses scores and values", anchor="end", colour=PURPLE)
    if looked_up:
        canvas.text(ZERO + 4, 36, "look-up", anchor="start", colour=ORANGE)
    canvas.text(358, 36, "6N is off", anchor="end", colour=MUTED)
    canvas.line(294, 29, 294, 43, colour=INK, width=2.4, name="key")
    for i, (length, (missed, added, error)) in enumerate(zip(tokens, rows, strict=True)):
        y = 52 + i * ROW
        middle = y + (ROW - 10) / 2
        canvas.text(0, middle, count(length), anchor="start")
        left = ZERO - scale * missed
        canvas.box(left, y, scale * missed, ROW - 10, name="scores", colour=PURPLE, fill=0.6, edge=0, round=0)
        canvas.text(left - 5, middle, f"−{percent(missed, 2)}", anchor="end", colour=MUTED, name="missed")
        if added:
            canvas.box(ZERO, y, scale * added, ROW - 10, name="look-up", colour=ORANGE, fill=0.6, edge=0, round=0)
            canvas.text(ZERO + scale * added + 5, middle, f"+{percent(added, 2)}", anchor="start", colour=MUTED, name="counted")  # fmt: skip
        canvas.text(358, middle, _signed(error), anchor="end", bold=True, name="error")
        at = ZERO + scale * error
        canvas.line(at, y - 3, at, y + ROW - 7, colour=INK, width=2.4, name="together")
    canvas.line(ZERO, 46, ZERO, 52 + ROW * len(rows) - 4, name="axis")
    return canvas
