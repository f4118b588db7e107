"""What a fused kernel keeps on the chip: the tensors between the operators of a chain, the tiles of attention's scores."""

from __future__ import annotations

from flopkit.book.drawings.canvas import WIDTH, Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.dtypes import nbytes
from flopkit.layers.pointwise import activation
from flopkit.units import count, si

__all__ = ["fused_chain", "online_softmax"]

OPERATORS = ("× a", "+ b", "gelu")


def fused_chain() -> Drawing:
    """Three element-wise operators: each a kernel that reads a tensor and writes one, and all three in one kernel. Bytes in bf16.

    Examples
    --------
    >>> fused_chain().title
    'Three kernels move 12 bytes per element, one fused kernel 4'
    """
    one = activation("relu", elements=1)  # an operator of one input: an element read, an element written
    element = nbytes(1, "bf16")
    chain = len(OPERATORS) * one
    fused = chain.fused(not_written=len(OPERATORS) - 1, not_read=len(OPERATORS) - 1)
    canvas = Canvas(322)

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
    return Drawing(
        "fused-chain",
        f"Three kernels move {chain.bytes} bytes per element, one fused kernel {fused.bytes}",
        f"Three element-wise operators, {', '.join(OPERATORS)}, from x to y in bf16. As kernels of their own, each reads {element} bytes per "
        f"element from memory and writes {element} back, so that the tensors t1 and t2 are written and read again: together {chain.bytes} bytes. "
        f"In one kernel x is read, t1 and t2 stay on the chip and y is written: together {fused.bytes} bytes.",
        [canvas],
    )


def online_softmax(tile: int = 128, head_dim: int = 128) -> Drawing:
    """A block of queries on its way through the tiles of its scores: what is loaded, what stays on the chip, what is dropped. Bytes in bf16.

    Parameters
    ----------
    tile : int, optional
        Queries and keys of a tile.
    head_dim : int, optional
        Numbers of a query, a key and a value.

    Examples
    --------
    >>> online_softmax().title
    'For each tile of scores, keys and values of 65.54 kB come in, and no score leaves'
    """
    whole("online_softmax", "tile", tile, 1, 2**16)
    whole("online_softmax", "head_dim", head_dim, 1, 2**16)
    loaded = nbytes(2 * tile * head_dim, "bf16")
    canvas = Canvas(330)
    left, wide = 72.0, 66.0
    canvas.text(
        0, 10, f"one block of {count(tile, 'queries')}, tiles of {count(tile, 'keys')}", anchor="start", bold=True
    )
    canvas.text(0, 44, "memory", anchor="start", colour=MUTED)
    canvas.text(0, 140, "chip", anchor="start", colour=MUTED)
    canvas.box(left - 12, 86, WIDTH - left + 11, 192, name="chip", fill=0.05)
    for i in range(4):
        x = left + (wide + 4) * i
        canvas.box(x, 32, wide, 24, f"K{i + 1}, V{i + 1}", name="keys and values", colour=BLUE if i == 2 else MUTED)
        words = ("dropped", "dropped", "now", "later")[i]
        canvas.box(
            x, 112, wide, 56, words, name=f"tile {words}", colour=BLUE if i == 2 else MUTED, fill=0.45 if i == 2 else 0.0, dash=i != 2,
        )  # fmt: skip
    now = left + (wide + 4) * 2 + wide / 2
    canvas.arrow(now, 57, now, 111, colour=BLUE, width=1.8, name="loaded")
    canvas.text(now - 8, 72, si(loaded, "B"), anchor="end", colour=BLUE, name="bytes loaded", halo=True)
    canvas.text(left, 101, "scores", anchor="start", colour=MUTED)
    kept = (("m", "largest score"), ("ℓ", "sum of weights"), ("O", "output so far"))
    for i, (symbol, words) in enumerate(kept):
        x = left + 94 * i
        canvas.box(x + 22, 204, 44, 30, symbol, name="kept", colour=GREEN, fill=0.3, bold=True)
        canvas.text(x + 44, 248, words)
    canvas.text(left, 264, "kept for each query, corrected at each tile", anchor="start", colour=MUTED)
    for i in range(len(kept)):
        canvas.arrow(now, 169, left + 94 * i + 44, 202, colour=GREEN, width=1.8, name="update")
    canvas.arrow(left + 94 * 2 + 44, 279, left + 94 * 2 + 44, 302, colour=ORANGE, width=1.8, name="written")
    canvas.text(left + 94 * 2 + 34, 292, "after the last tile", anchor="end", colour=ORANGE)
    canvas.text(left + 94 * 2 + 44, 314, "O / ℓ, to memory", name="result")
    return Drawing(
        "online-softmax",
        f"For each tile of scores, keys and values of {si(loaded, 'B')} come in, and no score leaves",
        f"A block of {count(tile, 'queries')} goes through four tiles of keys, from left to right. The first two tiles of scores are done and dropped, "
        f"the third is on the chip, the fourth comes later. For each tile its keys and values, {si(loaded, 'B')} in bf16, are loaded from memory. "
        "Three things stay on the chip for each query and are corrected at each tile: the largest score so far, m; the sum of the weights, ℓ; and the "
        "output so far, O. After the last tile O divided by ℓ is written to memory.",
        [canvas],
    )
