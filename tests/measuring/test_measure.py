"""`flopkit.measure` on the CPU: what it counts, checks and refuses, and what it says."""

import math
from itertools import count

import pytest
import torch

import flopkit as fk
from flopkit.measuring import arguments, judging, protocol, running as module
from flopkit.measuring.timers import WallClock

BUDGET = 0.15  # s


@pytest.fixture
def small():
    torch.manual_seed(0)
    return torch.randn(48, 32), torch.randn(32, 24)


def test_a_product(small):
    found = fk.measure(torch.mm, *small, time_budget=BUDGET)
    assert (found.verdict, found.flops, found.name) == ("ok", 2 * 48 * 32 * 24, "mm")
    assert found.bytes == 4 * (48 * 32 + 32 * 24 + 48 * 24)
    assert found.seconds_ci[0] <= found.seconds <= found.seconds_ci[1]
    assert found.fastest <= found.median and found.error < 1e-6
    assert found.flops_per_s == found.flops / found.seconds and found.bytes_per_s == found.bytes / found.seconds
    assert found.mfu is None and any("is not known: no MFU" in note for note in found.notes)
    assert "mm: " in repr(found) and "verdict" in found._repr_html_() and len(found.table()) == 9
    assert found.protocol["timer"] == "wall clock" and found.protocol["argument_sets"] > 1


def test_what_is_given_is_not_counted(small):
    found = fk.measure(torch.mm, *small, time_budget=BUDGET, flops=10, bytes=20)
    assert (found.flops, found.bytes) == (10, 20)


def test_the_arguments_are_left_as_they_were():
    x = torch.ones(8)
    fk.measure(lambda x: x + 1, x, time_budget=BUDGET)
    assert x.eq(1).all() and x.grad is None


@pytest.mark.parametrize(
    ("fn", "note"),
    [
        (lambda a, b: a.bfloat16() @ b.bfloat16(), "in the same format"),
        (lambda a, b: None, "returns no tensor"),
        (lambda a, b: torch.mm(a.float(), b, out=torch.empty(48, 24)), "in float64 the function raises"),
    ],
)
def test_what_cannot_be_checked_says_so(small, fn, note):
    found = fk.measure(fn, *small, time_budget=BUDGET)
    assert found.verdict == "ok" and found.error is None and any(note in each for each in found.notes)


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda right: right * 1.01,
        lambda right: right.index_fill(0, torch.tensor([0]), math.nan),
        lambda right: right.index_fill(0, torch.tensor([0]), math.inf),
        lambda right: right[:, :-1],
        lambda right: torch.zeros_like(right),
    ],
)
def test_a_wrong_result_is_said_to_be_wrong(small, spoilt):
    found = fk.measure(lambda a, b: spoilt(a @ b), *small, time_budget=BUDGET, check=torch.mm)
    assert found.verdict == "wrong"


def test_nan_where_the_check_has_it_too_is_right():
    x = torch.tensor([-1.0, 4.0])
    assert fk.measure(torch.sqrt, x, time_budget=BUDGET).verdict == "ok"


