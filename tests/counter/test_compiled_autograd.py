"""Compiled autograd makes one graph of a backward pass, which knows of no module: the program's own keep their names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flopkit as fk

compiled_autograd = pytest.importorskip("torch._dynamo.compiled_autograd")
PRODUCT = 2 * 4 * 8 * 8
NOTE = "compiled autograd ran a backward pass as one graph: its work is given to no module"


@pytest.mark.filterwarnings("ignore")  # the compiler reads the gradient of what is no leaf
@pytest.mark.parametrize("captured_before", [True, False])
def test_the_backward_pass_is_in_no_module(captured_before):
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.randn(4, 8)

    def step():
        model(x).sum().backward()

    compiled_autograd.reset()
    with compiled_autograd._enable(torch.compile(backend="eager")):
        if captured_before:
            step()
        report = fk.count(step)
    rows = {row["module"]: (row["forward"], row["backward"]) for row in report.by_module()}
    assert rows == {
        "": (2 * PRODUCT, 0), "0": (PRODUCT, 0), "1": (0, 0), "2": (PRODUCT, 0), "(no module)": (0, 3 * PRODUCT),
    }  # fmt: skip
    assert report.notes == [NOTE]


def test_modules_that_a_plain_backward_pass_calls_keep_their_names():
    from torch.utils.checkpoint import checkpoint

    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    report = fk.count(lambda: checkpoint(layer, x, use_reentrant=False).sum().backward())
    rows = {row["module"]: row["recompute"] + row["backward"] for row in report.by_module()}
    assert rows["Linear" if "Linear" in rows else ""] == PRODUCT and report.notes == []
