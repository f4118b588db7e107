"""What came of a change: both steps run in turns, so that a machine that changes its speed slows down both; or two profiles, measured apart.

Of two profiles that were measured one after the other, the spread within each says nothing of what the machine did in between. In turns it
does not matter: the steps alternate, and which of a pair goes first is drawn by chance, so an unchanged program differs as often one way as
the other, whatever the machine does.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from flopkit import units
from flopkit.counter.modes import tf32_switches
from flopkit.counter.running import in_order
from flopkit.counter.work import FREE
from flopkit.measuring import arguments
from flopkit.measuring.protocol import Timer
from flopkit.measuring.timers import timer_for
from flopkit.profiling.events import Trace
from flopkit.profiling.joining import Joined, inside, join
from flopkit.profiling.tracing import trace_of

__all__ = ["Program", "compared", "drift_of", "in_turns", "student", "traced"]

# The chance that any row of an unchanged program is called faster or slower; three quarters of it are the plain time's.
MISS, OF_PLAIN = 0.02, 0.75
WIDE = 0.2  # of a row: an interval wider than this to either side, with zero in it, says nothing
BUDGET = 20.0  # s, where the caller names none
NARROW = 0.01  # of the step: an interval that narrow ends the turns
PAIRS = (8, 5000)  # of blocks: at least, at most
PLAIN = 0.75  # of the time: without the profiler
TRACED = (3, 100)  # pairs of steps under the profiler
EVENTS = 50_000  # of their trace: a second to join
RUNS = (8, 24)  # of a program that is measured again, to see how much the machine drifts
BLOCK = {False: 1e-3, True: 5e-2}  # s, on a CPU and on a GPU: calls that are timed together
OTHER = 0.01  # of the bytes: less is no other program, such as what an iterator draws when it begins
APART = 1.1  # two ratios that differ by more are not of the same programs, or of the same machine

Rows = list[dict[str, Any]]


@dataclass(eq=False)
class Program:
    """A step that was profiled, to be run again as it was: with as many threads, and gradients or none. And the timer of it."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    timer: Any = None

    def __post_init__(self) -> None:
        import torch

        self.threads, self.tf32 = torch.get_num_threads(), tf32_switches()
        self.gradients, self.inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """Torch, as it was."""
        import torch

        threads = torch.get_num_threads()
        if threads != self.threads:
            torch.set_num_threads(self.threads)
        try:
            with torch.inference_mode(self.inference), torch.set_grad_enabled(self.gradients):
                yield
        finally:
            if threads != self.threads:
                torch.set_num_threads(threads)

    def is_call(self, other: Program) -> bool:
        """Whether both are one and the same call under the same settings, so that only one of them is still there."""

        def parts(fn: Any, *given: Any) -> list[int]:
            if isinstance(fn, functools.partial):
                return parts(fn.func, *fn.args, *fn.keywords.values(), *given)
            inner = (
                (fn.__self__, fn.__func__) if hasattr(fn, "__func__") else (fn,)
            )  # each look at a method makes a new one
            return [id(each) for each in (*inner, *given)]

        mine, theirs = (
            (parts(each.fn, *each.args, *each.kwargs.values()), each.threads, each.gradients, each.inference)
            for each in (self, other)
        )  # fmt: skip
        return mine == theirs

    def unlike(self, report: Any) -> str:
        """Why it is no more what was counted; empty where it is."""
        if tf32_switches() != self.tf32:
            return "tf32 was allowed, or forbidden, since"
        try:
            with self.settings():
                now = in_order(self.fn, *self.args, **self.kwargs)
        except Exception as error:
            return f"it cannot run any more, {type(error).__name__}"

        def calls(report: Any) -> Counter[Any]:
            works = ((entry.op, entry.work) for entry, *_ in report.order if entry.work.status != FREE)
            return Counter((op, work.bytes, sum(sum(kind.values()) for kind in work.carried_out)) for op, work in works)

        gone = (calls(report) - calls(now)) + (calls(now) - calls(report))
        moved = sum(bytes * times for (_, bytes, _), times in gone.items())
        changed = any(macs for _, _, macs in gone) or moved > OTHER * report.bytes
        return "a step of it does something else now than the one that was counted" * changed

    def run(self) -> Callable[[], object]:
        """A call of it, with arguments that rotate past the cache."""
        where = arguments.place(arguments.tensors(self.args, self.kwargs))
        return arguments.rotating(self.fn, arguments.copies((self.args, self.kwargs), where))

    def timed(self, on_gpu: bool) -> Program:
        """The same, with what times it."""
        import torch

        found = copy.copy(self)  # for copies of the arguments go with the timer
        with self.settings():
            found.timer, _ = timer_for(self.run(), torch, on_gpu)
        return found

    def now(self) -> float:
        return time.perf_counter()

    def calls(self, count: int) -> list[float]:
        with self.settings():
            return list(self.timer.calls(count))


