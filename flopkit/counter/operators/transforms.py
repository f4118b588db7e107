"""Fourier transforms: 5·N·log₂N FLOPs each."""

from __future__ import annotations

from fractions import Fraction
from math import log2, prod
from typing import Any

from flopkit.counter.calls import Call, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

__all__ = ["nearest_even", "transform_flops"]


def nearest_even(flops: float | Fraction) -> int:
    """*flops* rounded to the nearest even integer, so that half of it is whole multiply-adds; a tie goes to the multiple of four.

    >>> nearest_even(166.67), nearest_even(9)
    (166, 8)
    """
    return 2 * round(flops / 2)


def transform_flops(points: int) -> int:
    """5·N·log₂N of one transform of N points, in all its dimensions, rounded to the nearest even integer.

    That is the radix-2 algorithm of Cooley and Tukey, N/2·log₂N butterflies of 10 real operations, and the number by which FFTW
    states its speed (Frigo and Johnson, 2005). A real transform of N numbers counts the same here, though half would do.

    >>> transform_flops(8), transform_flops(12)
    (120, 216)
    """
    return nearest_even(5 * points * log2(points)) if points > 1 else 0


def _transforms(whole: Any, dims: Any, call: Call) -> Work:
    points = prod(int(whole.shape[d]) for d in dims)
    # equivalent: 0 -> 1 (a transform of no points has no FLOPs)
    many = numel(whole) // points if points else 0
    scaled = numel(call.outputs[0]) if call.get("normalization") else 0
    return counted(many * transform_flops(points) // 2, call.bytes(), vector=scaled)


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
