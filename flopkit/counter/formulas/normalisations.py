"""Normalisations and the softmax of logarithms, forward and backward; their forward numbers are those of `flopkit.layers`."""

from __future__ import annotations

from math import prod
from typing import Any

from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise
from flopkit.layers.normalisations import batch_normalised, normalised, root_mean_squared
from flopkit.layers.pointwise import SOFTMAX_FLOPS

BATCH = "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training " \
        "_batch_norm_with_update _batch_norm_with_update_functional _batch_norm_no_update cudnn_batch_norm miopen_batch_norm"  # fmt: skip
BATCH_BACKWARD = "native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward"


def _moved(*parts: Any) -> int:
    """Bytes of the tensors that are there."""
    return sum(extent(t) for t in parts if t is not None)


def _affine(call: OpCall) -> int:
    return (call["weight"] is not None) + (call.get("bias") is not None)


def _channels(image: Any) -> int:
    # equivalent: 1 -> 2 [3] (torch refuses a vector)
    return int(image.shape[1]) if image.dim() > 1 else 1


@explains("_log_softmax _sparse_log_softmax log_softmax")
def log_softmax(call: OpCall) -> Work:
    """Compare, subtract, exponential, add, subtract: 5 an element; a logarithm a row."""
    source, dim = call.args[0], call["dim"]
    rows = 1 if source.dim() == 0 or dim is None else numel(source) // max(int(source.shape[dim]), 1)
    return elementwise(SOFTMAX_FLOPS * numel(source) + rows, call.bytes())


# -- batch normalisation --------------------------------------------------------------------------------------


@explains(BATCH)
def batch_norm(call: OpCall) -> Work:
    """As `flopkit.layers.normalisations.batch_norm`; running statistics are updated where there are some.

    Bytes: the statistics that are kept for the backward pass are written, too; running ones are read, in training also written.
    """
    image, trains = call["input"], "_with_update" in call.name or bool(call.get("training", False))
    mean, variance = call.get("running_mean"), call.get("running_var")
    written = call.outputs if trains else call.outputs[:1]  # else there is nothing to keep, whatever is returned
    # The new running statistics are among the results of a functional form.
    times = 1 + (trains and "_functional" not in call.name)
    moved = _moved(image, call["weight"], call["bias"], *written) + _moved(mean, variance) * times
    flops = batch_normalised(numel(image), _channels(image), _affine(call), trains, mean is not None)
    return elementwise(flops, moved)


@explains(BATCH_BACKWARD)
def batch_norm_backward(call: OpCall) -> Work:
    """Training: x̂ (2), the sums of g and of g·x̂ (3), the input's gradient (4) for each element, and 3 a channel.

    With running statistics the input's gradient is g·w/σ: 1 an element, 4 a channel, and nothing is summed for it.
    """
    image, gradient, weight = call["input"], call.gradient, call["weight"]
    for_image, for_weight, for_bias = map(bool, call.get("output_mask") or (True, True, True))
    trains = bool(call.get("train", call.get("update", True)))
    if trains:
        each = 4 * (for_image or for_weight) + (for_bias or for_image) + 4 * for_image
        statistics = [call.get("save_mean"), call.get("save_invstd", call.get("save_var"))]
    else:
        each = 4 * for_weight + for_bias + for_image
        statistics = [call.get("running_mean"), call.get("running_var")]
    reads = image if trains or for_weight else None
    moved = _moved(gradient, reads, weight if for_image else None, *statistics, *call.outputs)
    return elementwise(each * numel(image) + (3 if trains else 4) * for_image * _channels(image), moved)


@explains("batch_norm_gather_stats batch_norm_gather_stats_with_counts")
def batch_norm_gather(call: OpCall) -> Work:
    """Statistics of several devices brought together: about ten FLOPs for each device and channel. The input is not read."""
    read = [call[name] for name in ("mean", "invstd", "running_mean", "running_var")]
    return elementwise(10 * numel(call["mean"]), _moved(*read, *call.outputs))


# -- layer, group and RMS normalisation -----------------------------------------------------------------------


@explains("native_layer_norm native_group_norm _fused_rms_norm")
def norm(call: OpCall) -> Work:
    """As `flopkit.layers.normalisations` says of each. The statistics of each row or group are written, too."""
    flops = root_mean_squared if "rms" in call.name else normalised
    return elementwise(flops(numel(call["input"]), _groups(call), _affine(call)), call.bytes())


def _groups(call: OpCall) -> int:
    """Rows or groups that are normalised."""
    if "group" in call.name:
        return int(call["N"]) * int(call["group"])
    return numel(call["input"]) // max(prod(map(int, call["normalized_shape"])), 1)  # a nested tensor has no shape


@explains("native_layer_norm_backward _fused_rms_norm_backward native_group_norm_backward")
def norm_backward(call: OpCall) -> Work:
    """Layer norm: x̂ (2); g·x̂ summed (2) and g summed (1) for weight and bias; for the input g·w (1), its sums with 1 and with x̂ (3),
    two subtractions and two multiplications (4), and two divisions a row. RMS norm has no mean: 1, 2, and 1 + 2 + 3 with one division.
    Group norm: x̂ (2), the sums of g and g·x̂ (3) of each channel, the input's gradient (4, and 1 for the weight); 2 a group, 4 a channel and image.
    """
    image, weight = call["input"], call["weight"]
    for_image, for_weight, for_bias = [*map(bool, call["output_mask"]), False][:3]
    needs = for_image or for_weight
    if "group" in call.name:
        each = 4 * needs + (for_bias or for_image) + for_image * (4 + (weight is not None))
        rest = 2 * _groups(call) + 4 * int(call["N"]) * int(call["C"])
    else:
        mean = "layer" in call.name
        each = (1 + mean) * needs + 2 * for_weight + for_bias + for_image * (5 + 2 * mean + (weight is not None))
        rest = (1 + mean) * _groups(call)
    reads = [image, call.get("mean"), call["rstd"]] if needs else []
    moved = _moved(call.gradient, *reads, weight if for_image else None, *call.outputs)
    return elementwise(each * numel(image) + rest * for_image, moved)


@explains("_weight_norm_interface _weight_norm_interface_backward")
def weight_norm(call: OpCall) -> Work:
    """g·v/‖v‖: multiply and add for the norm, a multiply for the result; a root and a division for each norm.

    Backward: Σ g·v (2), two multiplies and a subtraction an element; three divisions and a multiplication a norm.
    """
    if "backward" in call.name:
        return elementwise(5 * numel(call["grad_w"]) + 4 * numel(call["saved_g"]), call.bytes())
    return elementwise(3 * numel(call["v"]) + 2 * numel(call["g"]), call.bytes())
