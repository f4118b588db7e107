"""Bytes and element-wise work of single operators, by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopkit as fk


def t(*shape, dtype=None):
    return torch.rand(shape, dtype=dtype)


# -- bytes: each input and weight once, each output once; views nothing --------------------------------------------

IDS = torch.zeros(6, dtype=torch.long)
# fmt: off: a table
BYTES = {
    "mm": (lambda: torch.mm(t(3, 5), t(5, 7)), 4 * (15 + 35 + 21)),
    "mm of halves": (
        lambda a, b: torch.mm(a, b),
        2 * (15 + 35 + 21),
        t(3, 5, dtype=torch.half),
        t(5, 7, dtype=torch.half),
    ),
    "mm of doubles": (
        lambda a, b: torch.mm(a, b),
        8 * (15 + 35 + 21),
        t(3, 5, dtype=torch.double),
        t(5, 7, dtype=torch.double),
    ),
    "linear": (nn.Linear(5, 7), 4 * (15 + 35 + 7 + 21), t(3, 5)),
    "conv": (nn.Conv2d(3, 5, 3), 4 * (2 * 3 * 64 + 5 * 27 + 5 + 2 * 5 * 36), t(2, 3, 8, 8)),
    "add": (torch.add, 4 * 3 * 15, t(3, 5), t(3, 5)),
    "add, broadcast": (torch.add, 4 * (15 + 5 + 15), t(3, 5), t(5)),
    "add of itself": (lambda a: a + a, 4 * 2 * 15, t(3, 5)),
    "add a number": (lambda a: a + 1, 4 * 2 * 15, t(3, 5)),
    "add in place": (lambda a, b: a.add_(b), 4 * 3 * 15, t(3, 5), t(3, 5)),
    "relu": (torch.relu, 4 * 2 * 15, t(3, 5)),
    "sum": (torch.sum, 4 * (15 + 1), t(3, 5)),
    "clone": (torch.clone, 4 * 2 * 15, t(3, 5)),
    "contiguous that copies": (lambda a: a.t().contiguous(), 4 * 2 * 15, t(3, 5)),
    "contiguous that does not": (lambda a: a.contiguous(), 0, t(3, 5)),
    "cast": (lambda a: a.half(), 15 * (4 + 2), t(3, 5)),
    "cat": (lambda a, b: torch.cat([a, b]), 4 * 2 * 30, t(3, 5), t(3, 5)),
    "zeros": (lambda: torch.zeros(3, 5), 4 * 15),
    "empty": (lambda: torch.empty(3, 5), 0),
    "views": (lambda a: a.view(15).unsqueeze(0).expand(9, 15).t()[2:5].split(1)[0].squeeze().detach(), 0, t(3, 5)),
    "expanded, then read": (lambda a: a.expand(9, 5) + 1, 4 * (5 + 45), t(1, 5)),
    "copy_": (lambda a, b: a.copy_(b), 4 * 2 * 15, t(3, 5), t(3, 5)),
    "where": (torch.where, 15 + 4 * 3 * 15, torch.ones(3, 5, dtype=torch.bool), t(3, 5), t(3, 5)),
    "compare": (torch.gt, 4 * 2 * 15 + 15, t(3, 5), t(3, 5)),
    "embedding": (nn.Embedding(1000, 4), 8 * 6 + 2 * 4 * 6 * 4, IDS),  # only the rows that are asked for
    "gather": (lambda a, i: torch.gather(a, 1, i), 4 * 6 + 8 * 6 + 4 * 6, t(3, 5), torch.zeros(3, 2, dtype=torch.long)),
    "index": (lambda a, i: a[i], 2 * 4 * 30 + 8 * 6, t(3, 5), IDS),
    "nothing": (lambda: None, 0),
}
# fmt: on


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name):
    fn, moved, *args = BYTES[name]
    report = fk.count(fn, *args)
    if name == "mm":  # its operands are made inside: written once
        moved += 4 * (15 + 35)
    assert report.bytes == moved
    assert report.forward.bytes == report.bytes == sum(row["bytes"] for row in report.by_op())
    assert type(report.bytes) is int
    assert report.intensity == pytest.approx(report.flops / report.bytes if report.bytes else 0)


# -- element-wise work ---------------------------------------------------------------------------------------------

N = 24
# fmt: off: a table
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
    margins = {p: fk.count(F.multi_margin_loss, rows, classes, p=p).vector_flops for p in (1.0, 2.0)}
    assert margins[2.0] == margins[1.0] + 24  # a power for each class
    added = {n: fk.count(torch.index_add, rows, 0, classes, rows, alpha=n).vector_flops for n in (1.0, 2.0)}
    assert added == {1.0: 24, 2.0: 48}
