"""Normalisations and softmax, forward and backward; their forward numbers are those of `flopkit.layers`."""

from __future__ import annotations

from typing import Any

from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise
from flopkit.layers.normalisations import (
    MEANS_FLOPS,
    ROOT_FLOPS,
    STATISTICS_FLOPS,
    batch_normalised,
    normalised,
    root_mean_squared,
)
from flopkit.layers.pointwise import SOFTMAX_FLOPS

__all__: list[str] = []

LOG_SOFTMAX = ("aten::_log_softmax", "aten::_sparse_log_softmax", "aten::log_softmax")
BATCH = ("aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional",
         "aten::_native_batch_norm_legit_no_training", "aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional",
         "aten::_batch_norm_no_update", "aten::cudnn_batch_norm", "aten::miopen_batch_norm")  # fmt: skip
BATCH_BACKWARD = ("aten::native_batch_norm_backward", "aten::batch_norm_backward", "aten::cudnn_batch_norm_backward",
                  "aten::miopen_batch_norm_backward")  # fmt: skip


def _moved(*parts: Any) -> int:
    """Bytes of the tensors that are there."""
    return sum(extent(t) for t in parts if t is not None)


def _rows(call: OpCall, dim: Any) -> int:
    """Rows of the first argument along *dim*."""
    source = call.args[0]
    if source.dim() == 0 or dim is None:
        return 1
    return numel(source) // max(int(source.shape[dim]), 1)


# -- softmax --------------------------------------------------------------------------------------------------


@explains(*LOG_SOFTMAX)
def log_softmax(call: OpCall) -> Work:
    """Compare, subtract, exponential, add, subtract: 5 an element; a logarithm a row."""
    return elementwise(SOFTMAX_FLOPS * numel(call.args[0]) + _rows(call, call["dim"]), call.bytes())


# -- batch normalisation --------------------------------------------------------------------------------------


def trains_batch_norm(call: OpCall) -> bool:
    """Whether this batch normalisation takes its statistics from the batch, not the running ones."""
    name = call.name
    if name.endswith("_batch_norm_with_update") or name.endswith("_batch_norm_with_update_functional"):
        return True
    if name.endswith("_no_training") or name.endswith("_batch_norm_no_update"):
        return False
    return bool(call["training"])


@explains(*BATCH)
def batch_norm(call: OpCall) -> Work:
    """As `flopkit.layers.normalisations.batch_norm`; running statistics are updated where there are some.

    Bytes: the statistics that are kept for the backward pass are written, too; running ones are read, in training also written.
    """
    image, weight, bias = call["input"], call["weight"], call["bias"]
    mean, variance = call.get("running_mean"), call.get("running_var")
    trains = trains_batch_norm(call)
    # equivalent: 1 -> 2 [3] (torch refuses a vector)
    channels = int(image.shape[1]) if image.dim() > 1 else 1
    running = _moved(mean, variance)
    written = (
        call.outputs if trains else call.outputs[:1]
    )  # without training there is nothing to keep, whatever is returned
    moved = _moved(image, weight, bias) + running * (1 + trains) + sum(map(extent, written))
    if "_functional" in call.name:  # the new running statistics are among the results
        moved -= running * trains
    affine = (weight is not None) + (bias is not None)
    return elementwise(batch_normalised(numel(image), channels, affine, trains, mean is not None), moved)


@explains(*BATCH_BACKWARD)
def batch_norm_backward(call: OpCall) -> Work:
    """Training: x̂ (2), the sums of g and of g·x̂ (3), the input's gradient (4) for each element, and 3 a channel.

    With running statistics the input's gradient is g·w/σ: 1 an element, 4 a channel, and nothing is summed for it.
    """
    image, gradient, weight = call["input"], call.get("grad_out"), call["weight"]
    gradient = gradient if gradient is not None else call["grad_output"]
    mask = call.get("output_mask") or (True, True, True)
    trains = call.get("train")
    trains = bool(call.get("update", True) if trains is None else trains)
    # equivalent: 1 -> 2 [3] (torch refuses a vector)
    channels = int(image.shape[1]) if image.dim() > 1 else 1
    for_image, for_weight, for_bias = map(bool, mask)
    if trains:
        sums = for_image or for_weight
        each = 2 * sums + 2 * sums + (for_bias or for_image) + 4 * for_image
        statistics = [
            call.get("save_mean"),
            call.get("save_invstd") if call.get("save_invstd") is not None else call.get("save_var"),
        ]
        channel = 3 * for_image
    else:
        each = 4 * for_weight + for_bias + for_image
        statistics = [call.get("running_mean"), call.get("running_var")]
        channel = 4 * for_image
    reads = image if trains or for_weight else None
    moved = _moved(gradient, reads, weight if for_image else None, *statistics, *call.outputs)
    return elementwise(each * numel(image) + channel * channels, moved)


