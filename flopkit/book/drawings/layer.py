"""An attention layer with its shapes, from the tokens that come in to those that go out."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import exact_div
from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, MUTED, ORANGE
from flopkit.models import Attention, load
from flopkit.units import count, percent, si

__all__ = ["attention_layer"]


def attention_layer(model: str = "llama-3-8b", tokens: int = 4096) -> Drawing:
    """The attention of one layer of a language model: projections, heads, scores, values, with the shapes and FLOPs of each.

    Parameters
    ----------
    model : str, optional
        A name that `flopkit.load` knows; its first layer is drawn, which must have causal attention without a window.
    tokens : int, optional
        Length of the sequence; a causal mask, the visible pairs counted.

    Raises
    ------
    ValueError or TypeError
        For a model that is not known or tokens that are not a whole number of at least 1.

    Examples
    --------
    >>> attention_layer("llama-3-8b", tokens=8192).title
    'At 8,192 tokens the core takes 44.4 % of the FLOPs of this attention layer'
    """
    net: Any = load(model)
    mixer: Any = net.blocks[0][0].mixer
    if not isinstance(mixer, Attention) or mixer.window is not None or not net.causal:
        raise ValueError(
            f"attention_layer({model!r}): its first layer has no causal attention without a window, which is drawn here"
        )
    flops = {part.name: part.flops for part in net.layer(seq=tokens).parts}
    half = exact_div(flops["attention"], 2)  # scores and values take as much, for keys and values have one head size
    projections = sum(flops[name] for name in ("q_proj", "k_proj", "v_proj", "o_proj"))
    core = flops["attention"] / (flops["attention"] + projections)
    canvas = Canvas(566)

    def shaped(x: float, y: float, name: str, *shape: Any, w: float = 112) -> None:
        words = " × ".join(each if isinstance(each, str) else count(each) for each in shape)
        canvas.box(x - w / 2, y, w, 38, name, words, name=name, colour=BLUE, fill=0.14, bold=True)

    def product(x: float, y: float, words: str, flops: int, name: str, w: float = 112) -> None:
        canvas.box(
            x - w / 2, y, w, 38, words, si(flops, "FLOPs"), name=name, colour=ORANGE, fill=0.28, round=12, bold=True
        )

    shaped(180, 2, "tokens", "T", net.d_model)
    for name, x, heads in (
        ("queries", 60, mixer.heads),
        ("keys", 180, mixer.kv_heads),
        ("values", 300, mixer.kv_heads),
    ):
        part = f"{name[0]}_proj"
        canvas.arrow(180, 40, x, 64)
        product(x, 64, f"{count(net.d_model)} → {count(heads * mixer.head_dim)}", flops[part], part)
        canvas.arrow(x, 102, x, 122)
        shaped(x, 122, name, heads, "T", mixer.head_dim)
    for x in (60, 180):
        canvas.arrow(x, 160, x, 190)
    product(120, 190, "queries · keys", half, "Q · Kᵀ", w=232)
    canvas.arrow(120, 228, 120, 250)
    shaped(120, 250, "scores, masked, softmax", mixer.heads, "T", "T", w=190)
    canvas.arrow(120, 288, 120, 318)
    canvas.arrow(300, 160, 300, 318)
    product(180, 318, "scores · values", half, "S · V", w=352)
    canvas.arrow(180, 356, 180, 378)
    shaped(180, 378, "heads", mixer.heads, "T", mixer.head_dim)
    canvas.arrow(180, 416, 180, 438)
    product(180, 438, f"{count(mixer.heads * mixer.head_dim)} → {count(net.d_model)}", flops["o_proj"], "o_proj")
    canvas.arrow(180, 476, 180, 498)
    shaped(180, 498, "output", "T", net.d_model)
    canvas.text(6, 556, f"FLOPs at T = {count(tokens)}, visible pairs only", anchor="start", colour=MUTED)
    return Drawing(
        "attention-layer",
        f"At {count(tokens, 'tokens')} the core takes {percent(core)} of the FLOPs of this attention layer",
        f"In {model_title(net.name)}, T tokens of {net.d_model} elements become {mixer.heads} heads of queries and {mixer.kv_heads} of keys and of values, {mixer.head_dim} elements each. "
        f"Queries times keys make {mixer.heads} score matrices of T by T, {si(half, 'FLOPs')} at T = {count(tokens)} with the visible pairs counted; scores times values "
        f"take as much. The output projection brings the heads back to {net.d_model}. The four projections take {si(projections, 'FLOPs')}.",
        [canvas],
    )
