"""Backward to forward: the counted ratios by hand and by the closed forms, and the ratio of times from two records."""

import pytest
import torch

import flopkit as fk
from flopkit.experiments import Bench, backward_ratio as module

FORWARD = {
    "linear": 2 * 8 * 16 * 64,
    "linear, first layer": 2 * 8 * 16 * 64,
    "convolution": 2 * 8 * 6 * 6 * 9 * 8,
    "depthwise convolution": 2 * 8 * 6 * 6 * 9,
    "attention, math": 2 * 16 * 16 * 4 * 8,
    "attention, flash": 2 * 16 * 16 * 4 * 8,
}
RATIO = {"linear, first layer": 1, "attention, flash": 2.5}  # 2 where not named


@pytest.fixture(scope="module")
def records(toy):
    return toy("backward_ratio")[1]


def test_flops_by_hand(records):
    assert [each["params"]["layer"] for each in records] == [name for name in FORWARD for _ in range(2)]
    for each in records:
        one = FORWARD[each["params"]["layer"]]
        both = one * (1 + RATIO.get(each["params"]["layer"], 2))
        assert each["counted"]["flops"] == (one if each["params"]["passes"] == "forward" else both)


def test_ratios_are_those_of_the_closed_forms(records):
    found = module.ratios(records)
    dense = {"tokens": 8, "d_in": 16, "d_out": 64, "dtype": "fp32"}
    for layer, first in (("linear", False), ("linear, first layer", True)):
        wanted = fk.training.dense_backward(**dense, input=not first).flops / fk.dense(**dense).flops
        assert found[layer]["flops"] == wanted
    core = {"batch": 1, "q": 16, "kv": 16, "heads": 2, "head_dim": 8}
    for kernel in ("math", "flash"):
        wanted = fk.training.attention_backward(**core, kernel=kernel).flops / fk.attention(**core).flops
        assert found[f"attention, {kernel}"]["flops"] == wanted


def test_depthwise_moves_about_twice_the_bytes_on_its_way_back(records):
    assert module.ratios(records)["depthwise convolution"]["bytes"] == pytest.approx(2, rel=0.3)


def record(passes, mean, verdict="ok"):
    seconds = {"mean": mean, "low": 0.9 * mean, "high": 1.1 * mean}
    return {
        "params": {"layer": "a", "passes": passes}, "verdict": verdict, "seconds": seconds, "counted": {"flops": mean, "bytes": mean},
    }  # fmt: skip


def test_the_ratio_of_times():
    found = module.ratios([record("forward", 2), record("forward and backward", 6)])["a"]
    assert (found["flops"], found["bytes"], found["seconds"]) == (2, 2, 2)
    assert (found["low"], found["high"]) == pytest.approx((5.4 / 2.2 - 1, 6.6 / 1.8 - 1))
    assert module.ratios([record("forward", 2), record("forward and backward", 6, "impossible")]) == {}


def test_the_gradients_are_those_of_autograd():
    torch.manual_seed(0)
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    gradient = torch.randn(3, 5)
    linear = torch.nn.functional.linear
    dx, dw = module._passes(linear, 2, "forward and backward")(gradient, x, w)
    assert torch.allclose(dx, gradient @ w) and torch.allclose(dw, gradient.T @ x)
    (alone,) = module._passes(linear, 1, "forward and backward")(gradient, x, w)
    assert alone.equal(dw)
    out = module._passes(linear, 2, "forward")(gradient, x, w)
    assert out.equal(linear(x, w)) and not out.requires_grad
    assert x.grad is None and not x.requires_grad


def test_a_gpu_without_flash_takes_the_memory_efficient_kernel(monkeypatch):
    bench = Bench("cpu", "toy")
    bench.device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    names = [name for name, *_ in module._layers(bench, "fp16")]
    assert names[-2:] == ["attention, math", "attention, efficient"]


def test_a_forward_pass_that_may_have_taken_no_time_leaves_the_ratio_open():
    def record(passes, mean, half):
        return {
            "params": {"layer": "a", "passes": passes}, "verdict": "ok", "counted": {"flops": 1, "bytes": 1},
            "seconds": {"mean": mean, "low": mean - half, "high": mean + half},
        }  # fmt: skip

    found = module.ratios([record("forward", 2, 3), record("forward and backward", 6, 1)])["a"]
    assert (found["seconds"], found["low"], found["high"]) == (2, 0, float("inf"))
