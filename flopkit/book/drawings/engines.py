"""What a serving engine adds to a step of decoding: two bounds in it, seats that are filled again, caches in pages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, GREEN, INK, MUTED, ORANGE
from flopkit.devices import device as find
from flopkit.serving import batch_at_ridge, decode
from flopkit.units import count, percent, seconds

__all__ = ["decode_parts", "engine_batches"]

LEFT, RIGHT, TOP, BOTTOM = 50.0, 350.0, 54.0, 224.0
SEATS, JOINING = 4, 0.8  # users at once; what reading one prompt adds to a step, in steps
SHADES = {
    "prompt": (ORANGE, 0.6),
    "token": (BLUE, 0.5),
    "empty": (MUTED, 0.15),
    "used": (GREEN, 0.5),
    "unused": (MUTED, 0.15),
}


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


def _continuous(lengths: Sequence[int]) -> list[list[tuple[int, bool]]]:
    """By step, who sits on each seat and whether he has just joined; -1 for nobody. A seat is filled as soon as it is free."""
    waiting, left = list(range(len(lengths))), [0] * SEATS
    who, steps = [-1] * SEATS, []
    while waiting or any(left):
        now = []
        for seat in range(SEATS):
            joins = not left[seat] and bool(waiting)
            if joins:
                who[seat] = waiting.pop(0)
                left[seat] = lengths[who[seat]]
            now.append((who[seat] if left[seat] else -1, joins))
            left[seat] = max(left[seat] - 1, 0)
        steps.append(now)
    return steps


def _static(lengths: Sequence[int]) -> list[list[tuple[int, bool]]]:
    """The same where a batch ends with its longest answer."""
    steps = []
    for first in range(0, len(lengths), SEATS):
        batch = range(first, min(first + SEATS, len(lengths)))
        for step in range(max(lengths[user] for user in batch)):
            now = [(user if step < lengths[user] else -1, step == 0) for user in batch]
            steps.append(now + [(-1, False)] * (SEATS - len(now)))
    return steps


def _row(canvas: Canvas, y: float, of: str, spans: dict[str, list[tuple[float, float]]]) -> None:
    for kind, found in spans.items():
        canvas.bars(y, 18, found, name=f"{of}, {kind}", colour=SHADES[kind][0], fill=SHADES[kind][1])


def _key(canvas: Canvas, y: float, *told: tuple[float, str, str]) -> None:
    for x, kind, words in told:
        canvas.box(x, y - 6, 12, 12, colour=SHADES[kind][0], fill=SHADES[kind][1], edge=0, round=0)
        canvas.text(x + 18, y, words, anchor="start", colour=MUTED)


def engine_batches(lengths: Sequence[int] = (3, 9, 5, 6, 8, 4, 7, 3), longest: int = 12, page: int = 2) -> Drawing:
    """Users with answers of different lengths on four seats, in fixed batches and joining one by one; and the room that their caches take.

    Parameters
    ----------
    lengths : Sequence[int], optional
        Tokens of each answer, for five to eight users.
    longest : int, optional
        Tokens of the longest answer that is allowed, 9 to 16.
    page : int, optional
        Tokens of a page of the cache, 2 to 4.

    Raises
    ------
    ValueError
        For other lengths than 1 to 9 tokens of five to eight users.

    Examples
    --------
    >>> engine_batches().title
    'Seats that are filled again save 4 of 17 steps; pages save 46 % of the room'
    """
    whole("engine_batches", "longest", longest, 9, 16)
    whole("engine_batches", "page", page, 2, 4)
    if not 5 <= len(lengths) <= 8 or not all(1 <= each <= 9 for each in lengths):
        raise ValueError(f"engine_batches(lengths={lengths!r}): give five to eight users, each with 1 to 9 tokens")
    plans = {"fixed batches": _static(lengths), "continuous batching": _continuous(lengths)}
    spans = {name: [1 + JOINING * sum(joins for _, joins in now) for now in steps] for name, steps in plans.items()}
    scale = 350 / max(sum(each) for each in spans.values())
    seats, y = Canvas(246), 10.0
    for name, steps in plans.items():
        seats.text(0, y, f"{name}: {count(len(steps), 'steps')}", anchor="start", bold=True)
        for seat in range(SEATS):
            spent: dict[str, list[tuple[float, float]]] = {kind: [] for kind in SHADES}
            x = 0.0
            for now, long in zip(steps, spans[name], strict=True):
                user, joins = now[seat]
                end, read = x + long * scale, x + (long - 1) * scale
                if joins:
                    spent["prompt"].append((x, read))
                spent["token" if user >= 0 else "empty"].append((read if user >= 0 else x, end - 1))
                x = end
            _row(seats, y + 12 + 20 * seat, name, spent)
        y += 112
    _key(seats, y, (0, "prompt", "prompt, others wait"), (140, "token", "token"), (204, "empty", "empty seat"))
    paged = [page * math.ceil(each / page) for each in lengths[:SEATS]]
    room, cell = Canvas(246), 350 / max(longest, *paged)
    y = 10.0
    for name, sizes in (("room for the longest answer", [longest] * SEATS), (f"pages of {page} tokens", paged)):
        room.text(0, y, f"{name}: {count(sum(sizes), 'tokens')}", anchor="start", bold=True)
        for user, size in enumerate(sizes):
            cells = [(i * cell, (i + 1) * cell - 2) for i in range(size)]
            held = {"used": cells[: lengths[user]], "unused": cells[lengths[user] :]}
            _row(room, y + 12 + 20 * user, name, held)
            for i in range(page, size, page) if name.startswith("pages") else ():
                room.line(i * cell - 1, y + 12 + 20 * user, i * cell - 1, y + 30 + 20 * user, colour=INK, width=1.6, name="page")  # fmt: skip
        y += 112
    _key(room, y, (0, "used", "a token's keys and values"), (180, "unused", "reserved, empty"))
    fixed, joined = (len(steps) for steps in plans.values())
    saved = percent(1 - sum(paged) / (SEATS * longest), 2)
    return Drawing(
        "engine-batches",
        f"Seats that are filled again save {fixed - joined} of {count(fixed, 'steps')}; pages save {saved} of the room",
        f"{count(len(lengths), 'users')} with answers of {', '.join(map(str, lengths))} tokens on {SEATS} seats. In fixed batches, which end with their longest answer, they take "
        f"{count(fixed, 'steps')}; where the next user takes a seat as soon as it is free, {joined}. A step in which a prompt is read lasts longer for all. "
        f"Caches of the first {SEATS} users: {SEATS * longest} tokens if each reserves the longest answer that is allowed, {sum(paged)} in pages of {page}.",
        [seats, room],
    )
