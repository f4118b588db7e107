"""A simulated clock, and how near five stopping rules come to its truth: the table behind the figure of the chapter on measuring.

The rules are those of the tools' own sources, each with its defaults: torch.utils.benchmark of torch 2.13, triton.testing.do_bench of
Triton 3.5.1, the criterion "stdrel" of NVBench at commit 66212f1, and `flopkit.measure`. Only when to begin and when to stop is simulated,
and which statistic is told: no launches, no caches, no discarded samples.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from flopkit.measuring.protocol import timed

__all__ = ["RULES", "Clock", "Estimate", "Simulated", "clocks", "recorded"]

CALL = 1e-3  # s of a call when the clock is settled and nothing disturbs it
JITTER = 0.01  # of a call's time, from call to call
SPIKE = 3.0  # an interrupted call takes so many times as long
OFTEN = 0.01  # of the calls, where calls are interrupted at all
Z = 1.96  # of a normal interval that covers 95 %

DRIFTS = (-0.08, 0.0, 0.04, 0.08)
SETTLES = (0.1, 0.5, 2.0)  # s
STATES = ((0.0, 0.1), (0.01, 0.1), (0.01, 1.0))  # how far, and for how many seconds on average
RUNS = 1000


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


def _torch(timer: Simulated, stop: Callable[[list[float]], bool], block: float) -> Estimate:
    """torch.utils.benchmark.Timer: the size of a block is found by running ever larger ones, which is all of the warm-up."""
    number = 1
    while True:
        taken = math.fsum(timer.calls(number))
        if taken >= block / 1000:
            break
        number *= 10
    blocks: list[float] = []
    while not blocks or not stop(blocks):
        blocks.append(math.fsum(timer.calls(number)))
    return Estimate(statistics.median(blocks) / number, _of_calls(blocks) / number, timer.now())


def torch_blocked(timer: Simulated) -> Estimate:
    """``Timer.blocked_autorange()``: blocks until they sum to 0.2 s; tells the median."""
    return _torch(timer, lambda blocks: math.fsum(blocks) >= 0.2, block=0.2)


def torch_adaptive(timer: Simulated) -> Estimate:
    """``Timer.adaptive_autorange()``: at least four blocks and 0.01 s, until the quartiles are within 10 % of the median, or 10 s."""

    def stop(blocks: list[float]) -> bool:
        total = math.fsum(blocks)
        if len(blocks) > 3 and total >= 0.01:
            first, middle, third = statistics.quantiles(blocks, n=4, method="inclusive")
            if (third - first) / middle < 0.1:
                return True
        return total > 10

    return _torch(timer, stop, block=0.05)


def triton(timer: Simulated) -> Estimate:
    """``triton.testing.do_bench(fn)``: a call, five to guess its time, 25 ms of warm-up, 100 ms of calls; tells the mean."""
    timer.calls(1)
    guess = math.fsum(timer.calls(5)) / 5
    timer.calls(max(1, int(0.025 / guess)))
    times = timer.calls(max(1, int(0.100 / guess)))
    return Estimate(statistics.fmean(times), _of_calls(times), timer.now())


def nvbench(timer: Simulated) -> Estimate:
    """NVBench's "stdrel": a call, then samples for 0.5 s, and until their deviation is below 0.5 % of the mean or steady; tells the mean."""
    import numpy as np

    timer.calls(1)
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
                if ended := mean * count > 0.5 and noises[-1] < 0.005:
                    break
        ended |= mean * count > 0.5 and len(noises) > 64 and bool(np.std(noises, ddof=1) < 0.05 * np.mean(noises))
    return Estimate(mean, Z * math.sqrt(squares / (count - 1) / count), timer.now())


def flopkit(timer: Simulated) -> Estimate:
    """`flopkit.measure`: warm-up until two windows agree, 8 to 24 rounds; tells the mean and Student's interval of the round means."""
    found = timed(timer)
    return Estimate(found.mean, found.ci[1] - found.mean, timer.now())


def flopkit_by_calls(timer: Simulated) -> Estimate:
    """The same calls as those of `flopkit.measure`, with the interval that they would have if each were independent."""
    found = timed(timer)
    return Estimate(found.mean, _of_calls(found.calls), timer.now())


RULES: dict[str, Callable[[Simulated], Estimate]] = {
    "torch blocked": torch_blocked,
    "torch adaptive": torch_adaptive,
    "Triton do_bench": triton,
    "NVBench stdrel": nvbench,
    "flopkit": flopkit,
    "flopkit, by calls": flopkit_by_calls,
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
def recorded() -> dict[tuple[Clock, str], dict[str, float]]:
    """The table of all rules and clocks, each of a thousand runs: flopkit/data/stopping_rules.csv, which tools/simulate.py writes."""
    table: dict[tuple[Clock, str], dict[str, float]] = {}
    text = files("flopkit").joinpath("data", "stopping_rules.csv").read_text("utf-8")
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        rule, spikes = row.pop("rule"), row.pop("spikes") == "yes"
        values = {name: float(value) for name, value in row.items()}
        drawn = {name: values.pop(name) for name in ("drift", "settles", "states", "hold")}
        table[Clock(**drawn, spikes=spikes), rule] = values
    return table
