"""Products with integer and packed weights. A multiply-add of integers counts like any other."""

from __future__ import annotations

from math import prod
from typing import Any

from flopkit.counter.calls import Call, extent, numel
from flopkit.counter.operators.convolutions import channel_macs
from flopkit.counter.operators.recurrent import Layers
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted, elementwise, free

__all__ = ["BY_VALUE"]

LINEAR = (
    "_quantized::linear",
    "_quantized::linear_dynamic",
    "quantized::linear_with_input_q_dq_qweight_dq_output_fp32",
    "quantized::linear_with_input_q_dq_qweight_dq_relu_output_fp32",
    *(
        f"quantized::linear{kind}"
        for kind in " _relu _leaky_relu _tanh _dynamic _relu_dynamic _dynamic_fp16 _relu_dynamic_fp16".split(" ")
    ),
)
CONVOLUTIONS = (
    "quantized::conv2d_add",
    "quantized::conv2d_add_relu",
    *(f"quantized::conv{d}d{kind}" for d in "123" for kind in ("", "_relu", "_dynamic")),
    *(f"quantized::conv_transpose{d}d{kind}" for d in "123" for kind in ("", "_dynamic")),
    *(f"_quantized::conv{kind}" for kind in "2d 2d_relu 3d 3d_relu _transpose1d _transpose2d".split()),
)
CELLS = {  # by mode, as in recurrent layers
    # equivalent: 0 -> 1 (relu and tanh are one gate, and one FLOP)
    "quantized::quantized_rnn_relu_cell_dynamic": 0,
    "quantized::quantized_rnn_tanh_cell_dynamic": 1,
    "quantized::quantized_lstm_cell_dynamic": 2,
    "quantized::quantized_gru_cell_dynamic": 3,
}
BY_VALUE = frozenset(
    (*LINEAR, *CONVOLUTIONS, *CELLS, "mkldnn_prepacked::conv2d_run")
)  # what is packed does not show in the arguments


def _unpacked(packed: Any) -> tuple[Any, Any]:
    """The weight and the bias that a packed parameter stands for."""
    weight, bias = packed.unpack()
    return weight, bias


def _activation(call: Call) -> int:
    return int(any(word in str(call.func) for word in ("relu", "tanh")))


def _moved(call: Call, width: int | None = None) -> int:
    """Inputs, results, and the packed weight, a byte a number (two in half precision), with its bias of four."""
    weight, bias = _unpacked(call.get("W_prepack", call.get("packed_weight")))
    each = int(weight.element_size()) if width is None else width
    return call.bytes() + numel(weight) * each + (numel(bias) * 4 if bias is not None else 0)


@explains(*LINEAR)
def linear(call: Call) -> Work:
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
def convolution(call: Call) -> Work:
    """A convolution whose weight is packed."""
    x = call.get("qx", call.get("qa"))
    weight, bias = _unpacked(call.get("packed_weight", call.get("W_prepack")))
    transposed = "transpose" in str(call.func)
    results = numel(call.outputs[0])
    macs = (numel(x) if transposed else results) * prod(map(int, weight.shape[1:]))
    return counted(macs, _moved(call), vector=results * (1 + (bias is not None) + _activation(call)))


@explains("mkldnn_prepacked::conv2d_run")
def prepacked_convolution(call: Call) -> Work:
    """oneDNN's convolution of plain numbers whose weight was packed ahead."""
    weight, bias, *_ = call["W_prepack"].__getstate__()[0]
    results = numel(call.outputs[0])
    parts = sum(extent(t) for t in (weight, bias) if t is not None)
    macs = results * prod(map(int, weight.shape[1:]))
    return counted(macs, call.bytes() + parts, vector=results * (bias is not None))


