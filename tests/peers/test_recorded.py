"""What is recorded of other tools: the file against the tools themselves, where they are installed in the same version."""

import contextlib

import pytest
import torch

import flopkit as fk
from flopkit.peers import programs
from flopkit.peers.asking import ask, sure
from flopkit.peers.programs import PROGRAMS
from flopkit.peers.recorded import recorded, versions
from flopkit.peers.tools import TOOLS


def test_every_program_has_every_tool():
    assert set(recorded()) == set(PROGRAMS)
    assert list(versions()) == [tool for tool in TOOLS if tool != "ptflops-aten"]
    for it in recorded().values():
        assert set(it.printed) == set(versions()) and set(it.reasons) <= set(versions())
        assert it.about


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_tool_that_is_off_has_a_reason(program):
    it = recorded()[program]
    for tool in versions():
        if it.printed[tool] * 2 != it.flops * TOOLS[tool].fma:
            assert it.reasons.get(tool), f"{tool} prints {it.printed[tool]:,} of {it.flops:,}: say why"
        else:
            assert tool not in it.reasons


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_tools_still_say_so(program):
    try:
        model, x, grad = programs.build(program)
    except ImportError as error:
        pytest.skip(str(error))
    it = recorded()[program]
    with contextlib.nullcontext() if grad else torch.no_grad():
        report = fk.count(model, x)
        assert report.flops == report.model_flops == it.flops
        for tool in versions():
            if sure(tool):
                answer = ask(tool, model, x)
                assert (answer.value, answer.said) == (it.printed[tool], ""), tool
