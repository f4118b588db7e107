"""Stopwatches around kernels that a program only queues: what each of them reads."""

from __future__ import annotations

from collections.abc import Sequence

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.units import times

__all__ = ["stopwatches"]

LAUNCH, LONG, SHORT, FIRST = (
    1.0,
    3.0,
    0.257,  # so that four calls with gaps take 4.14 times as long as without, as 1,024 × 1,024 matmuls do on the H200
    8.0,
)  # times: of a launch, of two kernels, and of what only the first call does
LEFT, RIGHT = 40.0, 352.0


def _kernels(launched: Sequence[float], kernel: float, free: float = 0.0) -> list[tuple[float, float]]:
    """When each kernel runs: after its launch, and after the kernel before it; the first not before *free*."""
    spans: list[tuple[float, float]] = []
    for at in launched:
        begins = max(at, spans[-1][1] if spans else free)
        spans.append((begins, begins + kernel))
    return spans


class _Timeline:
    """A row of the CPU and one of the GPU on one time axis, and stopwatches below them."""

    def __init__(self, canvas: Canvas, top: float, long: float) -> None:
        self.canvas, self.y, self.scale = canvas, top, (RIGHT - LEFT) / long
        for name, y in (("CPU", top), ("GPU", top + 26)):
            canvas.text(0, y + 10, name, anchor="start")
            canvas.line(LEFT, y + 20, RIGHT, y + 20, width=0.6)
        self.y += 56

    def box(self, row: str, begins: float, ends: float, *words: str, name: str, colour: str, fill: float = 0.5) -> None:
        y = self.y - (56 if row == "CPU" else 30)
        self.canvas.box(LEFT + begins * self.scale, y, (ends - begins) * self.scale, 20, *words, name=name, colour=colour, fill=fill, edge=0.8, round=0)  # fmt: skip

    def watch(self, begins: float, ends: float, calls: int, kernel: float, words: str, right: bool = False) -> float:
        """A stopwatch from *begins* to *ends*: how many times the kernel's own time it reads per call."""
        colour, y = GREEN if right else ORANGE, self.y
        a, b = LEFT + begins * self.scale, LEFT + ends * self.scale
        self.canvas.line(a, y + 5, b, y + 5, colour=colour, width=2.5, name="right" if right else "wrong")
        for x in (a, b):
            self.canvas.line(x, y, x, y + 10, colour=colour, width=2)
        read = (ends - begins) / calls / kernel
        said = f"{'✓' if right else '✗'} {words}: reads {times(read)}"
        self.canvas.text(LEFT, y + 21, said, anchor="start", name="reads")
        self.y += 38
        return read


def stopwatches(calls: int = 4) -> Drawing:
    """What a program launches and what the GPU runs on one time axis, and below them wrong and right stopwatches.

    Parameters
    ----------
    calls : int, optional
        Calls that are timed together, 2 to 5.

    Notes
    -----
    A launch takes one unit of time, the long kernel three and the short one about a quarter; the first call also compiles for eight.

    Examples
    --------
    >>> stopwatches().title
    'A stopwatch must wait for the GPU, skip the first call, and leave no gaps between kernels'
    """
    whole("stopwatches", "calls", calls, 2, 5)
    told = []

    # A kernel that is longer than its launch: the first call, then the others after a synchronise.
    first = _kernels([FIRST + LAUNCH], LONG)[0][1]
    launches = [first + i * LAUNCH for i in range(calls)]
    kernels = _kernels([at + LAUNCH for at in launches], LONG)
    long = Canvas(234)
    long.text(0, 8, "A kernel longer than its launch", anchor="start", bold=True)
    line = _Timeline(long, 24, kernels[-1][1])
    line.box("CPU", 0, FIRST, "first call", name="first", colour=MUTED, fill=0.2)
    for at in (FIRST, *launches):
        line.box("CPU", at, at + LAUNCH, name="launch", colour=MUTED, fill=0.55)
    for begins, ends in _kernels([FIRST + LAUNCH], LONG) + kernels:
        line.box("GPU", begins, ends, name="long kernel", colour=BLUE)
    for begins, ends, timed, words, right in (
        (first, launches[-1] + LAUNCH, calls, "no synchronise", False),
        (0.0, kernels[-1][1], calls + 1, "the first call included", False),
        (first, kernels[-1][1], calls, "synchronise before and after", True),
    ):
        read = line.watch(begins, ends, timed, LONG, words, right)
        told.append(f"{words}, {times(read)}")
    long.box(0, 221, 12, 12, colour=MUTED, fill=0.55, edge=0.8)
    long.text(18, 227, "launch", anchor="start", colour=MUTED)
    long.box(84, 221, 12, 12, colour=BLUE, fill=0.5, edge=0.8)
    long.text(102, 227, "kernel; 1× is its own time", anchor="start", colour=MUTED)

    # A kernel that is shorter than its launch: one by one, and behind a kernel that sleeps until all are queued.
    short = Canvas(216)
    short.text(0, 8, "A kernel shorter than its launch", anchor="start", bold=True)
    queued = [(i + 1) * LAUNCH for i in range(calls)]
    asleep = queued[-1] + LAUNCH / 2
    apart, behind = _kernels(queued, SHORT), _kernels(queued, SHORT, asleep)
    for spans, top, words, right in (
        (apart, 24, "kernels wait for launches", False),
        (behind, 130, "launches queued behind a sleep", True),
    ):
        line = _Timeline(short, top, behind[-1][1])
        for at in queued:
            line.box("CPU", at - LAUNCH, at, name="launch", colour=MUTED, fill=0.55)
        if right:
            line.box("GPU", 0, asleep, "sleeps", name="sleep", colour=MUTED, fill=0.1)
        for begins, ends in spans:
            line.box("GPU", begins, ends, name="short kernel", colour=BLUE)
        read = line.watch(asleep if right else 0, spans[-1][1], calls, SHORT, words, right)
        told.append(f"{words}, {times(read)}")
    return Drawing(
        "stopwatches",
        "A stopwatch must wait for the GPU, skip the first call, and leave no gaps between kernels",
        f"Two time axes with a row of the CPU, which launches {calls} calls, and a row of the GPU, which runs them in turn. What a stopwatch reads per call, "
        f"in times of the kernel itself: {'; '.join(told)}.",
        [long, short],
    )
