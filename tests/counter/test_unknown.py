"""Operators that nobody knows are listed, never a silent zero; a formula of the user's own explains them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import flopkit as fk
from flopkit.counter import registry
from flopkit.counter.registry import forget
from flopkit.counter.watch import cache

A, B = torch.ones(4, 8), torch.ones(8, 8)
UNIT = 2 * 4 * 8 * 8


@torch.library.custom_op("unknown_tests::inside", mutates_args=())
def inside(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Its body calls operators that are known."""
    return (a @ b).relu() @ b


@inside.register_fake
def _(a, b):
    return a.new_empty(a.shape[0], b.shape[1])


@torch.library.custom_op("unknown_tests::opaque", mutates_args=())
def opaque(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Its body leaves torch."""
    return torch.from_numpy(a.detach().numpy() @ b.detach().numpy())


@opaque.register_fake
def _(a, b):
    return a.new_empty(a.shape[0], b.shape[1])


def _opaque_backward(context, g):
    a, b = context.saved_tensors
    return opaque(g, b.t()), opaque(a.t(), g)


opaque.register_autograd(_opaque_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


@torch.library.custom_op(
    "unknown_tests::several", mutates_args=(), schema="(Tensor a, Tensor[] more, int n) -> (Tensor, Tensor)"
)
def several(a: torch.Tensor, more: list[torch.Tensor], n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(a.numpy() * n), torch.from_numpy(more[0].numpy() + 1)


@torch.library.custom_op("unknown_tests::mutating", mutates_args=("a",))
def mutating(a: torch.Tensor, b: torch.Tensor) -> None:
    a.numpy()[...] += b.numpy()


library = torch.library.Library("unknown_tests", "FRAGMENT")
library.define("plain(Tensor a, Tensor b) -> Tensor")
library.impl("plain", lambda a, b: torch.from_numpy(a.numpy() @ b.numpy()), "CPU")
library.define("composite(Tensor a, Tensor b) -> Tensor")
library.impl("composite", lambda a, b: a @ b + 1, "CompositeImplicitAutograd")
library.define("overloaded(Tensor a) -> Tensor")
library.define("overloaded.twice(Tensor a, int n) -> Tensor")
library.impl("overloaded", lambda a: torch.from_numpy(a.numpy() + 1), "CPU")
library.impl("overloaded.twice", lambda a, n: torch.from_numpy(a.numpy() * n), "CPU")
OPS = torch.ops.unknown_tests


@pytest.fixture(autouse=True)
def no_formulas_remain():
    yield
    for op in (inside, opaque, several, mutating, OPS.plain, OPS.composite, OPS.overloaded, OPS.overloaded.twice,
               torch.ops.aten.mm, torch.ops.aten.mm.default, torch.ops.aten.relu):  # fmt: skip
        forget(op)


def row(op, calls, bytes):
    return {"operator": f"unknown_tests.{op}", "calls": calls, "bytes": bytes}


NUMBERS = 4 * 8 * 4 + 8 * 8 * 4 + 4 * 8 * 4  # bytes of the operands and the result


# -- what is inside ----------------------------------------------------------------------------------------------


def test_what_runs_inside_is_counted():
    report = fk.count(inside, A, B)
    assert (report.flops, report.vector_flops, report.uncounted, report.coverage) == (2 * UNIT, 32, [], 1.0)
    assert fk.count(OPS.composite, A, B).flops == UNIT
    assert fk.count(OPS.composite, A, B).uncounted == []


def test_on_meta_there_is_no_inside():
    report = fk.count(inside, A.to("meta"), B.to("meta"))
    assert (report.flops, report.uncounted, report.coverage) == (0, [row("inside", 1, NUMBERS)], 0.0)


def test_what_cannot_be_opened_is_listed():
    report = fk.count(lambda: [opaque(A, B) for _ in range(3)])
    assert (report.flops, report.vector_flops) == (0, 0)
    assert report.uncounted == [row("opaque", 3, 3 * NUMBERS)]
    assert report.bytes == 3 * NUMBERS
    assert fk.count(OPS.plain, A, B).uncounted == [row("plain", 1, NUMBERS)]


def test_listed_by_bytes_and_named_in_the_printout():
    report = fk.count(lambda: (opaque(torch.ones(1, 1), torch.ones(1, 1)), OPS.plain(A, B), A @ B))
    assert [r["operator"] for r in report.uncounted] == ["unknown_tests.plain", "unknown_tests.opaque"]
    assert report.coverage == 1 - (NUMBERS + 12) / report.bytes
    for text in (repr(report), report._repr_html_()):
        assert "NOT COUNTED" in text and "unknown_tests.plain (1 call)" in text and "fk.formula" in text
        assert "every operator is accounted for" not in text
    known = fk.count(lambda: A @ B)
    assert known.coverage == 1.0 and "every operator is accounted for" in repr(known)


def test_unknown_operators_in_every_phase_and_module():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(8, 8))

        def forward(self, x):
            return opaque(x, self.w)

    model = nn.Sequential(Layer(), nn.Linear(8, 8))
    report = fk.count(lambda: model(A.clone().requires_grad_()).sum().backward())
    assert report.uncounted[0]["calls"] == 3
    rows = {r["operator"]: r for r in report.by_op() if r["phase"] == "backward"}
    assert rows["unknown_tests.opaque"]["calls"] == 2 and rows["unknown_tests.opaque"]["status"] == "unknown"
    by_module = {r["module"]: r["bytes"] for r in report.by_module()}
    assert by_module["0"] >= report.uncounted[0]["bytes"]


def test_several_results_lists_and_none():
    report = fk.count(several, A, [B, A], 2)
    assert report.uncounted == [row("several", 1, 4 * (32 + 64 + 32 + 64))]
    a = A.clone()
    report = fk.count(mutating, a, A)
    assert report.uncounted == [row("mutating", 1, 4 * (32 + 32 + 32))]  # a read and written, b read
    assert torch.equal(a, A + A)


def test_results_are_those_of_the_operator():
    found = []
    fk.count(lambda: found.extend([opaque(A, B), inside(A, B), *several(A, [B], 3)]))
    for mine, theirs in zip(found, [A @ B, (A @ B).relu() @ B, A * 3, B + 1], strict=True):
        assert torch.equal(mine, theirs)


def test_gradients_through_an_opened_operator():
    a = A.clone().requires_grad_()
    report = fk.count(lambda: OPS.composite(a, B).sum().backward())
    assert (report.forward.flops, report.backward.flops) == (UNIT, UNIT)


# -- strict ------------------------------------------------------------------------------------------------------


def test_strict_raises_at_the_end_with_the_report():
    ran = []
    with pytest.raises(fk.UncountedError, match=r"unknown_tests.opaque \(1 call\), 512 bytes.*@fk.formula") as caught:
        fk.count(lambda: (opaque(A, B), A @ B, ran.append(1)), strict=True)
    assert ran == [1]
    assert caught.value.report.flops == UNIT
    assert caught.value.report.uncounted == [row("opaque", 1, NUMBERS)]
    with pytest.raises(fk.UncountedError), fk.counting(strict=True):
        opaque(A, B)
    assert fk.count(inside, A, B, strict=True).flops == 2 * UNIT


def test_an_exception_of_the_program_goes_before_strictness():
    with pytest.raises(ZeroDivisionError), fk.counting(strict=True):
        opaque(A, B)
        raise ZeroDivisionError


# -- formulas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "call"),
    [
        (opaque, opaque),
        (OPS.opaque, opaque),
        (OPS.opaque.default, opaque),
        ("unknown_tests::opaque", opaque),
        (OPS.plain, OPS.plain),
        ("unknown_tests::plain", OPS.plain.default),
    ],
)
def test_a_formula_for_every_way_to_name_an_operator(op, call):
    @fk.formula(op)
    def flops(a, b):
        return 2 * a.shape[0] * a.shape[1] * b.shape[1]

    assert flops(A, B) == UNIT  # the function itself is left as it is
    report = fk.count(call, A, B)
    assert (report.flops, report.bytes, report.uncounted, report.coverage) == (UNIT, NUMBERS, [], 1.0)
    forget(op)
    assert fk.count(call, A, B).uncounted


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_formula_goes_before_what_is_inside(device):
    fk.formula(inside)(lambda a, b: 1000)
    assert fk.count(inside, A.to(device), B.to(device)).flops == 1000


def test_one_overload_or_all():
    fk.formula(OPS.overloaded)(lambda a, n=1: 10 * n)
    assert fk.count(lambda: (OPS.overloaded(A), OPS.overloaded.twice(A, 3))).flops == 40
    fk.formula(OPS.overloaded.twice)(lambda a, n: 7)
    assert fk.count(lambda: (OPS.overloaded(A), OPS.overloaded.twice(A, 3))).flops == 17


@pytest.mark.parametrize(
    ("result", "flops"),
    [(10, 10), (7, 7), (0, 0), (np.int64(12), 12), (12.0, 12), (2**70, 2**70)],
)
def test_what_a_formula_may_return(result, flops):
    fk.formula(opaque)(lambda a, b: result)
    report = fk.count(opaque, A, B)
    assert report.flops == report.model_flops == report.forward.flops == flops
    assert type(report.flops) is int
    assert report.macs * 2 == flops
    assert report.uncounted == []


def test_a_cost_brings_flops_and_vector_flops_and_not_the_bytes_of_its_dtype():
    cost = fk.residual(elements=8) + fk.matmul(m=4, k=8, n=8)  # in bf16
    fk.formula(opaque)(lambda a, b: cost)
    report = fk.count(opaque, A, B)
    assert (report.flops, report.vector_flops, report.bytes) == (2 * 4 * 8 * 8, 8, 4 * (4 * 8 + 8 * 8 + 4 * 8))
    scores = fk.attention(batch=2, q=4, kv=4, heads=2, head_dim=8, mask="causal")
    fk.formula(opaque)(lambda a, b: scores)
    report = fk.count(opaque, A, B)
    assert report.under(fk.conventions.EXACT).flops == scores.flops
    assert report.under(fk.conventions.TORCH).flops == report.flops == scores.under(fk.conventions.TORCH).flops


@pytest.mark.parametrize(
    ("result", "error"), [(None, TypeError), (1.5, TypeError), ("7", TypeError), (True, TypeError), (-1, ValueError)]
)
def test_what_it_may_not(result, error):
    fk.formula(opaque)(lambda a, b: result)
    with pytest.raises(error, match=f"formula for unknown_tests::opaque returned {re.escape(repr(result))}"):
        fk.count(opaque, A, B)
    forget(opaque)
    assert fk.count(lambda: A @ B).flops == UNIT


def test_a_formula_for_bytes():
    fk.formula(opaque, bytes=lambda a, b, out: 3 * out.numel())(lambda a, b: 10)
    report = fk.count(opaque, A, B)
    assert (report.flops, report.bytes) == (10, 3 * 32)


@pytest.mark.parametrize(
    ("result", "error"), [(None, TypeError), (1.5, TypeError), (False, TypeError), (-1, ValueError)]
)
def test_a_formula_for_bytes_that_gives_none(result, error):
    fk.formula(opaque, bytes=lambda a, b: result)(lambda a, b: 10)
    with pytest.raises(error, match=rf"formula for unknown_tests::opaque returned {result!r}.*(bytes|negative)"):
        fk.count(opaque, A, B)


def test_bytes_that_are_no_function():
    with pytest.raises(TypeError, match="bytes=12: must be a function"):
        fk.formula(opaque, bytes=12)


def test_an_error_in_a_formula_reaches_the_caller():
    @fk.formula(opaque)
    def broken(a, b):
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        fk.count(opaque, A, B)


@pytest.mark.parametrize(
    "op",
    [lambda x: x, "mm", 3, None, torch.mm, len, nn.Linear(2, 2), nn.Linear],
    ids=["lambda", "name", "int", "None", "torch.mm", "builtin", "module", "class"],
)
def test_what_is_no_operator(op):
    with pytest.raises(TypeError, match=r"op=.*(is no operator|namespace in front)"):
        fk.formula(op)(lambda *a: 1)


def test_what_is_no_function():
    with pytest.raises(TypeError, match="decorates a function"):
        fk.formula(opaque)(3)


def test_the_result_is_there_for_those_who_ask():
    seen = {}

    @fk.formula(opaque)
    def with_out(a, b, *, out):
        seen["out"] = out.shape
        return out.numel()

    assert fk.count(opaque, A, B).flops == 32
    assert seen["out"] == (4, 8)


def test_keyword_arguments_and_defaults():
    library.define("keyword(Tensor a, *, int n=3) -> Tensor")
    library.impl("keyword", lambda a, *, n=3: torch.from_numpy(a.numpy() * n), "CPU")
    fk.formula("unknown_tests::keyword")(lambda a, n=3: n * a.numel())
    assert fk.count(lambda: OPS.keyword(A)).flops == 96
    assert fk.count(lambda: OPS.keyword(A, n=5)).flops == 160
    forget("unknown_tests::keyword")


def test_registering_again_replaces_while_counting_too():
    with fk.counting() as report:
        opaque(A, B)
        fk.formula(opaque)(lambda a, b: 10)
        opaque(A, B)
        fk.formula(opaque)(lambda a, b: 100)
        opaque(A, B)
    assert report.flops == 110
    assert report.uncounted == [row("opaque", 1, NUMBERS)]


def test_a_formula_for_an_operator_of_torchs_own():
    fk.formula(torch.ops.aten.mm)(lambda a, b: 1)
    assert fk.count(lambda: A @ B).flops == 1
    forget(torch.ops.aten.mm)
    assert fk.count(lambda: A @ B).flops == UNIT
    fk.formula("aten::relu")(lambda a: 5)
    assert fk.count(lambda: A.relu()).flops == 5


def test_a_formula_is_asked_once_for_each_set_of_shapes():
    asked = []

    @fk.formula(opaque)
    def flops(a, b):
        asked.append(a.shape)
        return 2

    report = fk.count(lambda: [opaque(x, B) for x in (A, A, torch.ones(3, 8), A)])
    assert report.flops == 8
    assert asked == [(4, 8), (3, 8)]


def test_a_formula_in_backward():
    fk.formula(opaque)(lambda a, b: 2 * a.shape[0] * a.shape[1] * b.shape[1])
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    report = fk.count(lambda: opaque(a, b).sum().backward())
    assert (report.forward.flops, report.backward.flops, report.uncounted) == (UNIT, 2 * UNIT, [])


def test_a_mistake_in_a_formula_of_ours_does_not_end_the_program(monkeypatch):
    from flopkit.counter import formulas

    def broken(call):
        raise IndexError("of ours")

    original = formulas.rule_for
    monkeypatch.setattr(
        cache,
        "rule_for",
        lambda func: replace(original(func), formula=broken) if "mm" in str(func) else original(func),
    )
    a, b = torch.ones(3, 11), torch.ones(11, 2)
    registry.RULES.clear()
    reports = [fk.count(lambda: (a @ b).relu()) for _ in range(2)]  # the second remembers the shapes of the first
    registry.RULES.clear()
    for report in reports:
        assert report.uncounted == [{"operator": "mm", "calls": 1, "bytes": 4 * (33 + 22 + 6)}]
        assert report.notes == ["mm: flopkit's formula failed (IndexError: of ours); please report it (1 call)"]
        assert report.vector_flops == 6


def test_an_odd_number_of_flops_is_exact():
    odd = 2**60 + 1
    fk.formula(opaque)(lambda a, b: odd)
    report = fk.count(opaque, A, B)
    assert (report.flops, report.forward.flops, report.by_op()[0]["flops"]) == (odd, odd, odd)
    assert type(report.flops) is type(report.forward.flops) is int


def test_of_an_operator_that_is_counted_by_its_inside_a_note_says_so():
    report = fk.count(lambda: (inside(A, B), inside(A, B)))
    assert [
        note for note in report.notes if note.startswith("unknown_tests.inside: counted by torch's operators inside")
    ], report.notes
    assert any("counted by torch's operators" in line for line in report.summary())
    assert not fk.count(opaque, A, B).notes
    assert not fk.count(lambda: torch.nn.functional.gelu(A) @ B).notes


@torch.library.custom_op("unknown_tests::outer", mutates_args=())
def outer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return opaque(a, b)


def test_an_unknown_operator_inside_of_another_is_listed_once():
    assert fk.count(outer, A, B).uncounted == fk.count(opaque, A, B).uncounted