def orders(draw: Callable[[], float]) -> Iterator[tuple[int, int]]:
    """Which of a pair goes first, by chance; in the next pair the other one does, so that a steady drift cancels out."""
    while True:
        first = int(draw() < 0.5)
        yield (1 - first, first)
        yield (first, 1 - first)


def in_turns(
    before: Timer, after: Timer, budget: float, block: float, draw: Callable[[], float] = random.random
) -> tuple[list[float], list[float]]:
    """Seconds of a call of both, pair by pair; which of a pair goes first is drawn by chance."""
    both: tuple[Timer, Timer] = before, after
    found: tuple[list[float], list[float]] = [], []
    start = before.now()
    sizes = [max(1, math.ceil(block / max(statistics.median(each.calls(3)), 1e-9))) for each in both]
    (a, b), look, turns = found, PAIRS[0], orders(draw)
    while len(a) < PAIRS[1] and (len(a) < PAIRS[0] or before.now() - start < budget):
        for which in next(turns):
            found[which].append(statistics.fmean(both[which].calls(sizes[which])))
        if len(a) == look:  # seldom: an interval that is looked at after each pair is narrow by chance some day
            look *= 2
            if half_of([x - y for x, y in zip(a, b, strict=True)]) < NARROW * statistics.fmean(a):
                break
    return a, b


def drift_of(timer: Timer, budget: float, length: float, known: float) -> float:
    """The share by which two runs of one program differ at most, by runs of about that *length* and one that took *known* seconds a call.

    At most: but for the plain time's part of `MISS`, by Student's t over the logarithms.
    """
    start, runs = timer.now(), [known]
    calls = max(1, round(min(length, budget / RUNS[0]) / max(statistics.median(timer.calls(3)), 1e-9)))
    while len(runs) <= RUNS[0] or (len(runs) <= RUNS[1] and timer.now() - start < budget):
        runs.append(statistics.fmean(timer.calls(calls)))
    return math.expm1(student(len(runs) - 1, MISS * OF_PLAIN) * math.sqrt(2) * statistics.stdev(map(math.log, runs)))


def student(freedom: int, miss: float = 0.05) -> float:
    """What Student's t exceeds to either side with the chance *miss*; beyond 200 degrees of freedom that of 200.

    >>> [round(student(n), 3) for n in (1, 2, 7, 20)]
    [12.706, 4.303, 2.365, 2.086]
    """
    freedom = min(freedom, 200)

    def within(t: float) -> float:
        angle = math.atan(t / math.sqrt(freedom))
        square, odd = math.cos(angle) ** 2, freedom % 2
        term = total = 1.0 if freedom > 1 else 0.0
        for k in range(2 + odd, freedom - 1, 2):
            term *= square * (k - 1) / k
            total += term
        return 2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * total) if odd else math.sin(angle) * total

    low, high = 0.0, 1e5
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < 1 - miss else (low, middle)
    return high


def half_of(values: Sequence[float], miss: float = 0.05) -> float:
    """Half of the interval of a mean."""
    if len(values) < 2:
        return math.inf
    return student(len(values) - 1, miss) * statistics.stdev(values) / math.sqrt(len(values))


def traced(before: Any, after: Any, pairs: int) -> tuple[Joined, Joined]:
    """Both under one profiler, step by step in turns, joined with what was counted of them."""
    order = [which for pair in islice(orders(random.random), pairs) for which in pair]
    both = (before, after)
    steps = [(each.program.settings, each.program.run()) for each in both]
    whole = trace_of(steps, order, "both", record_shapes=any(each.trace.is_compiled for each in both))
    found = []
    for which, each in enumerate(both):
        spans = [span for span, whose in zip(whole.steps, order, strict=True) if whose == which]
        events = [event for event in whole.events if inside(event.start, spans)]
        found.append(join(Trace(events, whole.device, {}), each.report))
    return found[0], found[1]


