"""What a transformer layer costs: its FLOPs per token at several lengths, and its least time, operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.devices import device as find
from flopkit.models import Attention, load
from flopkit.rooflines import roofline
from flopkit.units import count, percent, seconds, si, times

__all__ = ["growing_core", "layer_timeline"]

LEFT, WIDE = 6.0, 346.0
ACTIVATIONS = {"swiglu": "SwiGLU", "gelu": "GELU", "gelu_tanh": "GELU"}


def growing_core(model: str = "llama-3-8b", tokens: Sequence[int] = (4096, 16384, 53247, 131072)) -> Drawing:
    """A layer's FLOPs per token at several lengths: projections and MLP, the attention core of visible pairs, that of hidden pairs.

    Parameters
    ----------
    model : str, optional
        A name that `flopkit.load` knows; its first layer is drawn, which must have causal attention without a window.
    tokens : Sequence[int], optional
        The lengths of the prompts, one to five of them.

    Raises
    ------
    ValueError or TypeError
        For a model that is not known or has another kind of attention, and for other numbers of lengths.

    Examples
    --------
    >>> growing_core().title
    'Longer prompts add only to the core: FLOPs per token in a layer of Llama-3-8B'
    """
    net: Any = load(model)
    mixer: Any = net.blocks[0][0].mixer
    if not isinstance(mixer, Attention) or mixer.window is not None or not net.causal or not 0 < len(tokens) < 6:
        raise ValueError(
            f"growing_core({model!r}, tokens={tokens!r}): give a model with causal attention and no window, and one to five lengths"
        )
    rows = [_per_token(net, length) for length in tokens]
    scale = WIDE / max(sum(row) for row in rows)
    canvas = Canvas(26 + 50 * len(rows))
    keys = ((LEFT, "projections, MLP", GREEN, False), (134.0, "core, visible", BLUE, False), (246.0, "core, hidden", BLUE, True))  # fmt: skip
    for x, name, colour, masked in keys:
        canvas.box(x, 4, 12, 12, colour=colour, fill=0 if masked else 0.45, edge=1.2 if masked else 0, dash=masked)
        canvas.text(x + 17, 10, name, anchor="start")
    for i, (length, (rest, visible, hidden)) in enumerate(zip(tokens, rows, strict=True)):
        y = 38 + 50 * i
        canvas.text(LEFT, y, count(length, "tokens"), anchor="start", bold=True)
        gain = (rest + visible + hidden) / (rest + visible)
        canvas.text(LEFT + WIDE, y, f"all pairs: {times(gain)} the FLOPs", anchor="end", colour=MUTED, name="gain")
        canvas.box(LEFT, y + 10, rest * scale, 22, name="rest", colour=GREEN, fill=0.45, edge=0, round=0)
        canvas.box(LEFT + rest * scale, y + 10, visible * scale, 22, name="visible", colour=BLUE, fill=0.45, edge=0, round=0)  # fmt: skip
        canvas.box(LEFT + (rest + visible) * scale, y + 10, hidden * scale, 22, name="hidden", colour=BLUE, fill=0, dash=True, round=0)  # fmt: skip
    said = " ".join(
        f"At {count(n, 'tokens')}: {si(rest, 'FLOPs')}, {si(visible, 'FLOPs')} in visible and {si(hidden, 'FLOPs')} in hidden pairs."
        for n, (rest, visible, hidden) in zip(tokens, rows, strict=True)
    )
    return Drawing(
        "growing-core",
        f"Longer prompts add only to the core: FLOPs per token in a layer of {model_title(model)}",
        f"A bar for each length: projections and MLP, then the attention core, by visible pairs and by those that the mask hides. {said}",
        [canvas],
    )


def _per_token(net: Any, length: int) -> tuple[float, float, float]:
    """FLOPs of a layer per token: projections and MLP, visible pairs, hidden pairs."""
    whole("growing_core", "tokens", length, 1, 2**24)
    layer = net.layer(seq=length)
    [core] = [part for part in layer.parts if part.name == "attention"]
    visible, every = core.flops / length, core.under("TORCH").flops / length
    return (layer.flops - core.flops) / length, visible, every - visible


def layer_timeline(model: str = "llama-3-8b", tokens: int = 8192, device: str = "h100-sxm") -> Drawing:
    """The least time of a layer, one kernel after the other: how long each computes and how long its bytes move.

    Parameters
    ----------
    model : str, optional
        A name that `flopkit.load` knows, of a model with equal layers.
    tokens : int, optional
        Length of the sequence, in bf16.
    device : str, optional
        A device with a bf16 peak.

    Raises
    ------
    ValueError or TypeError
        For a name that is not known, a device without a bf16 peak, or tokens that are not a whole number of at least 1.

    Examples
    --------
    >>> layer_timeline().title
    'A matmul hides its bytes, a small operator cannot: 44 % of the bytes, 10 % of the time'
    """
    whole("layer_timeline", "tokens", tokens, 1, 2**24)
    layer, gpu = load(model).layer(seq=tokens), find(device)
    bounds = [(part, roofline(part, gpu, "bf16").seconds) for part in layer.parts]
    total = sum(least for _, least in bounds)
    small = [(part, least) for part, least in bounds if not part.flops]
    of_bytes, of_time = sum(part.bytes for part, _ in small) / layer.bytes, sum(least for _, least in small) / total
    widest = max(small, key=lambda each: each[1])[0]
    canvas = Canvas(172)
    canvas.text(LEFT, 10, "time in which the units compute", anchor="start", colour=MUTED)
    canvas.text(LEFT, 130, "time in which the bytes move", anchor="start", colour=MUTED)
    x, scale = LEFT, WIDE / total
    for part, least in bounds:
        computing, moving = part.flops / gpu.peak("bf16"), part.bytes / gpu.bandwidth
        colour = ORANGE if part.flops else BLUE
        if part.flops:
            words = part.name.removesuffix("_proj")
            fits = computing * scale > 7 * len(words)
            canvas.box(x, 38, computing * scale, 30, *[words] * fits, name=part.name, colour=ORANGE, fill=0.35, edge=0.6, round=0)  # fmt: skip
            if part.name == "attention" and not fits:
                _named(canvas, x + computing * scale / 2, 28, words)
        if part is widest:
            _named(canvas, x + moving * scale / 2, 112, ACTIVATIONS.get(part.name, part.name.rpartition("_")[2]))
        canvas.box(x, 72, moving * scale, 30, name=f"bytes of {part.name}", colour=colour, fill=0.35 if part.flops else 0.8, edge=0.6, round=0)  # fmt: skip
        x += least * scale
    canvas.text(LEFT + WIDE, 10, f"together {seconds(total, 3)}", anchor="end", name="total")
    canvas.box(LEFT, 150, 12, 12, colour=ORANGE, fill=0.35, edge=0.6)
    canvas.text(LEFT + 17, 156, "matmuls and attention", anchor="start")
    canvas.box(190, 150, 12, 12, colour=BLUE, fill=0.8, edge=0.6)
    canvas.text(207, 156, "small operators", anchor="start")
    shares = f"{percent(of_bytes, 2)} of the bytes, {percent(of_time, 2)} of the time"
    return Drawing(
        "layer-timeline",
        f"A matmul hides its bytes, a small operator cannot: {shares}",
        f"A layer of {model_title(model)} on {gpu.title} at {count(tokens, 'tokens')}, one kernel after the other, in a time of {seconds(total, 3)}. Above, how "
        f"long each kernel computes; below, how long its bytes move. Beneath a matmul, its bytes end long before its arithmetic. {len(small)} small operators have "
        f"hardly any arithmetic, so nothing hides their bytes: {shares}.",
        [canvas],
    )


def _named(canvas: Canvas, x: float, y: float, words: str) -> None:
    """The name of a piece that is too narrow for it, above or below it, moved inwards where it would leave the canvas."""
    half = 3.4 * len(words)
    canvas.text(min(max(x, half), canvas.width - half), y, words, name="name beside")