@explains("aten::batch_norm_stats", "aten::batch_norm_update_stats")
def batch_norm_stats(call: OpCall) -> Work:
    """Mean and variance: add, subtract, multiply, add. One of the two returns the variance, the other the reciprocal of its root."""
    channels = int(call["input"].shape[1])
    update = 7 * (call.get("running_mean") is not None)
    root = ROOT_FLOPS * ("update" not in call.name)
    running = _moved(call.get("running_mean"), call.get("running_var"))
    return elementwise(
        STATISTICS_FLOPS * numel(call["input"]) + (MEANS_FLOPS + root + update) * channels, call.bytes() + running
    )


@explains("aten::batch_norm_elemt", "aten::quantized_batch_norm")
def batch_norm_elements(call: OpCall) -> Work:
    """Subtract, multiply, and the scale and shift."""
    each = 2 + (call["weight"] is not None) + (call["bias"] is not None)
    return elementwise(each * numel(call["input"]), call.bytes())


@explains("aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts")
def batch_norm_gather(call: OpCall) -> Work:
    """Statistics of several devices brought together: about ten FLOPs for each device and channel."""
    return elementwise(
        10 * numel(call["mean"]),
        _moved(*(call[n] for n in ("mean", "invstd", "running_mean", "running_var")), *call.outputs),
    )


# -- layer, group and RMS normalisation -----------------------------------------------------------------------


@explains("aten::native_layer_norm")
def layer_norm(call: OpCall) -> Work:
    """As `flopkit.layers.normalisations.layer_norm`. Mean and reciprocal deviation of each row are written, too."""
    return elementwise(normalised(numel(call["input"]), _outer(call), _affine(call)), call.bytes())


@explains("aten::native_group_norm")
def group_norm(call: OpCall) -> Work:
    """As `flopkit.layers.normalisations.group_norm`. Mean and reciprocal deviation of each group are written, too."""
    groups = int(call["N"]) * int(call["group"])
    return elementwise(normalised(numel(call["input"]), groups, _affine(call)), call.bytes())


def _affine(call: OpCall) -> int:
    return (call["weight"] is not None) + (call["bias"] is not None)


@explains("aten::_fused_rms_norm")
def rms_norm(call: OpCall) -> Work:
    """As `flopkit.layers.normalisations.rms_norm`. The reciprocal root of each row is written, too."""
    affine = int(call["weight"] is not None)
    return elementwise(root_mean_squared(numel(call["input"]), _outer(call), affine), call.bytes())


def _outer(call: OpCall) -> int:
    """Rows that are normalised."""
    rows = 1
    for size in call["input"].shape[: call["input"].dim() - len(call["normalized_shape"])]:
        rows *= int(size)
    return rows


@explains("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward")
def layer_norm_backward(call: OpCall) -> Work:
    """Layer norm: x̂ (2); g·x̂ summed (2) and g summed (1) for weight and bias; for the input g·w (1), its sums with 1 and with x̂ (3),
    two subtractions and two multiplications (4), and two divisions a row. RMS norm has no mean: 1, 2, and 1 + 2 + 3 with one division."""
    image, weight, mask = call["input"], call["weight"], list(map(bool, call["output_mask"]))
    layer = "layer" in call.name
    mask += [False] * (3 - len(mask))
    for_image, for_weight, for_bias = mask
    hat = (2 if layer else 1) * (for_image or for_weight)
    each = hat + 2 * for_weight + for_bias + for_image * ((7 if layer else 5) + (weight is not None))
    rows = (2 if layer else 1) * _outer(call) * for_image
    needs = for_image or for_weight
    reads = [image, call.get("mean"), call["rstd"]] if needs else []
    moved = _moved(call["grad_out"], *reads, weight if for_image else None, *call.outputs)
    return elementwise(each * numel(image) + rows, moved)


@explains("aten::native_group_norm_backward")
def group_norm_backward(call: OpCall) -> Work:
    """x̂ (2), the sums of g and g·x̂ (3) of each channel, the input's gradient (4, and 1 for the weight); 2 a group, 4 a channel and image."""
    image, weight = call["input"], call["weight"]
    for_image, for_weight, for_bias = map(bool, call["output_mask"])
    needs = for_image or for_weight
    each = 4 * needs + (for_bias or for_image) + for_image * (4 + (weight is not None))
    groups = int(call["N"]) * (2 * int(call["group"]) + 4 * int(call["C"])) * for_image
    reads = [image, call["mean"], call["rstd"]] if needs else []
    return elementwise(
        each * numel(image) + groups, _moved(call["grad_out"], *reads, weight if for_image else None, *call.outputs)
    )


@explains("aten::_weight_norm_interface")
def weight_norm(call: OpCall) -> Work:
    """g·v/‖v‖: multiply and add for the norm, a multiply for the result; a root and a division for each norm."""
    return elementwise(3 * numel(call["v"]) + 2 * numel(call["g"]), call.bytes())


@explains("aten::_weight_norm_interface_backward")
def weight_norm_backward(call: OpCall) -> Work:
    """Σ g·v (2), two multiplies and a subtraction an element; three divisions and a multiplication a norm."""
    return elementwise(5 * numel(call["grad_w"]) + 4 * numel(call["saved_g"]), call.bytes())