@explains(*CELLS)
def cell(call: Call) -> Work:
    """One step of a recurrent layer, ``B·G·H·(I + H)`` multiply-adds with G gates."""
    x, hidden = call["input"], call["hx"]
    # equivalent: 0 -> 1 (of an LSTM's two states either will do)
    state = hidden[0] if isinstance(hidden, (list, tuple)) else hidden
    mode = CELLS[str(call.func._schema.name)]
    # equivalent: 0 -> 1 [2] (only a backward pass asks for the batch)
    step = Layers(mode, int(state.shape[0]), int(state.shape[0]), int(x.shape[-1]), int(state.shape[-1]))
    weights = [_unpacked(call[name])[0] for name in ("w_ih", "w_hh")]
    packed = sum(numel(w) * (1 if w.is_quantized else 2) for w in weights)  # half precision is unpacked to single
    return counted(step.forward, call.bytes() + packed, vector=step.vector)


@explains("quantized::matmul")
def product(call: Call) -> Work:
    """A product of two quantised tensors."""
    results = numel(call.outputs[0])
    return counted(results * int(call["qa"].shape[-1]), call.bytes(), vector=results)


@explains("aten::_int_mm")
def integers(call: Call) -> Work:
    """Eight-bit integers, summed in 32 bits."""
    return counted(numel(call.outputs[0]) * int(call["self"].shape[-1]), call.bytes())


@explains(
    "aten::_weight_int8pack_mm",
    "aten::_weight_int4pack_mm",
    "aten::_weight_int4pack_mm_for_cpu",
    "aten::_weight_int4pack_mm_with_scales_and_zeros",
    "aten::_mixed_dtypes_linear",
    "quantized::int4mm_packed_weight_cpu",
    "quantized::linear_dynamic_fp16_unpacked_weight",
    "onednn::qlinear_pointwise",
    "onednn::linear_dynamic_fp16",
    "onednn::linear_relu_dynamic_fp16",
    "_quantized::wrapped_fbgemm_linear_fp16_weight",
    "_quantized::wrapped_quantized_linear",
    "_quantized::_wrapped_quantized_linear_prepacked",
    "aten::fbgemm_linear_int8_weight",
    "aten::fbgemm_linear_int8_weight_fp32_activation",
    "aten::fbgemm_linear_fp16_weight",
    "aten::fbgemm_linear_fp16_weight_fp32_activation",
)
def weight_only(call: Call) -> Work:
    """Rows times a weight in few bits: K multiply-adds for each result. Scale, bias and activation are one FLOP each."""
    x = call.get("input", call.get("self", call.get("qx", call.get("X", call.get("x")))))
    results = numel(call.outputs[0])
    bias = next((call.get(name) for name in ("bias", "B") if call.get(name) is not None), None)
    vector = results * (1 + (bias is not None) + _activation(call))
    return counted(results * int(x.shape[-1]), call.bytes(), vector=vector)


@explains("aten::_dyn_quant_matmul_4bit")
def four_bits(call: Call) -> Work:
    """Rows that are quantised on the way in, times a packed weight of four-bit numbers."""
    results = numel(call.outputs[0])
    return counted(results * int(call["in_features"]), call.bytes(), vector=results + numel(call["inp"]))


@explains(
    "onednn::qconv_pointwise", "onednn::qconv1d_pointwise", "onednn::qconv2d_pointwise", "onednn::qconv3d_pointwise"
)
def convolution_and_more(call: Call) -> Work:
    """oneDNN's convolution of integers with what follows it."""
    result = call.outputs[0]
    macs = channel_macs(call["qx"], result, call["qw"], int(call["groups"]))
    return counted(macs, call.bytes(), vector=numel(result) * (1 + (call["bias"] is not None)))


@explains(
    *(
        f"quantized::{what}{kind}{out}"
        for what in ("add", "mul")
        for kind in ("", "_scalar")
        for out in ("_out", "_relu", "_relu_out")
    ),
    *(f"quantized::{what}_scalar" for what in ("add", "mul")),
    "onednn::qadd",
    "onednn::qadd_relu",
    "onednn::qmul",
)
def element_by_element(call: Call) -> Work:
    """A sum or a product of quantised numbers, and what a relu compares: one FLOP each. Scaling to and fro is left out."""
    return elementwise(numel(call.outputs[0]) * (1 + _activation(call)), call.bytes())


@explains("quantized::cat", "quantized::cat_out")
def joined(call: Call) -> Work:
    """Tensors side by side: they only move, but for a new scale."""
    return free(call.bytes())
