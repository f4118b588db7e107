"""What a waiting row is: a host that launches, and a device that runs what was launched, on one axis of time."""

from __future__ import annotations

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.charts.theme import BLUE, INK, MUTED, PURPLE
from flopkit.units import seconds

__all__ = ["waiting_row"]

LEFT, WIDE = 54.0, 304.0
MOST = 10


def waiting_row(kernels: int = 6, launch: float = 5e-6, kernel: float = 2e-6) -> Drawing:
    """A host that launches kernels one by one, or all with one launch, and the gaps in which the device waits.

    Parameters
    ----------
    kernels : int, optional
        How many kernels a step runs, one to ten.
    launch : float, optional
        Seconds that the host takes for a launch.
    kernel : float, optional
        Seconds that the device takes for a kernel.

    Raises
    ------
    ValueError
        For another number of kernels, and for seconds that are not positive.

    Examples
    --------
    >>> waiting_row(kernels=2, launch=3e-6, kernel=1e-6).title
    'The device waits 5 µs of 7 µs; with one launch for all kernels it waits 3 µs'
    """
    if not 1 <= kernels <= MOST:
        raise ValueError(f"waiting_row(kernels={kernels!r}): draw one to {MOST} kernels")
    if launch <= 0 or kernel <= 0:
        raise ValueError(f"waiting_row(launch={launch!r}, kernel={kernel!r}): both take some seconds, such as 5e-6")
    each, graph = _runs([launch] * kernels, kernel), _runs([launch] + [0.0] * (kernels - 1), kernel)
    whole = max(end for _, end in each)
    canvas = Canvas(216)
    scale = WIDE / whole
    lost: list[float] = []
    for y, title, runs, launches in ((8.0, "One by one", each, kernels), (114.0, "As a CUDA graph", graph, 1)):
        end = runs[-1][1]
        lost.append(end - kernels * kernel)
        canvas.text(2, y, f"{title}: {seconds(end)}", anchor="start", bold=True)
        canvas.text(2, y + 28, "host", anchor="start")
        canvas.text(2, y + 64, "device", anchor="start")
        for i in range(launches):
            canvas.box(LEFT + i * launch * scale, y + 16, launch * scale, 24, name="launch", colour=PURPLE, fill=0.3)
        before = 0.0
        for start, stop in runs:
            if start > before:
                canvas.box(LEFT + before * scale, y + 52, (start - before) * scale, 24, name="waits", colour=MUTED, fill=0, dash=True)  # fmt: skip
            canvas.box(LEFT + start * scale, y + 52, (stop - start) * scale, 24, name="runs", colour=BLUE, fill=0.55)
            before = stop
        canvas.text(LEFT + WIDE, y, f"the device waits {seconds(lost[-1])}", anchor="end", name="lost")
    for x, words, look in ((54.0, "a launch", {"colour": PURPLE, "fill": 0.3}), (144.0, "a kernel", {"colour": BLUE, "fill": 0.55}), (234.0, "a waiting row", {"dash": True, "fill": 0.0})):  # fmt: skip
        canvas.box(x, 200, 12, 12, name="key", **look)
        canvas.text(x + 18, 206, words, anchor="start", colour=INK)
    return Drawing(
        "waiting-row",
        f"The device waits {seconds(lost[0])} of {seconds(whole)}; with one launch for all kernels it waits {seconds(lost[1])}",
        f"Two timelines of a host and a device. The host launches {kernels} kernels, {seconds(launch)} each, and the device runs each for {seconds(kernel)}. "
        f"Launched one by one, the step takes {seconds(whole)}, and the device waits {seconds(lost[0])} of it. As a CUDA graph, with one launch, the step takes "
        f"{seconds(graph[-1][1])} and the device waits {seconds(lost[1])}.",
        [canvas],
    )


def _runs(launches: list[float], kernel: float) -> list[tuple[float, float]]:
    """When each kernel starts and ends: it starts once it is launched and the one before it is done."""
    found: list[tuple[float, float]] = []
    launched = done = 0.0
    for launch in launches:
        launched += launch
        start = max(launched, done)
        done = start + kernel
        found.append((start, done))
    return found
