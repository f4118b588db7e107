"""Element-wise work on quantised tensors: the arithmetic that is named; changing the scale of inputs and result is not counted."""

from __future__ import annotations

from flopkit.counter.calls import Call, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise, free
from flopkit.layers.normalisations import MEANS_FLOPS, ROOT_FLOPS, STATISTICS_FLOPS
from flopkit.layers.pointwise import SOFTMAX_FLOPS

__all__: list[str] = []

_BATCH = [f"quantized::batch_norm{dims}{relu}" for dims in ("", "1d", "2d", "3d") for relu in ("", "_relu")]


@explains(*_BATCH, "onednn::qbatch_norm2d")
def batch_norm(call: Call) -> Work:
    """Subtract and multiply, and the scale and shift; a compare where relu follows; three FLOPs a channel."""
    each = 2 + (call["weight"] is not None) + (call["bias"] is not None) + ("relu" in str(call.func._schema.name))
    return elementwise(each * numel(call.outputs[0]) + ROOT_FLOPS * numel(call["mean"]), call.bytes())


@explains("quantized::layer_norm", "quantized::group_norm", "quantized::instance_norm")
def norm(call: Call) -> Work:
    """As of numbers: mean and variance, multiply, and the scale and shift; five FLOPs a group."""
    image = call["input"]
    each = STATISTICS_FLOPS + 1 + (call["weight"] is not None) + (call["bias"] is not None)
    shape = call.get("normalized_shape")
    if shape is not None:
        length = 1
        for size in shape:
            length *= int(size)
        groups = numel(image) // max(length, 1)
    else:
        groups = int(image.shape[0]) * int(call.get("num_groups") or image.shape[1])
    return elementwise(each * numel(image) + (MEANS_FLOPS + ROOT_FLOPS) * groups, call.bytes())


@explains("quantized::softmax")
def softmax(call: Call) -> Work:
    """Compare, subtract, exponential, add, divide."""
    return elementwise(SOFTMAX_FLOPS * numel(call["qx"]), call.bytes())


@explains("quantized::cat_relu", "quantized::cat_relu_out")
def joined_and_cut(call: Call) -> Work:
    """Copies, and a compare."""
    return elementwise(numel(call.outputs[0]), call.bytes())


@explains("quantized::dropout")
def dropout(call: Call) -> Work:
    """A copy: quantised tensors are not trained."""
    return free(call.bytes())
