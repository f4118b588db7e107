"""Splitting a model: the two matrices of an MLP, the schedules of a pipeline, the causal triangle among context-parallel ranks."""

from __future__ import annotations

import math
from itertools import pairwise

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, CATEGORIES, GREEN, MUTED, ORANGE
from flopkit.layers.attentions import visible_pairs
from flopkit.parallel.collectives import all_reduce
from flopkit.parallel.pipelines import Pipeline, pipeline
from flopkit.units import count, percent

__all__ = ["layer_cut", "schedules", "zigzag"]

# -- an MLP's two matrices ----------------------------------------------------------------------------------------

TOKENS, WIDTH, HIDDEN = 26.0, 34.0, 72.0  # of the rectangles


def layer_cut(ranks: int = 2) -> Drawing:
    """The two matrices of an MLP cut among GPUs, the first by columns, the second by rows, and where their parts are summed.

    Parameters
    ----------
    ranks : int, optional
        Tensor-parallel GPUs, 2 to 4.

    Raises
    ------
    ValueError
        For more or fewer.

    Examples
    --------
    >>> layer_cut().title
    'Cut by columns, then by rows, an MLP needs one all-reduce per pass, none between its matmuls'
    """
    whole("layer_cut", "ranks", ranks, 2, 4)
    sends = all_reduce(bytes=1, ranks=ranks).sent
    foot = Canvas(104)
    foot.lines(
        0, 10,
        f"Each GPU holds 1/{ranks} of W₁, W₂ and z, all of x and y.",
        "f acts on each element: no GPU needs another's z.",
        "The gradients of W₁ and W₂ stay where their parts are.",
        f"Pale: a part of a sum. With {ranks} GPUs, each sends",
        (f"{sends:.3g} times the bytes of y" if sends != 1 else "as many bytes as y has") + " per all-reduce.",
        anchor="start", colour=MUTED, step=1.6,
    )  # fmt: skip
    return Drawing(
        "layer-cut",
        "Cut by columns, then by rows, an MLP needs one all-reduce per pass, none between its matmuls",
        f"An MLP y = f(xW₁)W₂ on {ranks} GPUs. Each has the whole x, 1/{ranks} of W₁'s columns and the same 1/{ranks} of W₂'s rows, and computes its columns of "
        f"z = f(xW₁) and a part of y, which has the size of y. One all-reduce sums the {ranks} parts. In the backward pass each GPU starts from the whole gradient "
        f"of y and ends with a part of the gradient of x, and one all-reduce sums these. Per all-reduce, each GPU sends {sends:.3g} times the bytes of y.",
        [_pass(ranks, forward=True), _pass(ranks, forward=False), foot],
    )


