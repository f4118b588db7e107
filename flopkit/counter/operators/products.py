"""Matrix products of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from flopkit.counter.calls import Call, numel, tensors
from flopkit.counter.operators.sparse import is_sparse, sparse_macs, stored
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

__all__ = ["complex_factor", "nested_product", "product_macs"]


def complex_factor(tensor: Any) -> int:
    """Multiply-adds of real numbers in one of *tensor*'s: a complex one is four (8 FLOPs)."""
    return 4 if tensor.dtype.is_complex else 1


def product_macs(a: Any, b: Any) -> int:
    """Multiply-adds of a matrix (or a batch of matrices) times a matrix or a vector, whatever their layouts.

    >>> import torch
    >>> product_macs(torch.ones(2, 3), torch.ones(3, 5))
    30
    >>> product_macs(torch.eye(3).to_sparse(), torch.ones(3, 5))
    15
    """
    if is_sparse(a) or is_sparse(b):
        return sparse_macs(a, b) * complex_factor(a)
    if getattr(a, "is_nested", False) or getattr(b, "is_nested", False):
        pairs = zip(_components(a, b), _components(b, a), strict=True)
        return sum(prod(left) * right[-1] for left, right in pairs)
    columns = int(b.shape[-1]) if b.dim() > 1 else 1
    return numel(a) * columns * complex_factor(a)


def nested_product(call: Call) -> Work:
    """`torch.matmul` of nested tensors: each pair of matrices by its own size."""
    return counted(product_macs(call["self"], call["other"]), call.bytes())


def _components(tensor: Any, other: Any) -> Iterator[list[int]]:
    """The shapes of the tensors in a nested one; of a plain batch, that of each of its items."""
    if getattr(tensor, "is_nested", False):
        return iter(tensor._nested_tensor_size().tolist())
    return iter([list(map(int, tensor.shape[1:]))] * int(other.size(0)))


def _adds(call: Call, each: int = 0) -> int:
    """Element-wise adds of what is added to a product: one for each number of the result, none where beta is 0; of a sparse sum, one for
    each that is stored. A complex number takes two."""
    result = call.outputs[0]
    added = stored(call["self"]) if is_sparse(result) else numel(result)
    return added * (each + (call["beta"] != 0)) * _parts(result)


def _parts(tensor: Any) -> int:
    """Real numbers in one of *tensor*'s."""
    return 2 if tensor.dtype.is_complex else 1


@explains("aten::mm", "aten::bmm")
def product(call: Call) -> Work:
    """``out[..., m, n] = Σ_k a[..., m, k]·b[..., k, n]``."""
    return counted(product_macs(call["self"], call["mat2"]), call.bytes())


@explains("aten::addmm", "aten::addmm_", "aten::_addmm_activation", "aten::_sparse_addmm")
def product_and_sum(call: Call) -> Work:
    """The same, added to a matrix or a bias: one element-wise add each, none where beta is 0."""
    activation = int(call.get("use_gelu") is not None)
    return counted(product_macs(call["mat1"], call["mat2"]), call.bytes(), vector=_adds(call, activation))


@explains("aten::baddbmm", "aten::baddbmm_")
def products_and_sum(call: Call) -> Work:
    """The same for a batch of matrices."""
    return counted(product_macs(call["batch1"], call["batch2"]), call.bytes(), vector=_adds(call))


@explains("aten::mv", "aten::dot", "aten::vdot")
def with_a_vector(call: Call) -> Work:
    """A matrix times a vector, a vector times a vector: one multiply-add for each number of the first."""
    a = call["self"]
    other = call.get("vec", call.get("tensor", call.get("other")))
    return counted(product_macs(a, other), call.bytes())


@explains("aten::addmv", "aten::addmv_")
def with_a_vector_and_sum(call: Call) -> Work:
    """The same, added to a vector."""
    return counted(product_macs(call["mat"], call["vec"]), call.bytes(), vector=_adds(call))


@explains("aten::addr", "aten::addr_")
def outer_and_sum(call: Call) -> Work:
    """A column times a row, added to a matrix: a product of inner size 1."""
    return counted(numel(call.outputs[0]) * complex_factor(call["vec1"]), call.bytes(), vector=_adds(call))


@explains("aten::addbmm", "aten::addbmm_")
def sum_of_products(call: Call) -> Work:
    """Products of a batch, all added into one matrix."""
    a = call["batch1"]
    return counted(product_macs(a, call["batch2"]), call.bytes(), vector=_adds(call, max(int(a.shape[0]) - 1, 0)))


@explains("aten::_foreach_mm", "_native::_foreach_mm_native_0")
def list_of_products(call: Call) -> Work:
    """Products of matrices that stand in two lists."""
    pairs = zip(tensors(call["self"]), tensors(call["mat2"]), strict=True)
    return counted(sum(product_macs(a, b) for a, b in pairs), call.bytes())


@explains("inductor::_mm_plus_mm")
def two_products(call: Call) -> Work:
    """``a @ b + c @ d``."""
    macs = product_macs(call["a"], call["b"]) + product_macs(call["c"], call["d"])
    return counted(macs, call.bytes(), vector=numel(call["out"]))


@explains("aten::linear", "aten::mkldnn_linear", "mkldnn::_linear_pointwise", "mkl::_mkl_linear")
def linear(call: Call) -> Work:
    """``x @ weight.T + bias`` in one kernel, a bias or another tensor added, an activation behind it one FLOP a number.

    oneDNN's and MKL's packed weights have the size of the weight that they were made of.
    """
    x = call.get("input", call.get("self", call.get("X")))
    weight = call.get("weight", call.get("ORI_W", call.get("W")))
    bias = call.get("bias", call.get("B"))
    outputs = numel(call.outputs[0])
    macs = numel(x) * int(weight.shape[0]) * complex_factor(x)
    extras = (bias is not None) + (call.get("other") is not None) + (call.get("attr") not in (None, "none"))
    extras -= call.get("other") is not None  # there the attribute is the sum itself
    moved = call.bytes()
    if call.get("ORI_W") is not None:  # the packed weight and the plain one are passed; one of them is read
        moved -= weight.numel() * weight.element_size()
    return counted(macs, moved, vector=outputs * extras * _parts(x))


@explains("aten::linear_backward", "aten::mkldnn_linear_backward")
def linear_backward(call: Call) -> Work:
    """One product for the gradient of the input, one for the weight's; the bias's is a sum."""
    gradient, weight = call["grad_output"], call["weight"]
    wanted = call["output_mask"]
    macs = numel(gradient) * int(weight.shape[1]) * complex_factor(gradient)
    vector = numel(gradient) * int(wanted[2]) * _parts(gradient)
    return counted(macs * (int(wanted[0]) + int(wanted[1])), call.bytes(), vector=vector)


@explains("aten::mkldnn_linear_backward_input", "aten::mkldnn_linear_backward_weights")
def linear_backward_half(call: Call) -> Work:
    """One of the two."""
    gradient = call["grad_output"]
    vector = numel(gradient) * bool(call.get("bias_defined"))
    return counted(numel(gradient) * int(call["weight"].shape[1]), call.bytes(), vector=vector)


@explains("aten::matmul_backward")
def matmul_backward(call: Call) -> Work:
    """The gradients of a product of nested tensors: each is as much work as the product."""
    macs = product_macs(call["self"], call["other"])
    return counted(macs * sum(map(int, call["mask"])), call.bytes())
