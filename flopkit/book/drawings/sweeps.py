"""A batch sweep as time over tokens: the level line of the bytes, the rising line of the FLOPs, and where they cross."""

from __future__ import annotations

import math
from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.charts.theme import BLUE, INK, MUTED, ORANGE
from flopkit.experiments.dense_batch import from_fastest, ridge
from flopkit.recordings import records
from flopkit.units import count, seconds

__all__ = ["batch_crossing"]

LEFT, RIGHT, TOP, BOTTOM = 50.0, 350.0, 40.0, 230.0
SHOWN = 3  # times the crossing: as far as the axis goes


def batch_crossing(device: str = "h200", dtype: str = "tf32") -> Drawing:
    """Time over tokens of a dense layer that we recorded, with the two lines whose crossing is the ridge that its kernels reach.

    The level line goes through the shortest time, the rising one through the origin and the time of the largest batch, which lies
    beyond the picture. A dashed line is their sum.

    Parameters
    ----------
    device : str, optional
        A device of our recordings.
    dtype : str, optional
        A number format of its sweep.

    Raises
    ------
    ValueError
        Where nothing was recorded, or where the host was slower than the GPU, so that times are not those of the layer.

    Examples
    --------
    >>> batch_crossing().title
    'The two lines cross at 202 tokens, where these kernels reach their ridge'
    """
    cases = [case for case in records("dense_batch", owner="ours", device=device) if case["dtype"] == dtype]
    if len(cases) < 2:
        raise ValueError(
            f"batch_crossing(device={device!r}, dtype={dtype!r}): no such sweep; give a device and format of ours"
        )
    level = min(cases, key=lambda case: case["seconds"]["mean"])
    if any(note.startswith("launching a call") for note in level["notes"]):
        raise ValueError(
            f"batch_crossing(device={device!r}, dtype={dtype!r}): its short runs waited for the host; give another format"
        )
    times = {case["params"]["tokens"]: case["seconds"]["mean"] for case in cases}
    flat, per_token, most = level["seconds"]["mean"], times[max(times)] / max(times), max(times)
    cross = ridge(from_fastest(cases))
    far = SHOWN * cross
    canvas = Canvas(290)

    def x(tokens: float) -> float:
        return float(LEFT + (RIGHT - LEFT) * tokens / far)

    def y(time: float) -> float:
        return float(BOTTOM - (BOTTOM - TOP) * time / (1.05 * per_token * far))

    def line(first: tuple[float, float], last: tuple[float, float], **style: Any) -> None:
        canvas.line(x(first[0]), y(first[1]), x(last[0]), y(last[1]), **style)

    canvas.line(LEFT, BOTTOM, RIGHT, BOTTOM)
    canvas.line(LEFT, TOP, LEFT, BOTTOM)
    canvas.text(0, 12, f"time of the layer, {cases[0]['params']['width']:,} wide, {dtype}", anchor="start", bold=True)
    step = max(10 ** (len(str(int(far))) - 1), 1)
    for tick in range(0, int(far) + 1, step):
        canvas.line(x(tick), BOTTOM, x(tick), BOTTOM + 4)
        canvas.text(x(tick), BOTTOM + 13, count(tick), colour=MUTED)
    canvas.text((LEFT + RIGHT) / 2, BOTTOM + 31, "tokens", colour=MUTED)
    tens = 10.0 ** math.floor(math.log10(per_token * far))
    apart = next(size for size in (tens / 2, tens, 2 * tens) if per_token * far / size < 9)
    for i in range(1, int(per_token * far / apart) + 1):
        canvas.line(LEFT - 4, y(i * apart), LEFT, y(i * apart))
        canvas.text(LEFT - 6, y(i * apart), seconds(i * apart, 2), anchor="end", colour=MUTED)
    line((0, flat), (far - cross, flat + per_token * (far - cross)), colour=MUTED, dash=True, name="sum")
    line((0, flat), (far, flat), colour=BLUE, width=2.5, name="level")
    line((0, 0), (far, per_token * far), colour=ORANGE, width=2.5, name="rising")
    line((cross, flat), (cross, 0), dash=True, name="crossing")
    for tokens, time in times.items():
        if tokens <= far:
            canvas.box(x(tokens) - 4, y(time) - 4, 8, 8, name="dot", colour=INK, fill=1, edge=0, round=4)
    canvas.text(x(cross) + 6, BOTTOM - 14, f"{cross:.0f} tokens", anchor="start", bold=True, halo=True)
    for start, words, colour in (
        (0, "the bytes", BLUE),
        (94, "the FLOPs", ORANGE),
        (192, "their sum: no overlap", MUTED),
    ):
        canvas.line(start, 280, start + 14, 280, colour=colour, width=2, dash=colour == MUTED)
        canvas.text(start + 19, 280, words, anchor="start", colour=colour)
    between = sum(max(flat, per_token * n) <= t <= flat + per_token * n for n, t in times.items() if n <= far)
    shown = sum(n <= far for n in times)
    return Drawing(
        "batch-crossing",
        f"The two lines cross at {cross:.0f} tokens, where these kernels reach their ridge",
        f"Time over tokens of a dense layer, {cases[0].whose}, in {dtype}. A level line at {seconds(flat)}, the shortest time, and a line from the origin, which reaches "
        f"{seconds(times[most])} at {count(most, 'tokens')}, cross at {cross:.0f} tokens. Of the {shown} sizes up to {far:.0f} tokens, {between} take a time between the higher line and the dashed sum of both.",
        [canvas],
    )
