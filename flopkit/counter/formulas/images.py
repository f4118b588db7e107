"""Images: pooling, sampling between pixels, and torchvision's own operators. (Plain upsampling is in `elements`.)"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.formulas.convolutions import convolution_macs
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted, elementwise, unknown
from flopkit.macs import product

__all__ = ["adaptive_taps"]

# -- pooling -------------------------------------------------------------------------------------------------------


def _taps(call: OpCall, dims: int) -> int:
    """Elements of the window."""
    kernel = call["kernel_size"]
    sizes = [int(k) for k in (kernel if isinstance(kernel, (list, tuple)) else [kernel])]
    return prod(sizes) if len(sizes) == dims else sizes[0] ** dims


def _dims(call: OpCall) -> int:
    return next(n for n in (1, 2, 3) if f"{n}d" in call.name)


def adaptive_taps(size: int, outputs: int) -> int:
    """Elements along one dimension under all windows of adaptive pooling: window i goes from ⌊i·size/outputs⌋ to ⌈(i + 1)·size/outputs⌉.

    >>> adaptive_taps(7, 1), adaptive_taps(8, 4), adaptive_taps(5, 3)
    (7, 8, 7)
    """
    return sum(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))


def _averages(call: OpCall) -> bool:
    """Whether it takes means, not maxima: for them a division, too."""
    return "avg" in call.name


@explains("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::quantized_max_pool1d", "aten::quantized_max_pool2d",
          "aten::quantized_max_pool3d", "aten::fractional_max_pool2d", "aten::fractional_max_pool3d", "quantized::max_pool1d",
          "quantized::max_pool2d", "aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d")  # fmt: skip
def pool(call: OpCall) -> Work:
    """A compare a tap; of means an add a tap, and a division. Where the kernel gives the positions of maxima (int64), they are written, too."""
    return elementwise(numel(call.outputs[0]) * (_taps(call, _dims(call)) + _averages(call)), call.bytes())


@explains("aten::avg_pool2d_backward", "aten::avg_pool3d_backward")
def avg_pool_backward(call: OpCall) -> Work:
    """A division, and an add a tap. The input is not read: its shape is enough."""
    gradient = call["grad_output"]
    return elementwise(numel(gradient) * (_taps(call, _dims(call)) + 1), extent(gradient) + extent(call.out))


@explains("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward", "aten::adaptive_max_pool2d_backward",
          "aten::adaptive_max_pool3d_backward", "aten::fractional_max_pool2d_backward", "aten::fractional_max_pool3d_backward")  # fmt: skip
def max_pool_backward(call: OpCall) -> Work:
    """An add for each gradient, where its maximum was. The input is not read: its shape is enough."""
    gradient, indices = call["grad_output"], call["indices"]
    return elementwise(numel(gradient), extent(gradient) + extent(indices) + extent(call.outputs[0]))


def _windows(image: Any, result: Any, dims: int) -> int:
    """Elements under all windows of adaptive pooling, of all channels and images."""
    taps = prod(adaptive_taps(int(i), int(o)) for i, o in zip(image.shape[-dims:], result.shape[-dims:], strict=True))
    return int(taps * prod(int(n) for n in image.shape[:-dims]))


@explains("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d", "aten::adaptive_avg_pool1d", "aten::adaptive_avg_pool2d",
          "aten::adaptive_avg_pool3d", "aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d")  # fmt: skip
def adaptive_pool(call: OpCall) -> Work:
    """A compare or an add for each element of each window (which may overlap); of means a division, of maxima the positions are written."""
    # equivalent: 0 -> 1 (maxima and positions are as many)
    result = call.outputs[0]
    return elementwise(_windows(call["self"], result, _dims(call)) + numel(result) * _averages(call), call.bytes())


@explains("aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward", "aten::adaptive_avg_pool3d_backward")  # fmt: skip
def adaptive_avg_pool_backward(call: OpCall) -> Work:
    """A division, and an add for each element of each window. The input is not read."""
    gradient, dims = call["grad_output"], _dims(call)
    flops = _windows(call.outputs[0], gradient, dims) + numel(gradient)
    return elementwise(flops, extent(gradient) + extent(call.outputs[0]))


# -- a filter that widens, and sampling at a grid ------------------------------------------------------------------


# Taps on each side at a scale of 1, where the filter widens as an image shrinks (antialias).
_SUPPORT = {"bilinear2d": 1, "bicubic2d": 2, "lanczos2d": 3}


@explains(*(f"aten::_upsample_{kind}_aa{end}" for kind in _SUPPORT for end in ("", "_backward")))
def antialiased(call: OpCall) -> Work:
    """Columns, then rows: 2t − 1 FLOPs for a sum of t taps, with the filter's full width t = 2·⌈support·scale⌉ + 1 (an upper bound)."""
    backward = call.name.endswith("_backward")
    # equivalent: 1 -> 2 (the first part is the same)
    kind = call.name.removeprefix("aten::_upsample_").split("_", 1)[0]
    large = call["grad_output"] if backward else call.outputs[0]
    small = call.outputs[0] if backward else call.args[0]
    (h_in, w_in), (h_out, w_out) = map(int, small.shape[-2:]), map(int, large.shape[-2:])
    rows, columns = (
        2 * ceil(_SUPPORT[kind] * max(n_in / n_out, 1)) + 1 for n_in, n_out in ((h_in, h_out), (w_in, w_out))
    )
    images = prod(int(n) for n in small.shape[:-2])
    flops = images * (h_in * w_out * (2 * columns - 1) + h_out * w_out * (2 * rows - 1))
    return elementwise(flops, call.bytes())


