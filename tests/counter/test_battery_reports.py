"""What a report says and shows: rows, names, conventions, formulas of one's own, and its errors."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import flopkit as fk
from flopkit.counter.registry import forget

EXACT, TORCH, FVCORE = fk.conventions.EXACT, fk.conventions.TORCH, fk.conventions.FVCORE
X = torch.ones(4, 8)
U = 2 * 4 * 8 * 8


def t(*shape, dtype=None):
    return torch.rand(shape, dtype=dtype)


# -- rows ----------------------------------------------------------------------------------------------------------


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

    def forward(self, x, scale=1.0, strict=None):
        for block in self.blocks:
            x = block(x)
        return self.head(x) * scale


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
    sums = type(report)._phase
    monkeypatch.setattr(type(report), "_phase", lambda self, phase: (calls.append(phase), sums(self, phase))[1])
    rows = report.by_module()
    assert len(rows) == 101 and rows[100]["flops"] == U and rows[100]["share"] == 0.01
    assert len(calls) <= 8


# -- arguments -----------------------------------------------------------------------------------------------------


def test_arguments_go_to_the_function():
    seen = {}

    def fn(*args, **kwargs):
        seen.update(args=args, kwargs=kwargs)
        return X @ X.t()

    words = dict(fn=1, attention="math", name="n", convention=TORCH, args=2, kwargs=3, depth=4, self=5, device="cpu")
    assert fk.count(fn, 1, "two", strict=False, **words).flops == 2 * 4 * 4 * 8
    assert seen == {"args": (1, "two"), "kwargs": words}
    assert fk.count(Model(), X, scale=2.0).model_flops == fk.count(Model(), x=X).model_flops
    assert "strict" not in seen["kwargs"]


@pytest.mark.parametrize("fn", [None, 3, "model", X, [], {}])
def test_what_cannot_be_called(fn):
    with pytest.raises(TypeError, match="cannot be called"):
        fk.count(fn)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="strict"):
        fk.count(lambda: None, strict="yes")
    with pytest.raises(ValueError, match="auto.*flash.*math"), fk.counting(attention="fast"):
        pass
    with pytest.raises(TypeError):
        fk.count()
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        fk.count(nn.Linear(8, 8))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fk.count(nn.Linear(8, 8), torch.ones(4, 9))
    with pytest.raises((TypeError, AttributeError)):
        fk.count(nn.Linear(8, 8), [1, 2, 3])
    assert torch._C._len_torch_dispatch_stack() == 0


# -- conventions ---------------------------------------------------------------------------------------------------


def attend(causal=True):
    q = t(1, 4, 6, 8)
    return fk.count(F.scaled_dot_product_attention, q, q, q, is_causal=causal)


def test_under():
    report = attend()
    assert report.convention == TORCH and report.under(EXACT).convention == EXACT
    assert type(report.under(EXACT)) is type(report)
    assert (report.model_flops, report.under(EXACT).model_flops) == (2 * 4 * 36 * 16, 2 * 4 * 21 * 16)
    assert report.under(EXACT).under(TORCH).model_flops == report.model_flops
    assert report.model_flops == 2 * 4 * 36 * 16  # the report itself is as it was
    assert report.forward.convention == TORCH and report.under(EXACT).forward.convention == EXACT
    assert report.forward.under(EXACT).flops == report.under(EXACT).forward.flops
    assert report.bytes == report.under(EXACT).bytes


def test_under_fvcore():
    one = fk.count(lambda: nn.Linear(8, 8)(X))
    assert one.under(FVCORE).flops == U // 2  # a multiply-add is one
    assert one.under(FVCORE).convention == FVCORE


def test_a_convention_that_asks_for_the_router():
    asks = dataclasses.replace(TORCH, name="MINE", router=False)
    with pytest.raises(ValueError, match=r"MINE.*router"):
        attend().under(asks)


PRESETS = [name for name in vars(fk.conventions) if isinstance(getattr(fk.conventions, name), fk.Convention)]


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_counts_or_names_what_it_needs(name):
    convention = getattr(fk.conventions, name)
    report = attend()
    try:
        found = report.under(convention)
        assert found.flops >= 0 and found.model_flops >= 0 and repr(found)
    except ValueError as error:
        assert re.search(r"router|head|embedding|\bN\b|parameters|model", str(error)), error


@pytest.mark.parametrize("wrong", [None, 1, {"EXACT"}])
def test_no_convention(wrong):
    with pytest.raises(TypeError, match="Convention"):
        attend().under(wrong)


def test_costs_of_two_conventions_do_not_add():
    with pytest.raises(ValueError, match="TORCH|EXACT"):
        attend().forward + attend().under(EXACT).forward


# -- printing ------------------------------------------------------------------------------------------------------


class Balanced(HTMLParser):
    VOID = {"br", "hr", "img", "input", "meta", "link", "col"}

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], set(), ""

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_text_and_html_show_both_conventions():
    report = attend()
    page = Balanced()
    page.feed(report._repr_html_())
    page.close()
    assert page.open == [] and "table" in page.seen
    for text in (repr(report), str(report), page.text, repr(report.under(EXACT))):
        assert "TORCH" in text and "EXACT" in text
        assert "4.608" in text and "2.688" in text  # kFLOPs, of 36 and of 21 positions
        assert "scaled_dot_product_attention" in text


def test_names_in_html_are_escaped():
    class Odd(nn.Module):
        def forward(self, x):
            return x @ x.t()

    Odd.__name__ = Odd.__qualname__ = "<script>"
    report = fk.count(nn.Sequential(Odd()), X)
    assert "<script>" not in report._repr_html_() and "<script>" not in report.by_module()._repr_html_()


def test_unknown_operators_are_shown():
    report = fk.count(lambda: (opaque(X), X @ X.t()))
    assert report.uncounted == [{"operator": "battery.opaque", "calls": 1, "bytes": 4 * 64}]
    moved = 4 * (32 + 32 + 16)  # of the product; a tensor that comes in twice as another view is another tensor
    assert report.bytes == 4 * 64 + moved and report.coverage == pytest.approx(moved / (4 * 64 + moved))
    for text in (repr(report), report._repr_html_()):
        assert "battery.opaque" in text and "NOT COUNTED" in text
    with pytest.raises(fk.UncountedError, match=r"battery\.opaque") as error:
        fk.count(opaque, X, strict=True)
    assert error.value.report.uncounted == [{"operator": "battery.opaque", "calls": 1, "bytes": 4 * 64}]
    with pytest.raises(fk.UncountedError), fk.counting(strict=True):
        opaque(X)
    assert fk.count(nn.Linear(8, 8), X, strict=True).flops == U


@torch.library.custom_op("battery::opaque", mutates_args=())
def opaque(a: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(a.numpy() * 2)


@torch.library.custom_op("battery::inside", mutates_args=())
def inside(a: torch.Tensor, n: int = 1) -> torch.Tensor:
    for _ in range(n):
        a = a @ torch.ones(8, 8)
    return a


class Loader:
    """Stands for what AOTInductor's compiled package is loaded with."""

    def get_call_spec(self):
        return [pytree.treespec_dumps(pytree.tree_structure(tree)) for tree in (((0,), {}), 0)]

    def boxed_run(self, inputs):
        return [torch.from_numpy(inputs[0].numpy() @ inputs[0].numpy().T)]

    run = boxed_run  # its name in torch 2.6


