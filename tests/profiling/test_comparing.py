"""What came of a change: on simulated machines that change their speed, and of programs that run again, or cannot."""

import dataclasses
import math
import pickle
import random
import statistics
from functools import partial

import pytest
import torch

from flopkit.measuring.protocol import STUDENT, Timing
from flopkit.profiling import profile
from flopkit.profiling.comparing import MISS, OF_PLAIN, Program, drift_of, half_of, in_turns, student


class Machine:
    """One clock for all that runs on it; it is slowed down for about *lasting* seconds at a time, by up to *busy* times."""

    def __init__(self, seed, busy=2.0, lasting=0.3, noise=0.2):
        self.clock, self.until, self.factor, self.draw = 0.0, 0.0, 1.0, random.Random(seed)
        self.busy, self.lasting, self.noise = busy, lasting, noise

    def run(self, seconds):
        if self.clock >= self.until:
            self.until = self.clock + self.draw.expovariate(1 / self.lasting)
            self.factor = self.draw.uniform(1, self.busy)
        took = seconds * self.factor * self.draw.lognormvariate(0, self.noise)
        self.clock += took
        return took


class Task:
    """A timer of calls of so many seconds on a quiet machine."""

    def __init__(self, machine, seconds):
        self.machine, self.seconds = machine, seconds

    def calls(self, count):
        return [self.machine.run(self.seconds) for _ in range(count)]

    def now(self):
        return self.machine.clock


def told(seed, before, after):
    """1 where the second is told to be faster, −1 slower, 0 no difference."""
    machine = Machine(seed)
    a, b = in_turns(Task(machine, before), Task(machine, after), 3.0, 1e-3, random.Random(seed).random)
    saved = [x - y for x, y in zip(a, b, strict=True)]
    return (
        0
        if abs(statistics.fmean(saved)) <= half_of(saved, MISS * OF_PLAIN)
        else math.copysign(1, statistics.fmean(saved))
    )


def test_an_unchanged_program_is_hardly_ever_called_faster_or_slower():
    """Of 200, 1.5 % are 3; measured one after the other, each with an interval from its rounds, it is every fourth or more."""
    assert sum(told(seed, 1e-3, 1e-3) != 0 for seed in range(200)) <= 6
    apart = 0
    for seed in range(100):
        task = Task(Machine(seed), 1e-3)
        first, second = (Timing(tuple(tuple(task.calls(20)) for _ in range(8)), 0.0, True) for _ in "ab")
        half = math.hypot(*(each.ci[1] - each.mean for each in (first, second)))
        apart += abs(first.mean - second.mean) > half
    assert apart >= 25, "else this machine is none on which the turns matter"


def test_a_fifth_less_is_seen_on_a_machine_that_changes_by_twice():
    found = [told(seed, 1.25e-3, 1e-3) for seed in range(40)]
    assert found.count(1) >= 38 and -1 not in found


def test_a_machine_that_slows_down_all_the_time_is_no_difference():
    """A little from each call to the next: whoever always goes second would be called slower."""

    class Slowing(Machine):
        def run(self, seconds):
            self.factor += 0.002
            self.clock += seconds * self.factor
            return seconds * self.factor

    def verdict(draw):
        machine = Slowing(0)
        a, b = in_turns(Task(machine, 1e-3), Task(machine, 1e-3), 3.0, 1e-3, draw)
        saved = [x - y for x, y in zip(a, b, strict=True)]
        return abs(statistics.fmean(saved)) <= half_of(saved, MISS * OF_PLAIN)

    assert all(verdict(random.Random(seed).random) for seed in range(40))


def test_turns_end_when_the_interval_is_narrow_or_the_time_is_over():
    quiet = Machine(0, busy=1.0, noise=0.05)
    a, b = in_turns(Task(quiet, 1e-3), Task(quiet, 1e-3), 1e9, 1e-3)
    assert half_of([x - y for x, y in zip(a, b, strict=True)]) < 1e-5 and len(a) < 1000
    slow = Machine(0)
    a, b = in_turns(Task(slow, 1.0), Task(slow, 1.0), 0.1, 1e-3)
    assert len(a) == len(b) == 8


def test_how_much_runs_of_one_program_differ():
    """Runs of 0.2 s on a machine whose states last 0.3 s differ, those of a steady one by its noise: 0.2/√200 of each."""
    busy, quiet = (drift_of(Task(Machine(1, busy=k), 1e-3), 5.0, 0.2, 1e-3 * (1 + k) / 2) for k in (2.0, 1.0))
    assert busy > 0.2 and 0.01 < quiet < 0.1


def test_quantiles_are_those_of_students_tables():
    assert [round(student(n), 3) for n in range(1, 24)] == list(STUDENT)
    printed = {(1, 0.01): 63.657, (2, 0.01): 9.925, (7, 0.01): 3.499, (30, 0.001): 3.646, (200, 0.05): 1.972}
    assert {case: round(student(*case), 3) for case in printed} == printed
    assert student(10**6) == student(200) and half_of([1.0]) == math.inf


