"""Operators that torch cannot look into are listed, and a formula counts them: what a printed report says before and after."""

from __future__ import annotations

import pytest
import torch
from cases import U
from torch import nn
from torch.utils import _pytree as pytree

import flopkit as fk
from flopkit.counter.registry import forget

X = torch.ones(4, 8)


@torch.library.custom_op("formula_tests::opaque", mutates_args=())
def opaque(a: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(a.numpy() * 2)


@torch.library.custom_op("formula_tests::inside", mutates_args=())
def inside(a: torch.Tensor, n: int = 1) -> torch.Tensor:
    for _ in range(n):
        a = a @ torch.ones(8, 8)
    return a


def test_unknown_operators_are_shown():
    report = fk.count(lambda: (opaque(X), X @ X.t()))
    assert report.uncounted == [{"operator": "formula_tests.opaque", "calls": 1, "bytes": 4 * 64}]
    moved = 4 * (32 + 32 + 16)  # of the product; a tensor that comes in twice as another view is another tensor
    assert report.bytes == 4 * 64 + moved and report.coverage == pytest.approx(moved / (4 * 64 + moved))
    for text in (repr(report), report._repr_html_()):
        assert "formula_tests.opaque" in text and "NOT COUNTED" in text
    with pytest.raises(fk.UncountedError, match=r"formula_tests\.opaque") as error:
        fk.count(opaque, X, strict=True)
    assert error.value.report.uncounted == [{"operator": "formula_tests.opaque", "calls": 1, "bytes": 4 * 64}]
    with pytest.raises(fk.UncountedError), fk.counting(strict=True):
        opaque(X)
    assert fk.count(nn.Linear(8, 8), X, strict=True).flops == U


class Loader:
    """Stands for what AOTInductor's compiled package is loaded with."""

    def get_call_spec(self):
        return [pytree.treespec_dumps(pytree.tree_structure(tree)) for tree in (((0,), {}), 0)]

    def boxed_run(self, inputs):
        given = inputs.pop()  # which is how it is freed early
        return [torch.from_numpy(given.numpy() @ given.numpy().T)]

    run = boxed_run  # its name in torch 2.6


def test_compiled_packages_are_unknown(monkeypatch):
    package = pytest.importorskip("torch._inductor.package.package").AOTICompiledModel
    monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", Loader)
    ran = Loader.boxed_run
    report = fk.count(package(Loader()), X)
    assert report.uncounted == [{"operator": "inductor.AOTICompiledModel", "calls": 1, "bytes": 4 * (32 + 16)}]
    assert Loader.boxed_run is ran


@pytest.mark.parametrize("device", ["Cpu", "Cuda", "Xpu", "Mps"])
def test_compiled_libraries_are_unknown(device, monkeypatch):
    """What `torch._export.aot_load` returns; torch deprecates it."""

    class Runner(Loader):
        def __init__(self, *_):
            pass

    monkeypatch.setattr(torch._C._aoti, f"AOTIModelContainerRunner{device}", Runner, raising=False)
    report = fk.count(torch._export.aot_load("no.so", device.lower()), X)
    assert report.uncounted == [{"operator": "inductor.AOTIModelContainerRunner", "calls": 1, "bytes": 4 * (32 + 16)}]
    with pytest.raises(fk.UncountedError):
        fk.count(torch._export.aot_load("no.so", device.lower()), X, strict=True)


def test_torchs_own_runners_are_put_back():
    kinds = [torch._C._aoti.AOTIModelPackageLoader, torch._C._aoti.AOTIModelContainerRunnerCpu]
    before = [vars(kind)["run"] for kind in kinds]
    with fk.counting():
        assert all(vars(kind)["run"] is not run for kind, run in zip(kinds, before, strict=True))
    assert [vars(kind)["run"] for kind in kinds] == before


# -- formulas ----------------------------------------------------------------------------------------------------


def test_what_runs_inside_counts():
    report = fk.count(inside, X, n=3)
    assert report.flops == 3 * U and report.uncounted == [] and report.coverage == 1


@pytest.mark.parametrize(
    "op",
    [opaque, torch.ops.formula_tests.opaque, torch.ops.formula_tests.opaque.default, "formula_tests::opaque"],
    ids=str,
)
def test_a_formula(op):
    try:

        @fk.formula(op)
        def mine(a):
            return 100 * a.shape[0]

        assert mine(X) == 400  # the function itself is given back
        report = fk.count(opaque, X, strict=True)
        assert (report.flops, report.model_flops, report.uncounted, report.coverage) == (400, 400, [], 1)
        assert report.by_op()[0]["operator"] == "formula_tests.opaque" and report.by_op()[0]["status"] == "counted"

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


def test_a_formula_that_is_registered_and_dropped_while_counting():
    with fk.counting() as report:
        for flops in (None, 10, 20):
            if flops:
                fk.formula(opaque)(lambda a, flops=flops: flops)
            opaque(X)
        forget(opaque)
        opaque(X)
    assert (report.flops, report.uncounted[0]["calls"]) == (30, 2)


@pytest.mark.parametrize("value", ["many", None, True, -2, 1.5, X])
def test_a_formula_that_gives_no_count(value):
    try:
        fk.formula(opaque)(lambda a: value)
        with pytest.raises((TypeError, ValueError), match="formula for formula_tests::opaque"):
            fk.count(opaque, X)
    finally:
        forget(opaque)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_formula_for_an_operator_that_torch_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"op='aten::nosuch_op': torch .* has no such operator"):
        fk.formula("aten::nosuch_op")
    with pytest.raises(ValueError, match="op='prims::nosuch.default'"):
        fk.formula("prims::nosuch.default")
    fk.formula("aten::mm.default")  # not decorated with it, so nothing is registered
    fk.formula("a_library_that_is_loaded_later::op")
