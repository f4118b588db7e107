"""Rows of a report, by module and by operator, of a model whose FLOPs are known by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import U, t
from torch import nn

import flopkit as fk
from flopkit.counter import breakdown

EXACT = fk.conventions.EXACT
X = torch.ones(4, 8)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.attention(x)[None, None].chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 8)
        self.head.weight = self.blocks[0].out.weight

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


PAIRS = 2 * 4 * 4 * 16  # FLOPs of 4 × 4 positions of a head of 8


def test_rows_by_module():
    model = Model()
    x = torch.ones(4, 8)
    report = fk.count(lambda: model(x).sum().backward())
    rows = {row["module"]: row for row in report.by_module()}
    block = 4 * U + PAIRS
    assert set(rows) - {"(no module)"} <= {name for name, _ in model.named_modules()}
    expected = {
        "": 2 * block + U,
        "blocks": 2 * block,
        "blocks.0": block,
        "blocks.0.attention": 3 * U,
        "blocks.0.out": U,
        "head": U,
    }
    assert {name: rows[name]["forward"] for name in expected} == expected
    assert rows["blocks.0.attention"]["backward"] == 3 * U  # its input needs no gradient
    assert rows["blocks.1.attention"]["backward"] == 6 * U
    assert (rows["blocks.1"]["backward"], rows["blocks.1"]["recompute"]) == (2 * block, PAIRS // 2)
    assert rows["head"]["backward"] == 2 * U
    assert rows[""]["flops"] == report.flops and rows[""]["share"] == 1
    assert [row["module"] for row in report.by_module(depth=1)] == ["", "blocks", "head", "(no module)"]
    exact = {row["module"]: row for row in report.under(EXACT).by_module()}
    assert exact["blocks.0"]["forward"] == 4 * U + 2 * 10 * 16
    for row in rows.values():
        assert row["flops"] == row["forward"] + row["backward"] + row["recompute"] + row["optimizer"]


def test_rows_by_operator():
    rows = fk.count(lambda: (nn.Linear(8, 8)(X) @ X.t()).relu()).by_op()
    found = {row["operator"]: row for row in rows}
    assert (found["addmm"]["flops"], found["mm"]["flops"], found["relu"]["flops"]) == (U, 2 * 4 * 4 * 8, 0)
    assert (found["addmm"]["status"], found["relu"]["status"], found["t"]["status"]) == (
        "counted",
        "element-wise",
        "free",
    )
    assert found["addmm"]["calls"] == 1 and found["addmm"]["phase"] == "forward"
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert [row["flops"] for row in rows] == sorted((row["flops"] for row in rows), reverse=True)


def test_attention_rows_name_the_kernel():
    q = t(1, 4, 6, 8)
    rows = [row for row in fk.count(F.scaled_dot_product_attention, q, q, q).by_op() if row["flops"]]
    assert [row["operator"] for row in rows] == ["scaled_dot_product_attention"] and "flash" in rows[0]["kernel"]
    rows = [row for row in fk.count(F.scaled_dot_product_attention, *[q.to("meta")] * 3).by_op() if row["flops"]]
    assert "flash" in rows[0]["kernel"] and "assumed" in rows[0]["kernel"]


def test_a_table_of_many_modules_adds_up_but_once(monkeypatch):
    report = fk.count(nn.Sequential(*(nn.Linear(8, 8) for _ in range(100))), X)
    calls = []
    sums = breakdown.phase
    monkeypatch.setattr(breakdown, "phase", lambda report, phase: (calls.append(phase), sums(report, phase))[1])
    rows = report.by_module()
    assert len(rows) == 101 and rows[100]["flops"] == U and rows[100]["share"] == 0.01
    assert len(calls) <= 8


def test_a_printout_goes_through_the_lines_once(monkeypatch):
    """A long generation has tens of thousands of them: other shapes in every step, in every layer."""
    report = fk.count(lambda: [torch.ones(4, n) @ torch.ones(n, 8) for n in range(1, 40)])
    seen = []
    parts = breakdown.parts
    monkeypatch.setattr(breakdown, "parts", lambda report: (seen.append(part) or part for part in parts(report)))
    text = repr(report)
    assert len(seen) == len(report.lines()) > 100
    assert "mm" in text and len(report.by_op()) == 2 and repr(report.under(EXACT)) and report.flops == 2 * 4 * 8 * 780
    assert len(seen) == len(report.lines())


def test_what_is_nearly_covered_is_not_called_covered():
    @torch.library.custom_op("report_rows::opaque", mutates_args=())
    def opaque(a: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(a.numpy() * 2)

    report = fk.count(lambda: (opaque(torch.ones(4)), torch.ones(300, 300) + 1))
    assert 0.9995 < report.coverage < 1
    assert "report_rows.opaque (1 call); formulas cover more than 99.9 % of the bytes" in repr(report)
    assert "100 %" not in report._repr_html_()
