"""Products with a sparse matrix: a multiply-add for each stored number and each column it meets."""

from __future__ import annotations

from typing import Any

from flopkit.counter.calls import OpCall, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted
from flopkit.macs import of_numbers, product

__all__ = ["is_sparse", "sparse_macs", "stored"]


def is_sparse(tensor: Any) -> bool:
    """Whether *tensor* is stored as coordinates, or as compressed rows or columns."""
    import torch

    layout = tensor.layout
    return layout is not torch.strided and layout in (
        torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc
    )  # fmt: skip


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
    return int(of_numbers(_real_macs(a, b), a.dtype.is_complex))


def _real_macs(a: Any, b: Any) -> int:
    if is_sparse(a) and is_sparse(b):
        rows = b.to_sparse_coo().coalesce().indices()[0]
        columns = a.to_sparse_coo().coalesce().indices()[1]
        lengths = rows.bincount(minlength=int(b.shape[0]))
        return int(lengths[columns].sum())
    if is_sparse(a):
        return stored(a) * (int(b.shape[-1]) if b.dim() > 1 else 1)
    return stored(b) * (int(a.shape[-2]) if a.dim() > 1 else 1)


@explains("aten::_sparse_sparse_matmul", "aten::_spgemm")
def sparse_product(call: OpCall) -> Work:
    """Sparse times sparse."""
    return counted(sparse_macs(call["self"], call["other"]), call.bytes())


@explains("aten::hspmm", "aten::sspaddmm", "aten::sspaddmm_")
def sparse_result(call: OpCall) -> Work:
    """Sparse times dense, into a matrix that has only the rows that are touched."""
    return counted(sparse_macs(call["mat1"], call["mat2"]), call.bytes())


@explains("aten::sparse_sampled_addmm")
def sampled(call: OpCall) -> Work:
    """A product of two dense matrices where a sparse one has numbers: inner size multiply-adds for each of them."""
    mask, a = call["self"], call["mat1"]
    places = stored(mask)
    macs = of_numbers(product(places, int(a.shape[-1]), 1), a.dtype.is_complex)
    return counted(macs, call.bytes(), vector=places * (call["beta"] != 0))


@explains("aten::_sparse_mm_reduce_impl")
def reduced(call: OpCall) -> Work:
    """Sparse times dense where rows are gathered by sum, mean, minimum or maximum: counted like the sum."""
    return counted(sparse_macs(call["self"], call["other"]), call.bytes())


@explains("aten::_sparse_mm_reduce_impl_backward")
def reduced_backward(call: OpCall) -> Work:
    """As much for each of the two gradients."""
    macs = sparse_macs(call["self"], call["weight"]) * sum(map(int, call["output_mask"]))
    return counted(macs, call.bytes())


@explains("aten::_sparse_semi_structured_linear")
def half_linear(call: OpCall) -> Work:
    """A linear layer whose weight keeps two numbers of four: those that are kept are counted."""
    x, weight = call["input"], call["weight"]
    rows = numel(x) // int(x.shape[-1]) if numel(x) else 0
    return counted(rows * numel(weight), call.bytes(), vector=numel(call.outputs[0]) * (call["bias"] is not None))


@explains("aten::_sparse_semi_structured_mm", "aten::_sparse_semi_structured_addmm")
def half_product(call: OpCall) -> Work:
    """A matrix that keeps two numbers of four, times a dense one."""
    vector = numel(call.outputs[0]) if call.get("input") is not None else 0
    return counted(numel(call["mat1"]) * int(call["mat2"].shape[1]), call.bytes(), vector=vector)


@explains("aten::_cslt_sparse_mm")
def half_product_cslt(call: OpCall) -> Work:
    """The same in cuSPARSELt, whose packed matrix does not show its width: half of the inner size is kept."""
    inner = int(call["dense_B"].shape[0])
    return counted(numel(call.outputs[0]) * inner // 2, call.bytes())
