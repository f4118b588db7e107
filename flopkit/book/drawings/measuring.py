"""A measurement over time: which calls a stopping rule takes, and what an interval over them covers."""

from __future__ import annotations

import itertools

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.simulation import CALL, RULES, Clock, Simulated
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.measuring.protocol import timed

__all__ = ["interval_of_rounds", "warm_up"]

SHOWN = {"torch blocked": "torch blocked", "Triton do_bench": "do_bench", "NVBench stdrel": "NVBench"}
LEFT, RIGHT = 90.0, 350.0


def _off(share: float) -> str:
    """An error in per cent, to a tenth."""
    return f"{100 * share:.1f} %".replace("-", "−")


def warm_up(seed: int = 4) -> Drawing:
    """A simulated device that starts 8 % slow: the time of a call, and below it which part of the run each stopping rule takes.

    Parameters
    ----------
    seed : int, optional
        Of the simulated run.

    Examples
    --------
    >>> warm_up().title
    'Simulated, 8 % slow at first: three tools stop before the clock settles; flopkit begins after it'
    """
    whole("warm_up", "seed", seed, 0, 10**6)
    clock = Clock(drift=0.08, settles=0.5)
    timer = Simulated(clock, seed)
    found = timed(timer)
    seconds = timer.now()
    scale = (RIGHT - LEFT) / seconds
    canvas = Canvas(292)
    top, bottom = 14.0, 104.0

    def height(call: float) -> float:
        return bottom - (call / CALL - 0.995) / 0.09 * (bottom - top)

    for share in (0.0, 0.04, 0.08):
        y = height(CALL * (1 + share))
        canvas.line(LEFT, y, RIGHT, y, dash=share == 0, name="level", width=0.8)
        canvas.text(LEFT - 6, y, f"+{share:.0%}".replace("%", " %") if share else "truth", anchor="end")
    again, step = Simulated(clock, seed), 100
    calls = again.calls(round(seconds / CALL))
    means = [sum(calls[i : i + step]) / step for i in range(0, len(calls) - step, step)]
    for i, (one, other) in enumerate(itertools.pairwise(means)):
        x = LEFT + (i + 0.5) * step * CALL * scale
        canvas.line(x, height(one), x + step * CALL * scale, height(other), colour=BLUE, width=1.6, name="call")
    y = 124.0
    for rule, title in SHOWN.items():
        told = RULES[rule](Simulated(clock, seed))
        begins = 0.03 if rule == "Triton do_bench" else 0.0
        canvas.text(LEFT - 6, y + 8, title, anchor="end")
        canvas.box(
            LEFT + begins * scale, y, max((told.spent - begins) * scale, 3), 16, name=rule, colour=ORANGE, fill=0.5
        )
        off = _off(told.told / clock.mean - 1)
        canvas.text(LEFT + told.spent * scale + 6, y + 8, f"off by {off}", anchor="start", name=f"{rule} told")
        y += 24
    canvas.text(LEFT - 6, y + 8, "flopkit", anchor="end")
    windows = round(found.warm_up / 0.5)
    wide = found.warm_up / windows
    for i in range(windows):
        agree = i >= windows - 2
        canvas.box(LEFT + i * wide * scale, y, wide * scale - 1.5, 16, name="window that agrees" if agree else "window",
                   colour=GREEN if agree else MUTED, fill=0.35 if agree else 0.12)  # fmt: skip
    at = found.warm_up
    for each in found.rounds:
        spent = sum(each)
        canvas.box(LEFT + at * scale, y, spent * scale - 1.5, 16, name="round", colour=BLUE, fill=0.5)
        at += spent
    off = f"{100 * (found.mean / clock.mean - 1):.2f} %".replace("-", "−")
    y += 24
    canvas.text(LEFT + found.warm_up * scale / 2, y + 6, "warm-up", colour=MUTED)
    canvas.text(RIGHT, y + 6, f"{len(found.rounds)} rounds: off by {off}", anchor="end", name="flopkit told")
    canvas.line(LEFT, 264, RIGHT, 264, name="time")
    for second in range(int(seconds) + 1):
        canvas.line(LEFT + second * scale, 261, LEFT + second * scale, 267, name="second")
        canvas.text(LEFT + second * scale + 3, 254, f"{second} s", anchor="start", colour=MUTED)
    canvas.text(LEFT - 6, 283, "key", anchor="end", colour=MUTED)
    x = LEFT
    for words, colour, wide in (("window", MUTED, 48), ("two that agree", GREEN, 90), ("round", BLUE, 40)):
        canvas.box(x, 277, 10, 12, name="key", colour=colour, fill=0.35)
        canvas.text(x + 14, 283, words, anchor="start", name="key word")
        x += 14 + wide + 10
    errors = {name: _off(RULES[rule](Simulated(clock, seed)).told / clock.mean - 1) for rule, name in SHOWN.items()}
    return Drawing(
        "warm-up",
        "Simulated, 8 % slow at first: three tools stop before the clock settles; flopkit begins after it",
        f"The time of a simulated call over {seconds:.1f} seconds: 8 % above the truth at first, settling with a time constant of half a second. Below it the part that each rule "
        f"takes: {', '.join(f'{name} is off by {off}' for name, off in errors.items())}; flopkit waits for {windows} windows of half a second, until the last two, in green, agree, "
        f"and its {len(found.rounds)} rounds are off by {off}.",
        [canvas],
    )


