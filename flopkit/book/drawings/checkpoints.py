"""Checkpointing over time: which activations lie in memory during a step, and which are computed again."""

from __future__ import annotations

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.models.catalogue import load
from flopkit.units import si

__all__ = ["kept_over_time"]

POLICIES = ("none", "full")
MODEL, SEQ = "llama-3-8b", 8192


def kept_over_time(layers: int = 4, recompute: str = "none") -> Drawing:
    """The activations of a few layers of Llama-3-8B during a step of one sequence of 8,192 tokens, a column for each pass through a layer.

    Parameters
    ----------
    layers : int, optional
        How many layers, two to four.
    recompute : str, optional
        ``"none"``, or ``"full"``: each layer keeps its input only, and is computed again before its backward pass.

    Raises
    ------
    ValueError
        For another policy, or more layers than can be drawn.

    Examples
    --------
    >>> kept_over_time(4, "none").title, kept_over_time(4, "full").title
    ('Without recompute four layers keep 5.507 GB', 'With each of four layers checkpointed, 1.578 GB is the most at once')
    """
    if recompute not in POLICIES or layers not in (2, 3, 4):
        raise ValueError(f"kept_over_time({layers!r}, {recompute!r}): give two to four layers, and 'none' or 'full'")
    kept = load(MODEL).train_memory(seq=SEQ).kept
    whole, edge = sum(each.bytes for each in kept), kept[0].bytes
    order = list(range(1, layers + 1))
    if recompute == "none":
        passes = [("F", i) for i in order] + [("B", i) for i in reversed(order)]
    else:
        passes = [("F", i) for i in order] + [(what, i) for i in reversed(order) for what in "RB"]
    there = [_there(recompute, layers, what, i) for what, i in passes]
    sums = [sum({"all": whole, "again": whole, "input": edge}[state] for state in column.values()) for column in there]

    left, side = 62, 24
    bottom = 34 + layers * 30
    canvas = Canvas(bottom + 150)
    forward = left + layers * side
    canvas.text(left + layers * side / 2, 10, "forward", bold=True)
    canvas.text((forward + left + len(passes) * side) / 2, 10, "backward", bold=True)
    canvas.line(forward, 19, forward, bottom + 104, dash=True, name="turn")
    for i in order:
        canvas.text(left - 6, 22 + (layers - i) * 30 + 13, f"layer {i}", anchor="end")
    for t, ((what, i), column) in enumerate(zip(passes, there, strict=True)):
        x = left + t * side
        for layer, state in column.items():
            y = 22 + (layers - layer) * 30
            name = f"{state} {layer} at {t}"
            if state == "input":
                canvas.box(x + 1, y + 19, side - 2, 7, name=name, colour=GREEN, fill=0.6, edge=0, round=1)
            else:
                colour = ORANGE if state == "again" else BLUE
                canvas.box(x + 1, y, side - 2, 26, name=name, colour=colour, fill=0.4, edge=1, round=1)
        canvas.text(x + side / 2, bottom + 2, f"{what}{i}", colour=MUTED, name="pass")
        high = 72 * sums[t] / (layers * whole)
        canvas.box(
            x + 3, bottom + 104 - high, side - 6, high, name=f"memory at {t}", colour=MUTED, fill=0.5, edge=0, round=0
        )
    canvas.line(left, bottom + 104, left + len(passes) * side, bottom + 104, name="ground")
    canvas.text(left - 6, bottom + 72, "memory", anchor="end")
    top = max(range(len(sums)), key=lambda t: sums[t])
    canvas.text(forward - 4, bottom + 104 - 72 * sums[top] / (layers * whole) - 10, si(sums[top], "B"),
                anchor="end", bold=True, halo=True, name="most")  # fmt: skip
    if recompute == "full":  # as high as the tallest bar of the other picture
        end = left + len(passes) * side
        canvas.line(left, bottom + 32, end, bottom + 32, dash=True, name="without")
        canvas.text(
            end, bottom + 43, f"without recompute: {si(layers * whole, 'B')}", anchor="end", colour=MUTED, halo=True
        )
    keys = (
        [(BLUE, "all of it kept")]
        if recompute == "none"
        else [(BLUE, "in work, at most"), (GREEN, "its input"), (ORANGE, "recomputed")]
    )
    place = 62.0 if recompute == "none" else 14.0  # three keys take the picture's whole width
    for colour, words in keys:
        canvas.box(place, bottom + 122, 12, 12, colour=colour, fill=0.5, edge=1, name="key")
        canvas.text(place + 18, bottom + 128, words, anchor="start", name="key")
        place += 30 + 7 * len(words)
    many = {2: "two", 3: "three", 4: "four"}[layers]
    most = si(max(sums), "B")
    title = (
        f"Without recompute {many} layers keep {most}"
        if recompute == "none"
        else f"With each of {many} layers checkpointed, {most} is the most at once"
    )
    said = (
        "Each layer's activations are kept from its forward pass (F) to its backward pass (B), so memory is fullest where the two meet."
        if recompute == "none"
        else "Each layer keeps its input only, and while it runs forward at most its activations. In the backward pass it is computed again (R) just before its own backward pass (B), so that the "
        "activations of one layer are there at a time."
    )
    alt = f"A grid of {many} layers by {len(passes)} passes, memory as bars below. {said} The most at once is {most}."
    return Drawing("kept-over-time", title, alt, [canvas])


def _there(recompute: str, layers: int, what: str, at: int) -> dict[int, str]:
    """What each layer has in memory during a pass through layer *at*."""
    if recompute == "none":
        return dict.fromkeys(range(1, at + 1), "all")
    found = dict.fromkeys(range(1, at + 1), "input")
    if what == "F":
        found[at] = "all"  # while it runs; then all but its input is dropped
    else:
        found[at] = "again"
    return found
