"""Numbers among the arguments that a result's size follows from: two counts with different ones are two results."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopkit as fk
from flopkit.counter import registry
from flopkit.counter.watch import cache


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("gradients", [torch.enable_grad, torch.inference_mode])
def test_sizes_by_a_factor(device, mode, gradients):
    with gradients():
        x, w = torch.ones(1, 4, 8, 8, device=device), torch.ones(4, 4, 3, 3, device=device)
        for factor in (2.0, 4.0, 0.5, 2.0):
            out = []
            resized = functools.partial(F.interpolate, x, scale_factor=factor, mode=mode)
            report = fk.count(lambda out, resized: out.append(F.conv2d(resized(), w, padding=1)), out, resized)
            side = int(8 * factor)
            assert out[0].shape == (1, 4, side, side)
            assert report.flops == 2 * 4 * 4 * 9 * side**2
            assert report.bytes >= 4 * (4 * 64 + 2 * 4 * side**2)


@torch.inference_mode()
def test_a_layer_after_another_was_counted():
    x = torch.ones(1, 1, 8, 8, device="meta")
    fk.count(nn.Upsample(scale_factor=4), x)
    with fk.counting():
        assert nn.Upsample(scale_factor=2)(x).shape == (1, 1, 16, 16)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_ranges(device):
    def bytes_of(*numbers):
        return fk.count(torch.arange, *numbers, device=device).bytes

    assert [bytes_of(10.0), bytes_of(1000.0), bytes_of(0.0, 1.0, 0.25), bytes_of(0.0, 1.0, 0.5)] == [40, 4000, 16, 8]


@pytest.mark.filterwarnings("ignore:The number of elements in the out tensor")
def test_a_range_into_a_tensor_that_grows():
    out = torch.empty(0)
    assert [fk.count(torch.arange, end, out=out).bytes for end in (10.0, 20.0)] == [40, 80]


def test_a_float_that_changes_with_each_step_makes_no_line_in_each():
    steps = 300
    registry.RULES.clear()
    x, a, b = torch.ones(4), torch.ones(4, 8), torch.ones(8, 4)
    with fk.counting() as report:
        for step in range(steps):
            torch.addmm(x, a, b, beta=2.5 + step, alpha=1 / (step + 3))
            F.pad(x, (1, 1), value=step + 0.5)
        assert len(report._source.ledger().calls) <= 3
        assert all(len(rule.entries) <= cache._MANY_FLOATS + 4 for rule in registry.RULES.values())
    assert report.flops == steps * 2 * 4 * 8 * 4


def test_a_factor_of_nothing_is_told_from_another():
    x, a, b = torch.ones(4, 4), torch.ones(4, 8), torch.ones(8, 4)
    for beta, vector in ((2.5, 16), (0.0, 0), (1.0, 16)):
        assert fk.count(torch.addmm, x, a, b, beta=beta).vector_flops == vector
