"""Recurrent layers that are one operator.

Each step of each direction is ``2·B·G·H·(I + R)`` FLOPs forward: G gates (LSTM 4, GRU 3, a plain layer 1), hidden size H, input size I, and
R the size of what is fed back, H, or ``proj_size`` where the hidden state is projected, 2·B·H·R more. Packed sequences count their
true lengths.

Backward, the model's FLOPs are those of the gradients that are needed: of the weights, of the input where it needs one, of the hidden
state from the last step to the second, and of the initial state only where it needs one (in `torch.nn.LSTM` without a given state it
does not). So they equal what the same layer takes where it is decomposed, as on meta. Executed is what the kernel does: it always
computes the gradient of the initial state, and oneDNN's that of the input, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from flopkit.counter.calls import OpCall, extent
from flopkit.counter.formulas.gradients import asked
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work, counted
from flopkit.layers.pointwise import ACTIVATIONS

__all__ = ["BY_VALUE", "Layers"]

GATES = (1, 1, 4, 3)  # by mode: relu, tanh, LSTM, GRU
_SIGMOID, _TANH = ACTIVATIONS["sigmoid"].flops, ACTIVATIONS["tanh"].flops
# Element-wise FLOPs of a hidden unit in one step: the gates' two products are added, then
# relu; tanh; LSTM: three sigmoids, two tanh, three products, a sum; GRU: two sigmoids, tanh, (h - n)·z + n, r·(W·h).
# equivalent: 2 * _TANH -> 2 (tanh is one FLOP)
CELL = (1 + 1, 1 + _TANH, 4 + 3 * _SIGMOID + 2 * _TANH + 4, 3 + 2 * _SIGMOID + _TANH + 4)
BY_VALUE = frozenset({"aten::mkldnn_rnn_layer_backward", "aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward",
                      "aten::quantized_lstm", "aten::quantized_gru"})  # fmt: skip


@dataclass(frozen=True)
class Layers:
    """The size of a recurrent network."""

    mode: int  # kind of layer: 0 relu, 1 tanh, 2 LSTM, 3 GRU
    rows: int  # steps of all sequences together
    batch: int  # sequences
    inputs: int  # numbers of one step of the input
    hidden: int  # numbers of a hidden state
    layers: int = 1
    directions: int = 1
    projected: int = 0  # size of the projected hidden state; 0: it is not
    biases: bool = True  # two for each gate

    def from_input(self, first: bool = True) -> int:
        """Multiply-adds with the weights of the input, those of the first layer left out where *first* is False."""
        wide = self.directions * (self.projected or self.hidden)
        sizes = (self.inputs if first else 0) + (self.layers - 1) * wide
        return self.directions * self.rows * GATES[self.mode] * self.hidden * sizes

    def from_state(self, rows: int) -> int:
        """Multiply-adds with the weights of the state in *rows* steps of each layer and direction."""
        return self.layers * self.directions * rows * GATES[self.mode] * self.hidden * (self.projected or self.hidden)

    @property
    def projection(self) -> int:
        """Multiply-adds of the projection."""
        return self.layers * self.directions * self.rows * self.hidden * self.projected

    @property
    def forward(self) -> int:
        """Multiply-adds of the forward pass.

        >>> Layers(mode=2, rows=5 * 2, batch=2, inputs=4, hidden=6).forward == 5 * 2 * 4 * 6 * (4 + 6)
        True
        """
        return self.from_input() + self.from_state(self.rows) + self.projection

    def backward(self, input: bool = True, weights: bool = True, state: bool = True) -> int:
        """Multiply-adds of the gradients: of the input, of the weights, of the initial state."""
        through = self.from_state(self.rows if state else self.rows - self.batch) if self.rows else 0
        return self.from_input(input) + through + self.projection + (self.forward if weights else 0)

    @property
    def vector(self) -> int:
        """Element-wise FLOPs of the forward pass; the backward pass is taken as twice as many."""
        units = self.layers * self.directions * self.rows * self.hidden
        return units * (CELL[self.mode] + 2 * GATES[self.mode] * self.biases)


def _gradients(layers: Layers, model: int, executed: int, moved: int) -> Work:
    vector = {"elementwise": 2 * layers.vector}
    return Work(COUNTED, {"products": model}, {"products": executed}, vector=vector, bytes=moved)


def _onednn(call: OpCall) -> Layers:
    """One layer in one direction; the input is (time, batch, size)."""
    steps, batch, size = map(int, call["input"].shape)
    return Layers(
        int(call["mode"]), steps * batch, batch, size, int(call["hidden_size"]), biases=bool(call["has_biases"])
    )


@explains("aten::mkldnn_rnn_layer")
def onednn(call: OpCall) -> Work:
    """oneDNN's layer, in one direction."""
    layers = _onednn(call)
    return counted(layers.forward, call.bytes(), vector=layers.vector)


