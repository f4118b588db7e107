"""Norms, sorting and searching: what is counted for each element that is read. Sums and extremes are rows of a table in `elements`."""

from __future__ import annotations

from math import inf, prod

from flopkit.counter.calls import OpCall, extent, numel, tensors
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise

__all__ = ["levels"]

_NORMS = ("aten::linalg_vector_norm", "aten::norm", "aten::native_norm", "aten::_foreach_norm")
_POWERS = ("aten::linalg__powsum", "aten::_foreach_powsum")


def levels(n: int) -> int:
    """⌈log₂ n⌉: compares that place a number among n − 1 others.

    >>> [levels(n) for n in (1, 2, 3, 1024, 1025)]
    [0, 1, 2, 10, 11]
    """
    return max(n - 1, 0).bit_length()


@explains(*_NORMS, *_POWERS)
def norm(call: OpCall) -> Work:
    """(Σ |x|ᵖ)^(1/p): power, add; a root. Of p = 1 an add, of ±∞ a compare, of 0 a compare and an add, without a root.

    Of complex numbers |x| takes four and a compare two; |x|² is two multiplies and an add.
    """
    p = call.get("ord", call.get("p"))
    p = 2 if p is None else p
    numbers = list(tensors(call.args[0]))
    plain = p in (0, 1, inf, -inf)
    each = 1 if plain and p != 0 else 2
    if any(t.dtype.is_complex for t in numbers):
        each = {0: 3, 2: 4}.get(p, each + 4)
    roots = 0 if plain or "powsum" in call.name else sum(map(numel, tensors(call.out)))
    return elementwise(each * sum(map(numel, numbers)) + roots, call.bytes())


@explains("aten::trace")
def trace(call: OpCall) -> Work:
    """The numbers on the diagonal are read and added."""
    matrix = call["self"]
    n = min(map(int, matrix.shape))
    flops = n * (2 if matrix.dtype.is_complex else 1)
    return elementwise(flops, n * int(matrix.element_size()) + extent(call.outputs[0]))


@explains("aten::sort", "aten::_unique", "aten::_unique2", "aten::unique_consecutive",
          "aten::unique_dim", "aten::unique_dim_consecutive")  # fmt: skip
def sort(call: OpCall) -> Work:
    """⌈log₂ n⌉ compares for each of the n numbers of a row: what sorting by comparing takes. Consecutive: one."""
    source = call.args[0]
    if not hasattr(source, "shape"):  # TorchScript's own lists
        return elementwise(0)
    name = call.name
    if "consecutive" in name:
        return elementwise(numel(source), call.bytes())
    whole = name.endswith(("_unique", "_unique2")) or source.dim() == 0
    n = numel(source) if whole else int(source.shape[call["dim"]])
    return elementwise(numel(source) * levels(n), call.bytes())


@explains("aten::topk")
def topk(call: OpCall) -> Work:
    """A compare for each element to select, ⌈log₂ k⌉ for each of the k that are found, where they are sorted."""
    # equivalent: 0 -> 1 [1] (values and places are as many)
    order = numel(call.outputs[0]) * levels(int(call["k"])) if call["sorted"] else 0
    return elementwise(numel(call["self"]) + order, call.bytes())


@explains("aten::searchsorted", "aten::bucketize")
def search(call: OpCall) -> Work:
    """Bisection: ⌈log₂(n + 1)⌉ compares for each number that is looked up among n."""
    among = call.get("sorted_sequence") if call.get("sorted_sequence") is not None else call["boundaries"]
    return elementwise(numel(call.outputs[0]) * levels(int(among.shape[-1]) + 1), call.bytes())


@explains("aten::isin")
def isin(call: OpCall) -> Work:
    """Looked up among the sorted test elements: ⌈log₂(n + 1)⌉ compares for each element; sorting them is not counted."""
    tested = call.get("test_elements")
    return elementwise(numel(call.outputs[0]) * levels((numel(tested) if tested is not None else 1) + 1), call.bytes())


@explains("aten::dist")
def distance(call: OpCall) -> Work:
    """‖x − y‖: subtract, power, add for each element; a root."""
    return elementwise(3 * _broadcast(call) + 1, call.bytes())


@explains("aten::allclose")
def allclose(call: OpCall) -> Work:
    """|x − y| ≤ a + r·|y|: subtract, multiply, add, compare, and an and."""
    return elementwise(5 * _broadcast(call), call.bytes())


def _broadcast(call: OpCall) -> int:
    """Pairs of numbers of the two tensors."""
    import torch

    return prod(torch.broadcast_shapes(call.args[0].shape, call.args[1].shape))


@explains("aten::_compute_linear_combination")
def combination(call: OpCall) -> Work:
    """A sum of matrices with coefficients: multiply and add for each."""
    terms = prod(int(n) for n in call["coefficients"].shape)
    return elementwise(2 * terms * (numel(call["input"]) // max(int(call["input"].shape[0]), 1)), call.bytes())
