"""Convolutions of every kind, forward and backward.

A second derivative reaches the dispatcher as convolutions and backward convolutions, and counts as those. A complex convolution
reaches it as three real ones: see `flopkit.counter.beyond.complexes`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from flopkit.counter.calls import Call, extent, numel
from flopkit.counter.operators.products import complex_factor
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

__all__ = ["channel_macs", "macs"]


def macs(positions: Any, weight: Any) -> int:
    """Multiply-adds of a convolution: each of the positions on its channel side meets ``weight[0]``, the taps of one group.

    *positions* is the output of a convolution, the input of a transposed one. The weight is (C_out, C_in/groups, taps …), or
    (C_in, C_out/groups, taps …) where it is transposed: in both, all but the first dimension is what one position takes.
    """
    return numel(positions) * prod(map(int, weight.shape[1:])) * complex_factor(weight)


def channel_macs(image: Any, result: Any, weight: Any, groups: int, transposed: bool = False) -> int:
    """The same from the channels, where a packed weight shows no more than its taps.

    >>> import torch
    >>> channel_macs(torch.ones(2, 4, 10, 9), torch.ones(2, 6, 8, 7), torch.ones(6, 2, 3, 3), groups=2)
    12096
    """
    taps = prod(map(int, weight.shape[2 - image.dim() :]))
    positions, channels = (image, result.shape[1]) if transposed else (result, image.shape[1])
    return numel(positions) * (int(channels) // groups) * taps * complex_factor(image)


def _image(call: Call) -> Any:
    return call.get("input", call.get("self", call.get("X")))


def _is_transposed(call: Call) -> bool:
    return bool(call.get("transposed", False)) or "transpose" in str(call.func)


@explains(
    "aten::convolution",
    "aten::_convolution",
    "aten::convolution_overrideable",
    "aten::mkldnn_convolution",
    "aten::cudnn_convolution",
    "aten::cudnn_convolution_transpose",
    "aten::cudnn_convolution_relu",
    "aten::cudnn_convolution_add_relu",
    "aten::miopen_convolution",
    "aten::miopen_convolution_transpose",
    "aten::miopen_convolution_relu",
    "aten::miopen_convolution_add_relu",
    "aten::miopen_depthwise_convolution",
    "aten::_slow_conv2d_forward",
    "aten::slow_conv3d_forward",
    "aten::slow_conv_transpose2d",
    "aten::slow_conv_transpose3d",
    "aten::slow_conv_dilated2d",
    "aten::slow_conv_dilated3d",
    "aten::_conv_depthwise2d",
    "aten::conv_depthwise3d",
    "aten::_nnpack_spatial_convolution",
    "aten::_mps_convolution",
    "aten::_mps_convolution_transpose",
)
def convolution(call: Call) -> Work:
    """``2·N·C_out·positions·(C_in/groups)·taps``, taps on padding included; transposed, of the input's positions.

    A bias, a tensor that is added and an activation in the same kernel are one element-wise FLOP a number each.
    """
    positions = _image(call) if _is_transposed(call) else call.outputs[0]
    extras = (call.get("bias") is not None) + (call.get("z") is not None) + ("relu" in str(call.func))
    return counted(macs(positions, call["weight"]), call.bytes(), vector=numel(call.outputs[0]) * extras)


@explains(
    "mkldnn::_convolution_pointwise", "mkldnn::_convolution_pointwise_", "mkldnn::_convolution_transpose_pointwise"
)
def convolution_and_more(call: Call) -> Work:
    """oneDNN's convolution with what follows it, its weight perhaps packed."""
    image, result = call["X"], call.outputs[0]
    count = channel_macs(image, result, call["W"], int(call["groups"]), _is_transposed(call))
    after = call.get("attr", call.get("binary_attr")) not in (None, "none")
    extras = (call["B"] is not None) + after + (call.get("unary_attr") is not None)
    return counted(count, call.bytes(), vector=numel(result) * extras)


@explains("aten::conv_tbc")
def time_batch_channels(call: Call) -> Work:
    """A convolution along time of (time, batch, channels); the weight is (taps, C_in, C_out). Taps on padding included.

    Its backward pass reaches the dispatcher as one product for each tap, which leave padding out.
    """
    taps, inner, _ = map(int, call["weight"].shape)
    outputs = numel(call.outputs[0])
    return counted(outputs * taps * inner * complex_factor(call["weight"]), call.bytes(), vector=outputs)


@explains(
    "aten::convolution_backward",
    "aten::convolution_backward_overrideable",
    "aten::_slow_conv2d_backward",
    "aten::mps_convolution_backward",
    "aten::mps_convolution_transpose_backward",
)
def convolution_backward(call: Call) -> Work:
    """One such product for the gradient of the input, one for the gradient of the weight; the bias's is a sum.

    Each is as many FLOPs as the forward pass, that of the weight, too: it has as few taps in a group.
    """
    gradient, image, weight = call["grad_output"], _image(call), call["weight"]
    positions = image if _is_transposed(call) else gradient
    wanted = [bool(asked) for asked in call.get("output_mask") or [t is not None for t in call.out]]
    products = sum(wanted[:2])
    results = [t for t, asked in zip(call.out, wanted, strict=False) if asked and t is not None]
    moved = extent(gradient) + extent(image) * wanted[1] + extent(weight) * wanted[0] + sum(map(extent, results))
    return counted(products * macs(positions, weight), moved, vector=numel(gradient) * sum(wanted[2:]))
