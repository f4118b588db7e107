"""A simulated clock, and how near six stopping rules come to its truth: the table behind the figure of the chapter on measuring.

The rules are those of the tools' own sources, each with its defaults: torch.utils.benchmark of torch 2.13, triton.testing.do_bench of
Triton 3.5.1, the criterion "stdrel" of NVBench at commit 66212f1, and `flopkit.measure`; and each once more with 4.5 s for all.
Only when to begin and when to stop is simulated, and which statistic is told: no launches, no caches, no discarded samples.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files

from flopkit.measuring.protocol import Timer, timed

__all__ = ["RULES", "SAME_TIME", "Clock", "Estimate", "Replay", "Simulated", "clocks", "recorded"]

CALL = 1e-3  # s of a call when the clock is settled and nothing disturbs it
JITTER = 0.01  # of a call's time, from call to call
SPIKE = 3.0  # an interrupted call takes so many times as long
OFTEN = 0.01  # of the calls, where calls are interrupted at all
Z = 1.96  # of a normal interval that covers 95 %

DRIFTS = (-0.08, 0.0, 0.04, 0.08)
SETTLES = (0.1, 0.5, 2.0)  # s
STATES = ((0.0, 0.1), (0.01, 0.1), (0.01, 1.0))  # how far, and for how many seconds on average
RUNS = 1000
RUNS_SAME_TIME = 300
# s that each rule is given where all get the same, warm-up and the rest: together about what `flopkit.measure` takes by itself.
WARM, AFTER = 2.0, 2.5


@dataclass(frozen=True)
class Clock:
    """What a call takes: jitter, and on top of it what a real machine adds.

    Parameters
    ----------
    drift : float, optional
        How much longer the first call takes, as a share; it decays exponentially. Negative: the device starts fast.
    settles : float, optional
        Seconds in which the drift falls to 37 % of itself.
    states : float, optional
        Share by which the clock is slower or faster, at random, for a while.
    hold : float, optional
        Seconds that such a state lasts on average.
    spikes : bool, optional
        Whether one call in a hundred is interrupted, and takes three times as long.

    Examples
    --------
    >>> Clock(drift=0.08).mean, round(Clock(spikes=True).mean, 6)
    (0.001, 0.00102)
    """

    drift: float = 0.0
    settles: float = 0.5
    states: float = 0.0
    hold: float = 0.1
    spikes: bool = False

    @property
    def mean(self) -> float:
        """Seconds of a call in the long run: the truth that a measurement is after."""
        return CALL * (1 + (OFTEN * (SPIKE - 1) if self.spikes else 0.0))


class Simulated:
    """A timer whose calls take what a `Clock` says. Each seed is another run."""

    def __init__(self, clock: Clock, seed: int) -> None:
        import numpy as np

        self.clock, self.draw = clock, np.random.default_rng(seed)
        self.count, self.seconds = 0, 0.0
        self._left, self._state = 0, 0.0

    def now(self) -> float:
        """Seconds since the first call began."""
        return self.seconds

    def calls(self, count: int) -> list[float]:
        """Seconds of each of the next *count* calls."""
        import numpy as np

        clock, draw = self.clock, self.draw
        at = CALL * (self.count + np.arange(count))
        factor = 1 + JITTER * draw.standard_normal(count)
        factor *= 1 + clock.drift * np.exp(-at / clock.settles)
        if clock.states:
            factor *= 1 + clock.states * np.fromiter(self._signs(count), float, count)
        if clock.spikes:
            factor *= np.where(draw.random(count) < OFTEN, SPIKE, 1.0)
        found: list[float] = (CALL * factor).tolist()
        self.count += count
        self.seconds += math.fsum(found)
        return found

    def _signs(self, count: int) -> Iterator[float]:
        """Of each call, whether its state is slow or fast."""
        for _ in range(count):
            if self._left <= 0:
                self._left = max(1, round(self.draw.exponential(self.clock.hold) / CALL))
                self._state = 1.0 if self.draw.random() < 0.5 else -1.0
            self._left -= 1
            yield self._state


class Replay:
    """A timer that hands out calls that were recorded, in their order.

    Parameters
    ----------
    seconds : Iterable[float]
        Of each call.

    Raises
    ------
    ValueError
        Where more calls are asked for than are left.

    Examples
    --------
    >>> timer = Replay([0.25, 0.5, 0.25])
    >>> timer.calls(2), timer.now()
    ([0.25, 0.5], 0.75)
    """

    def __init__(self, seconds: Iterable[float]) -> None:
        self.recorded, self.count, self.seconds = tuple(seconds), 0, 0.0

    def now(self) -> float:
        """Seconds since the first call began."""
        return self.seconds

    def calls(self, count: int) -> list[float]:
        """Seconds of each of the next *count* calls."""
        found = list(self.recorded[self.count : self.count + count])
        if len(found) < count:
            raise ValueError(f"calls({count}): {len(self.recorded)} calls were recorded, {len(found)} are left")
        self.count += count
        self.seconds += math.fsum(found)
        return found


@dataclass(frozen=True)
class Estimate:
    """What a rule tells: the seconds of a call, half of the interval around them, and the seconds that it took in all."""

    told: float
    half: float
    spent: float


def _of_calls(samples: Sequence[float]) -> float:
    """Half of the interval that a reader of the samples would work out, as if they were independent."""
    import numpy as np

    return float(Z * np.std(samples, ddof=1)) / math.sqrt(len(samples))


def _torch(
    timer: Timer, warm_up: int, block: float, least: float, stop: Callable[[list[float], float], bool]
) -> Estimate:
    """torch.utils.benchmark.Timer: the size of a block is found by running ever larger ones, its only warm-up but for a ``timeit(warm_up)``."""
    timer.calls(warm_up)
    number = 1
    while True:
        taken = math.fsum(timer.calls(number))
        if taken >= block / 1000:
            break
        number *= 10
    blocks: list[float] = []
    total = 0.0
    while total < least or not stop(blocks, total):
        # several at once while half of the time left will do for them: that saves simulating each by itself
        many = max(1, int((least - total) / 2 / taken)) if total < least else 1
        calls = timer.calls(number * many)
        blocks += [math.fsum(calls[i : i + number]) for i in range(0, len(calls), number)]
        total = math.fsum(blocks) if many > 1 else total + blocks[-1]
    return Estimate(statistics.median(blocks) / number, _of_calls(blocks) / number, timer.now())


def torch_blocked(timer: Timer, warm_up: int = 0, least: float = 0.2) -> Estimate:
    """``Timer.blocked_autorange(min_run_time=least)``: blocks until they sum to so many seconds; tells the median."""
    return _torch(timer, warm_up, least, least, lambda blocks, total: True)


def torch_adaptive(timer: Timer, warm_up: int = 0, least: float = 0.01) -> Estimate:
    """``Timer.adaptive_autorange(min_run_time=least)``: at least four blocks, until the quartiles are within 10 % of the median, or 10 s."""

    def stop(blocks: list[float], total: float) -> bool:
        if len(blocks) > 3:
            first, middle, third = statistics.quantiles(blocks, n=4, method="inclusive")
            if (third - first) / middle < 0.1:
                return True
        return total > 10

    return _torch(timer, warm_up, 0.05, least, stop)


def triton(timer: Timer, warm_up: float = 0.025, rep: float = 0.100) -> Estimate:
    """``triton.testing.do_bench(fn)``: a call, five to guess its time, 25 ms of warm-up, 100 ms of calls; tells the mean."""
    timer.calls(1)
    guess = math.fsum(timer.calls(5)) / 5
    timer.calls(max(1, int(warm_up / guess)))
    times = timer.calls(max(1, int(rep / guess)))
    return Estimate(statistics.fmean(times), _of_calls(times), timer.now())


def nvbench(timer: Timer, warm_up: int = 1, least: float = 0.5) -> Estimate:
    """NVBench's "stdrel": a call, then samples for 0.5 s, and until their deviation is below 0.5 % of the mean or steady; tells the mean."""
    import numpy as np

    timer.calls(warm_up)
    noises: deque[float] = deque(maxlen=512)
    count, mean, squares, ended = 0, 0.0, 0.0, False
    while not ended and mean * count <= 15:
        for sample in timer.calls(16):  # it looks whether its noise is steady after every sixteenth
            count += 1
            step = sample - mean
            mean += step / count
            squares += step * (sample - mean)
            if count >= 5:
                noises.append(math.sqrt(squares / (count - 1)) / mean)
                if ended := mean * count > least and noises[-1] < 0.005:
                    break
        ended |= mean * count > least and len(noises) > 64 and bool(np.std(noises, ddof=1) < 0.05 * np.mean(noises))
    return Estimate(mean, Z * math.sqrt(squares / (count - 1) / count), timer.now())


