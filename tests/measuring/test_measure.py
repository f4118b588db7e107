"""`flopkit.measure` on the CPU: what it counts, checks and refuses, and what it says."""

import math
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import flopkit as fk
from flopkit.measuring import arguments, judging, protocol, running as module
from flopkit.measuring.checking import check_result
from flopkit.measuring.timers import WallClock

BUDGET = 0.15  # s


@pytest.fixture
def small():
    torch.manual_seed(0)
    return torch.randn(48, 32), torch.randn(32, 24)


@pytest.fixture
def clocked(monkeypatch):
    """Has so many calls take the seconds that a function gives for them."""

    def clocked(calls):
        ticks = count()
        clock = SimpleNamespace(calls=calls, now=lambda: float(next(ticks)), launch=0.0)
        monkeypatch.setattr(module, "timer_for", lambda *given: (clock, "simulated"))

    return clocked


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


@pytest.mark.parametrize("check", [lambda x: x * math.inf, lambda x: x * -math.inf, lambda x: x * math.nan])
def test_infinity_is_right_where_the_check_has_the_same(check):
    x = torch.ones(4)
    assert fk.measure(check, x, time_budget=BUDGET, check=check).verdict == "ok"
    for other in (lambda x: x, lambda x: x / 0 * (1 if check(x)[0] < 0 else -1)):
        assert fk.measure(other, x, time_budget=BUDGET, check=check).verdict == "wrong"


@pytest.mark.parametrize("fn", [torch.rand_like, torch.bernoulli, lambda x: x + torch.randn_like(x)])
def test_what_draws_random_numbers_is_not_said_to_be_wrong(fn):
    found = fk.measure(fn, torch.full((32, 32), 0.5), time_budget=BUDGET)
    assert found.verdict == "ok" and any("depends on random numbers" in note for note in found.notes)
    assert fk.measure(fn, torch.full((32, 32), 0.5), time_budget=BUDGET, check=torch.neg).verdict == "wrong"


def test_a_result_that_goes_wrong_while_it_is_timed(monkeypatch):
    monkeypatch.setattr(module, "AGAIN", 1.0)  # however busy this machine is
    calls = count()
    found = fk.measure(
        lambda x: x * (1 if next(calls) < 9 else 2), torch.ones(4), time_budget=BUDGET, check=lambda x: x
    )
    assert found.verdict == "wrong" and found.error == 1


def test_a_backward_pass_runs_as_it_does_alone():
    """Gradients go where they would without a measurement; only the results are compared."""
    w = torch.ones(8, 8, requires_grad=True)
    found = fk.measure(
        lambda x, w: torch.autograd.grad((x @ w).square().sum(), w), torch.ones(4, 8), w, time_budget=BUDGET
    )
    assert found.verdict == "ok" and found.error < 1e-6 and w.grad is None
    layer = torch.nn.Linear(8, 8)
    assert (
        fk.measure(lambda x: layer(x).sum().backward(), torch.ones(4, 8), time_budget=BUDGET).flops == 2 * 2 * 4 * 8 * 8
    )


def test_every_name_but_four_is_the_functions():
    def named(x, *, strict, device, name):
        return x * (2 if (strict, device, name) == (True, "here", "me") else math.nan)

    found = fk.measure(
        named, torch.ones(4), time_budget=BUDGET, check=lambda x, **k: 2 * x, strict=True, device="here", name="me"
    )
    assert found.verdict == "ok"


@torch.library.custom_op("measure_tests::opaque", mutates_args=())
def opaque(a: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(a.detach().numpy() @ a.detach().numpy())


@pytest.mark.parametrize(
    ("fn", "x", "says"),
    [
        (opaque, torch.ones(8, 8), "not counted, so no part of the FLOPs: measure_tests.opaque"),
        (lambda x: x @ x, np.ones((8, 8)), "no operator of torch ran, and nothing else is counted"),
    ],
)
def test_what_is_not_counted_is_said(fn, x, says):
    assert says in fk.measure(fn, x, time_budget=BUDGET).notes
    assert says not in fk.measure(fn, x, time_budget=BUDGET, flops=1024).notes


def test_a_sparse_argument():
    a, b = torch.eye(8).to_sparse(), torch.ones(8, 4)
    assert fk.measure(torch.sparse.mm, a, b, time_budget=BUDGET).verdict == "ok"
    assert fk.measure(lambda a: a * 2, a, time_budget=BUDGET).verdict == "ok"


def test_a_call_runs_where_one_of_its_tensors_lies_on_a_gpu():
    """Images that wait on the host come before a network's weights on the card."""
    on = {name: SimpleNamespace(device=torch.device(name)) for name in ("cpu", "cuda:0", "cuda:1", "mps")}
    assert arguments.place([on["cpu"], on["cuda:1"]]) == torch.device("cuda", 1)
    assert arguments.place([]) == arguments.place([on["cpu"]]) == torch.device("cpu")
    for others in (["cuda:0", "cuda:1"], ["cpu", "mps"]):
        with pytest.raises(ValueError, match=f"tensors on .*{others[1]}: only"):
            arguments.place([on[name] for name in others])


def test_a_device_of_which_no_tensor_tells_is_waited_for(monkeypatch):
    """A step that takes nothing and gives nothing, in a process that uses a GPU: its launches alone are not its time."""
    waited = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(1))
    found = fk.measure(lambda: None, time_budget=BUDGET)
    assert len(waited) >= found.calls and any("if a GPU ran" in note for note in found.notes)
    waited.clear()
    assert fk.measure(torch.neg, torch.ones(4), time_budget=BUDGET).verdict == "ok" and not waited


