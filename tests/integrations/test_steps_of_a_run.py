"""The parts of an attachment by themselves: whose steps are the loop's, when a device is waited for, what a line's seconds are."""

from types import SimpleNamespace

import pytest
import torch

from flopkit.integrations import step_clock, step_rates
from flopkit.integrations.chosen_loop import ChosenLoop
from flopkit.integrations.step_clock import StepClock


class Optimizer:
    """Something that steps."""


@pytest.fixture
def time_is(monkeypatch):
    """The time is what a test says."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(step_clock.time, "perf_counter", lambda: now.seconds)
    return now


def test_an_optimiser_that_steps_seldom_leads_its_loop_from_its_second_step_on():
    """One that has stepped once may be none of the loop: after twenty times the warm-up nobody waits for it."""
    often, seldom, once = Optimizer(), Optimizer(), Optimizer()
    loop = ChosenLoop(warm_up=3)
    assert not any(loop.warm(each) for each in (once, seldom, seldom))
    assert not any(loop.warm(often) for _ in range(100))
    assert loop.warm(seldom)
    assert loop.leader() is seldom and loop.holds(often) and not loop.holds(once) and loop.steps_of(seldom) == 3


def test_a_loop_that_is_left_is_chosen_anew():
    first, second = Optimizer(), Optimizer()
    loop = ChosenLoop(warm_up=1)
    assert loop.warm(first) and loop.leader() is first
    loop.leave()
    assert loop.leader() is None and loop.warm(second) and loop.leader() is second and loop.most == 1


def test_a_device_is_waited_for_after_1_2_4_8_steps_and_where_a_line_is_due(monkeypatch, time_is):
    waits = []
    monkeypatch.setattr(torch, "quick", SimpleNamespace(synchronize=lambda: waits.append(step)), raising=False)
    clock, step = StepClock(every=1000.0), 10
    clock.start(step, "quick")
    for step in range(11, 111):
        time_is.seconds += 20.0
        clock.tick(step, time_is.seconds)
    # 50 steps of 20 s make a line
    assert waits == [10, 11, 12, 14, 18, 26, 42, 60, 74, 110]
    assert clock.timed == 100 and clock.mean_seconds == 20.0


def test_a_line_is_the_mean_since_the_last_one(time_is):
    clock, lines = StepClock(every=10.0), []
    clock.start(5, "cpu")
    for step, took in enumerate([5.0] * 2 + [2.0] * 5 + [1.0] * 3, 6):
        time_is.seconds += took
        lines.append(clock.tick(step, time_is.seconds))
    assert [line for line in lines if line] == [{"steps": 2, "seconds": 5.0}, {"steps": 5, "seconds": 2.0}]
    assert clock.seconds == [5.0, 2.0] and clock.timed == 10 and clock.mean_seconds == 23.0 / 10


def test_fp32_that_runs_as_tf32_joins_what_is_tf32_already():
    report = SimpleNamespace(
        convention="TORCH", uncounted=[], flops_by_dtype=lambda model: {"fp32": 5, "tf32": 7, "bf16": 1}
    )
    assert step_rates._AsTf32(report).flops_by_dtype() == {"tf32": 12, "bf16": 1}
