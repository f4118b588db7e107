"""Matrix products of every kind."""

from __future__ import annotations

from math import prod

from flopkit.counter.calls import Call, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

__all__ = ["complex_factor"]


def complex_factor(tensor: object) -> int:
    """Multiply-adds of real numbers in one of *tensor*'s: a complex one is four (8 FLOPs)."""
    return 4 if tensor.dtype.is_complex else 1  # type: ignore[attr-defined]


@explains("aten::mm", "aten::bmm")
def product(call: Call) -> Work:
    """``out[..., m, n] = Σ_k a[..., m, k]·b[..., k, n]``."""
    a = call.args[0]
    return counted(numel(call.out) * int(a.shape[-1]) * complex_factor(a), call.bytes())


@explains("aten::addmm", "aten::baddbmm", "aten::_addmm_activation")
def product_and_sum(call: Call) -> Work:
    """The same, added to a matrix or a bias: one element-wise add each, none where beta is 0."""
    a = call.args[1]
    vector = numel(call.out) * (call["beta"] != 0)
    return counted(numel(call.out) * int(a.shape[-1]) * complex_factor(a), call.bytes(), vector=vector)


@explains("aten::mv", "aten::dot", "aten::vdot")
def with_a_vector(call: Call) -> Work:
    """A matrix times a vector, a vector times a vector: one multiply-add for each element of the first."""
    a = call.args[0]
    return counted(numel(a) * complex_factor(a), call.bytes())


@explains("aten::addmv")
def with_a_vector_and_sum(call: Call) -> Work:
    """The same, added to a vector."""
    a = call.args[1]
    return counted(numel(a) * complex_factor(a), call.bytes(), vector=numel(call.out) * (call["beta"] != 0))


@explains("aten::addr")
def outer_and_sum(call: Call) -> Work:
    """A column times a row, added to a matrix: a product of inner size 1."""
    a = call.args[1]
    return counted(numel(call.out) * complex_factor(a), call.bytes(), vector=numel(call.out) * (call["beta"] != 0))


@explains("aten::addbmm")
def sum_of_products(call: Call) -> Work:
    """Products of a batch, all added into one matrix."""
    a = call.args[1]
    adds = numel(call.out) * (int(a.shape[0]) - 1 + (call["beta"] != 0))
    return counted(prod(map(int, a.shape)) * int(call.out.shape[-1]) * complex_factor(a), call.bytes(), vector=adds)
