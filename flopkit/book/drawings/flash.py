"""What a fused kernel keeps on the chip: the tensors between the operators of a chain, the tiles of attention's scores."""

from __future__ import annotations

from flopkit.arithmetic import ceil_div
from flopkit.book.drawings.canvas import WIDTH, Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.dtypes import nbytes
from flopkit.layers.pointwise import activation
from flopkit.units import count, percent, si

__all__ = ["fused_chain", "tile_on_chip"]

OPERATORS = ("× a", "+ b", "gelu")
REGISTERS = 2**16 * 4
"""Bytes of the registers of an H100's multiprocessor: 64K of 32 bits."""
SHARED = 228 * 1024
L2 = 50e6
"""Bytes: printed as 50 MB."""


def fused_chain() -> Drawing:
    """Three element-wise operators: each a kernel that reads a tensor and writes one, and all three in one kernel. Bytes in bf16.

    Examples
    --------
    >>> fused_chain().title
    'What three kernels move per element, and what one fused kernel moves'
    """
    one = activation("relu", elements=1)  # an operator of one input: an element read, an element written
    element = nbytes(1, "bf16")
    chain = len(OPERATORS) * one
    fused = chain.fused(not_written=len(OPERATORS) - 1, not_read=len(OPERATORS) - 1)
    canvas = Canvas(346)

    def rows(top: float, title: str) -> None:
        canvas.text(0, top, title, anchor="start", bold=True)
        canvas.text(0, top + 36, "memory", anchor="start", colour=MUTED)
        canvas.text(0, top + 96, "chip", anchor="start", colour=MUTED)

    def tensor(x: float, top: float, name: str) -> None:
        canvas.box(x, top + 24, 32, 24, name, name="tensor", colour=MUTED)

    def moved(x1: float, y1: float, x2: float, y2: float, name: str, colour: str) -> None:
        canvas.arrow(x1, y1, x2, y2, colour=colour, width=1.8, name=name)
        canvas.text(
            (x1 + x2) / 2 + (8 if name == "written" else -8), (y1 + y2) / 2, str(element), colour=colour, halo=True
        )

    rows(10, "one kernel for each operator")
    names = ("x", *(f"t{i + 1}" for i in range(len(OPERATORS) - 1)), "y")
    step = 88.0
    for i, name in enumerate(names):
        tensor(58 + step * i, 10, name)
    for i, operator in enumerate(OPERATORS):
        left = 58 + step * i
        canvas.box(left + 36, 92, 48, 28, operator, name="kernel", colour=GREEN, fill=0.3)
        moved(left + 22, 60, left + 46, 91, "read", BLUE)
        moved(left + 74, 91, left + step + 10, 60, "written", ORANGE)
    canvas.text(58, 138, f"together {chain.bytes} bytes per element", anchor="start", name="apart")

    rows(174, "one kernel for all operators")
    tensor(58, 174, "x")
    tensor(58 + step * len(OPERATORS), 174, "y")
    canvas.box(94, 252, 224, 36, name="kernel", colour=GREEN, fill=0.14)
    for i, operator in enumerate(OPERATORS):
        canvas.box(102 + 74 * i, 257, 48, 26, operator, name="operator", colour=GREEN, fill=0.3)
        if i:
            canvas.arrow(102 + 74 * i - 24, 270, 102 + 74 * i - 2, 270, name="kept")
    moved(80, 224, 110, 251, "read", BLUE)
    moved(302, 251, 332, 224, "written", ORANGE)
    canvas.text(58, 306, f"together {fused.bytes} bytes per element", anchor="start", name="fused")
    for at, colour, words in ((58, BLUE, "bytes read"), (158, ORANGE, "bytes written")):
        canvas.box(at, 324, 12, 12, colour=colour, fill=0.6, edge=0)
        canvas.text(at + 18, 330, words, anchor="start", name="key")
    return Drawing(
        "fused-chain",
        "What three kernels move per element, and what one fused kernel moves",
        f"Three element-wise operators, {', '.join(OPERATORS)}, from x to y in bf16. As kernels of their own, each reads {element} bytes per "
        f"element from memory and writes {element} back, so that the tensors t1 and t2 are written and read again: together {chain.bytes} bytes. "
        f"In one kernel x is read, t1 and t2 stay on the chip and y is written: together {fused.bytes} bytes.",
        [canvas],
    )