X, WIDE = torch.randn(64, 64), torch.randn(64, 6400)


def short():
    return (X @ X).relu()


def alike():
    return (X @ X).relu()


def longer():
    return (X @ WIDE).relu()


def verdicts(table):
    return {row["operator"]: row["verdict"] for row in table}


def test_two_programs_are_run_in_turns():
    before, after, same = (profile(each, time_budget=0.1) for each in (longer, short, alike))
    table = before.compare(after, time_budget=0.3)
    assert "in turns" in table.caption and "pairs" in table.caption
    step, plain = table.rows[:2]
    assert plain["saved"] > plain["after"], "a hundredth of the products, on however busy a machine"
    operators = [row for row in table if row["operator"] not in ("(the step)", "(without the profiler)")]
    assert sum(row["before"] for row in operators) == pytest.approx(step["before"])
    assert {"mm", "relu", "(Python)"} <= {row["operator"] for row in operators}
    assert "in turns" in after.compare(same, time_budget=0.2).caption


def test_each_runs_as_it_ran():
    """Without gradients, and on as many threads; and what is set now stays."""
    seen = []

    def step(x):
        seen.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads()))
        return x @ x

    threads = torch.get_num_threads()
    with torch.no_grad():
        before = profile(step, X, time_budget=0.02)
    torch.set_num_threads(threads + 1)
    try:
        with torch.inference_mode():
            after = profile(step, X, time_budget=0.02)
    finally:
        torch.set_num_threads(threads)
    seen.clear()
    table = before.compare(after, time_budget=0.05)
    assert set(seen) == {(False, False, threads), (False, True, threads + 1)}
    assert "in turns" in table.caption, "one call, but not under the same settings"
    assert torch.is_grad_enabled() and torch.get_num_threads() == threads


def test_what_is_gone_is_not_run_in_its_place():
    """One function whose operators changed, one that cannot run, one call twice: measured apart, and the caption says why."""
    layers = [torch.nn.Linear(64, 64)]

    def step():
        return layers[0](X)

    before = profile(step, time_budget=0.05)
    layers[0] = torch.nn.Linear(64, 640)
    after = profile(step, time_budget=0.05)
    table = before.compare(after, time_budget=0.2)
    assert "measured apart (before: a step of it does something else now" in table.caption
    assert "runs of one program differ by up to" in table.caption
    layers[0] = None
    said = before.compare(after, time_budget=0.2)
    assert "measured apart (before: it cannot run any more, TypeError)" in said.caption
    assert all(row["verdict"].endswith(", measured apart") or "c" in row["verdict"] for row in said)
    once, twice = profile(short, time_budget=0.05), profile(short, time_budget=0.05)
    table = once.compare(twice, time_budget=0.2)
    layer = torch.nn.Linear(64, 64)
    for one, other in ((layer.forward, layer.forward), (partial(torch.mm, X), partial(torch.mm, X))):
        assert Program(one, (X,), {}).is_call(Program(other, (X,), {}))
        assert not Program(one, (X,), {}).is_call(Program(other, (WIDE,), {}))
    assert not Program(short, (), {}).is_call(Program(alike, (), {}))
    assert "both are one call" in table.caption and "runs of one program differ by up to" in table.caption
    assert verdicts(table)["(the step)"] in ("no difference seen", "cannot be told")


def test_a_profile_that_went_to_another_process_is_its_trace():
    found = profile(lambda: X @ X, time_budget=0.02)
    again = pickle.loads(pickle.dumps(found))
    assert again.table().rows == found.table().rows and found.program is not None
    assert "measured apart (after: only its trace is here)" in found.compare(again, time_budget=0.1).caption


def test_nothing_runs_where_nothing_may():
    ran = []

    def step():
        ran.append(1)
        return X @ X

    found = [profile(each, time_budget=0.02) for each in (step, short)]
    ran.clear()
    table = found[0].compare(found[1], in_turns=False)
    assert not ran and "measured apart (before: in_turns=False)" in table.caption
    for budget, error in ((0, ValueError), ("long", TypeError)):
        with pytest.raises(error, match="time_budget="):
            found[0].compare(found[1], time_budget=budget)


def test_profiles_that_say_something_else_than_the_turns_are_told():
    """As where both programs changed in place, by what no operator shows: here one profile says ten times as long."""
    one, other = (profile(each, time_budget=0.1) for each in (short, alike))
    other.plain = dataclasses.replace(other.plain, seconds=10 * one.plain.seconds)
    caption = one.compare(other, time_budget=0.2).caption
    assert "the profiles said 10 times as long: the machine changed, or what one of them runs did" in caption
