"""Products with integer and packed weights. A multiply-add of integers counts like any other."""

from __future__ import annotations

from typing import Any

from flopkit.counter.calls import OpCall, numel
from flopkit.counter.formulas.convolutions import convolution_macs
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted, elementwise, free

__all__ = ["BY_VALUE"]

LINEAR = [
    f"quantized::linear{kind}"
    for kind in " _relu _leaky_relu _tanh _dynamic _relu_dynamic _dynamic_fp16 _relu_dynamic_fp16".split(" ")
]
CONVOLUTIONS = [
    "quantized::conv2d_add",
    "quantized::conv2d_add_relu",
    *(f"quantized::conv{d}d{kind}" for d in "123" for kind in ("", "_relu", "_dynamic")),
    *(f"quantized::conv_transpose{d}d{kind}" for d in "123" for kind in ("", "_dynamic")),
]
BY_VALUE = frozenset((*LINEAR, *CONVOLUTIONS))  # what is packed does not show in the arguments


def _unpacked(packed: Any) -> tuple[Any, Any]:
    """The weight and the bias that a packed parameter stands for."""
    weight, bias = packed.unpack()
    return weight, bias


def _activation(call: OpCall) -> int:
    return int(any(word in str(call.func) for word in ("relu", "tanh")))


def _moved(call: OpCall, width: int | None = None) -> int:
    """Inputs, results, and the packed weight, a byte a number (two in half precision), with its bias of four."""
    weight, bias = _unpacked(call.get("W_prepack", call.get("packed_weight")))
    each = int(weight.element_size()) if width is None else width
    return call.bytes() + numel(weight) * each + (numel(bias) * 4 if bias is not None else 0)


@explains(*LINEAR)
def linear(call: OpCall) -> Work:
    """A linear layer whose weight is packed: as many multiply-adds as that of the plain weight.

    Element-wise: scaling each result back, the bias, an activation: one FLOP each.
    """
    x = call["X"]
    results = numel(call.outputs[0])
    _, bias = _unpacked(call["W_prepack"])
    width = 2 if "fp16" in str(call.func) else None
    vector = results * (1 + (bias is not None) + _activation(call))
    return counted(results * int(x.shape[-1]), _moved(call, width), vector=vector)


@explains(*CONVOLUTIONS)
def convolution(call: OpCall) -> Work:
    """A convolution whose weight is packed."""
    x = call.get("qx", call.get("qa"))
    weight, bias = _unpacked(call.get("packed_weight", call.get("W_prepack")))
    transposed = "transpose" in str(call.func)
    results = numel(call.outputs[0])
    macs = convolution_macs(x if transposed else call.outputs[0], weight)
    return counted(macs, _moved(call), vector=results * (1 + (bias is not None) + _activation(call)))


@explains("quantized::matmul")
def product(call: OpCall) -> Work:
    """A product of two quantised tensors."""
    results = numel(call.outputs[0])
    return counted(results * int(call["qa"].shape[-1]), call.bytes(), vector=results)


@explains("aten::_int_mm")
def integers(call: OpCall) -> Work:
    """Eight-bit integers, summed in 32 bits."""
    return counted(numel(call.outputs[0]) * int(call["self"].shape[-1]), call.bytes())


@explains(
    "aten::_weight_int8pack_mm",
    "aten::_weight_int4pack_mm",
    "aten::_weight_int4pack_mm_for_cpu",
    "aten::_weight_int4pack_mm_with_scales_and_zeros",
    "aten::_mixed_dtypes_linear",
)
def weight_only(call: OpCall) -> Work:
    """Rows times a weight in few bits: K multiply-adds for each result. Scale, bias and activation are one FLOP each."""
    x = call.get("input", call.get("self"))
    results = numel(call.outputs[0])
    vector = results * (1 + (call.get("bias") is not None) + (call.get("activation") not in (None, "none")))
    return counted(results * int(x.shape[-1]), call.bytes(), vector=vector)


@explains("aten::_dyn_quant_matmul_4bit")
def four_bits(call: OpCall) -> Work:
    """Rows that are quantised on the way in, times a packed weight of four-bit numbers."""
    results = numel(call.outputs[0])
    return counted(results * int(call["in_features"]), call.bytes(), vector=results + numel(call["inp"]))


@explains(
    *(
        f"quantized::{what}{kind}{out}"
        for what in ("add", "mul")
        for kind in ("", "_scalar")
        for out in ("_out", "_relu", "_relu_out")
    ),
    *(f"quantized::{what}_scalar" for what in ("add", "mul")),
)
def element_by_element(call: OpCall) -> Work:
    """A sum or a product of quantised numbers, and what a relu compares: one FLOP each. Scaling to and fro is left out."""
    return elementwise(numel(call.outputs[0]) * (1 + _activation(call)), call.bytes())


@explains("quantized::cat", "quantized::cat_out")
def joined(call: OpCall) -> Work:
    """Tensors side by side: they only move, but for a new scale."""
    return free(call.bytes())
