"""Operators of somebody else's that do some of their arithmetic with torch, and some where nobody sees it: listed, never taken for explained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_map

import flopkit as fk

A, B = torch.randn(4, 8), torch.randn(8, 8)
TABLE = torch.linspace(-1, 1, 16)
LISTED = 4 * (4 * 8 + 8 * 8 + 4 * 8)  # bytes of the operands and the result


def operator(function):
    """*function* of two tensors as an operator of its own."""
    return torch.library.custom_op(
        f"in_part::{function.__name__}", function, mutates_args=(), schema="(Tensor a, Tensor b) -> Tensor"
    )


def product(a, b):
    return torch.from_numpy(a.numpy() @ b.numpy())


def scaled_before(a, b):  # what a dynamic quantisation does first
    return product(a / a.abs().amax(), b)


def scaled_after(a, b):
    return product(a, b) * a.abs().amax()


def by_pointer(a, b):  # as bitsandbytes: one number is compared, C fills the result
    out = torch.empty(4, 8) if b[0, 0] > -100 else torch.zeros(4, 8)
    np.matmul(a.numpy(), b.numpy(), out=out.numpy())
    return out


def into_zeros(a, b):
    out = torch.zeros(4, 8) if b[0, 0] > -100 else torch.empty(4, 8)
    np.matmul(a.numpy(), b.numpy(), out=out.numpy())
    return out


def into_a_copy(a, b):
    out = a.clone() if a.sum() > -1e9 else a.relu()
    np.matmul(a.numpy(), b.numpy(), out=out.numpy())
    return out


def pointer_and_scale(a, b):
    out = torch.empty(4, 8)
    np.matmul(a.numpy(), b.numpy(), out=out.numpy())
    return out * a.amax()


def after_a_product(a, b):
    scale = a @ b[:, :1]
    out = torch.empty(4, 8)
    np.multiply(a.numpy(), scale.numpy(), out=out.numpy())
    return out


IN_PART = (scaled_before, scaled_after, by_pointer, into_zeros, into_a_copy, pointer_and_scale, after_a_product)


@pytest.mark.parametrize("function", IN_PART, ids=lambda f: f.__name__)
def test_an_operator_that_is_seen_in_part_is_listed(function):
    op = operator(function)
    report = fk.count(op, A, B)
    assert report.uncounted == [{"operator": f"in_part.{function.__name__}", "calls": 1, "bytes": LISTED}]
    assert report.vector_flops or report.flops  # what was seen counts
    assert 0 < report.coverage < 1
    assert any(note.startswith(f"in_part.{function.__name__}: only a part") for note in report.notes)
    assert not any("every operator" in line for line in report.summary())
    with pytest.raises(fk.UncountedError, match=function.__name__):
        fk.count(op, A, B, strict=True)


def norm(a, b):
    return a * torch.rsqrt(a.square().mean(-1, keepdim=True) + 1e-6) * b[0]


def into_a_result(a, b):
    out = torch.empty(4, 8)
    out[:2] = (a @ b)[:2]
    torch.mul(a[2:], 2, out=out[2:])
    return out


def largest(a, b):
    return a.gather(1, a.topk(3).indices)


def decoded(a, b):  # of a table that no argument brings
    return a @ TABLE[(b.abs() * 3).long().clamp(0, 15)]


def with_constants(a, b):
    return (a + torch.tensor(0.5)) * torch.arange(8) + torch.full((8,), 2.0)


def nested(a, b):
    return torch.ops.in_part.norm(a, b) + 1


def in_place(a, b):
    return a.clone().mul_(2).add_(b[0])


WHOLE = (norm, into_a_result, largest, decoded, with_constants, nested, in_place)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_an_operator_that_computes_with_torch_alone_is_counted(function, mode):
    op = operator(function)
    with mode():
        if function is nested:
            operator(norm)
        report = fk.count(op, A, B, strict=True)
    assert report.vector_flops or report.flops
    assert report.coverage == 1
    assert any(note.startswith(f"in_part.{function.__name__}: counted by torch's") for note in report.notes)


@pytest.mark.parametrize("whole", [False, True])
def test_an_operator_that_changes_its_argument(whole):
    def changing(a: torch.Tensor, b: torch.Tensor) -> None:
        if a.amax() > -100 and whole:
            a.add_(b)
        elif not whole:
            a.numpy()[...] += b.numpy()

    op = torch.library.custom_op("in_part::changing", changing, mutates_args=("a",))
    report = fk.count(op, A.clone(), A)
    assert [row["operator"] for row in report.uncounted] == ([] if whole else ["in_part.changing"])


# -- tensor subclasses that run their operators where no mode is at work -------------------------------------------------


class Boxed(torch.Tensor):
    """A tensor in a box; older ones hide what they do from modes."""

    hides = True

    @staticmethod
    def __new__(cls, inner):
        box = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        box.inner = inner
        return box

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.sin.default:
            return NotImplemented

        def run():
            return func(*tree_map(lambda v: v.inner if isinstance(v, Boxed) else v, args), **(kwargs or {}))

        if cls.hides:
            with no_dispatch():
                out = run()
        else:
            out = run()
        return tree_map(lambda v: cls(v) if isinstance(v, torch.Tensor) else v, out)


class Open(Boxed):
    hides = False


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_what_a_subclass_hides_is_listed(mode):
    layer, got = torch.nn.Linear(8, 8, bias=False), []
    box = Boxed(A)
    with mode():
        report = fk.count(lambda: got.append(layer(box).reshape(8, 4).relu()))
    product = "mm" if mode is torch.enable_grad else "linear"
    assert report.uncounted == [
        {"operator": f"Boxed.{product}", "calls": 1, "bytes": LISTED},
        {"operator": "Boxed.relu", "calls": 1, "bytes": 2 * 4 * 4 * 8},
    ]
    assert report.coverage < 1 and report.flops == 0
    assert report.notes == ["Boxed, a tensor subclass, ran an operator where no dispatch mode sees it (2 calls)"]
    assert torch.equal(got[0].inner, layer(A).reshape(8, 4).relu())
    if mode is torch.enable_grad:
        [row] = [row for row in report.by_module() if row["module"] == "Linear" or row["module"] == ""]
        assert row["bytes"] == LISTED
    with pytest.raises(fk.UncountedError, match=r"Boxed\.relu"):
        fk.count(torch.relu, box, strict=True)


def test_what_a_subclass_shows_is_counted():
    report = fk.count(torch.nn.Linear(8, 8, bias=False), Open(A), strict=True)
    assert report.flops == 2 * 4 * 8 * 8 and report.notes == []


def test_what_a_subclass_hides_of_views_and_copies_is_no_arithmetic():
    report = fk.count(lambda: (Boxed(A).t().detach(), Boxed(A).clone()), strict=True)
    assert report.uncounted == [] and report.coverage == 1


def test_what_a_subclass_refuses_stays_refused():
    for run in (torch.sin, lambda x: fk.count(torch.sin, x)):
        with pytest.raises(TypeError, match="sin"):
            run(Boxed(A))


def test_a_subclass_beside_another_mode():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as around:
        report = fk.count(lambda: Open(A) @ B)
    with FlopCounterMode(display=False) as plain:
        Open(A) @ B
    assert report.flops == 2 * 4 * 8 * 8
    assert around.get_total_flops() == plain.get_total_flops()
