"""Matrix products of every kind: `flopkit.macs.product`, the sizes read off the tensors; in groups, of three tensors, distances."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from flopkit.counter.calls import OpCall, numel, tensors
from flopkit.counter.formulas.sparse import is_sparse, sparse_macs, stored
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted
from flopkit.macs import of_numbers, product

__all__ = ["BY_VALUE", "grouped_macs", "nested_product", "product_macs"]


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


def nested_product(call: OpCall) -> Work:
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
def of_two(call: OpCall) -> Work:
    """``out[..., m, n] = Σ_k a[..., m, k]·b[..., k, n]``, perhaps added to another: an element-wise add for each number, none where beta is 0.

    `addbmm` also adds the products of the batch to each other. An activation in the same kernel is one more.
    """
    name = call.name.removeprefix("aten::").removesuffix("_")
    a, b = (call[factor] for factor in FACTORS[name])
    more = max(int(a.shape[0]) - 1, 0) if name == "addbmm" else int(name == "_addmm_activation")
    return counted(product_macs(a, b), call.bytes(), vector=_adds(call, more))


def _adds(call: OpCall, more: int) -> int:
    """Element-wise adds of what is added to a product: for each number of the result, of a sparse one for each that is stored. A complex
    number takes two."""
    result = call.outputs[0]
    added = stored(call["self"]) if is_sparse(result) else numel(result)
    return added * (more + (call.get("beta", 0) != 0)) * _parts(result)


def _parts(tensor: Any) -> int:
    """Real numbers in one of *tensor*'s."""
    return 2 if tensor.dtype.is_complex else 1


@explains("aten::addr", "aten::addr_")
def outer_and_sum(call: OpCall) -> Work:
    """A column times a row, added to a matrix: a product of inner size 1."""
    a, b = call["vec1"], call["vec2"]
    macs = of_numbers(product(numel(a), 1, numel(b)), a.dtype.is_complex)
    return counted(macs, call.bytes(), vector=_adds(call, 0))


@explains("aten::_foreach_mm", "_native::_foreach_mm_native_0")
def list_of_products(call: OpCall) -> Work:
    """Products of matrices that stand in two lists."""
    pairs = zip(tensors(call["self"]), tensors(call["mat2"]), strict=True)
    return counted(sum(product_macs(a, b) for a, b in pairs), call.bytes())


@explains("aten::linear")
def linear(call: OpCall) -> Work:
    """``x @ weight.T + bias``: a bias is one element-wise add a number."""
    x, weight = call["input"], call["weight"]
    vector = numel(call.outputs[0]) * _parts(x) * (call["bias"] is not None)
    columns = int(weight.shape[0]) if weight.dim() > 1 else 1
    return counted(_times(x, int(weight.shape[-1]), columns), call.bytes(), vector=vector)


@explains("aten::linear_backward")
def linear_backward(call: OpCall) -> Work:
    """One product for the gradient of the input, one for the weight's; the bias's is a sum."""
    gradient, weight = call["grad_output"], call["weight"]
    for_input, for_weight, for_bias = map(bool, call["output_mask"])
    macs = product_macs(gradient, weight) * (for_input + for_weight)
    return counted(macs, call.bytes(), vector=numel(gradient) * for_bias * _parts(gradient))


@explains("aten::matmul_backward")
def matmul_backward(call: OpCall) -> Work:
    """The gradients of a product of nested tensors: each is as much work as the product."""
    macs = product_macs(call["self"], call["other"])
    return counted(macs * sum(map(int, call["mask"])), call.bytes())


# -- in groups, such as a mixture's experts, and of scaled eight- and four-bit numbers -----------------------------


GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2")
BY_VALUE = frozenset(GROUPED)  # the last offset says how many rows are true


def _inner(a: Any) -> int:
    """The length of a row of *a*: where two four-bit numbers share a byte, twice what the shape says."""
    return int(a.shape[-1]) * (2 if "x2" in str(a.dtype) else 1)


def _true_rows(offsets: Any, size: int) -> int:
    """Rows before the last offset, which are those that are computed; all of them where offsets have no numbers (meta)."""
    import torch

    if offsets is None or type(offsets) not in (torch.Tensor, torch.nn.Parameter) or offsets.device.type == "meta":
        return size
    if not offsets.numel() or (offsets.is_cuda and torch.cuda.is_current_stream_capturing()):
        return size
    return min(int(offsets[-1]), size)


def grouped_macs(a: Any, b: Any, offsets: Any = None) -> int:
    """Multiply-adds of products in groups, as `torch.nn.functional.grouped_mm` takes them.

    Rows in groups (2-D by 3-D), columns in groups (3-D by 2-D), an inner dimension in groups (2-D by 2-D), or one product for each
    group (3-D by 3-D): the same number whatever the sizes of the groups. What lies behind the last offset is not computed.

    >>> import torch
    >>> rows, experts = torch.ones(12, 16), torch.ones(3, 16, 8)
    >>> grouped_macs(rows, experts, torch.tensor([4, 5, 12])), grouped_macs(rows, experts, torch.tensor([4, 5, 8]))
    (1536, 1024)
    """
    inner, columns = _inner(a), int(b.shape[-1])
    if a.dim() == 2 and b.dim() == 2:
        return int(a.shape[0]) * columns * _true_rows(offsets, inner)
    if a.dim() == 2:
        return _true_rows(offsets, int(a.shape[0])) * inner * columns
    rows = int(a.shape[-2])
    if b.dim() == 2:
        return rows * inner * _true_rows(offsets, columns)
    return int(a.shape[0]) * rows * inner * columns