def interval_of_rounds(seed: int = 0) -> Drawing:
    """A simulated clock that is 1 % slow or fast for a while: the means of rounds, and the two intervals that the same calls give.

    Parameters
    ----------
    seed : int, optional
        Of the simulated run.

    Examples
    --------
    >>> interval_of_rounds().title
    'An interval over calls is too narrow where the clock has states; one over rounds is not'
    """
    whole("interval_of_rounds", "seed", seed, 0, 10**6)
    clock = Clock(states=0.01, hold=0.1)
    found = timed(Simulated(clock, seed))
    by_calls = RULES["flopkit, by calls"](Simulated(clock, seed)).half
    by_rounds = found.ci[1] - found.mean
    canvas = Canvas(214)
    middle, unit = 86.0, 46.0 / 0.01  # pixels for a share of one

    def height(seconds: float) -> float:
        return middle - (seconds / CALL - 1) * unit

    for share in (-0.01, 0.0, 0.01):
        y = height(CALL * (1 + share))
        canvas.line(44, y, RIGHT, y, dash=share == 0, name="level", width=0.8)
        canvas.text(40, y, f"{share:+.0%}".replace("%", " %").replace("-", "−") if share else "truth", anchor="end")
    wide, many = 196.0 / len(found.rounds), 6
    for i, each in enumerate(found.rounds):
        x = 48 + i * wide
        for j in range(many):  # parts of a round: what its calls took
            part = each[j * len(each) // many : (j + 1) * len(each) // many]
            y = height(sum(part) / len(part))
            canvas.line(x + j * wide / many, y, x + (j + 1) * wide / many, y, colour=MUTED, width=1, name="part")
        y = height(sum(each) / len(each))
        canvas.line(x + 1, y, x + wide - 1, y, colour=BLUE, width=3, name="round")
    for x, half, colour, name in ((268, by_calls, ORANGE, "over calls"), (326, by_rounds, BLUE, "over rounds")):
        high, low = height(found.mean + half * 1), height(found.mean - half * 1)
        canvas.box(x - 9, high, 18, max(low - high, 2), name=name, colour=colour, fill=0.45)
        canvas.line(x - 14, height(found.mean), x + 14, height(found.mean), colour=colour, width=2, name="mean")
        canvas.text(x, 168, name.split()[0], name="label")
        canvas.text(x, 183, name.split()[1], name="label")
        canvas.text(x, 202, f"± {100 * half / found.mean:.2f} %", colour=colour, name="half")
    canvas.text(48 + 98, 168, f"{len(found.rounds)} rounds of {len(found.rounds[0])} calls", name="label")
    canvas.text(48 + 98, 183, "blue: mean of a round", colour=BLUE)
    canvas.text(48 + 98, 202, f"grey: mean of {len(found.rounds[0]) // many} calls", colour=MUTED, name="label")
    holds = [abs(found.mean - clock.mean) <= half for half in (by_calls, by_rounds)]
    return Drawing(
        "interval-of-rounds",
        "An interval over calls is too narrow where the clock has states; one over rounds is not",
        f"The means of {len(found.rounds)} rounds lie up to 1 % above and below the truth, because the clock is fast or slow for a tenth of a second at a time. The interval "
        f"over all calls is ± {100 * by_calls / found.mean:.2f} % and {'holds' if holds[0] else 'misses'} the truth; that over the means of rounds is "
        f"± {100 * by_rounds / found.mean:.2f} % and {'holds' if holds[1] else 'misses'} it.",
        [canvas],
    )
