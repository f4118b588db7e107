"""Pooling, in every size: a compare or an add for each tap of the window, taps on padding included."""

from __future__ import annotations

from math import prod
from typing import Any

from flopkit.counter.calls import Call, extent, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise

__all__ = ["adaptive_taps"]


def _taps(call: Call, dims: int) -> int:
    """Elements of the window."""
    kernel = call["kernel_size"]
    sizes = [int(k) for k in (kernel if isinstance(kernel, (list, tuple)) else [kernel])]
    return prod(sizes) if len(sizes) == dims else sizes[0] ** dims


def _dims(call: Call) -> int:
    name = str(call.func._schema.name)
    return next(n for n in (1, 2, 3) if f"{n}d" in name)


def adaptive_taps(size: int, outputs: int) -> int:
    """Elements along one dimension under all windows of adaptive pooling: window i goes from ⌊i·size/outputs⌋ to ⌈(i + 1)·size/outputs⌉.

    >>> adaptive_taps(7, 1), adaptive_taps(8, 4), adaptive_taps(5, 3)
    (7, 8, 7)
    """
    return sum(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))


@explains("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::mkldnn_max_pool2d", "aten::mkldnn_max_pool3d",
          "aten::quantized_max_pool1d", "aten::quantized_max_pool2d", "aten::quantized_max_pool3d", "aten::fractional_max_pool2d",
          "aten::fractional_max_pool3d", "quantized::max_pool1d", "quantized::max_pool2d")  # fmt: skip
def max_pool(call: Call) -> Work:
    """A compare a tap. Where the kernel gives the positions of the maxima (int64), they are written, too."""
    return elementwise(numel(call.outputs[0]) * _taps(call, _dims(call)), call.bytes())


@explains("aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d")
def avg_pool(call: Call) -> Work:
    """An add a tap, and a division."""
    return elementwise(numel(call.outputs[0]) * (_taps(call, _dims(call)) + 1), call.bytes())


@explains("aten::avg_pool2d_backward", "aten::avg_pool3d_backward")
def avg_pool_backward(call: Call) -> Work:
    """A division, and an add a tap. The input is not read: its shape is enough."""
    gradient = call["grad_output"]
    return elementwise(numel(gradient) * (_taps(call, _dims(call)) + 1), extent(gradient) + extent(call.out))


@explains("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward", "aten::adaptive_max_pool2d_backward",
          "aten::adaptive_max_pool3d_backward", "aten::fractional_max_pool2d_backward", "aten::fractional_max_pool3d_backward")  # fmt: skip
def max_pool_backward(call: Call) -> Work:
    """An add for each gradient, where its maximum was. The input is not read: its shape is enough."""
    gradient, indices = call["grad_output"], call["indices"]
    return elementwise(numel(gradient), extent(gradient) + extent(indices) + extent(call.outputs[0]))


@explains("aten::max_pool2d_backward", "aten::mkldnn_max_pool2d_backward", "aten::mkldnn_max_pool3d_backward")
def max_pool_backward_by_window(call: Call) -> Work:
    """The maximum is looked for again: a compare a tap, and an add."""
    gradient = call["grad_output"]
    return elementwise(numel(gradient) * (_taps(call, _dims(call)) + 1), call.bytes())


def _windows(image: Any, result: Any, dims: int) -> int:
    """Elements under all windows of adaptive pooling, of all channels and images."""
    taps = prod(adaptive_taps(int(i), int(o)) for i, o in zip(image.shape[-dims:], result.shape[-dims:], strict=True))
    return int(taps * prod(int(n) for n in image.shape[:-dims]))


@explains("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d", "aten::adaptive_avg_pool1d", "aten::adaptive_avg_pool2d",
          "aten::adaptive_avg_pool3d", "aten::mkldnn_adaptive_avg_pool2d")  # fmt: skip
def adaptive_avg_pool(call: Call) -> Work:
    """An add for each element of each window (which may overlap), and a division."""
    result = call.outputs[0]
    return elementwise(_windows(call["self"], result, _dims(call)) + numel(result), call.bytes())


@explains("aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d")
def adaptive_max_pool(call: Call) -> Work:
    """A compare for each element of each window. The positions are written, too."""
    # equivalent: 0 -> 1 (maxima and positions are as many)
    return elementwise(_windows(call["self"], call.outputs[0], _dims(call)), call.bytes())


@explains("aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward", "aten::adaptive_avg_pool3d_backward",
          "aten::mkldnn_adaptive_avg_pool2d_backward")  # fmt: skip
def adaptive_avg_pool_backward(call: Call) -> Work:
    """A division, and an add for each element of each window. The input is not read."""
    gradient, dims = call["grad_output"], _dims(call)
    flops = _windows(call.outputs[0], gradient, dims) + numel(gradient)
    return elementwise(flops, extent(gradient) + extent(call.outputs[0]))
