"""Recurrent layers that are one operator: `flopkit.macs.Recurrent`, the sizes read off the tensors. Packed sequences count their true lengths.

Backward, the model's FLOPs are those of the gradients that are needed: of the weights, of the input where it needs one, of the hidden
state from the last step to the second, and of the initial state only where it needs one (in `torch.nn.LSTM` without a given state it
does not). So they equal what the same layer takes where it is decomposed, as on meta. Executed is what the kernel does: it always
computes the gradient of the initial state, and oneDNN's that of the input, too.
"""

from __future__ import annotations

from math import prod

from flopkit.counter.calls import OpCall, extent
from flopkit.counter.formulas.attentions import asked
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work, counted
from flopkit.layers.pointwise import ACTIVATIONS
from flopkit.macs import Recurrent

__all__ = ["BY_VALUE"]

GATES = (1, 1, 4, 3)  # by mode, which is the kind of layer: relu, tanh, LSTM, GRU
_SIGMOID, _TANH = ACTIVATIONS["sigmoid"].flops, ACTIVATIONS["tanh"].flops
# Element-wise FLOPs of a hidden unit in one step: the gates' two products are added, then
# relu; tanh; LSTM: three sigmoids, two tanh, three products, a sum; GRU: two sigmoids, tanh, (h - n)·z + n, r·(W·h).
# equivalent: 2 * _TANH -> 2 (tanh is one FLOP)
CELL = (1 + 1, 1 + _TANH, 4 + 3 * _SIGMOID + 2 * _TANH + 4, 3 + 2 * _SIGMOID + _TANH + 4)
BY_VALUE = frozenset({"aten::mkldnn_rnn_layer_backward", "aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward"})


def _vector(sizes: Recurrent, call: OpCall, biases: bool) -> int:
    """Element-wise FLOPs of the forward pass, with two biases for each gate; the backward pass is taken as twice as many."""
    return sizes.units * (CELL[int(call["mode"])] + 2 * sizes.gates * biases)


def _gradients(model: int, executed: int, vector: int, moved: int) -> Work:
    return Work(COUNTED, {"products": model}, {"products": executed}, vector={"elementwise": 2 * vector}, bytes=moved)


def _onednn(call: OpCall) -> tuple[Recurrent, int]:
    """One layer in one direction, and its element-wise FLOPs; the input is (time, batch, size)."""
    steps, batch, size = map(int, call["input"].shape)
    sizes = Recurrent(GATES[int(call["mode"])], steps * batch, batch, size, int(call["hidden_size"]))
    return sizes, _vector(sizes, call, bool(call["has_biases"]))


@explains("aten::mkldnn_rnn_layer")
def onednn(call: OpCall) -> Work:
    """oneDNN's layer, in one direction."""
    sizes, vector = _onednn(call)
    return counted(sizes.forward, call.bytes(), vector=vector)


@explains("aten::mkldnn_rnn_layer_backward")
def onednn_backward(call: OpCall) -> Work:
    """Its gradients, all of them whether asked for or not."""
    sizes, vector = _onednn(call)
    x, w_ih, w_hh, _, _, state, _ = asked(call.node, 7)
    model = sizes.backward(x, weights=False, state=state)
    model += sizes.from_input() * w_ih + sizes.from_state(sizes.rows) * w_hh
    return _gradients(model, sizes.backward(), vector, call.bytes())


def _library(call: OpCall) -> tuple[Recurrent, int, int]:
    """All layers, their element-wise FLOPs, and bytes; the input is (time, batch, size), (batch, time, size), or packed: (all steps, size).

    The weights are read once, though they come both apart and in one buffer.
    """
    *steps, size = map(int, call["input"].shape)
    count, directions, buffer = int(call["num_layers"]), 1 + bool(call["bidirectional"]), call.get("weight_buf")
    sizes = Recurrent(
        GATES[int(call["mode"])], prod(steps), int(call["hx"].shape[1]), size, int(call["hidden_size"]), count, directions,
        projected=int(call.get("proj_size") or 0),
    )  # fmt: skip
    moved = call.bytes() - (extent(buffer) if buffer is not None and call["weight"] else 0)
    return sizes, _vector(sizes, call, biases=len(call["weight"]) >= 4 * count * directions), moved


@explains("aten::_cudnn_rnn", "aten::miopen_rnn")
def library(call: OpCall) -> Work:
    """cuDNN's and MIOpen's layers, all in one call."""
    sizes, vector, moved = _library(call)
    return counted(sizes.forward, moved, vector=vector)


@explains("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward")
def library_backward(call: OpCall) -> Work:
    """Their gradients: of the data in one call of the library, of the weights, where they are asked for, in another."""
    sizes, vector, moved = _library(call)
    x, state, _, weights = map(bool, call["output_mask"])
    return _gradients(sizes.backward(x, weights, state), sizes.backward(True, weights, True), vector, moved)
