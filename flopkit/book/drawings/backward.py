"""The backward pass: one product forward and two back, and which of the two are wanted."""

from __future__ import annotations

from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.layers.products import dense
from flopkit.training.backward import dense_backward
from flopkit.units import count, si

__all__ = ["gradients", "wanted_gradients"]

STATES = ("trained", "frozen", "LoRA")


def gradients(tokens: int = 64, d_in: int = 4096, d_out: int = 16384) -> Drawing:
    """The forward product of a dense layer and the two of its backward pass, with the shapes of what is multiplied.

    Parameters
    ----------
    tokens, d_in, d_out : int, optional
        The sizes of the layer. The matrices are not drawn to scale.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1.

    Examples
    --------
    >>> gradients(tokens=64, d_in=4096, d_out=16384).title
    'One matmul forward, two backward, and each takes 8.59 GFLOPs'
    """
    layer: dict[str, Any] = {"tokens": tokens, "d_in": d_in, "d_out": d_out}
    forward = dense(**layer).flops
    for_input = dense_backward(**layer, weight=False).flops
    for_weight = dense_backward(**layer, input=False).flops
    lengths = {"T": (tokens, 26.0), "d_in": (d_in, 46.0), "d_out": (d_out, 70.0)}
    rows = (
        ("forward: the output", forward, (("Y", "T", "d_out", GREEN), ("X", "T", "d_in", BLUE), ("W", "d_in", "d_out", ORANGE))),
        ("backward: the gradient of the input", for_input, (("dX", "T", "d_in", BLUE), ("dY", "T", "d_out", GREEN), ("Wᵀ", "d_out", "d_in", ORANGE))),
        ("backward: the gradient of the weight", for_weight, (("dW", "d_in", "d_out", ORANGE), ("Xᵀ", "d_in", "T", BLUE), ("dY", "T", "d_out", GREEN))),
    )  # fmt: skip
    canvas = Canvas(398)
    y = 10.0
    for title, flops, matrices in rows:
        canvas.text(6, y, title, anchor="start", bold=True)
        canvas.text(354, y, si(flops, "FLOPs"), anchor="end", bold=True, name="flops")
        height = max(lengths[rows][1] for _, rows, _, _ in matrices)
        middle = y + 20 + height / 2
        for i, (name, high, wide, colour) in enumerate(matrices):
            h, w, centre = lengths[high][1], lengths[wide][1], 58 + 122 * i
            gradient = name.startswith("d")
            canvas.box(
                centre - w / 2, middle - h / 2, w, h, name, name=name, colour=colour, fill=0.12 if gradient else 0.4, dash=gradient, edge=1.8,
                bold=True, size=13,
            )  # fmt: skip
            shape = f"{count(lengths[high][0])}×{count(lengths[wide][0])}"
            canvas.text(centre, middle + height / 2 + 14, shape, colour=MUTED, name=f"shape of {name}")
            if i < 2:
                canvas.text(centre + 61, middle, "=·"[i], size=20, bold=True)
        y = middle + height / 2 + 48
    canvas.height = y - 24
    return Drawing(
        "gradients",
        f"One matmul forward, two backward, and each takes {si(forward, 'FLOPs')}",
        f"Y = X W takes {si(forward, 'FLOPs')}. dX = dY Wᵀ takes {si(for_input, 'FLOPs')}, and dW = Xᵀ dY {si(for_weight, 'FLOPs')}: the same three "
        f"sizes, {count(tokens)}, {count(d_in)} and {count(d_out)}, meet in each of them.",
        [canvas],
    )


def wanted_gradients(*layers: str) -> Drawing:
    """A chain of layers, some of them frozen or with an adapter: which gradients of inputs and weights the backward pass computes.

    Parameters
    ----------
    *layers : str
        From the input upwards, two to six of "trained", "frozen" and "LoRA" (frozen, with a trained adapter beside it). None given: a chain
        that shows each case.

    Raises
    ------
    ValueError
        For another word, or a chain that cannot be drawn.

    Examples
    --------
    >>> wanted_gradients("trained", "trained").title
    '3 matmuls backward, one per gradient, against 2 forward: 1.5 times as much'
    """
    chain = layers or ("frozen", "LoRA", "frozen", "trained")
    if not 2 <= len(chain) <= 6 or not set(chain) <= set(STATES):
        raise ValueError(f"wanted_gradients{layers!r}: give two to six of {', '.join(map(repr, STATES))}")
    lowest = next((i for i, state in enumerate(chain) if state != "frozen"), len(chain))
    size: dict[str, Any] = {
        "tokens": 1,
        "d_in": 1,
        "d_out": 1,
    }  # the layers are alike, so that any size gives the ratio
    forward, backward = len(chain) * dense(**size).flops, 0
    canvas = Canvas(74 + 66 * len(chain))
    canvas.text(63, 12, "loss", bold=True)
    for x, words in ((196, "gradient of"), (301, "gradient of")):
        canvas.text(x, 4 + 6, words, colour=MUTED)
    canvas.text(196, 25, "the input, dX", colour=MUTED)
    canvas.text(301, 25, "the weight, dW", colour=MUTED)
    said = []
    for row, (i, state) in enumerate(reversed(list(enumerate(chain)))):
        y = 50 + 66 * row
        into, of_weight = i > lowest, state == "trained"
        backward += dense_backward(**size, input=int(into), weight=int(of_weight)).flops
        reached = i >= lowest
        canvas.arrow(36, y, 36, y - 22 if row else y - 26, name="forward")
        if reached:
            canvas.arrow(90, y - 22 if row else y - 26, 90, y, colour=BLUE, width=2, name="backward")
        colour = MUTED if state == "frozen" else ORANGE
        name = f"layer {i + 1}"
        canvas.box(
            6, y, 114, 44, name, state, name=name, colour=colour, fill=0.14 if state == "frozen" else 0.3, bold=True
        )
        _chip(canvas, 150, y + 6, "dX" if into else "—", into, BLUE, f"dX {i + 1}")
        adapter = state == "LoRA"
        _chip(
            canvas,
            255,
            y + 6,
            "adapter's" if adapter else "dW" if of_weight else "—",
            of_weight or adapter,
            ORANGE,
            f"dW {i + 1}",
        )
        wanted = [word for word, is_so in (("dX", into), ("dW", of_weight), ("its adapter's", adapter)) if is_so]
        said.append(f"Layer {i + 1}, {state}: {' and '.join(wanted) or 'none'}.")
    y = 50 + 66 * len(chain)
    canvas.arrow(36, y, 36, y - 22, name="forward")
    canvas.text(36, y + 10, "input", bold=True)
    if "LoRA" in chain:
        canvas.text(354, y + 10, "adapters' small matmuls left out", anchor="end", colour=MUTED)
    products = backward // dense(**size).flops
    return Drawing(
        "wanted-gradients",
        f"{products} matmuls backward, one per gradient, against {len(chain)} forward: {count(backward / forward, digits=3)} times as much",
        f"A chain of {len(chain)} equal layers, from the loss down. " + " ".join(said)
        + " The gradient of an input is wanted where something below is trained. An adapter's own matmuls are small and not among those counted.",
        [canvas],
    )  # fmt: skip


def _chip(canvas: Canvas, x: float, y: float, words: str, wanted: bool, colour: str, name: str) -> None:
    canvas.box(x, y, 92, 32, words, name=name if wanted else f"no {name}", colour=colour if wanted else MUTED,
               fill=0.3 if wanted else 0, dash=not wanted, bold=wanted, round=8)  # fmt: skip
