"""The parts of an attachment by themselves: whose steps are the loop's, when a device is waited for, what a line's seconds are."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

import flopkit as fk
from flopkit.integrations import step_clock, step_rates
from flopkit.integrations.chosen_loop import ChosenLoop
from flopkit.integrations.step_clock import StepClock
from flopkit.integrations.watched_steps import WatchedStep, shown_cycle


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


@pytest.fixture
def switches():
    """torch's switches for tf32, put back."""
    backends = torch.backends
    if not hasattr(backends.cudnn, "conv"):
        pytest.skip("since torch 2.9")
    kept = backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision
    yield backends
    backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision = kept


def of_a_convolution_and_a_product(precision_of_products, precision_of_convolutions, switches, peak):
    switches.cuda.matmul.fp32_precision = precision_of_products
    switches.cudnn.conv.fp32_precision = precision_of_convolutions
    report = fk.count(
        lambda: (
            torch.nn.functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(2, 1, 1, 1)),
            torch.ones(3, 5) @ torch.ones(5, 7),
        )
    )
    return step_rates._ByMode(report, fk.Device("card", peak=peak, bandwidth=1.0)).flops_by_dtype()


def test_a_convolution_in_tf32_leaves_the_products_in_fp32(switches):
    """A vision transformer begins with a convolution, which torch rounds to tf32 by default; its products are not rounded."""
    both = {"fp32": 1.0, "tf32": 8.0}
    count = partial(of_a_convolution_and_a_product, switches=switches)
    convolution, product = 2 * 2 * 16, 2 * 3 * 5 * 7
    assert count("ieee", "tf32", peak=both) == {"tf32": convolution, "fp32": product}
    assert count("tf32", "ieee", peak=both) == {"fp32": convolution, "tf32": product}
    assert count("tf32", "tf32", peak=both) == {"tf32": convolution + product}
    assert count("ieee", "ieee", peak=both) == {"fp32": convolution + product}
    assert count("tf32", "tf32", peak={"fp32": 1.0}) == {"fp32": convolution + product}


def step_of(flops, tokens=8, dtype=torch.float32, twice_fed=()):
    """A counted step: a product of so many FLOPs."""
    report = fk.count(lambda: torch.ones(flops // 4, 2, dtype=dtype) @ torch.ones(2, 1, dtype=dtype))
    return SimpleNamespace(
        report=report, tokens=tokens, samples=None, twice_fed=set(twice_fed), calls=1,
        facts=lambda: {"model_flops": report.model_flops, "hardware_flops": report.hardware_flops, "backward_flops": 0,
                       "convention": "TORCH", "uncounted": report.uncounted, "notes": report.notes},
    )  # fmt: skip


def test_a_cycle_shows_in_three_repetitions():
    a, b, c = (step_of(flops) for flops in (40, 80, 120))
    assert shown_cycle([a]) == [] and shown_cycle([a, a]) == [a]
    assert shown_cycle([a, b, a]) == [] and shown_cycle([a, b, a, b]) == []
    assert shown_cycle([a, b] * 3) == [a, b] and shown_cycle([c, *[a, b] * 3]) == [a, b]
    assert shown_cycle([a, b, c] * 3) == [a, b, c] and shown_cycle([a, a, b] * 3) == [a, a, b]
    assert shown_cycle([a, b, b, b]) == [] and shown_cycle([a, b, b, b, b]) == [b]
    assert shown_cycle([a, b, a, b, a, c]) == []


def test_of_a_cycle_the_mean_stands():
    steps = [step_of(40, tokens=8), step_of(120, tokens=4, dtype=torch.bfloat16)]
    asked = {"convention": "TORCH", "peak": None, "dtype": None, "device": "h100-sxm"}
    rates = step_rates.StepRates(steps * 3, steps, asked, "cpu")
    assert rates.facts["model_flops"] == 80 and rates.tokens == 6
    found, impossible = rates.of(2.0)
    card = fk.device("h100-sxm")
    assert not impossible and found["model_flops_per_s"] == 40.0 and found["tokens_per_s"] == 3.0
    assert found["mfu"] == pytest.approx((40 / card.peak("fp32") + 120 / card.peak("bf16")) / 2 / 2.0, rel=1e-12)
    assert "fp32 and bf16" in rates.gauges[0].of()


def test_of_steps_with_unlike_numbers_of_tokens_no_rate_of_tokens_is_told():
    asked = {"convention": "TORCH", "peak": 1e12, "dtype": None, "device": None}
    steps = [step_of(40, tokens=8), step_of(40, tokens=4)]
    assert step_rates.StepRates(steps, steps[1:], asked, "cpu").tokens is None
    twice = step_of(40, tokens=None, twice_fed=["tokens"])
    assert step_rates.StepRates([twice], [twice], asked, "cpu").notes == [
        "no tokens/s: the model ran several times on one and the same batch"
    ]


def test_a_batch_that_runs_twice_may_be_one_or_two():
    model = torch.nn.Linear(3, 2)
    step = WatchedStep([torch.optim.SGD(model.parameters())])
    x = torch.ones(4, 3)
    (model(x).sum() + model(x).sum()).backward()
    step.stop()
    assert step.samples is None and step.twice_fed == {"samples"} and step.calls == 2
    step = WatchedStep([torch.optim.SGD(model.parameters())])
    for _ in range(2):
        model(x.copy_(torch.rand(4, 3))).sum().backward()  # a buffer that is filled anew
    step.stop()
    assert step.samples == 8 and step.twice_fed == set()
