"""Convolutions of every kind, forward and backward."""

from __future__ import annotations

from math import prod
from typing import Any

from flopkit.counter.calls import Call, extent, numel
from flopkit.counter.operators.products import complex_factor
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

__all__ = []


def macs(positions: Any, weight: Any) -> int:
    """Multiply-adds of a convolution: each of the positions on its channel side meets ``weight[0]``, the taps of one group.

    *positions* is the output of a convolution, the input of a transposed one. The weight is (C_out, C_in/groups, taps …), or
    (C_in, C_out/groups, taps …) where it is transposed: in both, all but the first dimension is what one position takes.
    """
    return numel(positions) * prod(map(int, weight.shape[1:])) * complex_factor(weight)


@explains(
    "aten::convolution",
    "aten::_convolution",
    "aten::convolution_overrideable",
    "aten::mkldnn_convolution",
    "aten::cudnn_convolution",
    "aten::cudnn_convolution_transpose",
    "aten::cudnn_convolution_relu",
    "aten::miopen_convolution",
    "aten::miopen_convolution_transpose",
    "aten::miopen_depthwise_convolution",
    "aten::_slow_conv2d_forward",
    "aten::slow_conv3d_forward",
    "aten::slow_conv_transpose2d",
    "aten::slow_conv_transpose3d",
    "aten::slow_conv_dilated2d",
    "aten::slow_conv_dilated3d",
    "aten::_conv_depthwise2d",
    "aten::conv_depthwise3d",
    "aten::_mps_convolution",
)
def convolution(call: Call) -> Work:
    """``2·N·C_out·positions·(C_in/groups)·taps``, taps on padding included."""
    weight = call["weight"]
    transposed = bool(call.get("transposed", False)) or "transpose" in str(call.func)
    positions = (
        (call.get("input") if call.get("input") is not None else call["self"]) if transposed else call.outputs[0]
    )
    bias = call.get("bias")
    vector = numel(call.outputs[0]) if bias is not None else 0
    return counted(macs(positions, weight), call.bytes(), vector=vector)


@explains("aten::convolution_backward", "aten::convolution_backward_overrideable")
def convolution_backward(call: Call) -> Work:
    """One such product for the gradient of the input, one for the gradient of the weight; the bias's is a sum."""
    gradient, image, weight = call["grad_output"], call.get("input"), call["weight"]
    positions = image if call["transposed"] else gradient
    wanted = call["output_mask"]
    products = int(wanted[0]) + int(wanted[1])
    results = [t for t, asked in zip(call.out, wanted, strict=True) if asked and t is not None]
    moved = (
        extent(gradient) + extent(image) * int(wanted[1]) + extent(weight) * int(wanted[0]) + sum(map(extent, results))
    )
    return counted(products * macs(positions, weight), moved, vector=numel(gradient) * int(wanted[2]))
