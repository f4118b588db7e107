"""More lines than two: a slope for each place that bytes come from, and a launch as a floor of time."""

from __future__ import annotations

import itertools
import math
from typing import Any

from flopkit.book.drawings.axes import LEFT, RIGHT, LogAxes
from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, INK, ORANGE, PURPLE
from flopkit.devices import device as find
from flopkit.layers.products import dense
from flopkit.units import count, seconds, si

__all__ = ["launch_floor", "many_roofs"]

WIDTHS = [2**i for i in range(8, 15)]
KEY, NAMES = (0, 112, 246), (0, 120, 200)  # where a line of each key begins


def many_roofs(device: Any = "a100-sxm-40gb", dtype: str = "bf16", cache: float = 2.7) -> Drawing:
    """The roof for bytes from a cache, from the memory and over a link.

    Parameters
    ----------
    device : Any, optional
        A name or a `Device` whose link is known.
    dtype : str, optional
        Number format of the peak.
    cache : float, optional
        How many times as fast as the memory a cache is.

    Raises
    ------
    ValueError
        For a cache that is no faster than the memory, or a device without a known link.

    Examples
    --------
    >>> many_roofs().title
    'Bytes from each place have a slope of their own; the peak stays'
    """
    gpu = device if hasattr(device, "peak") else find(device)
    if not 1 < cache <= 16:
        raise ValueError(f"many_roofs(cache={cache!r}): give how many times as fast as the memory it is, up to 16")
    if gpu.link_bandwidth is None:
        raise ValueError(
            f"many_roofs(device={device!r}): its link is not known; give a device whose data sheet has one"
        )
    peak = gpu.peak(dtype)
    places = (
        ("cache", cache * gpu.bandwidth, GREEN),
        ("memory", gpu.bandwidth, BLUE),
        ("link", gpu.link_bandwidth, PURPLE),
    )
    rates = Canvas(268)
    axes = LogAxes(rates, (1, 8192), (gpu.link_bandwidth, 6 * peak))
    title = f"{gpu.title.removeprefix('NVIDIA ')}: FLOP/s, by the place of the bytes"
    rates.text(0, 10, title, anchor="start", bold=True)
    axes.ticks((1, 10, 100, 1000), "FLOPs per byte that takes this path", lambda rate: si(rate, "").strip())
    for i, (name, rate, colour) in enumerate(places):
        rates.line(axes.x(1), axes.y(rate), axes.x(peak / rate), axes.y(peak), colour=colour, width=2.5, name=name)
        rates.line(KEY[i], 258, KEY[i] + 14, 258, colour=colour, width=2.5)
        rates.text(KEY[i] + 19, 258, f"{name} {si(rate, 'B/s', 2)}", anchor="start", colour=colour)
    rates.line(axes.x(peak / places[0][1]), axes.y(peak), RIGHT, axes.y(peak), colour=ORANGE, width=2.5, name="peak")
    rates.text(RIGHT, axes.y(peak) - 12, f"peak {si(peak, 'FLOP/s')}", anchor="end", colour=ORANGE, bold=True)
    return Drawing(
        "many-roofs",
        "Bytes from each place have a slope of their own; the peak stays",
        f"A log-log plot for {gpu.title} in {dtype}, FLOP/s over FLOPs per byte: three rising lines, for bytes from a cache of {si(places[0][1], 'B/s')}, from "
        f"the memory, {si(gpu.bandwidth, 'B/s')}, and over a link, {si(gpu.link_bandwidth, 'B/s')}, end at one peak, {si(peak, 'FLOP/s')}.",
        [rates],
    )