def compared(before: Any, after: Any, budget: float, may_run: bool) -> tuple[Rows, str]:
    """The rows of `flopkit.profiling.Profile.compare`, and how they were measured."""
    both = (before, after)
    gone = ["in_turns=False" if not may_run else "only its trace is here" if each.program is None else each.program.unlike(each.report) for each in both]  # fmt: skip
    why = next((f"{name}: {reason}" for name, reason in zip(("before", "after"), gone, strict=True) if reason), "")
    if not why and before.program.is_call(after.program):
        why = "both are one call, so what it was before is gone: compare two functions"
    on_gpu = before.joined.on_gpu
    if not why:
        pairs = in_turns(before.program.timed(on_gpu), after.program.timed(on_gpu), PLAIN * budget, BLOCK[on_gpu])
        events = sum(len(each.trace.events) / len(each.joined.steps) for each in both)
        steps = int(min((1 - PLAIN) * budget / (before.seconds + after.seconds), EVENTS / events))
        rows = _rows(*traced(before, after, max(TRACED[0], min(TRACED[1], steps))), pairs, paired=True)
        how = f"in turns, {len(pairs[0]):,} pairs"
        then = after.plain.seconds / before.plain.seconds
        if abs(math.log(then * sum(pairs[0]) / sum(pairs[1]))) > math.log(APART):
            how += f"; the profiles said {then:.2g} times as long: the machine changed, or what one of them runs did"
        return rows, how
    if min(len(each.joined.steps) for each in both) < 2:
        raise ValueError(f"a profile of 1 step has no interval: give each profile several steps ({why})")
    drift, apart = 0.0, ", measured apart"
    if not gone[1]:
        length = after.plain.calls * after.plain.seconds
        drift, apart = drift_of(after.program.timed(on_gpu), budget, length, after.plain.seconds), ""
        why += f"; runs of one program differ by up to {units.percent(drift)} here"
    plain = [each.plain.round_means for each in both] if before.plain and after.plain else None
    return _rows(before.joined, after.joined, plain, drift=drift, apart=apart), f"measured apart ({why})"


def _rows(a: Joined, b: Joined, plain: Any, paired: bool = False, drift: float = 0.0, apart: str = "") -> Rows:
    """Before and after, of the step, without the profiler (*plain*) and by operator; the most saved or lost first."""

    def by_step(joined: Joined) -> dict[tuple[str, str], Sequence[float]]:
        found: dict[tuple[str, str], Sequence[float]] = {("(the step)", ""): joined.steps}
        for (operator, _, phase), row in joined.rows.items():
            others = found.get((operator, phase), [0.0] * len(row.seconds))
            found[operator, phase] = [x + y for x, y in zip(others, row.seconds, strict=True)]
        return found

    def entry(place: tuple[str, str], x: Sequence[float], y: Sequence[float], miss: float) -> dict[str, Any]:
        mine, theirs = statistics.fmean(x), statistics.fmean(y)
        half = half_of([m - n for m, n in zip(x, y, strict=True)], miss) if paired else math.hypot(
            half_of(x, miss), half_of(y, miss), drift * (mine + theirs) / 2)  # fmt: skip
        saved = mine - theirs
        verdict = ("faster" if saved > 0 else "slower") + apart
        if abs(saved) <= half:
            verdict = "cannot be told" if half > WIDE * max(mine, theirs) else "no difference seen"
        if not (any(x) and any(y)):  # another operator took its place, which is no kernel's gain or loss
            verdict = "only before" if any(x) else "only after"
        return {"operator": place[0], "phase": place[1], "before": mine, "after": theirs, "saved": saved,
                "low": saved - half, "high": saved + half, "verdict": verdict}  # fmt: skip

    mine, theirs = by_step(a), by_step(b)
    places = [
        place for place in dict.fromkeys([*mine, *theirs]) if any(mine.get(place, ())) or any(theirs.get(place, ()))
    ]
    none = [[0.0] * len(each.steps) for each in (a, b)]
    rows = [
        entry(place, mine.get(place, none[0]), theirs.get(place, none[1]), MISS * (1 - OF_PLAIN) / len(places))
        for place in places
    ]
    rows[1:] = sorted(rows[1:], key=lambda row: -abs(row["saved"]))
    if plain:
        rows.insert(1, entry(("(without the profiler)", ""), plain[0], plain[1], MISS * OF_PLAIN))
    return rows