def _pass(ranks: int, *, forward: bool) -> Canvas:
    """One lane a GPU, from x on the left to y on the right; the sum stands at the end of the pass."""
    lane, top = HIDDEN + 12, 54.0
    canvas = Canvas(top + ranks * lane)
    title = "Forward: the parts of y are summed" if forward else "Backward: the parts of x's gradient, dx, are summed"
    canvas.text(0, 10, title, anchor="start", bold=True)
    gap = 17.0
    first = 2.0 if forward else 44.0
    widths = (WIDTH, HIDDEN, HIDDEN, WIDTH, WIDTH)
    names = ("x", "W₁", "z = f(xW₁)", "W₂", "y") if forward else ("dx", "W₁", "dz", "W₂", "dy")
    at = [first + sum(widths[:i]) + i * gap for i in range(5)]
    for x, wide, name in zip(at, widths, names, strict=True):
        canvas.text(x + wide / 2, 34, name)
    x_sum = at[-1] + WIDTH + gap if forward else 2.0
    canvas.text(x_sum + 12, 34, "sum")
    for i in range(ranks):
        middle = top + lane * i + HIDDEN / 2
        own, colour = f" of GPU {i + 1}", CATEGORIES[i]
        strip = HIDDEN / ranks
        pale, full = 0.28, 0.6
        canvas.text(at[0], middle - 26, f"GPU {i + 1}", anchor="start", colour=MUTED)
        _matrix(canvas, at[0], middle, WIDTH, TOKENS, ("x" if forward else "part of dx") + own, colour, full if forward else pale)  # fmt: skip
        for x, high, name in ((at[1], WIDTH, "W₁"), (at[2], TOKENS, "z" if forward else "dz")):
            _matrix(canvas, x, middle, HIDDEN, high, f"whole {name}", MUTED, 0.06)
            _matrix(canvas, x + i * strip, middle, strip, high, name + own, colour, 0.6)
        _matrix(canvas, at[3], middle, WIDTH, HIDDEN, "whole W₂", MUTED, 0.06)
        canvas.box(at[3], middle - HIDDEN / 2 + i * strip, WIDTH, strip, name="W₂" + own, colour=colour, fill=0.6, edge=0.8, round=0)  # fmt: skip
        _matrix(canvas, at[4], middle, WIDTH, TOKENS, ("part of y" if forward else "dy") + own, colour, pale if forward else full)  # fmt: skip
        stops = [(x, wide) for x, wide in zip(at, widths, strict=True)]
        stops = [*stops, (x_sum, 24.0)] if forward else [(x_sum, 24.0), *stops]
        for (left, wide), (after, _) in pairwise(stops):
            ends = (left + wide + 2, after - 2)
            canvas.arrow(ends[not forward], middle, ends[forward], middle, name="to the sum" if x_sum in (left, after) else "local")  # fmt: skip
    canvas.box(x_sum, top, 24, ranks * lane - 12, "Σ", name="all-reduce", colour=ORANGE, fill=0.35)
    return canvas


def _matrix(canvas: Canvas, x: float, middle: float, w: float, h: float, name: str, colour: str, fill: float) -> None:
    canvas.box(x, middle - h / 2, w, h, name=name, colour=colour, fill=fill, edge=0.8, round=0)


# -- a pipeline's schedules ---------------------------------------------------------------------------------------

ROW, LEFT = 17.0, 42.0
TITLES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved 1F1B, 2 virtual stages per GPU"}


def schedules(stages: int = 4, micro_batches: int = 8) -> Drawing:
    """Three orders of the same work in a pipeline, over time: GPipe, 1F1B, and 1F1B with two virtual stages per GPU.

    Parameters
    ----------
    stages : int, optional
        GPUs of the pipeline, 2 to 8.
    micro_batches : int, optional
        Those of a step, up to 24; a multiple of *stages*, which interleaving needs.

    Raises
    ------
    ValueError
        For sizes that cannot be drawn, or micro-batches that the GPUs do not divide.

    Examples
    --------
    >>> schedules().title
    'Three schedules of 8 micro-batches on 4 GPUs'
    """
    whole("schedules", "stages", stages, 2, 8)
    whole("schedules", "micro_batches", micro_batches, 2, 24)
    found = {
        name: pipeline(stages=stages, micro_batches=micro_batches, virtual=2 if name == "interleaved" else 1, schedule=name)
        for name in TITLES
    }  # fmt: skip
    longest = max(float(each.total) for each in found.values())
    canvases = [_gantt(TITLES[name], each, longest) for name, each in found.items()]
    foot = Canvas(61)
    keys = (("forward", BLUE, 0.75, 0), ("backward", GREEN, 0.75, 84), ("idle", ORANGE, 0.3, 178))
    for word, colour, fill, x in keys:
        foot.box(x, 2, 14, 14, colour=colour, fill=fill, edge=0)
        foot.text(x + 20, 9, word, anchor="start", colour=MUTED)
    foot.text(0, 32, "Pale: a GPU's second virtual stage. Time: in forward", anchor="start", colour=MUTED)
    foot.text(0, 49, "passes of a micro-batch; a backward pass takes two.", anchor="start", colour=MUTED)
    fewer = found["1f1b"].in_flight() < found["gpipe"].in_flight()
    held = "fewer micro-batches" if fewer else "as many micro-batches"
    said = ", ".join(
        f"{TITLES[name]} idles {percent(each.share)} of the step and holds at most {count(float(each.in_flight()))} micro-batches on GPU 1"
        for name, each in found.items()
    )
    return Drawing(
        "schedules",
        f"Three schedules of {micro_batches} micro-batches on {stages} GPUs",
        f"1F1B idles as long as GPipe and holds {held}; interleaving halves the bubble. Three charts over time with a row for each of {stages} GPUs and {micro_batches} micro-batches; idle times are marked. Their longest is {count(longest)} forward passes of a micro-batch. {said}.",
        [*canvases, foot],
    )