def flopkit(timer: Timer, budget: float | None = None) -> Estimate:
    """`flopkit.measure`: warm-up until two windows agree, 8 to 24 rounds; tells the mean and Student's interval of the round means."""
    found = timed(timer, budget)
    return Estimate(found.mean, found.ci[1] - found.mean, timer.now())


def flopkit_by_calls(timer: Timer, budget: float | None = None) -> Estimate:
    """The same calls as those of `flopkit.measure`, with the interval that they would have if each were independent."""
    found = timed(timer, budget)
    return Estimate(found.mean, _of_calls(found.calls), timer.now())


RULES: dict[str, Callable[[Timer], Estimate]] = {
    "torch blocked": torch_blocked,
    "torch adaptive": torch_adaptive,
    "Triton do_bench": triton,
    "NVBench stdrel": nvbench,
    "flopkit": flopkit,
    "flopkit, by calls": flopkit_by_calls,
}
# The same rules with the same time: 2 s of calls first, for which torch's Timer has `timeit`, and 2.5 s that count.
FIRST = round(WARM / CALL)
SAME_TIME: dict[str, Callable[[Timer], Estimate]] = {
    "torch blocked": partial(torch_blocked, warm_up=FIRST, least=AFTER),
    "torch adaptive": partial(torch_adaptive, warm_up=FIRST, least=AFTER),
    "Triton do_bench": partial(triton, warm_up=WARM, rep=AFTER),
    "NVBench stdrel": partial(nvbench, warm_up=FIRST, least=AFTER),
    "flopkit": partial(flopkit, budget=WARM + AFTER),
    "flopkit, by calls": partial(flopkit_by_calls, budget=WARM + AFTER),
}


