"""A tool that is asked leaves torch's compiler as it found it: what was compiled stays so, and what compiles at each call still runs."""

import pytest
import torch
from programs import counting_backend
from torch import nn

import flopkit as fk

MODES = ("torch", "ptflops-aten")  # tools that are dispatch modes


@pytest.fixture(autouse=True)
def compiler():
    """As it is in a new process, whatever ran before in this one."""
    torch._dynamo.reset()


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda t: self.a(t), lambda t: self.b(t), (x,))


@pytest.mark.parametrize("tool", MODES)
def test_a_branch_runs_afterwards(tool):
    model, x = Gate(), torch.ones(4, 8)
    plain = model(x)
    answer = fk.ask(tool, model, x)
    assert tool != "torch" or answer.value == 2 * 4 * 8 * 8
    assert torch.equal(model(x), plain)
    Gate()(x)


@pytest.mark.parametrize("tool", ["torch", "torch.profiler"])
def test_a_compiled_function_stays_compiled(tool):
    calls = []
    compiled = torch.compile(lambda a: a @ a.T, backend=counting_backend(calls))
    x = torch.ones(4, 8)
    compiled(x)
    fk.ask(tool, lambda a: compiled(a), x)
    before = len(calls)
    compiled(x)
    assert len(calls) == before + 1


def test_a_model_that_is_compiled_stays_so():
    calls = []
    model, x = torch.compile(nn.Linear(8, 8), backend=counting_backend(calls)), torch.ones(4, 8)
    model(x)
    for tool in MODES:
        fk.ask(tool, model, x)
    before = len(calls)
    model(x)
    assert len(calls) == before + 1
