"""Images: pooling, sampling between pixels, and torchvision's own operators. (Plain upsampling is in `reductions`.)"""

from __future__ import annotations

from math import ceil, prod

from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.formulas.convolutions import convolution_macs
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted, elementwise, unknown
from flopkit.macs import adaptive_taps, product

# -- pooling -------------------------------------------------------------------------------------------------------


_MEANS = ("avg", "adaptive_avg", "_adaptive_avg")
_POOLS = [f"{kind}_pool{n}d" for kind in (*_MEANS, "adaptive_max", "quantized_max") for n in (1, 2, 3)]
_POOLS += [f"{kind}_pool{n}d_backward" for kind in _MEANS for n in (2, 3)]
_POOLS += ["max_pool2d_with_indices", "max_pool3d_with_indices"]


@explains(*_POOLS, "quantized::max_pool1d quantized::max_pool2d")
def pool(call: OpCall) -> Work:
    """A compare for each element of each window; of means an add, and a division. Backward, of means, the same. Of a window that reaches
    over a border only the elements of the image count.

    Where the kernel gives the positions of maxima (int64), they are written, too. Backward the input is not read: its shape is enough.
    """
    gradient, dims = call.gradient, next(n for n in (1, 2, 3) if f"{n}d" in call.name)
    # equivalent: 0 -> 1 (maxima and positions are as many)
    first = call.outputs[0]
    image, result = (call.inputs[0], first) if gradient is None else (first, gradient)
    sides = list(zip(map(int, image.shape[-dims:]), map(int, result.shape[-dims:]), strict=True))
    if "adaptive" in call.name:  # windows may overlap
        taps = prod(adaptive_taps(size, outputs) for size, outputs in sides)
    else:
        kernel, padding, dilation = (_each(call, name, dims) for name in ("kernel_size", "padding", "dilation"))
        steps = _each(call, "stride", dims) if call["stride"] else kernel
        taps = prod(_inside(*side, kernel[d], steps[d], padding[d], dilation[d]) for d, side in enumerate(sides))
    taps *= prod(map(int, image.shape[:-dims]))
    moved = call.bytes() if gradient is None else extent(gradient) + extent(first)
    return elementwise(taps + numel(result) * ("avg" in call.name), moved)


