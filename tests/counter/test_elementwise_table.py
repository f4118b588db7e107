"""A table of single operators and their element-wise FLOPs, by hand."""

from __future__ import annotations

import pytest
import torch
from cases import t

import flopkit as fk

N = 24
# fmt: off
VECTOR = {
    "add": (lambda a: a + a, N),
    "add twice a": (lambda a: torch.add(a, a, alpha=2), 2 * N),
    "a number": (lambda a: a * 3, N),
    "divide": (lambda a: a / 2, N),
    "exp": (torch.exp, N),
    "compare": (lambda a: a > 0, N),
    "relu": (torch.relu, N),
    "sqrt": (torch.sqrt, N),
    "power": (lambda a: a**2, N),
    "add in place": (lambda a: a.add_(1), N),
    "softmax": (lambda a: a.softmax(-1), 5 * N),
    "broadcast": (lambda a: a[:, :1] * a, N),
    "outer": (lambda a: torch.outer(a[0], a[0]), 36),
    "copy": (lambda a: a.clone(), 0),
    "cast": (lambda a: a.double(), 0),
    "view": (lambda a: a.t(), 0),
    "where": (lambda a: torch.where(a > 0, a, a), N),
    "maximum": (lambda a: torch.maximum(a, a), N),
    "sigmoid": (torch.sigmoid, 3 * N),
    "zeros": (lambda a: torch.zeros_like(a), 0),
}
# fmt: on


@pytest.mark.parametrize("name", VECTOR)
def test_element_wise(name):
    fn, flops = VECTOR[name]
    report = fk.count(fn, t(4, 6))
    assert (report.vector_flops, report.flops, report.model_flops, report.uncounted) == (flops, 0, 0, [])
    assert sum(row["vector_flops"] for row in report.by_op()) == flops
    assert fk.count(fn, t(4, 6).to("meta")).vector_flops == flops


def test_numbers_that_decide_are_not_forgotten():
    """What is known of one call is used for the next that costs the same, and only there."""
    rows, classes = t(4, 6), torch.zeros(4, dtype=torch.long)
    norms = {p: fk.count(torch.linalg.vector_norm, rows, p).vector_flops for p in (1.0, 2.0)}
    assert norms == {1.0: 24, 2.0: 2 * 24 + 1}  # a power for each number, and a root
    added = {n: fk.count(torch.index_add, rows, 0, classes, rows, alpha=n).vector_flops for n in (1.0, 2.0)}
    assert added == {1.0: 24, 2.0: 48}
