"""Attention's scores: as tensors that separate kernels move through memory, and as tiles that a flash kernel walks over."""

from __future__ import annotations

from flopkit.book.drawings.canvas import WIDTH, Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE, PAPER
from flopkit.dtypes import nbytes
from flopkit.units import count, si

__all__ = ["score_transfers", "tile_walk"]

REGISTERS = 2**16 * 4
"""Bytes of the registers of an H100's multiprocessor: 64K of 32 bits."""

# A kernel, what it is called in words, and the tensors as large as the scores that it reads and writes.
_FORWARD = (
    ("QKᵀ", "the scores", (), ("S",)),
    ("softmax", "the softmax", ("S",), ("P",)),
    ("PV", "the output", ("P",), ()),
)
_BACKWARD = (
    ("dV", "the gradient of V", ("P",), ()),
    ("dP", "the gradient of P", (), ("dP",)),
    ("softmax′", "the backward pass of the softmax", ("P", "dP"), ("dS",)),
    ("dQ", "the gradient of Q", ("dS",), ()),
    ("dK", "the gradient of K", ("dS",), ()),
)


def score_transfers() -> Drawing:
    """Attention's separate kernels, forward and backward: an arrow for each time that one moves a tensor as large as the scores.

    Examples
    --------
    >>> score_transfers().title
    'Separate kernels move a tensor as large as the scores 4 times forward and 7 times backward'
    """
    canvas = Canvas(196)
    canvas.text(0, 10, "in memory: T × T elements each", anchor="start", bold=True)
    canvas.box(0.6, 26, WIDTH - 1.2, 26, name="memory", colour=MUTED, fill=0.12)
    slot, gap, between = 27.0, 5.0, 18.0
    x, number, numbers, told = 6.0, 0, [], []
    for title, kernels in (("forward", _FORWARD), ("backward", _BACKWARD)):
        left, first = x, number
        for name, words, reads, writes in kernels:
            moves = [(tensor, "read") for tensor in reads] + [(tensor, "written") for tensor in writes]
            wide = slot * len(moves)
            canvas.box(x, 106, wide, 28, name, name="kernel", colour=GREEN, fill=0.3)
            for i, (tensor, way) in enumerate(moves):
                number += 1
                at, colour = x + slot * (i + 0.5), BLUE if way == "read" else ORANGE
                ends = (53, 105) if way == "read" else (105, 53)
                canvas.text(at, 39, tensor, name="tensor")
                canvas.arrow(at, ends[0], at, ends[1], colour=colour, width=1.8, name=way)
                canvas.box(at - 9, 71, 18, 16, colour=PAPER, fill=1, edge=0)
                canvas.text(at, 79, str(number), colour=colour, bold=True, name="number")
            ways = [f"{way} {' and '.join(all_)}" for way, all_ in (("reads", reads), ("writes", writes)) if all_]
            told.append(f"{words}, {', '.join(ways)}")
            x += wide + gap
        canvas.line(left, 143, x - gap, 143, name=title)
        canvas.text((left + x - gap) / 2, 155, f"{title}: {number - first}", bold=True, name="together")
        numbers.append(number - first)
        x += between - gap
    for at, colour, name in ((6, BLUE, "read"), (76, ORANGE, "written")):
        canvas.box(at, 177, 12, 12, colour=colour, fill=0.6, edge=0)
        canvas.text(at + 18, 183, name, anchor="start")
    canvas.box(166, 177, 12, 12, colour=GREEN, fill=0.3, edge=0.8)
    canvas.text(184, 183, "a kernel", anchor="start")
    there, back = numbers
    return Drawing(
        "score-transfers",
        f"Separate kernels move a tensor as large as the scores {there} times forward and {back} times backward",
        f"{len(_FORWARD)} kernels forward and {len(_BACKWARD)} backward below a bar for the memory, with a numbered arrow for each tensor of T × T elements that one reads or writes. "
        f"In order: {'; '.join(told)}. Together {there} transfers forward and {back} backward. S are the scores, P the weights, dS and dP their gradients.",
        [canvas],
    )