def _gantt(title: str, run: Pipeline, longest: float) -> Canvas:
    p, total = int(run.stages), float(run.total)
    canvas = Canvas(84 + p * ROW)
    canvas.text(0, 10, title, anchor="start", bold=True)
    unit = (360 - LEFT) / longest
    unit = math.floor(unit) if unit > 4 else unit  # whole pixels make short paths
    top = 24.0
    work = run.timeline()
    alike: dict[tuple[str, bool], list[tuple[float, list[tuple[float, float]]]]] = {}
    for rank in range(p):
        y = top + rank * ROW
        canvas.text(0, y + ROW / 2 - 1, f"GPU {rank + 1}", anchor="start", colour=MUTED)
        mine = sorted((each for each in work if each.rank == rank), key=lambda each: float(each.start))
        kinds: dict[tuple[str, bool], list[tuple[float, float]]] = {}
        for each in mine:
            kinds.setdefault((each.kind, each.stage >= p), []).append((float(each.start), float(each.end)))
        for which, spans in kinds.items():
            narrow = [(LEFT + unit * a, LEFT + unit * b - min(1, unit * (b - a) / 4)) for a, b in spans]
            alike.setdefault(which, []).append((y, narrow))
        edges = [0.0, *(float(t) for each in mine for t in (each.start, each.end)), total]
        waits = [(LEFT + unit * a, LEFT + unit * b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a > 1e-9]  # fmt: skip
        alike.setdefault(("idle", False), []).append((y, waits))
    looks = {"forward": (BLUE, 0.8), "backward": (GREEN, 0.8), "idle": (ORANGE, 0.25)}
    for (kind, second), rows in alike.items():
        colour, fill = looks[kind]
        canvas.rows_of_bars(ROW - 3, rows, name=kind, colour=colour, fill=0.45 if second else fill)
    axis = top + p * ROW + 1
    canvas.line(LEFT, axis, LEFT + unit * longest, axis, name="axis")
    step = next(each for each in (1, 2, 5, 10, 20, 50) if longest / each <= 5)
    ticks = range(0, math.floor(longest) + 1, step)
    canvas.bars(axis, 4, [(LEFT + unit * tick - 0.5, LEFT + unit * tick + 0.5) for tick in ticks], name="tick", fill=1)
    for tick in ticks:
        canvas.text(LEFT + unit * tick, axis + 12, str(tick), colour=MUTED, name="time")
    canvas.text(0, axis + 12, "time", anchor="start", colour=MUTED)
    held = count(float(run.in_flight()))
    said = (f"{percent(run.share)} of the step is bubble", f"GPU 1 holds at most {held} micro-batches")
    for i, line in enumerate(said):
        canvas.text(0, axis + 32 + 17 * i, line, anchor="start", name="said")
    return canvas


# -- context-parallel ranks ---------------------------------------------------------------------------------------

HALF = 2**14
"""Tokens of half a chunk, so many that the diagonal is thin."""


def zigzag(ranks: int = 4) -> Drawing:
    """The causal triangle among context-parallel GPUs: contiguous chunks of queries, and a chunk from either end.

    Parameters
    ----------
    ranks : int, optional
        Context-parallel GPUs, 2 to 6.

    Raises
    ------
    ValueError
        For more or fewer.

    Examples
    --------
    >>> zigzag().title
    'Of contiguous chunks, the last GPU gets 7 times the work of the first; zigzag halves are equal'
    """
    whole("zigzag", "ranks", ranks, 2, 6)
    halves = 2 * ranks
    pairs = [_pairs(half) for half in range(halves)]
    owners = {
        "Contiguous: each GPU has one chunk": [half // 2 for half in range(halves)],
        "Zigzag: a half chunk from either end": [min(half, halves - 1 - half) for half in range(halves)],
    }
    every = sum(pairs)
    canvases, slowest = [], []
    for title, own in owners.items():
        work = [sum(n for n, each in zip(pairs, own, strict=True) if each == rank) for rank in range(ranks)]
        slowest.append(max(work))
        canvases.append(_triangle(title, own, [n / every for n in work]))
    useful = [every / ranks / most for most in slowest]
    for canvas, share in zip(canvases, useful, strict=True):
        canvas.text(
            0, canvas.height - 10, f"All wait for the slowest: {percent(share)} is work", anchor="start", name="said"
        )
    return Drawing(
        "zigzag",
        f"Of contiguous chunks, the last GPU gets {2 * ranks - 1} times the work of the first; zigzag halves are equal",
        f"Two causal triangles of queries and keys, cut into {halves} rows of queries for {ranks} GPUs. With contiguous chunks GPU {ranks} computes {percent(slowest[0] / every)} "
        f"of the visible pairs, and as all wait for it, {percent(useful[0])} of their time is work. With zigzag halves GPU 1 has the first and the last row, GPU 2 the second and "
        f"the last but one, and so on: each computes {percent(slowest[1] / every)}, and {percent(useful[1])} of the time is work.",
        canvases,
    )  # fmt: skip


def _pairs(half: int) -> int:
    """Visible pairs of the queries in a half chunk: they see all keys before them."""
    return int(visible_pairs(HALF, (half + 1) * HALF, "causal"))


def _triangle(title: str, owners: list[int], shares: list[float]) -> Canvas:
    """The triangle, a row of queries in the colour of its GPU, and beside it what each GPU computes of it."""
    side, left, top = 168.0, 20.0, 46.0
    cell, ranks = side / len(owners), len(shares)
    canvas = Canvas(top + side + 34)
    canvas.text(0, 10, title, anchor="start", bold=True)
    canvas.text(left + side / 2, 34, "keys →", colour=MUTED)
    canvas.text(0, 34, "queries ↓", colour=MUTED, anchor="start")
    for row, owner in enumerate(owners):
        y, colour = top + row * cell, CATEGORIES[owner]
        if row:
            canvas.box(left, y, row * cell, cell, name=f"whole blocks of GPU {owner + 1}", colour=colour, fill=0.55, edge=0, round=0)  # fmt: skip
        canvas.box(left + row * cell, y, cell, cell, name=f"half block of GPU {owner + 1}", colour=colour, fill=0.25, edge=0, round=0)  # fmt: skip
    canvas.grid(left, top, len(owners), len(owners), cell, name="halves")
    canvas.line(left, top, left + side, top + side, colour=MUTED, width=2, name="diagonal")
    for rank, share in enumerate(shares):
        y = top + (rank + 0.5) * side / ranks
        canvas.text(left + side + 14, y, f"GPU {rank + 1}", anchor="start")
        wide = 60 * share / (2 / ranks)
        canvas.box(
            left + side + 54,
            y - 8,
            wide,
            16,
            name=f"work of GPU {rank + 1}",
            colour=CATEGORIES[rank],
            fill=0.55,
            edge=0,
        )
        canvas.text(left + side + 60 + wide, y, percent(share), anchor="start", name=f"share of GPU {rank + 1}")
    return canvas