# Of one position of the grid: its pixel from −1…1 (4 a dimension), rounding, distances and weights. Of one element: the sum.
_GRID = {(2, 0): (18, 7), (2, 1): (10, 0), (2, 2): (60, 35), (3, 0): (37, 15), (3, 1): (15, 0)}


def _grid(call: OpCall) -> tuple[int, int, int, int]:
    grid = call["grid"]
    dims = int(grid.shape[-1])
    mode = int(call.get("interpolation_mode", 0) or 0)
    place, each = _GRID[dims, mode]
    return dims, mode, place * (numel(grid) // dims), each


@explains(
    "aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::cudnn_grid_sampler", "aten::_grid_sampler_2d_cpu_fallback"
)
def grid_sampler(call: OpCall) -> Work:
    """Bilinear: 18 FLOPs a position (8 its pixel, 2 rounding, 4 distances, 4 weights), 7 an element (4 multiplies, 3 adds); in three dimensions 37
    and 15; nearest 10 and none; bicubic 60 and 35. Bytes: the image and the grid once, the result."""
    _, _, places, each = _grid(call)
    return elementwise(places + each * numel(call.outputs[0]), call.bytes())


@explains("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", "aten::cudnn_grid_sampler_backward",
          "aten::_grid_sampler_2d_cpu_fallback_backward")  # fmt: skip
def grid_sampler_backward(call: OpCall) -> Work:
    """For each tap of an element a multiply and an add to the image, and as many to each coordinate of the grid with one multiply more."""
    dims, mode, places, _ = _grid(call)
    taps = {0: 2**dims, 1: 1, 2: 16}[mode]
    for_image, for_grid = map(bool, call.get("output_mask") or (True, True))
    each = 2 * taps * for_image + 3 * dims * taps * for_grid * (mode != 1)
    return elementwise(places + each * numel(call["grad_output"]), call.bytes())


@explains(
    "aten::affine_grid_generator", "aten::cudnn_affine_grid_generator", "aten::cudnn_affine_grid_generator_backward"
)
def affine_grid(call: OpCall) -> Work:
    """A matrix of each image times the base grid's positions: n·positions·d·(d + 1) multiply-adds; backward the same with the gradient."""
    grid = call.get("grad")
    theta, grid = (call["theta"], call.outputs[0]) if grid is None else (call.outputs[0], grid)
    return counted(product(numel(grid), int(theta.shape[-1]), 1), extent(theta) + extent(grid))


# -- torchvision ---------------------------------------------------------------------------------------------------


PIXEL_FLOPS = 18  # bilinear, of a position: as in `sampling`
SUM_FLOPS = 7  # of an element: four multiplies, three adds


@explains("torchvision::deform_conv2d", "torchvision::_deform_conv2d_backward")
def deform_conv2d(call: OpCall) -> Work:
    """A convolution's ``2·N·C_out·positions·(C_in/groups)·taps``, of pixels that are read between pixels first (vector FLOPs).

    Backward: two such products (of the weight, of the pixels), and each pixel's gradient spread over its four neighbours.
    """
    weight, image, gradient = call["weight"], call["input"], call.get("grad")
    result = call.outputs[0] if gradient is None else gradient
    taps = prod(int(n) for n in weight.shape[2:])
    positions = numel(result) // max(int(weight.shape[0]), 1)  # of all images
    columns = positions * int(image.shape[1]) * taps
    offsets = positions * taps * int(call["offset_groups"])
    each = SUM_FLOPS + (bool(call["use_mask"]) if gradient is None else 8 + 24)
    biases = numel(result) * (gradient is not None or call["bias"] is not None)
    macs = convolution_macs(result, weight) * (1 if gradient is None else 2)
    return counted(macs, call.bytes(), vector=PIXEL_FLOPS * offsets + each * columns + biases)


@explains(
    "torchvision::roi_align",
    "torchvision::_roi_align_backward",
    "torchvision::ps_roi_align",
    "torchvision::_ps_roi_align_backward",
)
def roi_align(call: OpCall) -> Work:
    """A mean of sampling_ratio² bilinear samples: 7 and an add each, and a division; 18 for the place of each sample of a box.

    Without a sampling_ratio how many samples are taken follows from the boxes: then it is not counted.
    """
    ratio = int(call["sampling_ratio"])
    if ratio <= 0:
        return unknown(call.bytes())
    large = call["grad"] if "backward" in call.name else call.outputs[0]
    samples = ratio * ratio
    places = int(call["rois"].shape[0]) * int(large.shape[-2]) * int(large.shape[-1]) * samples
    return elementwise(PIXEL_FLOPS * places + numel(large) * ((SUM_FLOPS + 1) * samples + 1), call.bytes())