@pytest.mark.parametrize(
    ("limit", "check", "verdict"), [(0.0, None, "disturbed"), (9.0, None, "ok"), (0.0, torch.zeros_like, "wrong")]
)
def test_a_disturbed_time_is_no_result(monkeypatch, limit, check, verdict):
    """Any mean is above a limit of nothing. That the result is wrong weighs more."""
    monkeypatch.setattr(module.protocol, "DISTURBED", limit)
    found = fk.measure(torch.neg, torch.ones(64), check=check, time_budget=BUDGET)
    assert found.verdict == verdict
    if verdict != "wrong":
        assert any("times the median" in note for note in found.notes) is (verdict == "disturbed")


def test_where_torch_has_allocated(monkeypatch):
    """Of two cards the one whose count has grown; before CUDA begins there is none."""
    counts = {0: 3, 1: 5}
    assert arguments.allocated() == {} and arguments.used({}) is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda each: {"allocation.all.allocated": counts[each]})
    before = arguments.allocated()
    assert arguments.used(before) is None
    counts[1] += 1
    assert arguments.used(before) == torch.device("cuda", 1)
    counts[0] += 1
    assert arguments.used(before) is None and arguments.used({0: 4}) == torch.device("cuda", 1)


def test_the_format_of_given_flops_is_that_of_what_is_multiplied():
    tokens, table = torch.arange(4), torch.ones(4, dtype=torch.bfloat16)
    assert module._format([tokens, table]) == "bf16" and module._format([tokens]) == "fp32"


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
        (lambda: fk.measure(torch.neg, torch.ones(2), flops=math.inf), ValueError, "flops=inf"),
        (lambda: fk.measure(torch.neg, torch.ones(2), check=3), TypeError, "check=3"),
        (lambda: fk.measure(torch.neg, torch.ones(2, device="meta")), ValueError, "tensors on meta: only calls on"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_what_fails_fails_as_it_does_alone():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fk.measure(torch.mm, torch.ones(2, 3), torch.ones(2, 3))


@pytest.mark.parametrize("fastest", [0.0, -2e-5])
def test_a_clock_that_goes_back_gives_no_result(small, clocked, fastest):
    clocked(lambda n: [1e-3] * n if n < 3 else [fastest] + [1e-3] * (n - 1))
    found = fk.measure(torch.mm, *small, time_budget=30)
    assert found.verdict == "impossible" and found.fastest == fastest
    assert any(f"took {fastest:.3g} s: the clock stood still or went back" in note for note in found.notes)
    clocked(lambda n: [fastest] * n)
    with pytest.raises(RuntimeError, match=f"half of the calls took {fastest:.3g} s: the clock"):
        fk.measure(torch.mm, *small, time_budget=30)


SLOW = fk.Device("slow card", peak={"fp32": 1e6}, bandwidth=1e6)


def test_a_time_that_the_device_cannot_reach_is_impossible(small, monkeypatch):
    """The same call on a device of a million FLOP/s: the limit is 1.1 times that, and the call takes 67 ms there at least."""
    monkeypatch.setattr(judging, "_device", lambda where: SLOW)
    found = fk.measure(torch.mm, *small, time_budget=BUDGET)
    assert found.verdict == "impossible" and any("arithmetic needs 0.067 s" in note for note in found.notes)
    assert found.mfu == pytest.approx(found.flops_per_s / 1e6) and found.mbu == pytest.approx(found.bytes_per_s / 1e6)


@pytest.mark.parametrize("share", [0.9, 0.99, 1.5])
def test_the_floor_is_judged_to_two_per_cent(small, clocked, monkeypatch, share):
    """A clock whose calls take just so much of the floor; what the silicon may do is the limit, not the peak."""
    floor = 2 * 48 * 32 * 24 / 1.1e6
    monkeypatch.setattr(judging, "_device", lambda where: SLOW)

    clocked(lambda n: [share * floor] * n)
    found = fk.measure(torch.mm, *small, time_budget=30)
    assert found.verdict == ("impossible" if share < 0.98 else "ok")


def test_the_floor_by_bytes_takes_inputs_and_outputs_alone(monkeypatch):
    card = fk.Device("card", peak={"fp32": 1e30}, bandwidth=1e6)
    monkeypatch.setattr(judging, "_device", lambda where: card)
    monkeypatch.setattr(arguments, "cache_bytes", lambda device: 0)
    found = fk.measure(lambda x: (x + 1) * 2 - 3, torch.ones(1000), time_budget=BUDGET)
    assert found.floor == 8000 / 1e6 and "memory needs" in found.notes[-1]
    assert (
        fk.measure(torch.nn.Linear(10, 20), torch.ones(5, 10), time_budget=BUDGET).floor
        == 4 * (50 + 200 + 20 + 100) / 1e6
    )


def test_more_bytes_than_the_memory_moves_are_explained(monkeypatch):
    for bandwidth, says in ((1.0, True), (1e30, False)):
        slow = fk.Device("card", peak={"fp32": 1e30}, bandwidth=bandwidth)
        monkeypatch.setattr(judging, "_device", lambda where, slow=slow: slow)
        monkeypatch.setattr(judging, "_least_bytes", lambda *given: 0)
        found = fk.measure(torch.neg, torch.ones(99), time_budget=BUDGET)
        assert any("a cache serves" in note for note in found.notes) is says and found.verdict == "ok"


def test_what_a_cache_can_hold_is_no_floor(monkeypatch):
    """Weights are not rotated, so a cache of 4,000 bytes may serve them; of larger ones it serves no more than that."""
    monkeypatch.setattr(arguments, "cache_bytes", lambda device: 4000)
    cpu, given, small, large = torch.device("cpu"), 200, 1480, 128_200  # bytes in; with weights and bytes out
    assert judging._least_bytes(given, small, 41, cpu) == 200  # 40 other copies lie between two uses of one
    assert judging._least_bytes(given, small, 5, cpu) == 0
    assert judging._least_bytes(given, large, 41, cpu) == 200 + 128_000 - 4000


def test_weights_in_the_cache_are_faster_than_memory(clocked, monkeypatch):
    """A linear layer whose weights fit in the cache, twice as fast as this card's memory could read them: possible."""
    layer, x = torch.nn.Linear(500, 500), torch.ones(1, 500)
    card = fk.Device("card", peak={"fp32": 1e30}, bandwidth=1e9)
    monkeypatch.setattr(judging, "_device", lambda where: card)

    clocked(lambda n: [0.5e-3] * n)  # of a million bytes, which take 1 ms from memory
    for cache, verdict in ((2_000_000, "ok"), (1000, "impossible")):
        monkeypatch.setattr(arguments, "cache_bytes", lambda device, cache=cache: cache)
        assert fk.measure(layer, x, time_budget=30).verdict == verdict


def test_the_fastest_arithmetic_that_is_allowed_makes_the_floor():
    card = fk.device("a100-sxm-80gb")
    exact, _ = judging.floor(card, {"fp32": 1e12}, 0)
    tf32, _ = judging.floor(card, {"tf32": 1e12}, 0)
    assert exact / tf32 == pytest.approx(card.limit("tf32") / card.limit("fp32")) and tf32 < exact


def test_matrix_units_make_the_floor_of_fp64():
    """An A100's 19.5 TFLOP/s in fp64 are twice what its ordinary lanes reach: a product at 15 TFLOP/s is possible."""
    least, bound = judging.floor(fk.device("a100-sxm-80gb"), {"fp64": 15e12}, 0)
    assert bound == "arithmetic" and least < 1


def test_a_look_up_is_judged_by_the_rows_that_it_reads(clocked, monkeypatch):
    """The table takes 0.4 s on this card, its four rows 40 µs: a clock that says a millisecond is possible."""
    monkeypatch.setattr(judging, "_device", lambda where: fk.Device("card", peak={"fp32": 1e30}, bandwidth=1e7))
    table = torch.nn.Embedding(100_000, 10)

    clocked(lambda n: [1e-3] * n)
    assert fk.measure(table, torch.arange(4), time_budget=30).verdict == "ok"


def test_the_random_numbers_of_the_caller_go_on():
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    check_result(lambda x: x + torch.rand(2, dtype=x.dtype), (torch.ones(2),), {}, None)
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
