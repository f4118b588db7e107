"""Convolutions of every kind, forward and backward: `flopkit.macs.convolution`, the sizes read off the tensors.

A second derivative reaches the dispatcher as convolutions and backward convolutions, and counts as those. A complex convolution
reaches it as three real ones, and counts as those: 6 FLOPs for each complex multiply-add instead of 8. A note says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flopkit import macs
from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

PARTS = "a convolution of parts of complex tensors: a complex one runs as three real ones, and the model's FLOPs are theirs"  # fmt: skip


def convolution_macs(positions: Any, weight: Any, channels: int = 0) -> int:
    """Multiply-adds of a convolution, of the tensor whose *positions* count: the output, or the input of a transposed one.

    The weight is (C_out, C_in/groups, taps …), or (C_in, C_out/groups, taps …) where it is transposed; *channels* is the weight's
    dimension of the channels that *positions* has.

    >>> import torch
    >>> convolution_macs(torch.ones(5, 16, 9, 4), torch.ones(16, 3, 3, 3))
    77760
    """
    places = numel(positions) // max(int(weight.shape[channels]), 1)
    return int(macs.of_numbers(macs.convolution(places, numel(weight)), weight.dtype.is_complex))


def _image(call: OpCall) -> Any:
    return call.get("input", call.get("self"))


def _positions(call: OpCall, result: Any) -> Any:
    """The tensor whose positions count: the *result*, or of a transposed convolution the input."""
    transposed = bool(call.get("transposed", False)) or "transpose" in call.name
    return _image(call) if transposed else result


_FORWARD = (
    "convolution _convolution mkldnn_convolution cudnn_convolution cudnn_convolution_transpose cudnn_convolution_relu "
    "cudnn_convolution_add_relu _slow_conv2d_forward slow_conv3d_forward slow_conv_transpose2d slow_conv_transpose3d slow_conv_dilated2d "
    "slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d conv_tbc"
)


@explains(_FORWARD)
def convolution(call: OpCall) -> Work:
    """``2·N·C_out·positions·(C_in/groups)·taps``, taps on padding included; transposed, of the input's positions.

    A bias, a tensor that is added and an activation in the same kernel are one element-wise FLOP a number each. The weight of `conv_tbc`,
    along time of (time, batch, channels), is (taps, C_in, C_out); its backward is one product for each tap, which leave padding out.
    """
    result = call.outputs[0]
    extras = (call.get("bias") is not None) + (call.get("z") is not None) + ("relu" in call.name)
    macs = convolution_macs(_positions(call, result), call["weight"], 2 if "conv_tbc" in call.name else 0)
    work = counted(macs, call.bytes(), vector=numel(result) * extras)
    parts = all(str(t.layout) == "torch.strided" and min(t.stride()) == 2 for t in (_image(call), call["weight"]))
    return replace(work, note=PARTS) if parts else work


@explains("convolution_backward _slow_conv2d_backward")
def convolution_backward(call: OpCall) -> Work:
    """One such product for the gradient of the input, one for the gradient of the weight; the bias's is a sum.

    Each is as many FLOPs as the forward pass, of a convolution in groups, too: each output channel meets C_in/groups inputs only.
    """
    gradient, image, weight = call.gradient, _image(call), call["weight"]
    wanted = [bool(asked) for asked in call.get("output_mask") or [t is not None for t in call.out]]
    results = [t for t, asked in zip(call.out, wanted, strict=False) if asked and t is not None]
    moved = extent(gradient) + extent(image) * wanted[1] + extent(weight) * wanted[0] + sum(map(extent, results))
    work = convolution_macs(_positions(call, gradient), weight) * sum(wanted[:2])
    return counted(work, moved, vector=numel(gradient) * sum(wanted[2:]))
