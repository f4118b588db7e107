"""More roofs than two: a slope for each place that bytes come from, and a launch as a floor of time."""

from __future__ import annotations

import itertools
from typing import Any

from flopkit.book.drawings.axes import LEFT, RIGHT, LogAxes
from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, INK, ORANGE, PURPLE
from flopkit.devices import device as find
from flopkit.layers.products import dense
from flopkit.units import count, seconds, si

__all__ = ["many_roofs"]

WIDTHS = [2**i for i in range(8, 15)]
KEY, NAMES = (0, 112, 246), (0, 66, 144, 200, 262)  # where a line of each key begins


def many_roofs(
    device: Any = "a100-sxm-40gb", dtype: str = "bf16", cache: float = 2.7, launch: float = 5.7e-6, tokens: int = 16
) -> Drawing:
    """The roof for bytes from a cache, from the memory and over a link; and the least time of a square layer over its width, with a launch.

    Parameters
    ----------
    device : Any, optional
        A name or a `Device` whose link is known.
    dtype : str, optional
        Number format of the layer and of the peak.
    cache : float, optional
        How many times as fast as the memory a cache is.
    launch : float, optional
        Seconds that a kernel takes to start.
    tokens : int, optional
        Tokens through the layer.

    Raises
    ------
    ValueError
        For a cache that is no faster than the memory, a launch outside of 1 to 20 µs, or a device without a known link.

    Examples
    --------
    >>> many_roofs().title
    'Bytes from each place have a slope of their own, and a launch sets a floor'
    """
    whole("many_roofs", "tokens", tokens, 1, 64)
    gpu = device if hasattr(device, "peak") else find(device)
    if not 1 < cache <= 16:
        raise ValueError(f"many_roofs(cache={cache!r}): give how many times as fast as the memory it is, up to 16")
    if not 1e-6 <= launch <= 20e-6:
        raise ValueError(f"many_roofs(launch={launch!r}): give 1e-6 to 20e-6 seconds, so that the floor can be drawn")
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
    low = gpu.link_bandwidth
    axes = LogAxes(rates, (1, 8192), (low, 6 * peak))
    rates.text(
        0, 10, f"{gpu.title.removeprefix('NVIDIA ')}: FLOP/s, by the place of the bytes", anchor="start", bold=True
    )
    axes.ticks((1, 10, 100, 1000), "FLOPs per byte", lambda rate: si(rate, "").strip())
    for i, (name, rate, colour) in enumerate(places):
        rates.line(axes.x(1), axes.y(rate), axes.x(peak / rate), axes.y(peak), colour=colour, width=2.5, name=name)
        rates.line(KEY[i], 258, KEY[i] + 14, 258, colour=colour, width=2.5)
        rates.text(KEY[i] + 19, 258, f"{name} {si(rate, 'B/s', 2)}", anchor="start", colour=colour)
    rates.line(axes.x(peak / places[0][1]), axes.y(peak), RIGHT, axes.y(peak), colour=ORANGE, width=2.5, name="peak")
    rates.text(RIGHT, axes.y(peak) - 12, f"peak {si(peak, 'FLOP/s')}", anchor="end", colour=ORANGE, bold=True)

    costs = {width: dense(tokens=tokens, d_in=width, d_out=width, dtype=dtype) for width in WIDTHS}
    times = Canvas(268)
    highest = costs[WIDTHS[-1]].bytes / gpu.link_bandwidth
    first = costs[WIDTHS[0]]
    lowest = min(first.bytes / places[0][1], first.flops / peak, launch)
    axes = LogAxes(times, (WIDTHS[0], WIDTHS[-1]), (lowest / 2, 2 * highest))
    times.text(0, 10, f"least time, {count(tokens, 'tokens')} through a square layer", anchor="start", bold=True)
    axes.ticks((256, 1024, 4096), "width", seconds)
    lines = {name: ([cost.bytes / rate for cost in costs.values()], colour) for name, rate, colour in places}
    lines["peak"] = [cost.flops / peak for cost in costs.values()], ORANGE
    for i, (name, (least_times, colour)) in enumerate(lines.items()):
        points = zip(WIDTHS, least_times, strict=True)
        for (a, one), (b, other) in itertools.pairwise(points):
            times.line(axes.x(a), axes.y(one), axes.x(b), axes.y(other), colour=colour, width=2.5, name=name)
        times.line(NAMES[i], 258, NAMES[i] + 14, 258, colour=colour, width=2.5)
        times.text(NAMES[i] + 19, 258, name, anchor="start", colour=colour)
    times.line(NAMES[4], 258, NAMES[4] + 14, 258, dash=True, width=2, colour=INK)
    times.text(NAMES[4] + 19, 258, "launch", anchor="start")
    times.line(LEFT, axes.y(launch), RIGHT, axes.y(launch), colour=INK, width=2, dash=True, name="launch")
    times.text(LEFT + 8, axes.y(launch) - 11, f"{seconds(launch)}", anchor="start", bold=True, halo=True)
    told = []
    for width in (WIDTHS[1], WIDTHS[5]):
        bounds = {"launch": launch, "memory": costs[width].bytes / gpu.bandwidth, "peak": costs[width].flops / peak}
        by, least = max(bounds.items(), key=lambda bound: bound[1])
        times.box(axes.x(width) - 5, axes.y(least) - 5, 10, 10, name="layer", colour=INK, fill=1, edge=0, round=5)
        told.append(f"{count(width)} wide, at least {seconds(least)}, by the {by}")
    return Drawing(
        "many-roofs",
        "Bytes from each place have a slope of their own, and a launch sets a floor",
        f"Two log-log plots for {gpu.title} in {dtype}. FLOP/s over FLOPs per byte: three rising lines, for bytes from a cache of {si(places[0][1], 'B/s')}, from "
        f"the memory, {si(gpu.bandwidth, 'B/s')}, and over a link, {si(gpu.link_bandwidth, 'B/s')}, end at one peak. Least time over the width of a square layer with "
        f"{count(tokens, 'tokens')}: the same three places and the peak as rising lines, and a level one at {seconds(launch)}, the launch. Dots, with bytes from memory: {'; '.join(told)}.",
        [rates, times],
    )
