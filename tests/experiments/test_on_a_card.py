"""A measurement, ceilings and experiments from beginning to end on a stand-in for a CUDA device: it says that it is an H100, and computes on the CPU."""

import contextlib
import time
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

import flopkit as fk
from flopkit.counter import modes
from flopkit.experiments import Bench, experiment
from flopkit.measuring import arguments, judging, timers, workloads
from flopkit.measuring.ceilings import ceilings

BUDGET = 0.02  # s
SLOW = fk.Device("slow card", peak={"fp32": 1e3, "tf32": 8e3}, bandwidth=1e30)  # whose arithmetic no call is as slow as


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


class Graph:
    def replay(self):
        pass


class OnTheCpu(TorchFunctionMode):
    """What torch is to make on a CUDA device, it makes on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def here(leaf):
            return torch.device("cpu") if isinstance(leaf, torch.device) and leaf.type == "cuda" else leaf

        if func is torch.device:
            return func(*args, **(kwargs or {}))
        args, kwargs = tree_map(here, (args, kwargs or {}))
        return func(*args, **kwargs)


class Generator(torch.Generator):
    def __new__(cls, device=None):
        return super().__new__(cls, "cpu")


@pytest.fixture(autouse=True)
def card(monkeypatch, tmp_path):
    about = SimpleNamespace(
        L2_cache_size=2**20, clock_rate=1.98e6, total_memory=80 * 2**30, multi_processor_count=132, uuid="1234"
    )
    stream = SimpleNamespace(wait_stream=lambda other: None)
    cuda = dict(
        is_available=lambda: True, is_initialized=lambda: True, device_count=lambda: 0, current_device=lambda: 0, Event=Event,
        get_device_name=lambda where=None: "NVIDIA H100 80GB HBM3", get_device_capability=lambda where=None: (9, 0),
        get_device_properties=lambda where=None: about, synchronize=lambda: None, _sleep=lambda cycles: None,
        device=lambda where: contextlib.nullcontext(), stream=lambda stream: contextlib.nullcontext(), Stream=lambda: stream,
        is_current_stream_capturing=lambda: False, current_stream=lambda: stream, CUDAGraph=Graph, graph=lambda made: contextlib.nullcontext(),
    )  # fmt: skip
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    # In a build for CUDA an optimiser would ask a driver for the stream.
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch, "Generator", Generator)
    monkeypatch.setattr(timers, "SHORT", 0.0)  # graphs have tests of their own
    monkeypatch.setattr(arguments, "place", lambda found: torch.device("cuda", 0))
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(tmp_path))
    with OnTheCpu():
        yield about


def test_a_step_that_holds_its_own_tensors_is_timed_on_the_card_where_it_allocates(monkeypatch):
    """On an H200 such a step was said to run on the processor, at 193 TFLOP/s, by the wall clock."""
    x, made = torch.ones(32, 32, dtype=torch.bfloat16), []
    monkeypatch.setattr(arguments, "place", lambda found: torch.device("cpu"))
    counts = {0: lambda: 7, 1: lambda: len(made)}  # only the second card allocates
    monkeypatch.setattr(arguments, "allocated", lambda: {each: count() for each, count in counts.items()})

    def step():
        made.append(1)
        torch.mm(x, x)

    found = fk.measure(step, time_budget=BUDGET)
    assert found.device == fk.device("h100-sxm").title and found.mfu > 0
    assert found.protocol["timer"] == "CUDA events behind a sleep" and not any("wall clock" in n for n in found.notes)
    counts[0] = counts[1]
    assert any(
        "if a GPU ran" in note for note in fk.measure(step, time_budget=BUDGET).notes
    )  # on two cards: on neither


def test_a_product_is_held_against_the_datasheet():
    x = torch.ones(32, 32, dtype=torch.bfloat16)
    found = fk.measure(torch.mm, x, x, time_budget=BUDGET)
    h100 = fk.device("h100-sxm")
    assert (found.verdict, found.device) == ("ok", h100.title) and found.protocol[
        "timer"
    ] == "CUDA events behind a sleep"
    assert found.mfu == pytest.approx(found.flops_per_s / h100.peak("bf16"))
    assert found.floor == pytest.approx(2 * 32**3 / h100.limit("bf16"))


@pytest.mark.parametrize(("ms", "named"), [(0.001, True), (50.0, False)])
def test_a_host_that_sets_the_pace_is_named(monkeypatch, ms, named):
    """On the stand-in launching a call is to compute it, some microseconds here."""
    monkeypatch.setattr(Event, "elapsed_time", lambda self, other: ms)
    found = fk.measure(torch.neg, torch.ones(8), time_budget=BUDGET)
    assert any("launching a call takes the host" in note for note in found.notes) is named


def test_what_is_computed_again_is_no_part_of_mfu():
    none, full, *_ = experiment("checkpointing").run(Bench("cuda", "toy", time_budget=BUDGET))
    useful = [
        each["rates"]["mfu"] * each["seconds"]["mean"] * fk.device("h100-sxm").peak("bf16") for each in (none, full)
    ]
    assert useful == pytest.approx([none["extra"]["model_flops"]] * 2) and full["counted"]["flops"] > 1.1 * useful[1]


def test_a_time_below_the_floor_is_impossible(monkeypatch):
    monkeypatch.setattr(judging, "_device", lambda where: SLOW)
    x = torch.ones(64, 64)
    assert fk.measure(torch.mm, x, x, time_budget=BUDGET).verdict == "impossible"


@pytest.mark.parametrize(("allowed", "format"), [(True, "tf32"), (False, "fp32")])
def test_a_convolution_of_fp32_is_one_of_tf32_where_that_is_allowed(monkeypatch, allowed, format):
    """torch allows it, if nobody says otherwise. Such a result has errors of tf32, and its rate is a share of that peak. Its time has no floor
    by arithmetic."""
    monkeypatch.setattr(judging, "_device", lambda where: SLOW)
    monkeypatch.setattr(modes, "tf32_switches", lambda: (False, allowed))
    images, weight = torch.randn(1, 8, 16, 16), torch.randn(8, 8, 3, 3)
    found = fk.measure(
        lambda x, w: torch.nn.functional.conv2d(x, w) * 1.001,
        images,
        weight,
        time_budget=BUDGET,
        check=torch.nn.functional.conv2d,
    )
    assert found.mfu == pytest.approx(found.flops_per_s / SLOW.peak(format))
    assert found.verdict == ("ok" if allowed else "wrong") and any("Winograd" in note for note in found.notes)


def test_a_mask_in_a_tensor_is_not_judged(monkeypatch):
    """A kernel that skips what the mask hides computes less than was counted."""
    monkeypatch.setattr(judging, "_device", lambda where: SLOW)
    q = torch.randn(1, 2, 16, 8)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    attend = torch.nn.functional.scaled_dot_product_attention
    found = fk.measure(attend, q, q, q, attn_mask=mask, time_budget=BUDGET)
    assert found.verdict == "ok" and any(
        "not judged by its arithmetic: the mask is in a tensor" in note for note in found.notes
    )
    assert fk.measure(attend, q, q, q, is_causal=True, time_budget=BUDGET).verdict == "impossible"


def test_ceilings(monkeypatch):
    monkeypatch.setattr(workloads, "ARRAY", {"cuda": (2**16, 2**18)})
    monkeypatch.setattr(workloads, "shapes", lambda where, dtype: [(16, 16, 16), (32, 32, 32)])
    monkeypatch.setattr(workloads, "scaled_mm", lambda a, b, one: (a.float() @ b.float().t()).bfloat16())
    found = ceilings("cuda", time_budget=0.3)
    assert list(found.matmul) == ["bf16", "fp16", "fp8", "tf32", "fp32", "fp64"]
    assert {each["verdict"] for each in (*found.matmul.values(), *found.traffic.values())} == {"ok"}
    x = torch.ones(16, 16)
    held = fk.measure(torch.mm, x, x, time_budget=BUDGET)
    assert held.of_ceiling_flops == pytest.approx(held.flops_per_s / found.device().peak("fp32"))


@pytest.mark.parametrize(
    "name",
    [
        "matmul_sizes",
        "matmul_tiles",
        "dense_batch",
        "convolutions",
        "backward_ratio",
        "checkpointing",
        "experts",
        "gpt_step",
        "decode",
    ],
)
def test_an_experiment(name):
    """In the formats that an H100 has; without what only its own kernels and compilers do. With its MFU, whatever is counted or given."""
    found = list(experiment(name).run(Bench("cuda", "toy", time_budget=BUDGET)))
    assert {each["verdict"] for each in found} == {"ok"} and {each["dtype"] for each in found} <= {
        "bf16",
        "tf32",
        "fp32",
    }
    assert found[0]["dtype"] == "bf16" and all(each["rates"]["mfu"] for each in found)
