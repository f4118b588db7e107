"""What a fused kernel keeps on the chip: the tensors between the operators of a chain."""

from __future__ import annotations

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.dtypes import nbytes
from flopkit.layers.pointwise import activation

__all__ = ["fused_chain"]

OPERATORS = ("× a", "+ b", "gelu")


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
