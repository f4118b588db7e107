"""A whole model: its parts by their FLOPs, and where the rule of six FLOPs a weight comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE, PURPLE
from flopkit.layers.products import dense
from flopkit.models import MLP, load
from flopkit.training.backward import dense_backward
from flopkit.units import count, percent, si

__all__ = ["model_tree", "six_flops"]

HEIGHT = 250  # of all FLOPs
GROUPS = (
    ("projections", BLUE, ("q_proj", "k_proj", "v_proj", "o_proj")),
    ("scores and values", PURPLE, ("attention",)),
    ("MLP", GREEN, ("gate_proj", "up_proj", "down_proj")),
)


def model_tree(models: Sequence[str] = ("gpt2", "gpt-3-175b"), tokens: Sequence[int] = (1024, 2048)) -> Drawing:
    """Models from the whole to the parts of their layers, each part as high as its share of the forward FLOPs.

    Parameters
    ----------
    models : Sequence[str], optional
        One or two names that `flopkit.load` knows, of models with equal layers without experts.
    tokens : Sequence[int], optional
        The length of a sequence for each; causal masks, the visible pairs counted.

    Raises
    ------
    ValueError or TypeError
        For a model that is not known or that cannot be drawn, and for another number of lengths than of models.

    Examples
    --------
    >>> model_tree().title
    "Height is a part's share: the head takes 29 % of GPT-2 and 0.349 % of GPT-3"
    """
    if not 1 <= len(models) <= 2 or len(models) != len(tokens):
        raise ValueError(
            f"model_tree(models={models!r}, tokens={tokens!r}): give one or two models, and a length for each"
        )
    canvases, heads, said = [], [], []
    for name, length in zip(models, tokens, strict=True):
        model = load(name)
        if len(model.blocks) != 1 or model.encoder is not None or not isinstance(model.blocks[0][0].mlp, MLP):
            raise ValueError(
                f"model_tree({name!r}): its layers are of several kinds, or have experts, which is not drawn here"
            )
        layers: Any = model.layers
        forward = model.forward(seq=length)
        parts = {part.name: part.flops for part in model.layer(seq=length).parts}
        head = forward.parts[-1].flops
        canvas = Canvas(HEIGHT + 92)
        canvas.text(6, 10, f"{model_title(name)}, {count(length)} tokens", anchor="start", bold=True)
        top = 28.0
        canvas.box(
            6,
            top,
            90,
            HEIGHT,
            "forward",
            si(forward.flops / length, "FLOPs"),
            "a token",
            name="model",
            colour=MUTED,
            size=12,
        )
        high = HEIGHT * (forward.flops - head) / forward.flops
        canvas.box(
            100,
            top,
            88,
            high,
            f"{count(layers)} layers",
            percent(1 - head / forward.flops),
            name="layers",
            colour=MUTED,
            bold=True,
        )
        _part(canvas, 100, top + high, 88, HEIGHT - high, "head", head / forward.flops, ORANGE)
        y = top
        for label, colour, names in GROUPS:
            share = layers * sum(parts.get(part, 0) for part in names) / forward.flops
            _part(canvas, 192, y, 162, HEIGHT * share, label, share, colour)
            y += HEIGHT * share
            said.append(f"{label} {percent(share)}")
        bottom = top + HEIGHT + 24
        canvas.box(
            6, bottom, 348, 34, "embedding, norms, biases, sums: no products, 0 FLOPs", name="nothing", colour=MUTED, fill=0, dash=True, size=12
        )  # fmt: skip
        canvases.append(canvas)
        heads.append(f"{percent(head / forward.flops)} of {model_title(name)}")
        said.append(f"head {percent(head / forward.flops)}, in {model_title(name)} at {count(length)} tokens;")
    return Drawing(
        "model-tree",
        f"Height is a part's share: the head takes {' and '.join(heads)}",
        f"Shares of the forward FLOPs, visible pairs counted: {', '.join(said).replace(';,', ';').rstrip(';')}. Embedding, norms, biases and residual "
        "sums have no products and no height.",
        canvases,
    )


def _part(canvas: Canvas, x: float, y: float, w: float, h: float, label: str, share: float, colour: str) -> None:
    """A part as high as its share, its name inside where there is room, else the first word of it below."""
    roomy = h >= 15
    words = f"{label if roomy else label.split()[0]}  {percent(share)}"
    edge = 1.2 if h > 3 else 0
    canvas.box(x, y, w, h, *([words] if roomy else []), name=label, colour=colour, fill=0.28, edge=edge, size=12)
    if not roomy:
        canvas.text(x + w - 6, y + h + 10, f"↑ {words}", size=12, anchor="end")


def six_flops() -> Drawing:
    """What a training step does with one weight for one token: three multiply-adds, six FLOPs.

    Examples
    --------
    >>> six_flops().title
    'Each weight takes part in three multiply-adds for each token: 6 FLOPs'
    """
    forward = dense(tokens=1, d_in=1, d_out=1).flops
    for_input = dense_backward(tokens=1, d_in=1, d_out=1, weight=False).flops
    for_weight = dense_backward(tokens=1, d_in=1, d_out=1, input=False).flops
    rows = (
        ("forward: the output", "x", "w", "y += x · w", forward, BLUE),
        ("backward: the gradient of the input", "dy", "w", "dx += dy · w", for_input, ORANGE),
        ("backward: the gradient of the weight", "dy", "x", "dw += dy · x", for_weight, GREEN),
    )
    canvas = Canvas(300)
    y = 10.0
    for title, one, other, sum_, flops, colour in rows:
        canvas.text(6, y, title, anchor="start", bold=True)
        canvas.text(354, y, f"{flops} FLOPs", anchor="end", bold=True, name="flops")
        for x, factor in ((6, one), (76, other)):
            canvas.box(
                x,
                y + 14,
                50,
                34,
                factor,
                name=f"{factor} in {sum_}",
                colour=PURPLE if factor == "w" else MUTED,
                fill=0.3 if factor == "w" else 0.1,
                bold=True,
                size=13,
            )
        canvas.text(66, y + 31, "·", size=20, bold=True)
        canvas.arrow(130, y + 31, 176, y + 31, colour=colour, width=2, name="sum")
        canvas.box(180, y + 14, 174, 34, sum_, name=sum_, colour=colour, fill=0.2, round=12, bold=True, size=13)
        y += 76
    six = forward + for_input + for_weight
    canvas.line(6, y - 8, 354, y - 8)
    canvas.text(6, y + 10, "together, for each weight and each token", anchor="start")
    canvas.text(354, y + 10, f"{six} FLOPs", anchor="end", bold=True, name="flops")
    canvas.text(6, y + 34, "with N weights, for each token", anchor="start")
    canvas.text(354, y + 34, f"{six}N", anchor="end", bold=True, name="rule")
    canvas.height = y + 48
    return Drawing(
        "six-flops",
        f"Each weight takes part in three multiply-adds for each token: {six} FLOPs",
        f"For each token, a weight w is multiplied by an input x and the product is added to an output y, {forward} FLOPs. On the way back, w is multiplied by the "
        f"output's gradient for the gradient of the input, {for_input} FLOPs, and x by the output's gradient for the gradient of the weight, {for_weight} FLOPs. "
        f"Together {six} FLOPs, or {six}N for N weights.",
        [canvas],
    )