def _each(call: OpCall, name: str, dims: int) -> list[int]:
    """An argument for each dimension, 1 where there is none of that name; one number stands for all."""
    given = call.get(name, 1)
    numbers = list(map(int, given)) if isinstance(given, (list, tuple)) else [int(given)]
    return numbers * (dims // len(numbers))


def _inside(size: int, outputs: int, kernel: int, step: int, padding: int, dilation: int) -> int:
    """Elements along one dimension of an image under all windows; what lies on the padding, or behind it, is none.

    >>> _inside(4, 4, 3, 1, 1, 1), _inside(5, 3, 3, 2, 1, 1), _inside(4, 2, 3, 2, 0, 1)
    (10, 7, 5)
    """
    return sum(
        max(min(-(-(size + padding - tap) // step), outputs) - max(-(-(padding - tap) // step), 0), 0)
        for tap in range(0, kernel * dilation, dilation)
    )


# -- a filter that widens, and sampling at a grid ------------------------------------------------------------------


@explains("_upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward")  # fmt: skip
def antialiased(call: OpCall) -> Work:
    """Columns, then rows: 2t − 1 FLOPs for a sum of t taps, with the filter's full width t = 2·⌈support·scale⌉ + 1 (an upper bound).

    The support is 1 tap on each side (bilinear) or 2 (bicubic); the scale, at least 1, is by how much the image shrinks.
    """
    gradient, result = call.gradient, call.outputs[0]
    old, new = (call.args[0], result) if gradient is None else (result, gradient)
    support = 1 if "bilinear" in call.name else 2
    (h_in, w_in), (h_out, w_out) = map(int, old.shape[-2:]), map(int, new.shape[-2:])
    rows, columns = (2 * ceil(support * max(i / o, 1)) + 1 for i, o in ((h_in, h_out), (w_in, w_out)))
    each = h_in * w_out * (2 * columns - 1) + h_out * w_out * (2 * rows - 1)
    return elementwise(prod(int(n) for n in old.shape[:-2]) * each, call.bytes())


PIXEL_FLOPS = 18  # bilinear, of a position: 8 its pixel from −1…1, 2 rounding, 4 distances, 4 weights
SUM_FLOPS = 7  # of an element: four multiplies, three adds
# By dimensions and mode (0 bilinear, 1 nearest, 2 bicubic): FLOPs of a position, FLOPs of an element, taps.
_GRID = {(2, 0): (PIXEL_FLOPS, SUM_FLOPS, 4), (2, 1): (10, 0, 1), (2, 2): (60, 35, 16), (3, 0): (37, 15, 8),
         (3, 1): (15, 0, 1)}  # fmt: skip


_SAMPLERS = ("aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::cudnn_grid_sampler")


@explains(*_SAMPLERS, *(f"{name}_backward" for name in _SAMPLERS))
def grid_sampler(call: OpCall) -> Work:
    """FLOPs of each position of the grid, and of each element (`_GRID`). Bytes: the image and the grid once, the result.

    Backward: for each tap of an element a multiply and an add to the image, and as many to each coordinate of the grid with one multiply more.
    """
    grid, gradient = call["grid"], call.gradient
    dims, mode = int(grid.shape[-1]), int(call.get("interpolation_mode", 0) or 0)
    place, each, taps = _GRID[dims, mode]
    if gradient is not None:
        for_image, for_grid = map(bool, call.get("output_mask") or (True, True))
        each = 2 * taps * for_image + 3 * dims * taps * for_grid * (mode != 1)
    elements = numel(call.outputs[0] if gradient is None else gradient)
    return elementwise(place * (numel(grid) // dims) + each * elements, call.bytes())


@explains("affine_grid_generator")
def affine_grid(call: OpCall) -> Work:
    """A matrix of each image times the base grid's positions: n·positions·d·(d + 1) multiply-adds."""
    theta, grid = call["theta"], call.outputs[0]
    return counted(product(numel(grid), int(theta.shape[-1]), 1), extent(theta) + extent(grid))


# -- torchvision ---------------------------------------------------------------------------------------------------


@explains("torchvision::deform_conv2d torchvision::_deform_conv2d_backward")
def deform_conv2d(call: OpCall) -> Work:
    """A convolution's ``2·N·C_out·positions·(C_in/groups)·taps``, of pixels that are read between pixels first (vector FLOPs).

    Backward: two such products (of the weight, of the pixels), and each pixel's gradient spread over its four neighbours.
    """
    weight, image, gradient = call["weight"], call["input"], call.gradient
    result = call.outputs[0] if gradient is None else gradient
    taps = prod(int(n) for n in weight.shape[2:])
    positions = numel(result) // max(int(weight.shape[0]), 1)  # of all images
    columns, offsets = positions * int(image.shape[1]) * taps, positions * taps * int(call["offset_groups"])
    each = SUM_FLOPS + (bool(call["use_mask"]) if gradient is None else 8 + 24)
    biases = numel(result) * (gradient is not None or call["bias"] is not None)
    macs = convolution_macs(result, weight) * (1 if gradient is None else 2)
    return counted(macs, call.bytes(), vector=PIXEL_FLOPS * offsets + each * columns + biases)


@explains("torchvision::roi_align torchvision::_roi_align_backward")
def roi_align(call: OpCall) -> Work:
    """A mean of sampling_ratio² bilinear samples: 7 and an add each, and a division; 18 for the place of each sample of a box.

    Without a sampling_ratio how many samples are taken follows from the boxes: then it is not counted.
    """
    samples = max(int(call["sampling_ratio"]), 0) ** 2
    if not samples:
        return unknown(call.bytes())
    large = call.gradient if "backward" in call.name else call.outputs[0]
    places = int(call["rois"].shape[0]) * int(large.shape[-2]) * int(large.shape[-1]) * samples
    return elementwise(PIXEL_FLOPS * places + numel(large) * ((SUM_FLOPS + 1) * samples + 1), call.bytes())
