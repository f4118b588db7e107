"""torchvision's own operators."""

from __future__ import annotations

from math import prod

from flopkit.counter.calls import Call, numel
from flopkit.counter.operators.convolutions import convolution_macs
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work, elementwise, unknown

__all__: list[str] = []

PIXEL_FLOPS = 18  # bilinear, of a position: as in `sampling`
SUM_FLOPS = 7  # of an element: four multiplies, three adds


@explains("torchvision::deform_conv2d")
def deform_conv2d(call: Call) -> Work:
    """A convolution's ``2·N·C_out·positions·(C_in/groups)·taps``, of pixels that are read between pixels first (vector FLOPs)."""
    weight, image, result = call["weight"], call["input"], call.outputs[0]
    taps = prod(int(n) for n in weight.shape[2:])
    positions = numel(result) // max(int(weight.shape[0]), 1)  # of all images
    columns = positions * int(image.shape[1]) * taps
    offsets = positions * taps * int(call["offset_groups"])
    vector = (
        PIXEL_FLOPS * offsets
        + (SUM_FLOPS + bool(call["use_mask"])) * columns
        + numel(result) * (call["bias"] is not None)
    )
    macs = convolution_macs(result, weight)
    return Work(COUNTED, {"products": macs}, vector={"elementwise": vector}, bytes=call.bytes())


@explains("torchvision::_deform_conv2d_backward")
def deform_conv2d_backward(call: Call) -> Work:
    """Two such products (of the weight, of the pixels), and each pixel's gradient spread over its four neighbours."""
    weight, image, gradient = call["weight"], call["input"], call["grad"]
    taps = prod(int(n) for n in weight.shape[2:])
    positions = numel(gradient) // max(int(weight.shape[0]), 1)
    columns = positions * int(image.shape[1]) * taps
    offsets = positions * taps * int(call["offset_groups"])
    macs = 2 * convolution_macs(gradient, weight)
    vector = PIXEL_FLOPS * offsets + (SUM_FLOPS + 8 + 24) * columns + numel(gradient)
    return Work(COUNTED, {"products": macs}, vector={"elementwise": vector}, bytes=call.bytes())


@explains(
    "torchvision::roi_align",
    "torchvision::_roi_align_backward",
    "torchvision::ps_roi_align",
    "torchvision::_ps_roi_align_backward",
)
def roi_align(call: Call) -> Work:
    """A mean of sampling_ratio² bilinear samples: 7 and an add each, and a division; 18 for the place of each sample of a box.

    Without a sampling_ratio how many samples are taken follows from the boxes: then it is not counted.
    """
    ratio = int(call["sampling_ratio"])
    if ratio <= 0:
        return unknown(call.bytes())
    large = call["grad"] if "backward" in str(call.func._schema.name) else call.outputs[0]
    samples = ratio * ratio
    places = int(call["rois"].shape[0]) * int(large.shape[-2]) * int(large.shape[-1]) * samples
    return elementwise(PIXEL_FLOPS * places + numel(large) * ((SUM_FLOPS + 1) * samples + 1), call.bytes())
