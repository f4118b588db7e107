"""Fourier transforms: 5·N·log₂N FLOPs each."""

from __future__ import annotations

from math import prod
from typing import Any

from flopkit.counter.calls import Call, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted
from flopkit.macs import fourier

__all__: list[str] = []


def _transforms(whole: Any, dims: Any, call: Call) -> Work:
    points = prod(int(whole.shape[d]) for d in dims)
    # equivalent: 0 -> 1 (a transform of no points has no FLOPs)
    many = numel(whole) // points if points else 0
    scaled = numel(call.outputs[0]) if call.get("normalization") else 0
    return counted(many * fourier(points) // 2, call.bytes(), vector=scaled)


@explains("aten::_fft_c2c", "aten::_fft_r2c")
def forward(call: Call) -> Work:
    """A transform of complex or of real numbers: N is the size of the input in the dimensions that are transformed.

    A scale for the norm is one element-wise FLOP a number.
    """
    return _transforms(call["self"], call["dim"], call)


@explains("aten::_fft_c2r")
def to_real(call: Call) -> Work:
    """A transform to real numbers: N is the size of the result."""
    return _transforms(call.outputs[0], call["dim"], call)