def test_a_module_is_checked_with_weights_in_float64_and_stays_as_it_was():
    layer = torch.nn.Linear(16, 8)
    found = fk.measure(layer, torch.randn(4, 16), time_budget=BUDGET)
    assert (
        found.verdict == "ok"
        and found.error < 1e-6
        and layer.weight.dtype == torch.float32
        and layer.weight.grad is None
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fk.measure(3), TypeError, "fn=3"),
        (lambda: fk.measure(torch.neg, torch.ones(2), time_budget=0), ValueError, "time_budget=0"),
        (lambda: fk.measure(torch.neg, torch.ones(2), flops=-1), ValueError, "flops=-1"),
        (lambda: fk.measure(torch.neg, torch.ones(2), bytes=math.nan), ValueError, "bytes=nan"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_what_fails_fails_as_it_does_alone():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fk.measure(torch.mm, torch.ones(2, 3), torch.ones(2, 3))


SLOW = fk.Device("slow card", peak={"fp32": 1e6}, bandwidth=1e6)


def test_a_time_that_the_device_cannot_reach_is_impossible(small, monkeypatch):
    """The same call on a device of a million FLOP/s: the limit is 1.1 times that, and the call takes 67 ms there at least."""
    monkeypatch.setattr(module, "_device", lambda where: SLOW)
    found = fk.measure(torch.mm, *small, time_budget=BUDGET)
    assert found.verdict == "impossible" and any("arithmetic needs 0.067 s" in note for note in found.notes)
    assert found.mfu == pytest.approx(found.flops_per_s / 1e6) and found.mbu == pytest.approx(found.bytes_per_s / 1e6)


@pytest.mark.parametrize("share", [0.9, 0.99, 1.5])
def test_the_floor_is_judged_to_two_per_cent(small, monkeypatch, share):
    """A clock whose calls take just so much of the floor; what the silicon may do is the limit, not the peak."""
    floor = 2 * 48 * 32 * 24 / 1.1e6
    monkeypatch.setattr(module, "_device", lambda where: SLOW)

    class Clock:
        def __init__(self):
            self.clock = count()

        def calls(self, n):
            return [share * floor] * n

        def now(self):
            return float(next(self.clock))

    monkeypatch.setattr(module, "timer_for", lambda run, torch, cuda: (Clock(), "simulated"))
    found = fk.measure(torch.mm, *small, time_budget=30)
    assert found.verdict == ("impossible" if share < 0.98 else "ok")


def test_the_floor_by_bytes_takes_inputs_and_outputs_alone():
    card = fk.Device("card", peak={"fp32": 1e30}, bandwidth=1e6)
    x = torch.ones(1000)
    least, bound = judging.floor(card, {}, module._own_bytes(lambda x: (x + 1) * 2 - 3, (x,), {}), False)
    assert (least, bound) == (8000 / 1e6, "memory")
    layer = torch.nn.Linear(10, 20)
    assert module._own_bytes(layer, (torch.ones(5, 10),), {}) == 4 * (50 + 200 + 20 + 100)


def test_what_a_cache_can_hold_is_no_floor(monkeypatch):
    """Weights are not rotated, so a cache of 4,000 bytes may serve them; of larger ones it serves no more than that."""
    monkeypatch.setattr(arguments, "cache_bytes", lambda device: 4000)
    cpu, x = torch.device("cpu"), torch.ones(5, 10)  # 200 bytes in, 400 out
    small, large = torch.nn.Linear(10, 20), torch.nn.Linear(10, 2000)
    assert module._least_bytes(small, (x,), {}, 41, cpu) == 200  # 40 other copies lie between two uses of one
    assert module._least_bytes(small, (x,), {}, 5, cpu) == 0
    assert module._least_bytes(large, (x,), {}, 41, cpu) == 200 + 4 * (20_000 + 2_000 + 10_000) - 4000


def test_weights_in_the_cache_are_faster_than_memory(monkeypatch):
    """A linear layer whose weights fit in the cache, twice as fast as this card's memory could read them: possible."""
    layer, x = torch.nn.Linear(500, 500), torch.ones(1, 500)
    card = fk.Device("card", peak={"fp32": 1e30}, bandwidth=1e9)
    monkeypatch.setattr(module, "_device", lambda where: card)

    class Clock:
        def __init__(self):
            self.clock = count()

        def calls(self, n):
            return [0.5e-3] * n  # of a million bytes, which take 1 ms from memory

        def now(self):
            return float(next(self.clock))

    monkeypatch.setattr(module, "timer_for", lambda run, torch, cuda: (Clock(), "simulated"))
    for cache, verdict in ((2_000_000, "ok"), (1000, "impossible")):
        monkeypatch.setattr(arguments, "cache_bytes", lambda device, cache=cache: cache)
        assert fk.measure(layer, x, time_budget=30).verdict == verdict


def test_the_fastest_arithmetic_that_is_allowed_makes_the_floor():
    card = fk.device("a100-sxm-80gb")
    exact, _ = judging.floor(card, {"fp32": 1e12}, 0, False)
    tf32, _ = judging.floor(card, {"fp32": 1e12}, 0, True)
    assert exact / tf32 == pytest.approx(card.limit("tf32") / card.limit("fp32")) and tf32 < exact


def test_matrix_units_make_the_floor_of_fp64():
    """An A100's 19.5 TFLOP/s in fp64 are twice what its ordinary lanes reach: a product at 15 TFLOP/s is possible."""
    least, bound = judging.floor(fk.device("a100-sxm-80gb"), {"fp64": 15e12}, 0, False)
    assert bound == "arithmetic" and least < 1


def test_a_look_up_is_judged_by_the_rows_that_it_reads(monkeypatch):
    """The table takes 0.4 s on this card, its four rows 40 µs: a clock that says a millisecond is possible."""
    monkeypatch.setattr(module, "_device", lambda where: fk.Device("card", peak={"fp32": 1e30}, bandwidth=1e7))
    table = torch.nn.Embedding(100_000, 10)

    class Clock:
        def __init__(self):
            self.clock = count()

        def calls(self, n):
            return [1e-3] * n

        def now(self):
            return float(next(self.clock))

    monkeypatch.setattr(module, "timer_for", lambda run, torch, cuda: (Clock(), "simulated"))
    assert fk.measure(table, torch.arange(4), time_budget=30).verdict == "ok"


def test_the_random_numbers_of_the_caller_go_on():
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    judging.check_result(lambda x: x + torch.rand(2, dtype=x.dtype), (torch.ones(2),), {}, None)
    assert torch.rand(2).equal(wanted)


def test_arguments_are_rotated_through_twice_the_cache(monkeypatch):
    monkeypatch.setattr(arguments, "cache_bytes", lambda device: 4000)
    x = torch.arange(250.0)
    sets = arguments.copies(((x,), {"y": [x[:10], 3]}), x.device)
    assert len(sets) == 1 + 2 * 4000 // 1000 and all(each[0][0].equal(x) for each in sets)
    assert len({each[0][0].data_ptr() for each in sets}) == len(sets)
    seen = []
    run = arguments.rotating(lambda x, y: seen.append((x.data_ptr(), y[1])), sets)
    for _ in range(2 * len(sets)):
        run()
    assert len(set(seen)) == len(sets) and seen[: len(sets)] == seen[len(sets) :]


def test_the_wall_clock_groups_short_calls():
    calls = []
    clock = WallClock(lambda: calls.append(1))
    calls.clear()
    found = clock.calls(1000)
    assert len(found) == len(calls) == 1000 and all(seconds > 0 for seconds in found)
    assert len(set(found)) < 1000
    assert protocol.timed(clock, 0.1).median < 1e-5
