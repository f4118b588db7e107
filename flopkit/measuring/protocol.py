"""The protocol of a measurement: warm up until the clock is steady, then rounds of calls, until the interval of their means is narrow.

It knows nothing of devices: a timer hands it the seconds of each call, a real one or a simulated one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Timer", "Timing", "interval", "timed"]

WINDOW = 0.5  # s: long enough to see a clock drift between two of them
SAME = 0.005  # two windows whose medians differ by less are of one clock
WARM_UP = 6.0  # s: clocks of GPUs swing for about three seconds
ROUND = 0.3  # s, of at least, so that a state of the clock which holds for a while does not fill several rounds
CALLS = 20  # calls, where the budget allows them
ROUNDS = (8, 24)  # with fewer, rounds that agree by chance end too soon; with more the interval hardly shrinks
NARROW = 0.005  # half of the interval, over the mean
DISTURBED = 1.2  # times the median: a mean above it comes from a few calls that something else held up
BUDGET = 10.0  # s, where the caller names none

# Two-sided 95 % quantiles of Student's t for 1 to 23 degrees of freedom.
STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
    2.086, 2.080, 2.074, 2.069,
)  # fmt: skip


class Timer(Protocol):
    """What runs calls and says how long each took."""

    def calls(self, count: int) -> list[float]:
        """Seconds of each of *count* calls, run one after the other."""
        ...

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        ...


@dataclass(frozen=True)
class Timing:
    """Seconds of each call, round by round, and how the warm-up went."""

    rounds: tuple[tuple[float, ...], ...]
    warm_up: float
    steady: bool

    @property
    def calls(self) -> list[float]:
        """Seconds of each call, in order, those of the warm-up left out."""
        return [seconds for each in self.rounds for seconds in each]

    @property
    def mean(self) -> float:
        """Sustained seconds of a call: all time by all calls. No call is dropped."""
        return math.fsum(self.calls) / len(self.calls)

    @property
    def round_means(self) -> tuple[float, ...]:
        """Mean seconds of a call in each round."""
        return tuple(statistics.fmean(each) for each in self.rounds)

    @property
    def ci(self) -> tuple[float, float]:
        """The 95 % interval of the mean, from the means of the rounds."""
        half = interval(self.round_means)
        return self.mean - half, self.mean + half

    @property
    def median(self) -> float:
        """Half of the calls took less."""
        return statistics.median(self.calls)

    @property
    def fastest(self) -> float:
        """The fastest call."""
        return min(self.calls)

    @property
    def p10_p90(self) -> tuple[float, float]:
        """A tenth of the calls took less than the first, a tenth more than the second."""
        ordered = sorted(self.calls)
        return ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]

    @property
    def disturbed(self) -> bool:
        """Whether a few calls took so much longer than most that the mean tells of them and not of the call."""
        return self.mean > DISTURBED * self.median

    @property
    def unsteady(self) -> list[str]:
        """A note, where the clock did not settle."""
        return [] if self.steady else [f"the clock was not steady after a warm-up of {self.warm_up:.1f} s"]

    def statistics(self) -> dict[str, Any]:
        """What a `flopkit.measuring.measurement.Measurement` keeps of it, by name."""
        return {
            "seconds": self.mean, "seconds_ci": self.ci, "median": self.median, "fastest": self.fastest, "p10_p90": self.p10_p90,
            "calls": len(self.calls), "rounds": len(self.rounds), "round_means": self.round_means, "steady": self.steady,
        }  # fmt: skip


def interval(means: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean of *means*, by Student's t.

    Calls of one round share states of the clock; neighbouring rounds share only the state that lasts across their border.

    >>> round(interval([10.0, 11.0, 9.0, 10.0, 10.0]), 3)
    0.878
    """
    if len(means) < 2:
        return math.inf
    quantile = STUDENT[min(len(means) - 1, len(STUDENT)) - 1]
    return quantile * statistics.stdev(means) / math.sqrt(len(means))


def timed(timer: Timer, budget: float | None = None, progress: Callable[[float], None] | None = None) -> Timing:
    """Run the protocol with *timer*.

    Parameters
    ----------
    timer : Timer
        What is timed.
    budget : float, optional
        Seconds for warm-up and rounds together. None: ten. There are at least eight rounds however long they take, unless a budget is given
        of which a single call is more than an eighth.
    progress : Callable[[float], None], optional
        Called with the share of the budget that is used.

    Raises
    ------
    RuntimeError
        If half of the calls took no time, by a clock that stands still or goes back.
    """
    start = timer.now()
    whole = BUDGET if budget is None else budget
    told = progress or (lambda share: None)

    def used() -> float:
        spent = timer.now() - start
        told(min(1.0, spent / whole))
        return spent

    warm = min(WARM_UP, 0.4 * whole)
    window = min(WINDOW, warm / 4)
    last, steady = None, False
    while True:
        median = statistics.median(_for(timer, window))
        if median <= 0:
            raise RuntimeError(f"half of the calls took {median:.3g} s: the clock stands still or goes back")
        if last is not None and abs(median - last) <= SAME * last:
            steady = True
            break
        last = median
        if used() >= warm:
            break
    warm_up = used()
    least, most = ROUNDS
    calls = max(1, math.ceil(ROUND / median))
    if median * CALLS * most <= whole:
        calls = max(calls, CALLS)
    if median * calls * least > whole - warm_up:  # a slow call: rounds of as many as there is time for
        calls = max(1, int((whole - warm_up) / least / median))
    rounds: list[tuple[float, ...]] = []
    while len(rounds) < most:
        rounds.append(tuple(timer.calls(calls)))
        spent = used()
        means = [statistics.fmean(each) for each in rounds]
        if len(rounds) >= least and interval(means) <= NARROW * statistics.fmean(means):
            break
        few = budget is not None and calls == 1  # a slow call, and somebody who waits
        if len(rounds) >= (2 if few else least) and spent >= whole:
            break
    told(1.0)
    return Timing(tuple(rounds), warm_up, steady)


def _for(timer: Timer, seconds: float) -> list[float]:
    """Calls for about so many seconds, at least one."""
    found = timer.calls(1)
    started = timer.now()
    while (left := seconds - (timer.now() - started)) > 0:
        typical = max(statistics.median(found[-9:]), 1e-9)
        found += timer.calls(max(1, min(int(left / typical), 2 * len(found))))
    return found