def tile_walk(queries: int = 128, keys: int = 128, tokens: int = 1024) -> Drawing:
    """The score matrix of a head in tiles: the one that a multiprocessor works on in a flash kernel, the queries, keys and values that it needs, and what it keeps.

    Parameters
    ----------
    queries, keys : int, optional
        Rows and columns of a tile; 3 to 16 of each fit the length.
    tokens : int, optional
        Length of the sequence, a multiple of both.

    Raises
    ------
    ValueError
        For sizes that are no whole numbers, for a length of too few or too many tiles, and for a tile whose scores do not fit into an
        H100's registers in fp32.

    Examples
    --------
    >>> tile_walk().title
    'A multiprocessor holds 1 of 64 tiles of scores at a time, and no score is written to memory'
    """
    for name, value in (("queries", queries), ("keys", keys), ("tokens", tokens)):
        whole("tile_walk", name, value, 1, 2**20)
    (rows, cut), (columns, short) = divmod(tokens, queries), divmod(tokens, keys)
    if cut or short or not (3 <= rows <= 16 and 3 <= columns <= 16):
        raise ValueError(
            f"tile_walk(queries={queries}, keys={keys}, tokens={tokens}): the length must be 3 to 16 whole tiles in both "
            "directions, so that it can be drawn"
        )
    scores = nbytes(queries * keys, "fp32")
    if scores > REGISTERS:
        raise ValueError(
            f"tile_walk(queries={queries}, keys={keys}, tokens={tokens}): {si(scores, 'B')} of scores in {si(REGISTERS, 'B')} of a "
            "multiprocessor's registers; make the tile smaller"
        )
    left, top, side = 58.0, 84.0, 192.0
    high, wide = side / rows, side / columns
    row, column = rows // 2 - 1, columns // 2 - 1 + columns % 2
    x, y = left + column * wide, top + row * high
    canvas = Canvas(top + side + 106)
    canvas.text(left, 10, "keys and values →", anchor="start", colour=MUTED)
    canvas.text(0, top + side + 14, "queries ↓", anchor="start", colour=MUTED)
    for name, at in (("V", 24.0), ("K", 52.0)):
        canvas.text(left - 8, at + 11, name, anchor="end", bold=True)
        canvas.box(left, at, side, 22, name=f"all of {name}", fill=0, edge=0.8, round=0)
        canvas.box(x, at, wide, 22, name=f"loaded of {name}", colour=BLUE, fill=0.6, edge=0, round=0)
    canvas.text(14, top + 11, "Q", anchor="end", bold=True)
    canvas.box(22, top, 22, side, name="all of Q", fill=0, edge=0.8, round=0)
    canvas.box(22, y, 22, high, name="loaded of Q", colour=BLUE, fill=0.6, edge=0, round=0)
    if column:
        canvas.box(left, y, column * wide, high, name="walked", colour=ORANGE, fill=0.18, edge=0, round=0)
    canvas.box(x, y, wide, high, name="tile", colour=ORANGE, fill=0.75, edge=0, round=0)
    _grid(canvas, left, top, rows, columns, wide, high)
    middle, kept = y + high / 2, left + side + 22
    canvas.arrow(x + wide / 2, middle, kept - 2, middle, width=2, colour=ORANGE, name="walk")
    canvas.box(kept, middle - 14, WIDTH - kept - 1, 28, "m, ℓ, O", name="kept", colour=GREEN, fill=0.3)
    canvas.arrow(kept + 37, middle + 15, kept + 37, middle + 41, width=1.8, colour=GREEN, name="written")
    canvas.lines(kept + 37, middle + 53, "O / ℓ", "to memory at", "the row’s end")
    said = (
        (ORANGE, 0.75, f"the tile: {count(queries)} × {count(keys)} scores, {si(scores, 'B')} on the chip"),
        (BLUE, 0.6, "loaded for it: a block each of Q, K and V"),
        (GREEN, 0.3, "kept for a row of tiles: m, ℓ and O of its queries"),
        (None, 0, "other multiprocessors walk along the other rows"),
    )
    for i, (colour, fill, words) in enumerate(said):
        at = top + side + 34 + 20 * i
        if colour:
            canvas.box(0.6, at - 6, 12, 12, colour=colour, fill=fill, edge=0)
        canvas.text(20, at, words, anchor="start", name="said")
    return Drawing(
        "tile-walk",
        f"A multiprocessor holds 1 of {count(rows * columns)} tiles of scores at a time, and no score is written to memory",
        f"The score matrix of {count(tokens, 'tokens')} as a grid of {rows} by {columns} tiles of {count(queries, 'queries')} and {count(keys, 'keys')}. One tile, in row {row + 1} and column "
        f"{column + 1}, is on the chip: {si(scores, 'B')} of scores in fp32. Beside it the block of Q of its row, above it the blocks of K and V of its column, loaded for it. An arrow runs along "
        "the row to a box with m, ℓ and O: the multiprocessor walks along the row of tiles, corrects m, ℓ and O of the row's queries at each tile, and forgets the scores of the tiles behind "
        "it. At the end of the row it writes O / ℓ to memory. Other multiprocessors walk along the other rows.",
        [canvas],
    )


def _grid(canvas: Canvas, left: float, top: float, rows: int, columns: int, wide: float, high: float) -> None:
    """The lines between tiles that need not be square."""
    for i in range(rows + 1):
        canvas.line(left, top + i * high, left + columns * wide, top + i * high, width=0.8, name="line")
    for i in range(columns + 1):
        canvas.line(left + i * wide, top, left + i * wide, top + rows * high, width=0.8, name="line")
