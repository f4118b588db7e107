"""Matrix products of every kind: `flopkit.macs.product`, the sizes read off the tensors."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from flopkit.counter.calls import Call, numel, tensors
from flopkit.counter.operators.sparse import is_sparse, sparse_macs, stored
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted
from flopkit.macs import of_numbers, product

__all__ = ["nested_product", "product_macs"]


def product_macs(a: Any, b: Any) -> int:
    """Multiply-adds of a matrix (or a batch of matrices) times a matrix or a vector, whatever their layouts.

    >>> import torch
    >>> product_macs(torch.ones(2, 3), torch.ones(3, 5))
    30
    >>> product_macs(torch.eye(3).to_sparse(), torch.ones(3, 5))
    15
    """
    if is_sparse(a) or is_sparse(b):
        return sparse_macs(a, b)
    if getattr(a, "is_nested", False) or getattr(b, "is_nested", False):
        pairs = zip(_components(a, b), _components(b, a), strict=True)
        return sum(product(prod(left[:-1]), left[-1], right[-1]) for left, right in pairs)
    return _times(a, int(a.shape[-1]), int(b.shape[-1]) if b.dim() > 1 else 1)


def _times(a: Any, inner: int, columns: int) -> int:
    """Multiply-adds of the rows of *a*, each of *inner* numbers, with as many columns."""
    return int(of_numbers(product(numel(a) // max(inner, 1), inner, columns), a.dtype.is_complex))


def nested_product(call: Call) -> Work:
    """`torch.matmul` of nested tensors: each pair of matrices by its own size."""
    return counted(product_macs(call["self"], call["other"]), call.bytes())


def _components(tensor: Any, other: Any) -> Iterator[list[int]]:
    """The shapes of the tensors in a nested one; of a plain batch, that of each of its items."""
    if getattr(tensor, "is_nested", False):
        return iter(tensor._nested_tensor_size().tolist())
    return iter([list(map(int, tensor.shape[1:]))] * int(other.size(0)))


# The two factors of each, by what torch calls them; where there is a `beta`, the product is added to `self`. In-place forms are alike.
FACTORS = {
    **dict.fromkeys(("mm", "bmm"), ("self", "mat2")),
    **dict.fromkeys(("addmm", "_addmm_activation", "_sparse_addmm"), ("mat1", "mat2")),
    **dict.fromkeys(("baddbmm", "addbmm"), ("batch1", "batch2")),
    "mv": ("self", "vec"), "addmv": ("mat", "vec"), "dot": ("self", "tensor"), "vdot": ("self", "other"),
}  # fmt: skip


@explains(*(f"aten::{name}{end}" for name in FACTORS for end in ("", "_")))
def of_two(call: Call) -> Work:
    """``out[..., m, n] = Σ_k a[..., m, k]·b[..., k, n]``, perhaps added to another: an element-wise add for each number, none where beta is 0.

    `addbmm` also adds the products of the batch to each other. An activation in the same kernel is one more.
    """
    name = str(call.func._schema.name).removeprefix("aten::").removesuffix("_")
    a, b = (call[factor] for factor in FACTORS[name])
    more = max(int(a.shape[0]) - 1, 0) if name == "addbmm" else int(name == "_addmm_activation")
    return counted(product_macs(a, b), call.bytes(), vector=_adds(call, more))


def _adds(call: Call, more: int) -> int:
    """Element-wise adds of what is added to a product: for each number of the result, of a sparse one for each that is stored. A complex
    number takes two."""
    result = call.outputs[0]
    added = stored(call["self"]) if is_sparse(result) else numel(result)
    return added * (more + (call.get("beta", 0) != 0)) * _parts(result)


def _parts(tensor: Any) -> int:
    """Real numbers in one of *tensor*'s."""
    return 2 if tensor.dtype.is_complex else 1


@explains("aten::addr", "aten::addr_")
def outer_and_sum(call: Call) -> Work:
    """A column times a row, added to a matrix: a product of inner size 1."""
    a, b = call["vec1"], call["vec2"]
    macs = of_numbers(product(numel(a), 1, numel(b)), a.dtype.is_complex)
    return counted(macs, call.bytes(), vector=_adds(call, 0))


@explains("aten::_foreach_mm", "_native::_foreach_mm_native_0")
def list_of_products(call: Call) -> Work:
    """Products of matrices that stand in two lists."""
    pairs = zip(tensors(call["self"]), tensors(call["mat2"]), strict=True)
    return counted(sum(product_macs(a, b) for a, b in pairs), call.bytes())


@explains("aten::linear")
def linear(call: Call) -> Work:
    """``x @ weight.T + bias``: a bias is one element-wise add a number."""
    x, weight = call["input"], call["weight"]
    vector = numel(call.outputs[0]) * _parts(x) * (call["bias"] is not None)
    columns = int(weight.shape[0]) if weight.dim() > 1 else 1
    return counted(_times(x, int(weight.shape[-1]), columns), call.bytes(), vector=vector)


@explains("aten::linear_backward")
def linear_backward(call: Call) -> Work:
    """One product for the gradient of the input, one for the weight's; the bias's is a sum."""
    gradient, weight = call["grad_output"], call["weight"]
    for_input, for_weight, for_bias = map(bool, call["output_mask"])
    macs = product_macs(gradient, weight) * (for_input + for_weight)
    return counted(macs, call.bytes(), vector=numel(gradient) * for_bias * _parts(gradient))


@explains("aten::matmul_backward")
def matmul_backward(call: Call) -> Work:
    """The gradients of a product of nested tensors: each is as much work as the product."""
    macs = product_macs(call["self"], call["other"])
    return counted(macs * sum(map(int, call["mask"])), call.bytes())
