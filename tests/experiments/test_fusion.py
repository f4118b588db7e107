"""Fusion: the bytes of each form by hand, the same result by all of them, and what torch.compile really makes of the chain."""

import os
import re
import shutil

import pytest
import torch

from flopkit.experiments import Bench, fusion

ROWS, WIDTH = 8, 16  # the sizes at toy scale
TENSOR, VECTOR, COLUMN = (
    4 * ROWS * WIDTH,
    4 * WIDTH,
    4 * ROWS,
)  # bytes: of x, of scale and shift, of a number for each row


@pytest.fixture(scope="module")
def records(toy):
    return {(each["params"]["program"], each["params"]["form"]): each for each in toy("fusion")[1]}


def test_forms(records):
    assert set(records) == {
        ("chain", "eager"), ("chain", "compiled"), ("norm", "eager"), ("norm", "layer_norm"), ("norm", "compiled"),
    }  # fmt: skip


def test_bytes_by_hand(records):
    """The chain reads and writes x three times; the norm, operator by operator, 12 times; torch's own layer norm twice."""
    assert records["chain", "eager"]["counted"]["bytes"] == 6 * TENSOR + 2 * VECTOR
    eager = records["norm", "eager"]["counted"]["bytes"]
    assert 12 * TENSOR + 2 * VECTOR < eager <= 12 * TENSOR + 2 * VECTOR + 8 * COLUMN
    assert (
        2 * TENSOR + 2 * VECTOR
        <= records["norm", "layer_norm"]["counted"]["bytes"]
        <= 2 * TENSOR + 2 * VECTOR + 2 * COLUMN
    )


def test_what_is_not_fused_does_not_say_it_is(records):
    """At toy size nothing is compiled: the bytes are those of the operators."""
    for program in ("chain", "norm"):
        assert records[program, "compiled"]["counted"]["bytes"] == records[program, "eager"]["counted"]["bytes"]


def test_no_products(records):
    assert {each["counted"]["flops"] for each in records.values()} == {0}


def test_all_forms_are_checked_and_right(records):
    for each in records.values():
        assert each["verdict"] == "ok" and each["error"] < 1e-5
    x, scale, shift = (torch.randn(*shape) for shape in ((5, 7), (7,), (7,)))
    assert torch.allclose(fusion.norm(x, scale, shift), fusion.layer_norm(x, scale, shift), atol=1e-5)


def case_of(monkeypatch, scale):
    seen = {}

    def case(self, experiment, params, make, dtype, **how):
        seen[params["program"], params["form"]] = params, make, how
        return {}

    monkeypatch.setattr(Bench, "case", case)
    list(fusion.run(Bench("cpu", scale)))
    return seen


def test_fused_bytes_are_those_of_one_kernel(monkeypatch):
    for (_program, form), (params, _make, how) in case_of(monkeypatch, "cpu").items():
        numbers = 2 * params["rows"] * params["width"] + 2 * params["width"]
        assert how["bytes"] == (4 * numbers if form == "compiled" else None)


COMPILERS = (os.environ.get("CXX"), "g++", "clang++")


@pytest.mark.slow
@pytest.mark.skipif(
    not any(name and shutil.which(name) for name in COMPILERS), reason="torch.compile needs a C++ compiler"
)
@pytest.mark.parametrize("program", [fusion.chain, fusion.norm])
def test_inductor_makes_one_kernel_of_it(program):
    """What the compiled bytes rest on: one kernel, which takes x, scale, shift and writes one tensor."""
    from torch._inductor.utils import run_and_get_code

    inputs = [torch.randn(*shape) for shape in ((64, 128), (128,), (128,))]
    compiled = torch.compile(program, backend="inductor", dynamic=False)
    with torch.no_grad():
        out, (code,) = run_and_get_code(compiled, *inputs)
    assert torch.allclose(out, program(*inputs), atol=1e-4)
    calls = re.findall(r"^ +(cpp_fused\w*)\((.*)\)$", code, re.M)
    assert len(calls) == 1, code