def test_compiled_packages_are_unknown():
    package = pytest.importorskip("torch._inductor.package.package").AOTICompiledModel
    call = package.__call__
    report = fk.count(package(Loader()), X)
    assert report.uncounted == [{"operator": "inductor.AOTICompiledModel", "calls": 1, "bytes": 4 * (32 + 16)}]
    assert package.__call__ is call


# -- formulas ------------------------------------------------------------------------------------------------------


def test_what_runs_inside_counts():
    report = fk.count(inside, X, n=3)
    assert report.flops == 3 * U and report.uncounted == [] and report.coverage == 1


@pytest.mark.parametrize(
    "op", [opaque, torch.ops.battery.opaque, torch.ops.battery.opaque.default, "battery::opaque"], ids=str
)
def test_a_formula(op):
    try:

        @fk.formula(op)
        def mine(a):
            return 100 * a.shape[0]

        assert mine(X) == 400  # the function itself is given back
        report = fk.count(opaque, X, strict=True)
        assert (report.flops, report.model_flops, report.uncounted, report.coverage) == (400, 400, [], 1)
        assert report.by_op()[0]["operator"] == "battery.opaque" and report.by_op()[0]["status"] == "counted"

        @fk.formula(op)
        def _(a, out):
            return fk.matmul(m=a.shape[0], k=out.shape[1], n=2)

        assert fk.count(opaque, X).flops == 2 * 4 * 8 * 2
    finally:
        forget(op)
    assert fk.count(opaque, X).uncounted


def test_a_formula_for_a_known_operator_and_for_one_that_shows_its_inside():
    try:
        fk.formula(torch.ops.aten.mm)(lambda a, b: 10)
        fk.formula(inside)(lambda a, n=1: 7 * n)
        assert fk.count(lambda: X @ X.t()).flops == 10
        assert fk.count(inside, X, n=2).flops == 14
    finally:
        forget(torch.ops.aten.mm)
        forget(inside)
    assert fk.count(lambda: X @ X.t()).flops == 2 * 4 * 4 * 8


@pytest.mark.parametrize("value", ["many", None, True, -2, 1.5, X])
def test_a_formula_that_gives_no_count(value):
    try:
        fk.formula(opaque)(lambda a: value)
        with pytest.raises((TypeError, ValueError), match="battery|formula"):
            fk.count(opaque, X)
    finally:
        forget(opaque)
    assert torch._C._len_torch_dispatch_stack() == 0


@pytest.mark.parametrize("op", [None, 3, len, lambda x: x, "mm", nn.Linear])
def test_a_formula_for_no_operator(op):
    with pytest.raises(TypeError):
        fk.formula(op)(lambda a: 1)


# -- nested and growing --------------------------------------------------------------------------------------------


def test_reports_in_reports():
    with fk.counting() as outer:
        X @ X.t()
        assert outer.flops == 256
        with fk.counting() as inner:
            X @ X.t()
        assert (outer.flops, inner.flops) == (512, 256)
        X @ X.t()
    assert (outer.flops, inner.flops) == (768, 256)
    X @ X.t()
    assert (outer.flops, inner.flops) == (768, 256)


def test_two_counts_side_by_side_do_not_mix():
    first, second = fk.count(nn.Linear(8, 8), X), fk.count(nn.Linear(8, 16), X)
    assert (first.flops, second.flops) == (U, 2 * U)


# -- importing -----------------------------------------------------------------------------------------------------


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_importing_loads_no_torch():
    done = python(
        "import sys, flopkit; from flopkit import count, counting, formula; assert 'torch' not in sys.modules; print('well')"
    )
    assert done.stdout == "well\n", done.stderr


def test_without_torch():
    done = python(
        "import sys; sys.modules['torch'] = None\n"
        "import flopkit as fk\n"
        "for use in (lambda: fk.count(print), lambda: fk.counting().__enter__()):\n"
        "    try: use()\n"
        "    except ImportError as error: print('torch' in str(error) and 'pip install' in str(error))\n"
        "print(fk.matmul(m=1, k=1, n=1).flops)"
    )
    assert done.stdout == "True\nTrue\n2\n", done.stderr
