"""The element-wise work of an MLP's activation, and that of torch's operators for the same."""

import pytest
import torch
import torch.nn.functional as F

import flopkit as fk
from flopkit.models import MLP
from flopkit.models.stacks.parts import Run

TOKENS, WIDTH = 7, 100


def oai(gate, up):
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (up + 1) * (gate * torch.sigmoid(gate * 1.702))


GATED = {
    "silu": lambda gate, up: F.silu(gate) * up,
    "gelu": lambda gate, up: F.gelu(gate) * up,
    "gelu_tanh": lambda gate, up: F.gelu(gate, approximate="tanh") * up,
    "relu": lambda gate, up: F.relu(gate) * up,
    "relu2": lambda gate, up: F.relu(gate).square() * up,
    "swiglu_clamped": lambda gate, up: F.silu(gate.clamp(max=10.0)) * up.clamp(-10.0, 10.0),
    "swiglu_oai": oai,
}
PLAIN = {
    "silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu, "relu2": lambda x: F.relu(x).square(),
}  # fmt: skip


@pytest.mark.parametrize("gated, act", [(True, act) for act in GATED] + [(False, act) for act in PLAIN])
def test_the_activation_of_an_mlp_is_that_of_torch(gated, act):
    hidden = [torch.randn(TOKENS, WIDTH) for _ in range(1 + gated)]
    program = fk.count(lambda: (GATED if gated else PLAIN)[act](*hidden))
    parts = MLP(d_ff=WIDTH, act=act, gated=gated).parts(Run(1, TOKENS, TOKENS), 16)
    assert sum(each.cost.vector_flops for each in parts) == program.vector_flops