@explains("aten::mkldnn_rnn_layer_backward")
def onednn_backward(call: OpCall) -> Work:
    """Its gradients, all of them whether asked for or not."""
    layers = _onednn(call)
    x, w_ih, w_hh, _, _, state, _ = asked(call.node, 7)
    model = layers.backward(x, weights=False, state=state)
    model += layers.from_input() * w_ih + layers.from_state(layers.rows) * w_hh
    return _gradients(layers, model, layers.backward(), call.bytes())


def _library(call: OpCall) -> tuple[Layers, int]:
    """All layers, and bytes; the input is (time, batch, size), (batch, time, size), or packed: (all steps, size).

    The weights are read once, though they come both apart and in one buffer.
    """
    *steps, size = map(int, call["input"].shape)
    count, directions, buffer = int(call["num_layers"]), 1 + bool(call["bidirectional"]), call.get("weight_buf")
    layers = Layers(
        int(call["mode"]), prod(steps), int(call["hx"].shape[1]), size, int(call["hidden_size"]), count, directions,
        projected=int(call.get("proj_size") or 0), biases=len(call["weight"]) >= 4 * count * directions,
    )  # fmt: skip
    return layers, call.bytes() - (extent(buffer) if buffer is not None and call["weight"] else 0)


@explains("aten::_cudnn_rnn", "aten::miopen_rnn")
def library(call: OpCall) -> Work:
    """cuDNN's and MIOpen's layers, all in one call."""
    layers, moved = _library(call)
    return counted(layers.forward, moved, vector=layers.vector)


@explains("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward")
def library_backward(call: OpCall) -> Work:
    """Their gradients: of the data in one call of the library, of the weights, where they are asked for, in another."""
    layers, moved = _library(call)
    x, state, _, weights = map(bool, call["output_mask"])
    return _gradients(layers, layers.backward(x, weights, state), layers.backward(True, weights, True), moved)


@explains("aten::quantized_lstm", "aten::quantized_gru")
def quantised(call: OpCall) -> Work:
    """Layers with packed weights, a byte each (two in half precision), and biases of four. The products run inside, where nobody sees them."""
    *steps, size = map(int, call.get("input", call.get("data")).shape)
    state, directions = call["hx"], 1 + bool(call["bidirectional"])
    # equivalent: 0 -> 1 (of an LSTM's two states either will do)
    state = state[0] if isinstance(state, (list, tuple)) else state
    # equivalent: 1 -> 2 (only a backward pass asks for the batch)
    batch = int(state.shape[1])
    layers = Layers(2 if "lstm" in call.name else 3, prod(steps), batch, size, int(state.shape[-1]), int(call["num_layers"]), directions,
                    biases=bool(call["has_biases"]))  # fmt: skip
    weights = replace(layers, rows=1).forward  # each weight meets each step once
    biases = 2 * layers.layers * directions * GATES[layers.mode] * layers.hidden * layers.biases
    (what, *_), _ = call["params"][0].__getstate__()
    width = 2 if what.endswith("fp16") else 1
    return counted(layers.forward, call.bytes() + width * weights + 4 * biases, vector=layers.vector)
