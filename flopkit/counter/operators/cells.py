"""Recurrent layers on CUDA without cuDNN, whose products are operators of their own, and on Apple's GPUs."""

from __future__ import annotations

from typing import Any

from flopkit.counter.calls import Call, extent, numel, tensors
from flopkit.counter.operators.recurrent import CELL
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work, elementwise

__all__: list[str] = []

LSTM, GRU = 2, 3


@explains("aten::_thnn_fused_lstm_cell")
def lstm_cell(call: Call) -> Work:
    """The gates of a step: 19 FLOPs a hidden unit, as everywhere, and the additions of two biases to four gates."""
    biases = 8 * (call["input_bias"] is not None)
    return elementwise((CELL[LSTM] + biases) * numel(call["cx"]), call.bytes())


@explains("aten::_thnn_fused_gru_cell")
def gru_cell(call: Call) -> Work:
    """The gates of a step: 14 FLOPs a hidden unit, and the additions of two biases to three gates."""
    biases = 6 * (call["input_bias"] is not None)
    return elementwise((CELL[GRU] + biases) * numel(call["hx"]), call.bytes())


@explains("aten::_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(call: Call) -> Work:
    """tanh(c); of the cell: two multiplies, a multiply and a subtract for 1 − t², an add; four a gate; the former cell's: a multiply."""
    return elementwise((1 + 5 + 4 * 4 + 1) * numel(call["cx"]), call.bytes())


@explains("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(call: Call) -> Work:
    """z: two subtracts, three multiplies; n: two multiplies, a subtract, a multiply; r: as n; the two products with r and with z."""
    return elementwise((5 + 4 + 4 + 2) * numel(call["grad_hy"]), call.bytes())


def _products(call: Call) -> int:
    """Multiply-adds of a forward pass: every weight meets every step of every sequence."""
    source = call["input"]
    steps = numel(source) // max(int(source.shape[-1]), 1)
    return steps * sum(numel(p) for p in tensors(call["params"]) if p.dim() == 2)


@explains("aten::_lstm_mps")
def lstm_mps(call: Call) -> Work:
    """``2·steps·weights``, and 19 FLOPs a hidden unit and step, with biases eight more."""
    each = CELL[LSTM] + 8 * bool(call["has_biases"])
    return Work(COUNTED, {"products": _products(call)}, vector={"elementwise": each * _units(call)}, bytes=call.bytes())


@explains("aten::lstm_mps_backward")
def lstm_mps_backward(call: Call) -> Work:
    """The gradients of weights and of states: twice the forward pass."""
    inputs = {id(t): t for t in tensors((call.args, call.kwargs))}
    moved = sum(map(extent, inputs.values())) + sum(map(extent, call.outputs))
    return Work(COUNTED, {"products": 2 * _products(call)}, vector={"elementwise": 23 * _units(call)}, bytes=moved)


def _units(call: Call) -> int:
    """Hidden units of all layers, directions and steps: a quarter of the rows of the weights that meet the state."""
    source = call["input"]
    steps = numel(source) // max(int(source.shape[-1]), 1)
    weights: list[Any] = [p for p in tensors(call["params"]) if p.dim() == 2]
    return steps * sum(int(p.shape[0]) // 4 for p in weights[1::2])
