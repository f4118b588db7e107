"""What is special in products with a sparse matrix: a multiply-add for each stored number and each column it meets."""

from __future__ import annotations

from typing import Any

from flopkit.counter.calls import OpCall, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted
from flopkit.macs import of_numbers, product

__all__ = ["is_sparse", "sparse_macs", "stored"]


def is_sparse(tensor: Any) -> bool:
    """Whether *tensor* is stored as coordinates, or as compressed rows or columns."""
    return str(tensor.layout).startswith("torch.sparse_")


def stored(tensor: Any) -> int:
    """Numbers that a sparse tensor holds, zeros inside of its blocks and duplicates included.

    >>> import torch
    >>> stored(torch.eye(4).to_sparse())
    4
    """
    import torch

    return numel(tensor._values() if tensor.layout is torch.sparse_coo else tensor.values())


def sparse_macs(a: Any, b: Any) -> int:
    """Multiply-adds of ``a @ b`` where one or both are sparse.

    Sparse times dense: the stored numbers times the columns (2·nnz·n FLOPs). Sparse times sparse: each number of *a* in column k
    meets the numbers that row k of *b* holds.

    >>> import torch
    >>> a = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).to_sparse()
    >>> sparse_macs(a, torch.ones(2, 7)), sparse_macs(a, a)
    (21, 4)
    """
    if is_sparse(a) and is_sparse(b):
        rows = b.to_sparse_coo().coalesce().indices()[0]
        columns = a.to_sparse_coo().coalesce().indices()[1]
        macs = int(rows.bincount(minlength=int(b.shape[0]))[columns].sum())
    elif is_sparse(a):
        macs = stored(a) * (int(b.shape[-1]) if b.dim() > 1 else 1)
    else:
        macs = stored(b) * (int(a.shape[-2]) if a.dim() > 1 else 1)
    return int(of_numbers(macs, a.dtype.is_complex))


@explains("aten::sparse_sampled_addmm")
def sampled(call: OpCall) -> Work:
    """A product of two dense matrices where a sparse one has numbers: inner size multiply-adds for each of them."""
    places, a = stored(call["self"]), call["mat1"]
    macs = of_numbers(product(places, int(a.shape[-1]), 1), a.dtype.is_complex)
    return counted(macs, call.bytes(), vector=places * (call["beta"] != 0))


@explains("aten::_sparse_mm_reduce_impl_backward")
def reduced_backward(call: OpCall) -> Work:
    """Sparse times dense where rows are gathered by sum, mean or an extreme: as much for each of the two gradients."""
    return counted(sparse_macs(call["self"], call["weight"]) * sum(map(int, call["output_mask"])), call.bytes())


@explains("aten::_sparse_semi_structured_mm", "aten::_sparse_semi_structured_addmm")
def half_product(call: OpCall) -> Work:
    """A matrix that keeps two numbers of four, times a dense one: those that are kept are counted. What is added is one FLOP a number."""
    vector = numel(call.outputs[0]) if call.get("input") is not None else 0
    return counted(numel(call["mat1"]) * int(call["mat2"].shape[1]), call.bytes(), vector=vector)


@explains("aten::_cslt_sparse_mm")
def half_product_cslt(call: OpCall) -> Work:
    """The same in cuSPARSELt, whose packed matrix does not show its width: half of the inner size is kept."""
    return counted(numel(call.outputs[0]) * int(call["dense_B"].shape[0]) // 2, call.bytes())
