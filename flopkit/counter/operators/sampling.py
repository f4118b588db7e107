"""Images read between their pixels: upsampling with a filter that widens, and sampling at a grid. (Plain upsampling is in `elements`.)"""

from __future__ import annotations

from math import ceil, prod

from flopkit.counter.calls import Call, extent, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work, elementwise

__all__: list[str] = []

# Taps on each side at a scale of 1, where the filter widens as an image shrinks (antialias).
_SUPPORT = {"bilinear2d": 1, "bicubic2d": 2, "lanczos2d": 3}


@explains(*(f"aten::_upsample_{kind}_aa{end}" for kind in _SUPPORT for end in ("", "_backward")))
def antialiased(call: Call) -> Work:
    """Columns, then rows: 2t − 1 FLOPs for a sum of t taps, with the filter's full width t = 2·⌈support·scale⌉ + 1 (an upper bound)."""
    backward = str(call.func._schema.name).endswith("_backward")
    # equivalent: 1 -> 2 (the first part is the same)
    kind = str(call.func._schema.name).removeprefix("aten::_upsample_").split("_", 1)[0]
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


def _grid(call: Call) -> tuple[int, int, int, int]:
    grid = call["grid"]
    dims = int(grid.shape[-1])
    mode = int(call.get("interpolation_mode", 0) or 0)
    place, each = _GRID[dims, mode]
    return dims, mode, place * (numel(grid) // dims), each


@explains(
    "aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::cudnn_grid_sampler", "aten::_grid_sampler_2d_cpu_fallback"
)
def grid_sampler(call: Call) -> Work:
    """Bilinear: 18 FLOPs a position (8 its pixel, 2 rounding, 4 distances, 4 weights), 7 an element (4 multiplies, 3 adds); in three dimensions 37
    and 15; nearest 10 and none; bicubic 60 and 35. Bytes: the image and the grid once, the result."""
    _, _, places, each = _grid(call)
    return elementwise(places + each * numel(call.outputs[0]), call.bytes())


@explains("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", "aten::cudnn_grid_sampler_backward",
          "aten::_grid_sampler_2d_cpu_fallback_backward")  # fmt: skip
def grid_sampler_backward(call: Call) -> Work:
    """For each tap of an element a multiply and an add to the image, and as many to each coordinate of the grid with one multiply more."""
    dims, mode, places, _ = _grid(call)
    taps = {0: 2**dims, 1: 1, 2: 16}[mode]
    for_image, for_grid = map(bool, call.get("output_mask") or (True, True))
    each = 2 * taps * for_image + 3 * dims * taps * for_grid * (mode != 1)
    return elementwise(places + each * numel(call["grad_output"]), call.bytes())


@explains("aten::affine_grid_generator", "aten::cudnn_affine_grid_generator")
def affine_grid(call: Call) -> Work:
    """A matrix of each image times the base grid's positions: n·positions·d·(d + 1) multiply-adds."""
    theta, grid = call["theta"], call.outputs[0]
    macs = numel(grid) * int(theta.shape[-1])
    return Work(COUNTED, {"products": macs}, bytes=extent(theta) + extent(grid))


@explains("aten::cudnn_affine_grid_generator_backward")
def affine_grid_backward(call: Call) -> Work:
    """The same product with the gradient."""
    gradient, theta = call["grad"], call.outputs[0]
    return Work(COUNTED, {"products": numel(gradient) * int(theta.shape[-1])}, bytes=extent(gradient) + extent(theta))
