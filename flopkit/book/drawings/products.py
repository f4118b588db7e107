"""Products of matrices: one dot product, one result of a product and what is reused for it, and the bytes beside the FLOPs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.devices import device as find
from flopkit.dtypes import nbytes
from flopkit.layers.products import dense, matmul
from flopkit.units import count, seconds, si, times

__all__ = ["bytes_and_flops", "dot_product", "matrix_product"]


def matrix_product(m: int = 4, k: int = 6, n: int = 5) -> Drawing:
    """The product of an M × K and a K × N matrix, with one result, the row and the column it is made of, and what else those two make.

    Parameters
    ----------
    m, k, n : int, optional
        The sizes, at most 7 each: every number is a cell, and the words need room.

    Raises
    ------
    ValueError
        For a size that cannot be drawn.

    Examples
    --------
    >>> matrix_product(m=4, k=6, n=5).alt.split(". ")[1]
    '6 multiply-adds make one result, and 120 make all 20'
    """
    for name, size, least in (("m", m, 2), ("k", k, 4), ("n", n, 4)):
        whole("matrix_product", name, size, least, 7)
    product = matmul(m=m, k=k, n=n)
    cell = min(28, 300 // (k + n))
    left, top = 30, 30
    right, below = left + k * cell + 26, top + k * cell + 26
    i, j = m // 2, n // 2
    canvas = Canvas(below + m * cell + 62)

    def matrix(name: str, x: float, y: float, rows: int, columns: int) -> None:
        canvas.grid(x, y, rows, columns, cell, name=name)

    canvas.box(left, below + i * cell, k * cell, cell, name="row", colour=BLUE, fill=0.5, edge=2)
    canvas.box(right + j * cell, top, cell, k * cell, name="column", colour=ORANGE, fill=0.5, edge=2)
    canvas.box(right, below + i * cell, n * cell, cell, name="uses of the row", colour=BLUE, fill=0.22, edge=0)
    canvas.box(right + j * cell, below, cell, m * cell, name="uses of the column", colour=ORANGE, fill=0.22, edge=0)
    canvas.box(right + j * cell, below + i * cell, cell, cell, name="result", colour=GREEN, fill=0.9, edge=2)
    matrix("A", left, below, m, k)
    matrix("B", right, top, k, n)
    matrix("C", right, below, m, n)
    canvas.text(left + k * cell / 2, below - 11, f"A:  M × K = {m} × {k}", bold=True)
    canvas.text(right + n * cell / 2, top - 11, f"B:  K × N = {k} × {n}", bold=True)
    canvas.text(right + n * cell / 2, below - 11, f"C:  M × N = {m} × {n}", bold=True)
    canvas.lines(
        left - 24, top + 6, f"K = {k} multiply-adds", "make one result.", f"× {m * n} results", f"= {count(product.macs)} multiply-adds",
        f"= {si(product.flops, 'FLOPs')}", anchor="start",
    )  # fmt: skip
    foot = below + m * cell + 18
    canvas.text(6, foot, f"Each element of A is used N = {n} times, along a row.", anchor="start", colour=BLUE)
    canvas.text(6, foot + 18, f"Each element of B is used M = {m} times, down a column.", anchor="start", colour=ORANGE)
    return Drawing(
        "matrix-product",
        "K multiply-adds make one result; each element of A is used N times, each of B M times",
        f"A, {m} by {k}, stands left of the result C and B, {k} by {n}, above it. {k} multiply-adds make one result, and "
        f"{product.macs} make all {m * n}. The marked row of A serves all {n} results of its row of C, and the marked column of B all {m} of its column.",
        [canvas],
    )


def bytes_and_flops(
    tokens: Sequence[int] = (1, 64, 325), d_in: int = 4096, d_out: int = 16384, dtype: str = "bf16", device: Any = "h100-sxm"
) -> Drawing:  # fmt: skip
    """The time that the bytes and the time that the FLOPs of a dense layer take on a device at best, for several numbers of tokens.

    Parameters
    ----------
    tokens : Sequence[int], optional
        Up to five numbers of tokens.
    d_in, d_out : int, optional
        Width of the layer's input and output.
    dtype : str, optional
        Number format of all tensors.
    device : Any, optional
        A name or a `Device`.

    Raises
    ------
    ValueError
        Without tokens, or with more than five numbers of them.

    Examples
    --------
    >>> bytes_and_flops(tokens=(1, 64)).title
    'From 1 to 64 tokens the bytes grow 1.02×, the FLOPs 64×'
    """
    if not 1 < len(tokens) < 6:
        raise ValueError(f"bytes_and_flops(tokens={tokens!r}): give two to five numbers of tokens")
    gpu = device if hasattr(device, "peak") else find(device)
    costs = [dense(tokens=t, d_in=d_in, d_out=d_out, dtype=dtype) for t in tokens]
    weight = nbytes(d_in * d_out, dtype) / gpu.bandwidth
    longest = max(max(cost.bytes / gpu.bandwidth, cost.flops / gpu.peak(dtype)) for cost in costs)
    scale, left = 346 / longest, 6
    canvas = Canvas(46 + 82 * len(costs))
    canvas.text(left, 10, f"{count(d_in)} → {count(d_out)}, {dtype}, {gpu.title}", anchor="start", colour=MUTED)
    legend = (("weight", BLUE, 0.45, 0), ("inputs, outputs", BLUE, 0.1, 1.2), ("arithmetic", ORANGE, 0.45, 0))
    for x, (name, colour, fill, edge) in zip((left, 90, 222), legend, strict=True):
        canvas.box(x, 26, 12, 12, colour=colour, fill=fill, edge=edge)
        canvas.text(x + 18, 32, name, anchor="start")
    for i, (t, cost) in enumerate(zip(tokens, costs, strict=True)):
        y = 62 + 82 * i
        moving, computing = cost.bytes / gpu.bandwidth, cost.flops / gpu.peak(dtype)
        canvas.text(left, y, count(t, "tokens"), anchor="start", bold=True, size=13)
        canvas.box(left, y + 11, weight * scale, 22, name="weight", colour=BLUE, fill=0.45, edge=0)
        rest = (moving - weight) * scale
        canvas.box(left + weight * scale, y + 11, rest, 22, name="inputs and outputs", colour=BLUE, fill=0.1)
        canvas.box(left, y + 36, computing * scale, 22, name="arithmetic", colour=ORANGE, fill=0.45, edge=0)
        for time, parts, down, unit in (
            (moving, [weight * scale, rest], 22, si(cost.bytes, "B")),
            (computing, [computing * scale], 47, si(cost.flops, "FLOPs")),
        ):
            # in the first part that has room, else behind the bar
            start = left + next((sum(parts[:i]) + 6 for i, part in enumerate(parts) if part > 120), sum(parts) + 5)
            canvas.text(start, y + down, f"{unit}: {seconds(time, 3)}", anchor="start")
    first, last = costs[0], costs[-1]
    return Drawing(
        "bytes-and-flops",
        f"From {count(tokens[0])} to {count(tokens[-1], 'tokens')} the bytes grow {times(last.bytes / first.bytes)}, the FLOPs {times(last.flops / first.flops)}",
        f"Bars of time on {gpu.title}. "
        + " ".join(f"{count(t, 'tokens')}: {si(c.bytes, 'B')} take {seconds(c.bytes / gpu.bandwidth, 3)}, "
                   f"{si(c.flops, 'FLOPs')} take {seconds(c.flops / gpu.peak(dtype), 3)}." for t, c in zip(tokens, costs, strict=True)),
        [canvas],
    )  # fmt: skip


def dot_product(k: int = 4096) -> Drawing:
    """A dot product of length K as a chain of fused multiply-adds that starts from zero: a model for counting.

    Parameters
    ----------
    k : int, optional
        The length. Of a chain of more than four the first two and the last are drawn.

    Raises
    ------
    ValueError
        For a length below 2 or above 65,536.

    Examples
    --------
    >>> dot_product(3).title
    'A dot product of length 3 counts as 3 FMAs, 6 FLOPs'
    """
    whole("dot_product", "k", k, 2, 65536)
    shown = list(range(1, k + 1)) if k <= 4 else [1, 2, 0, k]
    product, adds = matmul(m=1, k=k, n=1), k - 1
    canvas = Canvas(184)
    y, wide, gap = 50, 50, 23
    canvas.box(2, y, 28, 34, "0", name="start", dash=True, colour=GREEN, bold=True)
    x = 30
    for position in shown:
        canvas.arrow(x, y + 17, x + gap, y + 17, name="sum", colour=GREEN, width=2)
        x += gap
        if position:
            canvas.box(x, y, wide, 34, "FMA", name="fma", colour=ORANGE, fill=0.3, bold=True)
            canvas.text(x + wide / 2, y - 36, f"a{_sub(position)}  b{_sub(position)}", colour=BLUE)
            for side in (-9, 9):
                canvas.arrow(x + wide / 2 + side, y - 26, x + wide / 2 + side, y - 1, colour=BLUE, name="operand")
        else:
            canvas.text(x + wide / 2, y + 17, "…", size=20, name="left out")
        x += wide
    canvas.arrow(x, y + 17, x + gap, y + 17, name="sum", colour=GREEN, width=2)
    canvas.text(x + gap + 3, y + 17, "c", anchor="start", bold=True, size=14)
    canvas.line(78, y + 37, 78, y + 48, colour=MUTED)
    canvas.text(6, y + 57, "0 + a₁b₁: an addition that changes nothing", anchor="start", colour=MUTED)
    rows = (
        ("on paper", f"{count(product.macs)} multiplies, {count(adds)} adds: {count(product.macs + adds)}"),
        ("as FMAs", f"{count(product.macs)} FMAs: {count(product.flops)} FLOPs"),
    )
    for i, (where, words) in enumerate(rows):
        canvas.text(6, y + 87 + 24 * i, where, anchor="start", bold=True)
        canvas.text(108, y + 87 + 24 * i, words, anchor="start")
    return Drawing(
        "dot-product",
        f"A dot product of length {count(k)} counts as {count(k)} FMAs, {count(product.flops)} FLOPs",
        f"A running sum starts at zero and passes through a chain of {count(k)} fused multiply-adds, each with one element of a and one of b. "
        f"On paper that is {count(product.macs)} multiplications and {count(adds)} additions; the chain also adds the first product to zero, "
        f"so {count(product.flops)} FLOPs are counted.",
        [canvas],
    )


def _sub(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
