"""The floors of a PyTorch program and the counters that stand on them."""

from __future__ import annotations

from flopkit.charts.drawings.canvas import Canvas
from flopkit.charts.drawings.drawing import Drawing
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE

__all__ = ["FLOORS", "tower"]

# Floor, how a counter stands there, who does, what passes by unseen. From the top of the tower.
FLOORS = (
    ("modules", "a hook on each layer", "thop, torchinfo; in part ptflops,", "ultralytics-thop, calflops", "products written in forward()"),
    ("functions", "torch's own, replaced", "in part ptflops, ultralytics-thop,", "calflops", "functions nobody replaced"),
    ("trace", "one recorded run", "fvcore", "", "operators without a rule"),
    ("dispatcher", "every operator, as it runs", "torch's FlopCounterMode,", "torch.profiler, flopkit", "operators without a formula"),
    ("kernels", "what the device executes", "hardware counters", "(Nsight Compute)", "whose layer it was, and why"),
)  # fmt: skip
BACKWARD = ("dispatcher", "kernels")
"""Floors where the backward pass is seen by itself."""


def tower() -> Drawing:
    """The floors of a program, from modules down to kernels: which counter stands where, and what passes it by.

    Examples
    --------
    >>> tower().title
    'The lower a counter stands, the more work it sees, under fewer familiar names'
    """
    step, top = 84, 30
    canvas = Canvas(top + step * len(FLOORS) + 4)
    canvas.text(6, 12, "model(x), loss.backward()", anchor="start", bold=True)
    canvas.text(316, 12, "sees", colour=MUTED)
    for i, (floor, how, *tools, missed) in enumerate(FLOORS):
        y, seen = top + step * i, floor in BACKWARD
        if i:
            canvas.arrow(18, y - 14, 18, y, name="calls")
        canvas.box(6, y, 264, 70, name=floor, colour=BLUE, fill=0.1)
        canvas.text(14, y + 12, floor, anchor="start", bold=True)
        canvas.text(98, y + 12, how, anchor="start", colour=MUTED, size=12)
        for line, words in enumerate(filter(None, tools)):
            canvas.text(14, y + 28 + 14 * line, words, anchor="start", name=f"tools on {floor}")
        canvas.text(14, y + 58, f"misses {missed}", anchor="start", colour=ORANGE)
        canvas.box(278, y, 76, 32, "forward", colour=GREEN, fill=0.3, round=8, name=f"forward on {floor}")
        canvas.box(278, y + 38, 76, 32, "backward" if seen else "—", colour=GREEN if seen else MUTED, fill=0.3 if seen else 0,
                   dash=not seen, round=8, name=f"backward on {floor}" if seen else "unseen")  # fmt: skip
    return Drawing(
        "tower",
        "The lower a counter stands, the more work it sees, under fewer familiar names",
        "A program is a tower: modules call functions, functions call operators, operators run kernels. "
        + " ".join(
            f"On the floor of {floor} stand {' '.join(filter(None, tools))}; missed: {missed}."
            for floor, _, *tools, missed in FLOORS
        )
        + f" The backward pass is seen on two floors alone: {' and '.join(BACKWARD)}.",
        [canvas],
    )