def clocks() -> list[Clock]:
    """The clocks of the table; without a drift there is nothing to settle."""
    return [
        Clock(drift, settles, states, hold, spikes)
        for drift in DRIFTS
        for settles in (SETTLES if drift else (0.5,))
        for states, hold in STATES
        for spikes in (False, True)
    ]


@cache
def recorded(same_time: bool = False) -> dict[tuple[Clock, str], dict[str, float]]:
    """The table of all rules and clocks, of a thousand runs each or, with the same time, of 300: flopkit/book/data/stopping_rules.csv, which tools/simulate.py writes.

    Parameters
    ----------
    same_time : bool, optional
        Of the rules as `SAME_TIME` has them, about 4.5 s for each, instead of each with its defaults.
    """
    table: dict[tuple[Clock, str], dict[str, float]] = {}
    text = files("flopkit.book").joinpath("data", "stopping_rules.csv").read_text("utf-8")
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        rule, spikes, longer = row.pop("rule"), row.pop("spikes") == "yes", row.pop("same_time") == "yes"
        if longer == same_time:
            values = {name: float(value) for name, value in row.items()}
            drawn = {name: values.pop(name) for name in ("drift", "settles", "states", "hold")}
            table[Clock(**drawn, spikes=spikes), rule] = values
    return table
