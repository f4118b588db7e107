"""The arithmetic intensity of a step of decoding over its batch: dense layers cross the ridge point, the whole step need not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from flopkit.book.drawings.axes import LEFT, RIGHT, LogAxes
from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, INK, MUTED, ORANGE
from flopkit.devices import device as find
from flopkit.models import load
from flopkit.serving import batch_at_ridge, decode, intensity_limit, largest_batch
from flopkit.units import count

__all__ = ["batch_intensity"]

USERS = [2**i for i in range(13)]
TOP = 2000  # FLOPs per byte at the upper edge


def batch_intensity(
    model: str = "llama-3-70b", device: str = "h100-sxm", devices: int = 8, contexts: Sequence[int] = (512, 8192)
) -> Drawing:
    """FLOPs per byte of a step of decoding in bf16 over the users in its batch, beside the ridge point.

    Parameters
    ----------
    model : str, optional
        A dense model that `flopkit.load` knows.
    device : str, optional
        A name that `flopkit.device` knows.
    devices : int, optional
        How many share the work: their memory limits the batch.
    contexts : Sequence[int], optional
        One or two numbers of tokens that each user has, the fewer first.

    Raises
    ------
    ValueError
        For a model with experts, or for other numbers of contexts.

    Examples
    --------
    >>> batch_intensity().title
    'No batch raises the intensity of a step above its limit: 60 FLOPs per byte with 8,192 tokens'
    """
    for context in contexts:
        whole("batch_intensity", "contexts", context, 128, 131072)
    if not 1 <= len(contexts) <= 2 or list(contexts) != sorted(set(contexts)):
        raise ValueError(f"batch_intensity(contexts={contexts!r}): give one or two numbers of tokens, the fewer first")
    gpu = find(device)
    ridge = gpu.ridge("bf16")
    canvas = Canvas(250)
    axes = LogAxes(canvas, (1, USERS[-1]), (0.8, TOP))
    canvas.text(0, 10, f"{model_title(model)} in bf16, FLOPs per byte of a step", anchor="start", bold=True)
    axes.ticks((1, 8, 64, 512), "users in the batch", lambda value: count(round(value)))
    canvas.line(LEFT, axes.y(ridge), RIGHT, axes.y(ridge), colour=INK, width=2, name="ridge")
    canvas.text(LEFT + 6, axes.y(ridge) - 10, f"ridge point, {ridge:.0f}", anchor="start", bold=True, halo=True)

    dense = [(n, value) for n in USERS if (value := _dense(model, gpu, n)) < TOP]
    _line(axes, dense, MUTED, "dense", dash=True)
    told = []
    for context, colour in zip(contexts, (BLUE, ORANGE), strict=False):
        _line(axes, [(n, _step(model, context, n)) for n in USERS], colour, f"{context} tokens")
        limit = intensity_limit(model, context=context, weights="bf16")
        if limit < TOP:
            canvas.line(axes.x(512), axes.y(limit), RIGHT, axes.y(limit), colour=colour, dash=True, name=f"limit of {context}")  # fmt: skip
            canvas.text(RIGHT, axes.y(limit) - 11, f"limit {count(round(limit))}", anchor="end", colour=colour, halo=True)  # fmt: skip
        told.append(f"with {count(context, 'tokens')} the limit is {count(round(limit))}")
        if full := largest_batch(model, gpu, context=context, weights="bf16", count=devices):
            if full <= USERS[-1]:
                canvas.box(axes.x(full) - 5, axes.y(_step(model, context, full)) - 5, 10, 10, name=f"full at {context}", colour=colour, fill=1, edge=0, round=5)  # fmt: skip
            told.append(f"{count(full, 'users')} fill the memory")
        first = batch_at_ridge(model, gpu, context=context, weights="bf16")
        told.append(f"the step is compute-bound from {count(first, 'users')} on" if first else "no batch is compute-bound")  # fmt: skip
    words = Canvas(26 + 20 * (len(contexts) + 1))
    keys = [(f"a step, users with {count(context, 'tokens')} each", colour, False) for context, colour in zip(contexts, (BLUE, ORANGE), strict=False)]  # fmt: skip
    for i, (line, colour, dash) in enumerate([*keys, ("its dense layers alone", MUTED, True)]):
        words.line(0, 10 + 20 * i, 22, 10 + 20 * i, colour=colour, width=1.6 if dash else 2.5, dash=dash)
        words.text(30, 10 + 20 * i, line, anchor="start", colour=colour)
    foot = 10 + 20 * (len(contexts) + 1)
    words.box(6, foot - 5, 10, 10, name="key", colour=MUTED, fill=1, edge=0, round=5)
    words.text(30, foot, f"the memory of {devices} × {gpu.title.removeprefix('NVIDIA ')} is full", anchor="start", colour=MUTED)  # fmt: skip
    longest = contexts[-1]
    most = intensity_limit(model, context=longest, weights="bf16")
    return Drawing(
        "batch-intensity",
        f"No batch raises the intensity of a step above its limit: {count(round(most))} FLOPs per byte with {count(longest, 'tokens')}",
        f"FLOPs per byte of a step of {model_title(model)} in bf16, on log-log axes over 1 to {count(USERS[-1])} users, beside the ridge point of {gpu.title}, {ridge:.0f}. "
        f"The dense layers alone rise in a straight line and cross it at {count(math.ceil(ridge))}. The whole step rises with them at first, then flattens: {', '.join(told)}.",
        [canvas, words],
    )


def _line(axes: LogAxes, points: Sequence[tuple[int, float]], colour: str, name: str, dash: bool = False) -> None:
    for (a, one), (b, other) in itertools.pairwise(points):
        axes.canvas.line(axes.x(a), axes.y(one), axes.x(b), axes.y(other), colour=colour, width=1.6 if dash else 2.5, dash=dash, name=name)  # fmt: skip


def _step(model: str, context: int, users: int) -> float:
    """FLOPs per byte of a whole step."""
    return float(load(model).decode(context=context, batch=users).intensity)


def _dense(model: str, gpu: object, users: int) -> float:
    """FLOPs per byte of its dense layers."""
    pieces = decode(model, gpu, context=128, batch=users, weights="bf16").pieces
    if any(piece.group not in ("dense", "cache") for piece in pieces):
        raise ValueError(f"batch_intensity(model={model!r}): it has experts, which are not drawn; give a dense model")
    own = [piece for piece in pieces if piece.group == "dense"]
    return float(sum(piece.flops for piece in own) / sum(piece.bytes for piece in own))