def tile_on_chip(queries: int = 128, keys: int = 128, head_dim: int = 128, tokens: int = 4096) -> Drawing:
    """Where a flash kernel keeps a tile on an H100: scores and output in registers, operands in shared memory, a head's keys and values in L2.

    Parameters
    ----------
    queries, keys : int, optional
        Rows and columns of a tile of scores.
    head_dim : int, optional
        Elements of a query, a key and a value.
    tokens : int, optional
        Length of the sequence.

    Raises
    ------
    ValueError
        For sizes that are no whole numbers, and for a tile that does not fit.

    Notes
    -----
    Scores and output are in fp32, the operands in bf16. Sizes of a multiprocessor: NVIDIA, Hopper Tuning Guide, occupancy; of the L2 cache: NVIDIA, H100
    Tensor Core GPU Architecture.

    Examples
    --------
    >>> tile_on_chip().title
    'A tile takes 50.4 % of a multiprocessor’s registers and 42.1 % of its shared memory'
    """
    sizes = {"queries": queries, "keys": keys, "head_dim": head_dim, "tokens": tokens}
    for name, value in sizes.items():
        whole("tile_on_chip", name, value, 1, 2**20)
    kept = [
        ("scores", nbytes(queries * keys, "fp32")), ("output O", nbytes(queries * head_dim, "fp32")),
        ("m, ℓ", nbytes(2 * queries, "fp32")),
    ]  # fmt: skip
    loaded = [(name, nbytes(rows * head_dim, "bf16")) for name, rows in (("Q", queries), ("K", keys), ("V", keys))]
    head = [("K and V of one head", nbytes(2 * tokens * head_dim, "bf16"))]
    levels = (
        ("registers of a multiprocessor", REGISTERS, kept, GREEN),
        ("shared memory of a multiprocessor", SHARED, loaded, BLUE),
        ("L2 cache of the GPU", L2, head, ORANGE),
    )
    listed = [[f"{name} {si(size, 'B')}" for name, size in parts] for _, _, parts, _ in levels]
    canvas = Canvas(262)
    for i, (where, room, parts, colour) in enumerate(levels):
        top, used = 10 + 84.0 * i, sum(size for _, size in parts)
        if used > room:
            given = ", ".join(f"{name}={value}" for name, value in sizes.items())
            raise ValueError(
                f"tile_on_chip({given}): {si(used, 'B')} in {si(room, 'B')} of {where}; make the tile smaller"
            )
        canvas.text(0, top, where, anchor="start", bold=True)
        canvas.text(WIDTH, top, si(room, "B"), anchor="end", colour=MUTED, name=f"room {i}")
        canvas.box(0.6, top + 14, WIDTH - 1.2, 26, name=f"level {i}", fill=0.05)
        x = 0.6
        for name, size in parts:
            wide = (WIDTH - 1.2) * size / room
            canvas.box(x, top + 14, wide, 26, name=f"{name} {i}", colour=colour, fill=0.45, round=0, edge=0.8)
            x += wide
        canvas.text(0, top + 54, "; ".join(listed[i]), anchor="start", name="parts")
    blocks = ceil_div(tokens, queries)
    canvas.text(
        0,
        10 + 84 * 2 + 72,
        f"read by {count(blocks, 'blocks')} of queries, from memory once",
        anchor="start",
        name="blocks",
    )
    shares = [percent(sum(size for _, size in parts) / room) for _, room, parts, _ in levels]
    return Drawing(
        "tile-on-chip",
        f"A tile takes {shares[0]} of a multiprocessor’s registers and {shares[1]} of its shared memory",
        f"Three bars, each the room of a level of an H100, for a tile of {count(queries, 'queries')} and {count(keys, 'keys')} with a head dimension of {head_dim}. "
        + " ".join(
            f"{where[0].upper()}{where[1:]}, {si(room, 'B')}: {', '.join(each)}."
            for (where, room, _, _), each in zip(levels, listed, strict=True)
        )
        + f" The keys and values of {count(tokens, 'tokens')} are read from memory once, and from the cache by {count(blocks, 'blocks')} of queries.",
        [canvas],
    )
