"""Convolutions of every kind, forward and backward: `flopkit.macs.convolution`, the sizes read off the tensors.

A second derivative reaches the dispatcher as convolutions and backward convolutions, and counts as those. A complex convolution
reaches it as three real ones, and counts as those: 6 FLOPs for each complex multiply-add instead of 8. A note says so.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from flopkit import macs
from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

__all__ = ["convolution_macs"]

PARTS = (
    "a convolution of parts of complex tensors: a complex one runs as three real ones, and the model's FLOPs are theirs"
)


def convolution_macs(positions: Any, weight: Any) -> int:
    """Multiply-adds of a convolution, of the tensor whose *positions* count: the output, or the input of a transposed one.

    The weight is (C_out, C_in/groups, taps …), or (C_in, C_out/groups, taps …) where it is transposed.

    >>> import torch
    >>> convolution_macs(torch.ones(5, 16, 9, 4), torch.ones(16, 3, 3, 3))
    77760
    """
    channels, fan, *taps = map(int, weight.shape)
    places = numel(positions) // max(channels, 1)
    whole = macs.convolution(places, macs.filters(channels, fan, 1, prod(taps)))
    return int(macs.of_numbers(whole, weight.dtype.is_complex))


def _image(call: OpCall) -> Any:
    return call.get("input", call.get("self"))


def _is_transposed(call: OpCall) -> bool:
    return bool(call.get("transposed", False)) or "transpose" in str(call.func)


FORWARD = (
    "convolution _convolution mkldnn_convolution cudnn_convolution cudnn_convolution_transpose cudnn_convolution_relu "
    "cudnn_convolution_add_relu _slow_conv2d_forward slow_conv3d_forward slow_conv_transpose2d slow_conv_transpose3d slow_conv_dilated2d "
    "slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d"
).split()


@explains(*(f"aten::{name}" for name in FORWARD))
def convolution(call: OpCall) -> Work:
    """``2·N·C_out·positions·(C_in/groups)·taps``, taps on padding included; transposed, of the input's positions.

    A bias, a tensor that is added and an activation in the same kernel are one element-wise FLOP a number each.
    """
    positions = _image(call) if _is_transposed(call) else call.outputs[0]
    extras = (call.get("bias") is not None) + (call.get("z") is not None) + ("relu" in str(call.func))
    work = counted(convolution_macs(positions, call["weight"]), call.bytes(), vector=numel(call.outputs[0]) * extras)
    parts = all(str(t.layout) == "torch.strided" and min(t.stride()) == 2 for t in (_image(call), call["weight"]))
    return replace(work, note=PARTS) if parts else work


@explains("aten::conv_tbc")
def time_batch_channels(call: OpCall) -> Work:
    """A convolution along time of (time, batch, channels); the weight is (taps, C_in, C_out). Taps on padding included.

    Its backward pass reaches the dispatcher as one product for each tap, which leave padding out.
    """
    outputs, weight = numel(call.outputs[0]), call["weight"]
    taps, fan, channels = map(int, weight.shape)
    whole = macs.convolution(outputs // max(channels, 1), macs.filters(channels, fan, 1, taps))
    return counted(macs.of_numbers(whole, weight.dtype.is_complex), call.bytes(), vector=outputs)


@explains("aten::convolution_backward", "aten::_slow_conv2d_backward")
def convolution_backward(call: OpCall) -> Work:
    """One such product for the gradient of the input, one for the gradient of the weight; the bias's is a sum.

    Each is as many FLOPs as the forward pass, that of the weight, too: it has as few taps in a group.
    """
    gradient, image, weight = call["grad_output"], _image(call), call["weight"]
    positions = image if _is_transposed(call) else gradient
    wanted = [bool(asked) for asked in call.get("output_mask") or [t is not None for t in call.out]]
    results = [t for t, asked in zip(call.out, wanted, strict=False) if asked and t is not None]
    moved = extent(gradient) + extent(image) * wanted[1] + extent(weight) * wanted[0] + sum(map(extent, results))
    work = convolution_macs(positions, weight) * sum(wanted[:2])
    return counted(work, moved, vector=numel(gradient) * sum(wanted[2:]))
