"""The stopping rules on simulated clocks: torch's against torch itself, the others against their sources by hand, the table against fresh runs."""

import importlib.util
import itertools
import math
import statistics
from pathlib import Path

import pytest

from flopkit.book import simulation
from flopkit.book.simulation import RULES, SAME_TIME, Clock, Replay, Simulated, clocks, recorded

TOOL = importlib.util.spec_from_file_location("simulate", Path(__file__).parents[2] / "tools" / "simulate.py")
simulate = importlib.util.module_from_spec(TOOL)
TOOL.loader.exec_module(simulate)


class Scripted:
    """A timer with given seconds for each call."""

    def __init__(self, law):
        self.law, self.count, self.seconds = law, 0, 0.0

    def now(self):
        return self.seconds

    def calls(self, count):
        found = [self.law(self.count + i) for i in range(count)]
        self.count += count
        self.seconds += math.fsum(found)
        return found


@pytest.mark.parametrize("rule", ["torch blocked", "torch adaptive"])
@pytest.mark.parametrize("law", [
    lambda i: 1e-3 * (1 + 0.08 * math.exp(-i / 50) + 0.01 * math.sin(7 * i)),
    lambda i: 2e-2 * (1 + (i % 2)),  # quartiles far apart: the adaptive rule goes on
    lambda i: 3e-5,  # blocks of several calls
], ids=["drift", "two states", "short"])  # fmt: skip
def test_the_rules_of_torch_are_those_that_torch_runs(rule, law):
    benchmark = pytest.importorskip("torch.utils.benchmark")
    clock = Scripted(law)
    timer = benchmark.Timer("step()", timer=clock.now, globals={"step": lambda: clock.calls(1)})
    theirs = timer.blocked_autorange() if rule == "torch blocked" else timer.adaptive_autorange()
    simulated = Scripted(law)
    ours = RULES[rule](simulated)
    assert ours.told == pytest.approx(theirs.median, rel=1e-9)
    assert simulated.count == clock.count


@pytest.mark.parametrize("rule", ["torch blocked", "torch adaptive"])
def test_with_the_same_time_torch_runs_calls_first_and_then_for_as_long(rule):
    benchmark = pytest.importorskip("torch.utils.benchmark")

    def law(i):
        return 1e-3 * (1 + 0.08 * math.exp(-i / 50) + 0.01 * math.sin(7 * i))

    clock = Scripted(law)
    timer = benchmark.Timer("step()", timer=clock.now, globals={"step": lambda: clock.calls(1)})
    clock.calls(2000)
    run = timer.blocked_autorange if rule == "torch blocked" else timer.adaptive_autorange
    theirs = run(min_run_time=2.5)
    simulated = Scripted(law)
    ours = SAME_TIME[rule](simulated)
    assert ours.told == pytest.approx(theirs.median, rel=1e-9) and simulated.count == clock.count
    assert ours.spent == pytest.approx(4.5, rel=0.02)


def test_with_the_same_time_every_rule_takes_it():
    def law(i):
        return 1e-3 * (1 + 0.01 * math.sin(7 * i))

    assert set(SAME_TIME) == set(RULES)
    for rule, stop in SAME_TIME.items():
        timer = Scripted(law)
        found = stop(timer)
        most = 4.6 if not rule.startswith("flopkit") else 4.5  # flopkit stops sooner where its interval is narrow
        assert 2.4 < timer.seconds < most and found.spent == timer.seconds, rule
        if not rule.startswith("flopkit"):
            assert timer.seconds > 4.4, rule
    timer = Scripted(lambda i: 2e-3 if i < 1100 else 4e-3)  # 2 s of warm-up as do_bench guesses: 1,000 calls
    assert SAME_TIME["Triton do_bench"](timer).told == pytest.approx(4e-3, rel=0.05)


def test_a_replay_hands_out_what_was_recorded():
    timer = Replay([0.002] * 20 + [0.004] * 50)
    found = RULES["Triton do_bench"](timer)
    assert timer.count == 1 + 5 + 12 + 50 and found.told == pytest.approx((2 * 2 + 48 * 4) / 50 * 1e-3)
    assert timer.now() == pytest.approx(20 * 0.002 + 48 * 0.004)
    with pytest.raises(ValueError, match=r"calls\(3\): 70 calls were recorded, 2 are left"):
        timer.calls(3)


def test_do_bench_guesses_warms_up_and_takes_the_mean():
    """A call, five of 2 ms: 12 for 25 ms of warm-up, 50 for 100 ms. The calls after the first eighteen take twice as long."""
    timer = Scripted(lambda i: 2e-3 if i < 18 else 4e-3)
    found = RULES["Triton do_bench"](timer)
    assert timer.count == 1 + 5 + 12 + 50 and found.told == pytest.approx(4e-3) and found.half < 1e-12


