"""What is recorded of other tools: the file against the tools themselves, where they are installed in the same version."""

import contextlib

import pytest
import torch

import flopkit as fk
from flopkit.peers import programs
from flopkit.peers.asking import ask
from flopkit.peers.installed import version
from flopkit.peers.programs import PROGRAMS
from flopkit.peers.recorded import read, recorded, releases, versions
from flopkit.peers.tools import TOOLS


def test_every_program_has_every_tool():
    assert set(recorded()) == set(PROGRAMS)
    assert list(versions()) == [tool for tool in TOOLS if tool != "ptflops-aten"]
    for it in recorded().values():
        assert set(it.printed) == set(versions()) and set(it.reasons) <= set(versions())
        assert it.about


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_tool_that_is_off_has_a_reason(program):
    check_reasons(recorded()[program])


def check_reasons(it):
    for tool in it.printed:
        if it.printed[tool] * 2 != it.flops * TOOLS[tool].fma:
            assert it.reasons.get(tool), f"{tool} prints {it.printed[tool]:,} of {it.flops:,}: say why"
        else:
            assert tool not in it.reasons


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_later_torch_prints(program):
    """Its counter has had a formula for the attention of a CPU since 2.15; its profiler was not asked there."""
    first, same, later = (recorded(torch)[program] for torch in (None, "2.14.1+cu130", "2.15.0"))
    assert (same.printed, same.reasons) == (first.printed, first.reasons)
    check_reasons(later)
    assert set(first.printed) - set(later.printed) == {"torch.profiler"}
    attends = {"ViT-B/16": 1430654976, "small Llama": 8388608, "small Mixtral": 8388608}
    assert later.printed["torch"] - first.printed["torch"] == attends.get(program, 0)
    assert "attention: 0" not in later.reasons.get("torch", "") or program == "ViT-B/16, no gradients"


def test_of_another_torch_nothing_is_recorded():
    for unknown in ("2.12.1", "2.16.0"):
        with pytest.raises(
            ValueError, match=f"torch='{unknown}': answers are recorded of torch 2.13.0 and later, before"
        ):
            recorded(unknown)


@pytest.mark.parametrize(
    ("later", "says"),
    [
        ('later."thop" = { since = "2.14", printed = 1 }', "must be of"),
        ('later."torch" = { since = "2.14", print = 1 }', "since, printed and reason"),
        ('later."torch" = { since = "2.17", printed = 1 }', "since='2.17' is not 2.13 and later, before 2.16"),
    ],
)
def test_a_file_is_checked(later, says):
    head = '[versions]\ntorch = { since = "2.13", until = "2.16" }\n[programs.P]\n'
    assert read(head)[1] == {"P": {}}
    with pytest.raises(ValueError, match=says):
        read(head + later)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_tools_still_say_so(program):
    try:
        model, x, grad = programs.build(program)
    except ImportError as error:
        pytest.skip(str(error))
    here = version("torch")
    it = recorded(here if here in releases()["torch"] else None)[program]
    with contextlib.nullcontext() if grad else torch.no_grad():
        report = fk.count(model, x)
        assert report.flops == report.model_flops == it.flops
        for tool in it.printed:
            if version(TOOLS[tool].package) in releases()[tool]:
                answer = ask(tool, model, x)
                assert (answer.value, answer.said) == (it.printed[tool], ""), tool
