"""Recurrent layers that are one operator: `flopkit.macs.Recurrent`, the sizes read off the tensors.

Packed sequences count their true lengths. Backward, the model's FLOPs are those of the gradients that are needed: of the weights, of the
input where it needs one, of the hidden state from the last step to the second, and of the initial state only where it needs one (in
`torch.nn.LSTM` without a given state it does not). So they equal what the same layer takes where it is decomposed, as on meta. Executed
is what the kernel does: it always computes the gradient of the initial state, and oneDNN's that of the input, too.
"""

from __future__ import annotations

from math import prod

from flopkit.counter.calls import OpCall, extent
from flopkit.counter.formulas.attentions import asked
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work, counted
from flopkit.layers.pointwise import ACTIVATIONS
from flopkit.macs import Recurrent

GATES = (1, 1, 4, 3)  # by mode, which is the kind of layer: relu, tanh, LSTM, GRU
_SIGMOID, _TANH = ACTIVATIONS["sigmoid"].flops, ACTIVATIONS["tanh"].flops
# Element-wise FLOPs of a hidden unit in one step: the gates' two products are added, then
# relu; tanh; LSTM: three sigmoids, two tanh, three products, a sum; GRU: two sigmoids, tanh, (h - n)·z + n, r·(W·h).
# equivalent: 2 * _TANH -> 2 (tanh is one FLOP)
CELL = (1 + 1, 1 + _TANH, 4 + 3 * _SIGMOID + 2 * _TANH + 4, 3 + 2 * _SIGMOID + _TANH + 4)
BY_VALUE = frozenset({"aten::mkldnn_rnn_layer_backward", "aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward"})


def _read(call: OpCall) -> tuple[Recurrent, int, int]:
    """The sizes, the element-wise FLOPs of the forward pass, with two biases for each gate, and bytes.

    The input is (time, batch, size), (batch, time, size), or packed: (all steps, size). oneDNN runs one layer in one direction, cuDNN and
    MIOpen all of them: the weights come both apart and in one buffer, and are read once.
    """
    *steps, inputs = map(int, call["input"].shape)
    mode, hidden, moved = int(call["mode"]), int(call["hidden_size"]), call.bytes()
    if "mkldnn" in call.name:
        sizes, biases = Recurrent(GATES[mode], prod(steps), steps[1], inputs, hidden), bool(call["has_biases"])
    else:
        layers, directions, weights = int(call["num_layers"]), 1 + bool(call["bidirectional"]), call["weight"]
        batch, projected, buffer = int(call["hx"].shape[1]), int(call.get("proj_size") or 0), call.get("weight_buf")
        sizes = Recurrent(GATES[mode], prod(steps), batch, inputs, hidden, layers, directions, projected)
        biases = len(weights) >= 4 * layers * directions
        moved -= extent(buffer) if buffer is not None and weights else 0
    return sizes, sizes.units * (CELL[mode] + 2 * sizes.gates * biases), moved


@explains("mkldnn_rnn_layer _cudnn_rnn miopen_rnn")
def forward(call: OpCall) -> Work:
    """One layer or all of them."""
    sizes, vector, moved = _read(call)
    return counted(sizes.forward, moved, vector=vector)


@explains(*BY_VALUE)
def backward(call: OpCall) -> Work:
    """Their gradients. oneDNN takes all of them whether asked for or not; a library those of the data in one call, and those of the weights,
    where they are asked for, in another. Element-wise work is taken as twice that of the forward pass."""
    sizes, vector, moved = _read(call)
    if "mkldnn" in call.name:
        x, w_ih, w_hh, _, _, state, _ = asked(call.node, 7)
        model = sizes.backward(x, weights=False, state=state)
        model += sizes.from_input() * w_ih + sizes.from_state(sizes.rows) * w_hh
        executed = sizes.backward()
    else:
        x, state, _, weights = map(bool, call["output_mask"])
        model, executed = sizes.backward(x, weights, state), sizes.backward(True, weights, True)
    return Work(COUNTED, {"products": model}, {"products": executed}, vector={"elementwise": 2 * vector}, bytes=moved)