def test_nvbench_goes_on_until_its_noise_is_small_or_steady():
    quiet = Scripted(lambda i: 1e-3 * (1 + 0.001 * (-1) ** i))
    RULES["NVBench stdrel"](quiet)
    assert 501 <= quiet.count <= 530  # 0.5 s
    noisy = Scripted(lambda i: 1e-3 * (1 + 0.05 * (-1) ** i))
    RULES["NVBench stdrel"](noisy)
    assert 501 <= noisy.count <= 530  # noisier than asked, but steadily so
    growing = Scripted(lambda i: 1e-3 * (1 + 0.002 * i * (-1) ** i))
    RULES["NVBench stdrel"](growing)
    assert growing.count > 1000  # its noise grows all the time


def test_a_clock_takes_on_average_what_it_says():
    for clock in (Clock(), Clock(states=0.01), Clock(spikes=True), Clock(0.08, 0.1)):
        timer = Simulated(clock, seed=3)
        timer.calls(5000)  # settled
        found = timer.calls(200_000)
        assert statistics.fmean(found) == pytest.approx(clock.mean, rel=2e-3)
        assert timer.now() == pytest.approx(math.fsum(found), rel=0.05)
    early = Simulated(Clock(0.08, 2.0), seed=1).calls(20)
    assert statistics.fmean(early) == pytest.approx(1.08e-3, rel=0.02)
    lengths = [len(list(group)) for _, group in itertools.groupby(Simulated(Clock(states=0.01), 1)._signs(100_000))]
    assert statistics.fmean(lengths) == pytest.approx(
        200, rel=0.15
    )  # 0.1 s is 100 calls; half of the new states are like the last


def test_the_table_has_every_rule_on_every_clock():
    for same_time in (False, True):
        assert set(recorded(same_time)) == {(clock, rule) for clock in clocks() for rule in RULES}
    for found in (*recorded().values(), *recorded(True).values()):
        assert found["low"] <= found["bias"] + 1e-9 and found["low"] <= found["high"] and 0 <= found["covered"] <= 1


# A part of the table, run again with other seeds: for each rule a clock that shows what it does well, or does not.
AGAIN = [
    ("torch blocked", Clock(0.08, 0.5), False),
    ("torch adaptive", Clock(spikes=True), False),
    ("Triton do_bench", Clock(states=0.01, hold=0.1), False),
    ("NVBench stdrel", Clock(0.04, 0.1), False),
    ("flopkit", Clock(0.08, 0.5), False),
    ("flopkit", Clock(states=0.01, hold=1.0), False),
    ("flopkit, by calls", Clock(states=0.01, hold=0.1), False),
    ("torch blocked", Clock(states=0.01, hold=0.1), True),
    ("Triton do_bench", Clock(0.08, 2.0), True),
    ("NVBench stdrel", Clock(0.08, 0.5), True),
    ("flopkit", Clock(0.08, 0.5), True),
]


@pytest.mark.parametrize(("rule", "clock", "same_time"), AGAIN, ids=lambda value: str(value))
def test_fresh_runs_agree_with_the_table(rule, clock, same_time):
    """Within four standard errors, of 150 fresh runs and of those in the table."""
    stop = (SAME_TIME if same_time else RULES)[rule]
    fresh = [stop(Simulated(clock, seed)) for seed in range(10**6, 10**6 + 150)]
    kept = recorded(same_time)[clock, rule]
    more = 1 + 150 / (simulation.RUNS_SAME_TIME if same_time else simulation.RUNS)

    def agree(values, told):
        error = math.sqrt(statistics.variance(values) / 150 * more)
        assert abs(statistics.fmean(values) - told) < 4 * error + 2e-5  # the table has five digits

    agree([each.told / clock.mean - 1 for each in fresh], kept["bias"])
    agree([each.half / clock.mean for each in fresh], kept["half"])
    agree([each.spent for each in fresh], kept["seconds"])
    share = min(max(kept["covered"], 0.02), 0.98)
    covered = statistics.fmean(abs(each.told - clock.mean) <= each.half for each in fresh)
    assert abs(covered - kept["covered"]) < 4 * math.sqrt(share * (1 - share) / 150 * more)


def test_a_steady_clock_is_measured_well_by_every_rule():
    for rule in RULES:
        found = recorded()[Clock(), rule]
        assert abs(found["bias"]) < 0.002 and found["covered"] > 0.83