def launch_floor(device: Any = "h200-sxm", dtype: str = "bf16", launch: float = 5.7e-6, tokens: int = 16) -> Drawing:
    """The least time of a square layer over its width: the highest of three lines, its launch, its bytes and its FLOPs.

    Parameters
    ----------
    device : Any, optional
        A name or a `Device`.
    dtype : str, optional
        Number format of the layer and of the peak.
    launch : float, optional
        Seconds that a kernel takes to start.
    tokens : int, optional
        Tokens through the layer.

    Raises
    ------
    ValueError
        For a launch outside of 1 to 20 µs.

    Examples
    --------
    >>> launch_floor().title
    'The highest line sets the time: the launch of a narrow layer, the memory of a wide one'
    """
    whole("launch_floor", "tokens", tokens, 1, 64)
    gpu = device if hasattr(device, "peak") else find(device)
    if not 1e-6 <= launch <= 20e-6:
        raise ValueError(f"launch_floor(launch={launch!r}): give 1e-6 to 20e-6 seconds, so that the floor can be drawn")
    costs = [dense(tokens=tokens, d_in=width, d_out=width, dtype=dtype) for width in WIDTHS]
    lines = {
        "launch": ([launch for _ in WIDTHS], INK),
        "memory": ([cost.bytes / gpu.bandwidth for cost in costs], BLUE),
        "peak": ([cost.flops / gpu.peak(dtype) for cost in costs], ORANGE),
    }
    canvas = Canvas(268)
    low, high = (pick(value for values, _ in lines.values() for value in values) for pick in (min, max))
    axes = LogAxes(canvas, (WIDTHS[0], WIDTHS[-1]), (low / 2, 4 * high))
    title = f"{gpu.title.removeprefix('NVIDIA ')}: {count(tokens, 'tokens')}, a square layer"
    canvas.text(0, 10, title, anchor="start", bold=True)
    axes.ticks((256, 1024, 4096), "width", seconds)
    for i, (name, (values, colour)) in enumerate(lines.items()):
        ends = [(axes.x(width), axes.y(value)) for width, value in zip(WIDTHS, values, strict=True)]
        for one, other in itertools.pairwise(ends):
            canvas.line(*one, *other, colour=colour, width=1.2, dash=name == "launch", name=name)
        canvas.line(NAMES[i], 258, NAMES[i] + 14, 258, colour=colour, width=2.5)
        told = f"launch {seconds(launch)}" if name == "launch" else name
        canvas.text(NAMES[i] + 19, 258, told, anchor="start", colour=colour)
    for first, name, last in _highest({name: values for name, (values, _) in lines.items()}):
        values, colour = lines[name]
        ends = [(axes.x(_between(WIDTHS, at)), axes.y(_between(values, at))) for at in _stops(first, last)]
        for one, other in itertools.pairwise(ends):
            canvas.line(*one, *other, colour=colour, width=4, name=f"{name} sets the time")
    canvas.text(LEFT + 10, axes.y(launch) - 14, "least time", anchor="start", bold=True, halo=True)
    reached = []
    for i in (1, 5):
        by, (values, _) = max(lines.items(), key=lambda line: line[1][0][i])
        reached.append(f"{count(WIDTHS[i])} wide, at least {seconds(values[i])}, by the {by}")
    return Drawing(
        "launch-floor",
        "The highest line sets the time: the launch of a narrow layer, the memory of a wide one",
        f"A log-log plot of time over the width of a square layer with {count(tokens, 'tokens')}, for {gpu.title} in {dtype}. A level line at {seconds(launch)}, the launch, and two "
        f"rising lines, for moving the bytes and for the FLOPs at the peak. The highest of the three is thick: {'; '.join(reached)}.",
        [canvas],
    )


def _between(values: list[Any], at: float) -> float:
    """The value at a place between two of a list, on a logarithmic scale."""
    i = min(int(at), len(values) - 2)
    return float(values[i] * (values[i + 1] / values[i]) ** (at - i))


def _stops(first: float, last: float) -> list[float]:
    return [first, *range(math.floor(first) + 1, math.ceil(last)), last]


def _highest(lines: dict[str, list[float]]) -> list[tuple[float, str, float]]:
    """Which line is the highest, from where to where: places in the lists, whose fractions are crossings."""
    size = len(next(iter(lines.values())))
    cuts = {0.0, float(size - 1)}
    for i in range(size - 1):
        for one in lines.values():
            for other in lines.values():
                before, after = math.log(one[i] / other[i]), math.log(one[i + 1] / other[i + 1])
                if before * after < 0:
                    cuts.add(i + before / (before - after))
    found: list[tuple[float, str, float]] = []
    places = sorted(cuts)
    for a, b in itertools.pairwise(places):
        name = max(lines, key=lambda each: _between(lines[each], (a + b) / 2))
        begins = found.pop()[0] if found and found[-1][1] == name else a
        found.append((begins, name, b))
    return found
