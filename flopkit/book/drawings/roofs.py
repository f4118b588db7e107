"""The roofline: how two straight lines make a roof, why programs miss it, and what happens to time where reading and computing don't overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, INK, MUTED, ORANGE
from flopkit.devices import device as find
from flopkit.layers.products import dense
from flopkit.units import count, percent, si, times

__all__ = ["five_reasons", "overlapped_times", "roof_lines"]

LAYERS = ((2, 16384, 131072), (1024, 2048, 2048))  # of equal FLOPs; the chapter asks for them
LEFT, RIGHT, TOP, BOTTOM = 46.0, 350.0, 34.0, 214.0
LOW, HIGH = 0.5, 8192.0  # FLOPs per byte


def roof_lines(
    device: Any = "h100-sxm", dtype: str = "bf16", layers: Sequence[tuple[int, int, int]] = LAYERS
) -> Drawing:  # fmt: skip
    """The two lines that make the roof of a device, each going on behind the other, and dense layers as dots on it.

    Parameters
    ----------
    device : Any, optional
        A name or a `Device`.
    dtype : str, optional
        Number format of the layers and of the peak.
    layers : Sequence[tuple[int, int, int]], optional
        Up to two dense layers: tokens, width in, width out.

    Raises
    ------
    ValueError
        For more than two layers.

    Examples
    --------
    >>> roof_lines().title
    'Two lines make a roof: bandwidth × intensity, and the peak'
    """
    if len(layers) > 2:
        raise ValueError(f"roof_lines(layers={layers!r}): give at most two layers, so that their words have room")
    gpu = device if hasattr(device, "peak") else find(device)
    peak, bandwidth, ridge = gpu.peak(dtype), gpu.bandwidth, gpu.ridge(dtype)
    top, bottom = 4 * peak, bandwidth * LOW
    canvas = Canvas(BOTTOM + 44)

    def x(intensity: float) -> float:
        return LEFT + (RIGHT - LEFT) * math.log(intensity / LOW) / math.log(HIGH / LOW)

    def y(rate: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * math.log(rate / bottom) / math.log(top / bottom)

    canvas.line(LEFT, BOTTOM, RIGHT, BOTTOM)
    canvas.line(LEFT, TOP, LEFT, BOTTOM)
    for tick in (1, 10, 100, 1000):
        canvas.line(x(tick), BOTTOM, x(tick), BOTTOM + 4)
        canvas.text(x(tick), BOTTOM + 13, count(tick), colour=MUTED)
    canvas.text((LEFT + RIGHT) / 2, BOTTOM + 31, "FLOPs per byte", colour=MUTED)
    for exponent in range(math.ceil(math.log10(bottom)), math.floor(math.log10(top)) + 1):
        canvas.line(LEFT - 4, y(10.0**exponent), LEFT, y(10.0**exponent))
        canvas.text(LEFT - 7, y(10.0**exponent), si(10.0**exponent, "").strip(), anchor="end", colour=MUTED)
    canvas.text(6, 12, f"FLOP/s, {gpu.title}, {dtype}", anchor="start", colour=MUTED)
    canvas.line(x(ridge), y(peak), x(top / bandwidth), y(top), colour=BLUE, dash=True, name="memory beyond")
    canvas.line(LEFT, y(peak), x(ridge), y(peak), colour=ORANGE, dash=True, name="peak beyond")
    canvas.line(LEFT, BOTTOM, x(ridge), y(peak), colour=BLUE, width=3, name="memory")
    canvas.line(x(ridge), y(peak), RIGHT, y(peak), colour=ORANGE, width=3, name="peak")
    canvas.line(x(ridge), y(peak), x(ridge), BOTTOM, dash=True, name="ridge")
    canvas.text(x(ridge) - 8, y(peak) - 13, f"peak {si(peak, 'FLOP/s')}", anchor="end", colour=ORANGE, bold=True, halo=True, name="peak's name")  # fmt: skip
    canvas.text(x(ridge) + 6, BOTTOM - 12, f"ridge {ridge:.0f}", anchor="start", halo=True)
    words = f"{si(bandwidth, 'B/s')} × intensity"
    at = 6 if layers else 3  # beside two tokens' name, or clear of the ridge's line
    canvas.text(x(at) + 8, y(at * bandwidth) + 10, words, anchor="start", colour=BLUE, halo=True)
    told = []
    for tokens, d_in, d_out in layers:
        cost = dense(tokens=tokens, d_in=d_in, d_out=d_out, dtype=dtype)
        rate = min(peak, bandwidth * cost.intensity)
        canvas.box(x(cost.intensity) - 5, y(rate) - 5, 10, 10, name="layer", colour=INK, fill=1, edge=0, round=5)
        above = cost.intensity > ridge
        lines = (count(tokens, "tokens"), f"{count(d_in)} → {count(d_out)}")
        for i, line in enumerate(lines):
            if above:
                canvas.text(x(cost.intensity) + 8, y(rate) + 17 + 15 * i, line, anchor="start", halo=True)
            else:
                canvas.text(x(cost.intensity) + 12, y(rate) + 8 + 15 * i, line, anchor="start", halo=True)
        told.append(
            f"{count(tokens, 'tokens')} through {count(d_in)} to {count(d_out)} have {cost.intensity:.3g} FLOPs per byte and reach at most {si(rate, 'FLOP/s')}."
        )
    return Drawing(
        "roof-lines",
        "Two lines make a roof: bandwidth × intensity, and the peak",
        f"A log-log plot of FLOP/s over FLOPs per byte for {gpu.title} in {dtype}. One line rises: {si(bandwidth, 'B/s')} times the intensity. The other is "
        f"level: the peak of {si(peak, 'FLOP/s')}. They cross at the ridge, {ridge:.0f} FLOPs per byte; the lower of the two is the roof. " + " ".join(told),
        [canvas],
    )  # fmt: skip


def five_reasons(
    device: Any = "h200-sxm",
    dtype: str = "tf32",
    ceiling: float = 0.75,
    tiles: int = 64,
    moved: float = 1.75,
    cache: float = 2.7,
    launch: float = 20.9,
) -> Drawing:
    """Why a dot lies off its roof: five numbered arrows from the roof of a data sheet to the rates that are left, to scale.

    Parameters
    ----------
    device : Any, optional
        A name or a `Device` of which it is known how many multiprocessors it has.
    dtype : str, optional
        Number format of the peak.
    ceiling : float, optional
        Share of the peak that the fastest programs reach.
    tiles : int, optional
        Tiles of a matmul that has too few to fill one wave.
    moved : float, optional
        Bytes that move, over those that were counted.
    cache : float, optional
        How many times as fast as the memory a cache is.
    launch : float, optional
        Time of a launch, over the least time of the work.

    Raises
    ------
    ValueError
        For settings that cannot be drawn, or a device whose multiprocessors are not known.

    Examples
    --------
    >>> five_reasons().title
    'Five reasons move a dot off its roof; of these, only a cache lifts it'
    """
    gpu = device if hasattr(device, "peak") else find(device)
    if gpu.derivation is None:
        raise ValueError(f"five_reasons(device={device!r}): how many multiprocessors it has is not known")
    units = gpu.derivation.units
    whole("five_reasons", "tiles", tiles, units // 4, units - 1)
    limits = {"ceiling": (ceiling, 0.5, 0.9), "moved": (moved, 1.2, 3), "cache": (cache, 1.5, 4), "launch": (launch, 4, 24)}  # fmt: skip
    for name, (value, least, most) in limits.items():
        if not least <= value <= most:
            raise ValueError(f"five_reasons({name}={value!r}): give {least} to {most}, so that its arrow can be drawn")
    peak, ridge, foot = gpu.peak(dtype), gpu.ridge(dtype), 270.0
    canvas = Canvas(418)

    def x(place: float) -> float:  # an intensity over the ridge
        return LEFT + (RIGHT - LEFT) * math.log(40 * place) / math.log(1600)

    def y(share: float) -> float:  # a rate over the peak
        return foot - (foot - TOP) * math.log(110 * share) / math.log(330)

    canvas.line(LEFT, foot, RIGHT, foot)
    canvas.line(LEFT, TOP, LEFT, foot)
    canvas.text(6, 12, f"FLOP/s, {gpu.title}, {dtype}", anchor="start", colour=MUTED)
    for power in range(math.ceil(math.log10(ridge / 40)), math.floor(math.log10(ridge * 20)) + 1):
        canvas.line(x(10**power / ridge), foot, x(10**power / ridge), foot + 4)
        canvas.text(x(10**power / ridge), foot + 13, count(10**power), colour=MUTED)
    for power in range(math.ceil(math.log10(peak / 110)), math.floor(math.log10(3 * peak)) + 1):
        canvas.line(LEFT - 4, y(10**power / peak), LEFT, y(10**power / peak))
        canvas.text(LEFT - 7, y(10**power / peak), si(10.0**power, "").strip(), anchor="end", colour=MUTED)
    canvas.text((LEFT + RIGHT) / 2, foot + 31, "FLOPs per byte that was counted", colour=MUTED)
    canvas.line(LEFT, y(1 / 40), x(1), y(1), colour=BLUE, width=3, name="memory")
    canvas.line(x(1), y(1), RIGHT, y(1), colour=ORANGE, width=3, name="peak")
    reasons = (
        (1, 1.0, 1 / 2, "no overlap: twice the time at the corner"),
        (2, 4.0, ceiling, f"ceilings: here {percent(ceiling)} of the peak"),
        (3, 14.0, tiles / units, f"waves: {tiles} tiles for {units} multiprocessors"),
        (4, 1 / 10, 1 / moved, f"bytes: {times(moved)} what was counted (down),"),
        (4, 1 / 24, cache, f"or a cache, {times(cache)} as fast as memory (up)"),
        (5, 1 / 4, 1 / launch, f"a launch: {times(launch)} the least time of the work"),
    )
    told = []
    for i, (number, place, share, words) in enumerate(reasons):
        roof = min(1.0, place)
        canvas.arrow(x(place), y(roof), x(place), y(roof * share), colour=INK, width=1.6, name=f"reason {number}")
        canvas.box(x(place) - 4, y(roof) - 4, 8, 8, colour=INK, fill=1, edge=0, round=4)
        canvas.text(x(place) + 11, y(roof * share), str(number), bold=True, halo=True, name="number")
        if reasons[i - 1][0] != number:
            canvas.text(14, foot + 53 + 17 * i, str(number), bold=True)
        canvas.text(28, foot + 53 + 17 * i, words, anchor="start")
        told.append(f"{number}, {words.rstrip(',')}.")
    return Drawing(
        "five-reasons",
        "Five reasons move a dot off its roof; of these, only a cache lifts it",
        f"The roof of {gpu.title} in {dtype} on logarithmic axes, FLOP/s over FLOPs per counted byte, with dots on it and an arrow from each to the rate that is left. " + " ".join(told),
        [canvas],
    )  # fmt: skip


def overlapped_times(places: Sequence[float] = (0.25, 1, 4)) -> Drawing:
    """The time of an operation whose reading and computing overlap, and of one that reads first and computes then.

    Parameters
    ----------
    places : Sequence[float], optional
        Two to four intensities, each over the ridge, from 1/8 to 8.

    Raises
    ------
    ValueError
        For other places than these.

    Examples
    --------
    >>> overlapped_times().title
    'Without overlap time is the sum: at most 2× the longer part'
    """
    if not 2 <= len(places) <= 4 or not all(1 / 8 <= place <= 8 for place in places):
        raise ValueError(f"overlapped_times(places={places!r}): give two to four intensities over the ridge, 1/8 to 8")
    left, wide, high = 6.0, 150.0, 18.0
    canvas = Canvas(34 + 112 * len(places))
    for start, words, colour in ((left, "moving bytes", BLUE), (118, "computing", ORANGE)):
        canvas.box(start, 6, 12, 12, colour=colour, fill=0.45, edge=0)
        canvas.text(start + 18, 12, words, anchor="start")
    told = []
    for i, place in enumerate(places):
        top = 42 + 112 * i
        reading, computing = min(1.0, 1 / place), min(1.0, place)
        where = (
            "at the ridge"
            if place == 1
            else f"{times(place)} the ridge"
            if place > 1
            else f"1/{1 / place:g} of the ridge"
        )
        canvas.text(left, top, f"Intensity {where}", anchor="start", bold=True)
        canvas.box(left, top + 12, reading * wide, high, name="reading, overlapped", colour=BLUE, fill=0.45, edge=0)
        canvas.box(
            left,
            top + 12 + high,
            computing * wide,
            high,
            name="computing, overlapped",
            colour=ORANGE,
            fill=0.45,
            edge=0,
        )
        canvas.text(left + wide + 8, top + 12 + high, "overlapped: the longer", anchor="start")
        down = top + 20 + 2 * high
        canvas.box(left, down, reading * wide, high, name="reading, alone", colour=BLUE, fill=0.45, edge=0)
        canvas.box(
            left + reading * wide,
            down,
            computing * wide,
            high,
            name="computing, alone",
            colour=ORANGE,
            fill=0.45,
            edge=0,
        )
        total = times(reading + computing)
        if reading + computing < 1.5:
            canvas.text(
                left + (reading + computing) * wide + 8, down + high / 2, f"not: the sum, {total}", anchor="start"
            )
        else:
            canvas.text(left + wide, down + high + 11, f"not overlapped: the sum, {total}")
        told.append(f"Intensity {where}: {total} the longer part.")
    most = max(min(1.0, 1 / place) + min(1.0, place) for place in places)
    return Drawing(
        "overlapped-times",
        f"Without overlap time is the sum: at most {times(most)} the longer part",
        f"Bars of time for {len(places)} intensities. With overlap an operation takes the longer of moving bytes and computing, without it their sum. " + " ".join(told),
        [canvas],
    )  # fmt: skip