@explains(*GROUPED)
def grouped(call: OpCall) -> Work:
    """Products in groups; a bias is one add a number."""
    macs = grouped_macs(call["self"], call["mat2"], call["offs"])
    vector = numel(call.outputs[0]) * (call["bias"] is not None)
    return counted(macs, call.bytes(), vector=vector)


@explains("aten::_scaled_mm", "aten::_scaled_mm_v2")
def scaled(call: OpCall) -> Work:
    """A product of eight- or four-bit numbers; the scale of each result and a bias are one FLOP a number."""
    a, results = call["self"], numel(call.outputs[0])
    rows = int(call.outputs[0].shape[0])
    # equivalent: 0 -> 1 (there is nothing then that it could be multiplied with)
    inner = numel(a) * (2 if "x2" in str(a.dtype) else 1) // rows if rows else 0
    return counted(results * inner, call.bytes(), vector=results * (1 + (call["bias"] is not None)))


# -- of three tensors: what torch.nn.Bilinear runs -----------------------------------------------------------------


@explains("aten::_trilinear")
def trilinear(call: OpCall) -> Work:
    """A product of three tensors, summed over some dimensions: a multiply-add for each point of the space they span.

    ``y[n, o] = Σ_ij x1[n, i]·w[o, i, j]·x2[n, j]`` is 2·N·out·in1·in2 FLOPs, and each of its three gradients is as many, since all
    span the same space. torch takes it in two steps, of which one spans that space; what the other does (the dot product with
    x2) is element-wise work here, two FLOPs where it sums and one where it only multiplies.
    """
    sides = [_spread_sizes(call[f"i{n}"], call[f"expand{n}"]) for n in (1, 2, 3)]
    # equivalent: 0 -> 1 (all sides have as many dimensions)
    every = range(len(sides[0]))
    summed = set(call["sumdim"])
    space = {d: max(side[d] for side in sides) if all(side[d] for side in sides) else 0 for d in every}
    first = [d for d in every if not (_missing(call, 1, d) and _missing(call, 2, d))]
    early = {d for d in summed if _missing(call, 3, d)}
    second = [d for d in every if (d in first and d not in early) or not _missing(call, 3, d)]
    steps = [
        (prod(space[d] for d in first), bool(early)),
        (prod(space[d] for d in second), bool(summed - early)),
    ]
    whole = prod(space.values())
    rest = [points * (2 if sums else 1) for points, sums in steps]
    # The step that spans the whole space is the contraction; which one that is depends on who is differentiated.
    main = next((i for i in (1, 0) if steps[i][0] == whole and steps[i][1]), None)
    vector = sum(work for i, work in enumerate(rest) if i != main)
    return counted(of_numbers(whole, call["i1"].dtype.is_complex), call.bytes(), vector=vector)


def _spread_sizes(tensor: Any, expanded: Any) -> list[int]:
    """The sizes of *tensor* with the dimensions put in that it lacks."""
    sizes = list(map(int, tensor.shape))
    for d in sorted(expanded):
        sizes.insert(d, 1)
    return sizes


def _missing(call: OpCall, side: int, d: int) -> bool:
    return d in call[f"expand{side}"]


# -- distances between rows: 2·P·R·M FLOPs for P rows against R rows of M numbers, whatever the norm ---------------


def _distance_macs(distances: Any, rows: Any) -> int:
    return numel(distances) * int(rows.shape[-1])


@explains("aten::_cdist_forward", "aten::_euclidean_dist")
def distances(call: OpCall) -> Work:
    """A difference and a sum for each number of each pair of rows; the root of each pair is element-wise work.

    Above 25 rows torch takes ``|x|² + |y|² - 2·x·y`` by one product, which is 2·P·R·M, too; the norms that it appends to the rows
    (two more columns) are in neither number.
    """
    return counted(_distance_macs(call.outputs[0], call["x1"]), call.bytes(), vector=numel(call.outputs[0]))


@explains("aten::_cdist_backward")
def distances_backward(call: OpCall) -> Work:
    """As much for the gradient of one side; torch calls it once for each."""
    return counted(_distance_macs(call["grad"], call["x1"]), call.bytes(), vector=numel(call["grad"]))


@explains("aten::_pdist_forward")
def own_distances(call: OpCall) -> Work:
    """The distances of rows among themselves: N·(N-1)/2 pairs."""
    return counted(_distance_macs(call.outputs[0], call["self"]), call.bytes(), vector=numel(call.outputs[0]))


@explains("aten::_pdist_backward")
def own_distances_backward(call: OpCall) -> Work:
    """Each pair adds to the gradients of both of its rows."""
    return counted(2 * _distance_macs(call["grad"], call["self"]), call.bytes(), vector=numel(call["grad"]))
