"""What is recorded of other tools: the file against the tools themselves, where they are installed in the same version."""

import contextlib
import io

import pytest
import torch

import flopkit as fk
from flopkit.counter import peers
from flopkit.counter.peers import asked, installed, programs
from flopkit.counter.peers.programs import PROGRAMS
from flopkit.counter.peers.recorded import recorded, versions


def test_every_program_has_every_tool():
    assert set(recorded()) == set(PROGRAMS)
    assert list(versions()) == list(asked.TOOLS)
    for it in recorded().values():
        assert set(it.printed) == set(asked.TOOLS) and set(it.reasons) <= set(asked.TOOLS)
        assert it.about


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_tool_that_is_off_has_a_reason(program):
    it = recorded()[program]
    for tool, (_, _, fma, _) in asked.TOOLS.items():
        if it.printed[tool] * 2 != it.flops * fma:
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
        for tool in peers.TOOLS:
            assert int(report.as_seen_by(tool)) == it.printed[tool], tool
        for tool in asked.TOOLS:
            if asked.sure(tool):
                answer = asked.ask(tool, model, x)
                assert (answer.value, answer.said) == (it.printed[tool], ""), tool


def test_a_tool_that_is_missing_is_no_zero(monkeypatch):
    monkeypatch.setattr(asked, "load", lambda tool: None)
    monkeypatch.setattr(asked, "version", lambda tool: None)
    answer = asked.ask("thop", torch.nn.Linear(2, 2), torch.ones(1, 2))
    assert answer.value is None and answer.flops is None and answer.said == "missing"
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert not asked.sure("thop")
    assert "not checked here: thop" in said.getvalue() and "missing" in said.getvalue()


def test_a_tool_that_fails_says_how():
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("no such thing")

    answer = asked.ask("torch", Fails(), torch.ones(1))
    assert (answer.value, answer.said) == (None, "RuntimeError: no such thing")


def test_ask_leaves_the_model_alone():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2)).train()
    for tool in asked.TOOLS:
        asked.ask(tool, model, torch.ones(1, 2))
    assert model.training and list(model.state_dict()) == ["0.weight", "0.bias"]


@pytest.mark.skipif(
    installed.load("thop") is None or installed.load("ultralytics-thop") is None, reason="one thop is missing"
)
def test_both_thops_side_by_side():
    import sys

    one, other = installed.load("thop"), installed.load("ultralytics-thop")
    assert one is not other and sys.modules["thop"] is one
    assert str(installed.APART) in other.__file__
