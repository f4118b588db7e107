"""The two bounds in a step of decoding: of the dense layers, which a batch shares, and of attention over each user's cache."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, INK, MUTED, ORANGE
from flopkit.devices import device as find
from flopkit.serving import batch_at_ridge, decode
from flopkit.units import count, seconds

__all__ = ["decode_parts"]

LEFT, RIGHT, TOP, BOTTOM = 50.0, 350.0, 54.0, 224.0


def _parts(model: str, gpu: object, context: int, batch: int, devices: int) -> tuple[float, float]:
    """Least seconds of the dense layers of a step, and of its attention."""
    step = decode(model, gpu, context=context, batch=batch, count=devices)
    peak, bandwidth = step.roofline.peak, step.roofline.bandwidth
    work = {"dense": [0, 0], "cache": [0, 0]}
    for piece in step.pieces:
        if piece.group not in work:
            raise ValueError(f"decode_parts(model={model!r}): it has experts, which are not drawn; give a dense model")
        work[piece.group][0] += piece.flops
        work[piece.group][1] += piece.bytes
    linear, attention = (max(flops / peak, moved / bandwidth) for flops, moved in work.values())
    return linear, attention


def _overtakes(sizes: Sequence[int], parts: Callable[[int], tuple[float, float]]) -> int | None:
    """The first size at which attention takes longer than the dense layers; None where it does at the smallest or at none."""
    low, high = sizes[0], sizes[-1]
    first, last = (attention > linear for linear, attention in map(parts, (low, high)))
    if first or not last:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        linear, attention = parts(middle)
        low, high = (low, middle) if attention > linear else (middle, high)
    return high


def decode_parts(
    model: str = "llama-3-70b", device: str = "h100-sxm", devices: int = 8, context: int = 8192
) -> Drawing:
    """The least time of the dense layers and of attention in a step of decoding in bf16, by the batch.

    Parameters
    ----------
    model : str, optional
        A dense model that `flopkit.load` knows.
    device : str, optional
        A name that `flopkit.device` knows.
    devices : int, optional
        How many share the work.
    context : int, optional
        Tokens of each user.

    Raises
    ------
    ValueError
        For a model with experts, or one whose attention a batch makes compute-bound.

    Examples
    --------
    >>> decode_parts().title
    'In bf16, the dense layers are compute-bound from 296 users on; attention never is'
    """
    whole("decode_parts", "context", context, 128, 131072)
    gpu = find(device)
    ridge = batch_at_ridge(model, gpu, context=context, part="dense")
    if ridge is None or batch_at_ridge(model, gpu, context=context, part="cache") is not None:
        raise ValueError(f"decode_parts(model={model!r}): its attention can be compute-bound, which is not drawn")

    def parts(users: int) -> tuple[float, float]:
        return _parts(model, gpu, context, users, devices)

    found = {n: parts(n) for n in sorted({*(2**i for i in range(11)), min(ridge, 1024)})}
    sizes = list(found)
    first, last = sizes[0], sizes[-1]
    every = [each for pair in found.values() for each in pair]
    low, high = 10.0 ** math.floor(math.log10(min(every))), 10.0 ** math.ceil(math.log10(max(every)))

    def x(users: float) -> float:
        return LEFT + (RIGHT - LEFT) * math.log(users / first) / math.log(last / first)

    def y(time: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * math.log(time / low) / math.log(high / low)

    canvas = Canvas(268)
    fixed = f"{count(context, 'tokens')} each"
    canvas.text(0, 10, f"{model_title(model)} on {devices} × {gpu.title}", anchor="start", colour=MUTED)
    canvas.text(0, 28, f"least time per step, {fixed}", anchor="start", bold=True)
    canvas.line(LEFT, BOTTOM, RIGHT, BOTTOM)
    canvas.line(LEFT, TOP, LEFT, BOTTOM)
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        canvas.line(LEFT - 4, y(10.0**power), LEFT, y(10.0**power))
        canvas.text(LEFT - 6, y(10.0**power), seconds(10.0**power), anchor="end", colour=MUTED)
    for tick in (1, 8, 64, 512):
        canvas.line(x(tick), BOTTOM, x(tick), BOTTOM + 4)
        canvas.text(x(tick), BOTTOM + 13, count(tick), colour=MUTED)
    canvas.text((LEFT + RIGHT) / 2, BOTTOM + 31, "users", colour=MUTED)
    if ridge <= last:
        canvas.line(x(ridge), BOTTOM, x(ridge), y(found[ridge][0]), dash=True, name="ridge")
        canvas.text(x(ridge) - 6, BOTTOM - 12, f"compute-bound from {ridge}", anchor="end", colour=BLUE, halo=True)
    for part, colour in enumerate((BLUE, ORANGE)):
        for a, b in itertools.pairwise(sizes):
            canvas.line(x(a), y(found[a][part]), x(b), y(found[b][part]), colour=colour, width=2.5, name=("dense", "attention")[part])  # fmt: skip
    canvas.text(x(first) + 8, y(found[first][0]) - 12, "dense layers", anchor="start", colour=BLUE, bold=True, halo=True)  # fmt: skip
    high_end = sizes[-3]
    canvas.text(x(high_end), y(found[high_end][1]) - 12, "attention", anchor="end", colour=ORANGE, bold=True, halo=True)  # fmt: skip
    told = [
        f"{fixed}: from {count(first, 'users')} to {count(last, 'users')} the dense layers take {seconds(found[first][0])} to {seconds(found[last][0])}, "
        f"attention {seconds(found[first][1])} to {seconds(found[last][1])}."
    ]
    if crossing := _overtakes((first, last), parts):
        linear, _ = parts(crossing)
        at, words = x(crossing), ("attention longer", f"from {count(crossing, 'users')}")
        wide = 7 * max(map(len, words))
        canvas.box(at - 4, y(linear) - 4, 8, 8, name="crossing", colour=INK, fill=1, edge=0, round=4)
        if LEFT + 80 + 6.5 * len(words[1]) < at < x(high_end) - 64:  # between the names of the two lines
            where = at - 8, y(linear) - 41, "end"
        elif at + wide < RIGHT:
            where = at + 8, y(linear) + 14, "start"
        else:
            where = RIGHT, y(linear) + 34, "end"
        canvas.lines(*where[:2], *words, anchor=where[2], halo=True)
        told.append(f"Attention takes longer from {count(crossing, 'users')} on.")
    return Drawing(
        "decode-parts",
        f"In bf16, the dense layers are compute-bound from {count(ridge)} users on; attention never is",
        f"Least times of the dense layers and of attention in a step of {model_title(model)} in bf16 on {count(devices)} × {gpu.title}, on log-log axes. {' '.join(told)}",
        [canvas],
    )
