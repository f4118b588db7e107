"""Layers whose eight-bit weights are packed. A multiply-add of integers counts like any other."""

from __future__ import annotations

from typing import Any

from flopkit.counter.calls import OpCall, numel
from flopkit.counter.formulas.convolutions import convolution_macs
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted, elementwise, free

_LINEAR = " _relu _leaky_relu _tanh _dynamic _relu_dynamic _dynamic_fp16 _relu_dynamic_fp16".split(" ")
LINEAR = [f"quantized::linear{kind}" for kind in _LINEAR]
CONVOLUTIONS = ["quantized::conv2d_add", "quantized::conv2d_add_relu"]
for _d in "123":
    CONVOLUTIONS += [f"quantized::conv{_d}d{kind}" for kind in ("", "_relu", "_dynamic")]
    CONVOLUTIONS += [f"quantized::conv_transpose{_d}d{kind}" for kind in ("", "_dynamic")]
BY_VALUE = frozenset((*LINEAR, *CONVOLUTIONS))  # what is packed does not show in the arguments


def _activation(call: OpCall) -> int:
    return int(any(word in call.name for word in ("relu", "tanh")))


def _packed(call: OpCall, macs: int, weight: Any, bias: Any) -> Work:
    """*macs* with a packed weight, a byte a number (two in half precision), and its bias of four bytes a number.

    Element-wise: scaling each result back, the bias, an activation: one FLOP each.
    """
    width = 2 if "fp16" in call.name else int(weight.element_size())
    moved = call.bytes() + numel(weight) * width + (numel(bias) * 4 if bias is not None else 0)
    return counted(macs, moved, vector=numel(call.outputs[0]) * (1 + (bias is not None) + _activation(call)))


@explains(*LINEAR)
def linear(call: OpCall) -> Work:
    """A linear layer whose weight is packed: as many multiply-adds as that of the plain weight."""
    return _packed(call, numel(call.outputs[0]) * int(call["X"].shape[-1]), *call["W_prepack"].unpack())


@explains(*CONVOLUTIONS)
def convolution(call: OpCall) -> Work:
    """A convolution whose weight is packed."""
    weight, bias = call.get("packed_weight", call.get("W_prepack")).unpack()
    positions = call.get("qx", call.get("qa")) if "transpose" in call.name else call.outputs[0]
    return _packed(call, convolution_macs(positions, weight), weight, bias)


@explains(*(f"quantized::{what}{kind}{out}" for what in ("add", "mul") for kind in ("", "_scalar")
            for out in ("", "_out", "_relu", "_relu_out")))  # fmt: skip
def element_by_element(call: OpCall) -> Work:
    """A sum or a product of quantised numbers, and what a relu compares: one FLOP each. Scaling to and fro is left out."""
    return elementwise(numel(call.outputs[0]) * (1 + _activation(call)), call.bytes())


@explains("quantized::cat quantized::cat_out")
def joined(call: OpCall) -> Work:
    """Tensors side by side: they only move, but for a new scale."""
    return free(call.bytes())
