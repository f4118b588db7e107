"""The protocol on simulated clocks: what it reports beside what the clock's own law says."""

import math
import random
import statistics

import pytest

from flopkit.measuring import protocol
from flopkit.measuring.protocol import Timing, interval, timed


class Simulated:
    """A device whose call number i takes ``law(i)`` seconds, by its own clock."""

    def __init__(self, law):
        self.law, self.count, self.clock = law, 0, 0.0

    def calls(self, count):
        found = [self.law(self.count + i) for i in range(count)]
        self.count += count
        self.clock += sum(found)
        return found

    def now(self):
        return self.clock


def noisy(base, spread, seed, drift=0.0, tau=400, sticky=0.0):
    """A base time with noise; *drift* decays over *tau* calls; a *sticky* state holds for 300 calls."""
    draw = random.Random(seed)
    state = {"until": -1, "factor": 1.0}

    def law(i):
        if sticky and i > state["until"]:
            state["until"], state["factor"] = i + 300, 1 + sticky * draw.choice((-1, 1))
        return base * state["factor"] * (1 + drift * math.exp(-i / tau)) * (1 + draw.gauss(0, spread))

    return law


@pytest.mark.parametrize("base", [1e-3, 1e-4])
def test_a_clock_that_drifts_at_first_does_not_bias_the_mean(base):
    """8 % slower or faster at the start, settling over 400 calls: the mean is that of the settled clock, the interval holds it."""
    for drift in (0.08, -0.08):
        found = [timed(Simulated(noisy(base, 0.01, seed, drift))) for seed in range(12)]
        assert all(timing.steady for timing in found)
        assert statistics.fmean(timing.mean for timing in found) == pytest.approx(base, rel=3e-3)
        assert sum(low <= base <= high for low, high in (timing.ci for timing in found)) >= 8


def test_the_interval_covers_what_it_says_where_nothing_drifts():
    found = [timed(Simulated(noisy(1e-3, 0.03, seed))) for seed in range(80)]
    covered = sum(low <= 1e-3 <= high for low, high in (timing.ci for timing in found))
    assert 0.87 * 80 <= covered
    too_narrow = 0
    for timing in (
        found
    ):  # a device with a few odd calls is wider, so the interval of calls as if they were independent is no better here
        too_narrow += statistics.stdev(timing.calls) / math.sqrt(len(timing.calls)) > timing.ci[1] - timing.mean
    assert too_narrow < 40


def test_states_that_hold_for_a_while_widen_the_interval():
    """Clock states of 300 calls, 2 % up or down: an interval over calls would be far too narrow, that over rounds covers the mean."""
    found = [timed(Simulated(noisy(1e-3, 0.002, seed, sticky=0.02))) for seed in range(40)]
    covered = sum(low <= 1e-3 <= high for low, high in (timing.ci for timing in found))
    by_calls = 0
    for timing in found:
        half = 1.96 * statistics.stdev(timing.calls) / math.sqrt(len(timing.calls))
        by_calls += abs(timing.mean - 1e-3) <= half
    assert covered >= 30 and by_calls < covered


def test_a_clock_that_never_settles_is_said_to_be_unsteady():
    timing = timed(Simulated(lambda i: 1e-3 * (1 + 1e-4 * i)))
    assert not timing.steady and timing.warm_up >= 0.4 * protocol.BUDGET


def test_no_call_is_dropped():
    """One call in a hundred takes 50 times as long: the mean has it, the median does not."""
    timing = timed(Simulated(lambda i: 50e-3 if i % 100 == 99 else 1e-3))
    assert timing.mean == pytest.approx(1.49e-3, rel=0.1) and timing.median == 1e-3 == timing.fastest
    assert timing.p10_p90 == (1e-3, 1e-3)


@pytest.mark.parametrize(("slow", "disturbed"), [(20e-3, False), (50e-3, True)])
def test_a_mean_that_tells_of_few_calls_is_disturbed(monkeypatch, slow, disturbed):
    """One call in a hundred takes 20 or 50 times as long: the mean is 1.19 or 1.49 times the median."""
    monkeypatch.setattr(protocol, "DISTURBED", 1.2)
    assert timed(Simulated(lambda i: slow if i % 100 == 99 else 1e-3)).disturbed is disturbed


def test_a_machine_that_slows_down_gets_its_rounds_all_the_same():
    """Calls that take four times as long once the rounds have begun: with fewer, rounds agree by chance."""
    for budget in (0.5, 5):
        assert len(timed(Simulated(lambda i: 1e-3 if i < 300 else 4e-3), budget).rounds) >= protocol.ROUNDS[0]


def test_a_budget_is_kept_and_slow_calls_get_fewer():
    for seconds, budget in ((1e-5, 2), (0.3, 5), (2, 10)):
        clock = Simulated(lambda i, seconds=seconds: seconds)
        timing = timed(clock, budget)
        assert clock.clock <= budget + 4 * seconds + 0.2
        assert len(timing.rounds) >= 2
    slow = Simulated(lambda i: 30.0)
    assert len(timed(slow).rounds) == protocol.ROUNDS[0]  # without a budget, as many rounds in any case
    assert len(timed(Simulated(lambda i: 30.0), 1).rounds) == 2


def test_progress_ends_at_one():
    seen = []
    timed(Simulated(noisy(1e-3, 0.02, 1)), 4, seen.append)
    assert seen == sorted(seen) and seen[-1] == 1


def test_students_quantiles():
    """Against the integral of Student's density, by Simpson's rule."""

    def density(t, n):
        return (
            math.gamma((n + 1) / 2) / (math.sqrt(n * math.pi) * math.gamma(n / 2)) * (1 + t * t / n) ** (-(n + 1) / 2)
        )

    for n, quantile in enumerate(protocol.STUDENT, 1):
        steps = 2000
        h = quantile / steps
        inside = sum(density(i * h, n) * (4 if i % 2 else 2) for i in range(1, steps))
        inside = 2 * (inside + density(0, n) + density(quantile, n)) * h / 3
        assert inside == pytest.approx(0.95, abs=5e-5)
    assert len(protocol.STUDENT) == protocol.ROUNDS[1] - 1
    assert interval([1.0]) == math.inf and interval([2.0, 2.0]) == 0


def test_the_interval_is_that_of_round_means():
    timing = Timing(((1.0, 1.0), (2.0, 2.0)), 0.0, True)
    assert timing.mean == 1.5 and timing.ci == pytest.approx((1.5 - 12.706 * 0.5, 1.5 + 12.706 * 0.5))
