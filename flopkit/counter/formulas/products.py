"""Matrix products of every kind: `flopkit.macs.product`, the sizes read off the tensors; sparse, in groups, of three tensors, distances."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from flopkit.counter.calls import OpCall, numel
from flopkit.counter.formulas.elementwise import plain
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted
from flopkit.macs import of_numbers, product


def _product_macs(a: Any, b: Any) -> int:
    """Multiply-adds of a matrix (or a batch of matrices) times a matrix or a vector, whatever their layouts.

    >>> import torch
    >>> _product_macs(torch.ones(3, 3), torch.ones(3, 5)), _product_macs(torch.eye(3).to_sparse(), torch.ones(3, 5))
    (45, 15)
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


def _components(tensor: Any, other: Any) -> Iterator[list[int]]:
    """The shapes of the tensors in a nested one; of a plain batch, that of each of its items."""
    if getattr(tensor, "is_nested", False):
        return iter(tensor._nested_tensor_size().tolist())
    return iter([list(map(int, tensor.shape[1:]))] * int(other.size(0)))


# The two factors of each, by what torch calls them; where there is a `beta`, the product is added to `self`. In-place forms are alike.
# (`matmul` itself is met where the tensors are nested; else torch takes it apart.)
_ROWS = {
    "mm bmm": "self mat2",
    "addmm _addmm_activation _sparse_addmm sspaddmm hspmm": "mat1 mat2",
    "baddbmm addbmm": "batch1 batch2",
    "matmul vdot _sparse_sparse_matmul _sparse_mm_reduce_impl": "self other",
    "mv": "self vec", "addmv": "mat vec", "dot": "self tensor", "addr": "vec1 vec2",
}  # fmt: skip
FACTORS = {name: factors.split() for names, factors in _ROWS.items() for name in names.split()}


@explains(*(f"{name} {name}_" for name in FACTORS))
def of_two(call: OpCall) -> Work:
    """``out[..., m, n] = Σ_k a[..., m, k]·b[..., k, n]``, perhaps added to another: an element-wise add for each number, none where beta is 0.

    `addbmm` also adds the products of the batch to each other. An activation in the same kernel is one more. `addr` is a column times a
    row, of inner size 1.
    """
    name = plain(call.name)
    a, b = (call[factor] for factor in FACTORS[name])
    more = max(int(a.shape[0]) - 1, 0) if name == "addbmm" else int(name == "_addmm_activation")
    macs = _times(a, 1, numel(b)) if name == "addr" else _product_macs(a, b)
    return counted(macs, call.bytes(), vector=_adds(call, more))


def _adds(call: OpCall, more: int) -> int:
    """Element-wise adds of what is added to a product: for each number of the result, of a sparse one for each that is stored. A complex
    number takes two."""
    result, times = call.outputs[0], more + (call.get("beta", 0) != 0)
    if not times:
        return 0
    return times * (stored(call["self"]) if is_sparse(result) else numel(result)) * _parts(result)


def _parts(tensor: Any) -> int:
    """Real numbers in one of *tensor*'s."""
    return 2 if tensor.dtype.is_complex else 1


@explains("linear")
def linear(call: OpCall) -> Work:
    """``x @ weight.T + bias``: a bias is one element-wise add a number."""
    x, weight = call["input"], call["weight"]
    vector = numel(call.outputs[0]) * _parts(x) * (call["bias"] is not None)
    columns = int(weight.shape[0]) if weight.dim() > 1 else 1
    return counted(_times(x, int(weight.shape[-1]), columns), call.bytes(), vector=vector)


# The factors of the product whose gradients are taken, and which of those are needed.
_GRADIENTS = {
    "aten::linear_backward": ("grad_output", "weight", "output_mask"),
    "aten::matmul_backward": ("self", "other", "mask"),  # of nested tensors
    "aten::_sparse_mm_reduce_impl_backward": ("self", "weight", "output_mask"),
}


@explains(*_GRADIENTS)
def product_backward(call: OpCall) -> Work:
    """Each gradient of a factor is as much work as the product; that of a linear layer's bias is a sum."""
    a, b, wanted = (call[name] for name in _GRADIENTS[call.name])
    for_a, for_b, *for_bias = map(int, wanted)
    return counted(_product_macs(a, b) * (for_a + for_b), call.bytes(), vector=numel(a) * sum(for_bias) * _parts(a))


# -- with a sparse matrix: a multiply-add for each stored number and each column that it meets --------------------


def is_sparse(tensor: Any) -> bool:
    """Whether *tensor* is stored as coordinates, or as compressed rows or columns."""
    return str(tensor.layout).startswith("torch.sparse_")


def stored(tensor: Any) -> int:
    """Numbers that a sparse tensor holds, zeros inside of its blocks and duplicates included."""
    import torch

    return numel(tensor._values() if tensor.layout is torch.sparse_coo else tensor.values())


def sparse_macs(a: Any, b: Any) -> int:
    """Multiply-adds of ``a @ b`` where one or both are sparse.

    Sparse times dense: the stored numbers times the columns (2·nnz·n FLOPs). Sparse times sparse: each number of *a* in column k
    meets the numbers that row k of *b* holds.
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


@explains("sparse_sampled_addmm")
def sampled(call: OpCall) -> Work:
    """A product of two dense matrices where a sparse one has numbers: inner size multiply-adds for each of them."""
    places, a = stored(call["self"]), call["mat1"]
    macs = of_numbers(product(places, int(a.shape[-1]), 1), a.dtype.is_complex)
    return counted(macs, call.bytes(), vector=places * (call["beta"] != 0))


# -- in groups, such as a mixture's experts, and of scaled eight- and four-bit numbers -----------------------------


GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2")
BY_VALUE = frozenset(GROUPED)  # the last offset says how many rows are true


def _inner(a: Any) -> int:
    """The inner size: two four-bit numbers share a byte, twice what the shape says."""
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
    """
    groups, rows, inner, columns = 1, int(a.shape[-2]), _inner(a), int(b.shape[-1])
    if a.dim() == 2 and b.dim() == 2:
        inner = _true_rows(offsets, inner)
    elif a.dim() == 2:
        rows = _true_rows(offsets, rows)
    elif b.dim() == 2:
        columns = _true_rows(offsets, columns)
    else:
        groups = int(a.shape[0])
    return int(groups * product(rows, inner, columns))


@explains(*GROUPED)
def grouped(call: OpCall) -> Work:
    """Products in groups; a bias is one add a number."""
    vector = numel(call.outputs[0]) * (call["bias"] is not None)
    return counted(grouped_macs(call["self"], call["mat2"], call["offs"]), call.bytes(), vector=vector)


_FEW_BITS = "_scaled_mm _scaled_mm_v2 _int_mm _weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu " \
            "_weight_int4pack_mm_with_scales_and_zeros"  # fmt: skip


@explains(_FEW_BITS, "quantized::matmul")
def in_few_bits(call: OpCall) -> Work:
    """A product of numbers of few bits, or with a weight of such. A result's scale (plain integers have none) and a bias are one FLOP each."""
    rows, results = call.get("qa", call.get("input", call.get("self"))), numel(call.outputs[0])
    vector = results * (("_int_mm" not in call.name) + (call.get("bias") is not None))
    return counted(results * _inner(rows), call.bytes(), vector=vector)


# -- of three tensors: what torch.nn.Bilinear runs -----------------------------------------------------------------


@explains("_trilinear")
def trilinear(call: OpCall) -> Work:
    """A product of three tensors, summed over some dimensions: a multiply-add for each point of the space they span.

    ``y[n, o] = Σ_ij x1[n, i]·w[o, i, j]·x2[n, j]`` is 2·N·out·in1·in2 FLOPs, and each of its three gradients is as many, since all
    span the same space. torch takes it in two steps, of which one spans that space; what the other does (the dot product with
    x2) is element-wise work here, two FLOPs where it sums and one where it only multiplies.
    """
    lacks = [set(call[f"expand{n}"]) for n in (1, 2, 3)]
    sides = [_spread_sizes(call[f"i{n}"], lacking) for n, lacking in enumerate(lacks, start=1)]
    space = [0 if 0 in sizes else max(sizes) for sizes in zip(*sides, strict=True)]
    every, summed = set(range(len(space))), set(call["sumdim"])
    first, early = every - (lacks[0] & lacks[1]), summed & lacks[2]
    second = (first - early) | (every - lacks[2])
    whole = prod(space)
    steps = [(prod(space[d] for d in dims), bool(sums)) for dims, sums in ((first, early), (second, summed - early))]
    # The step that spans the whole space is the contraction; which one that is depends on who is differentiated.
    if (whole, True) in steps:
        steps.remove((whole, True))
    vector = sum(points * (1 + sums) for points, sums in steps)
    return counted(of_numbers(whole, call["i1"].dtype.is_complex), call.bytes(), vector=vector)


def _spread_sizes(tensor: Any, expanded: Any) -> list[int]:
    """The sizes of *tensor* with the dimensions put in that it lacks."""
    sizes = list(map(int, tensor.shape))
    for d in sorted(expanded):
        sizes.insert(d, 1)
    return sizes


@explains("_euclidean_dist _cdist_forward _cdist_backward _pdist_forward _pdist_backward")
def distances(call: OpCall) -> Work:
    """2·P·R·M FLOPs for P rows against R rows of M numbers, whatever the norm: a difference and a sum for each number of each pair of rows.
    The root of each pair is element-wise work. The gradient of one side is as much; torch calls it once for each.

    Of the distances of rows among themselves (N·(N − 1)/2 pairs) each pair adds to the gradients of both of its rows.
    Above 25 rows torch takes ``|x|² + |y|² - 2·x·y`` by one product, which is 2·P·R·M, too; the norms that it appends to the rows
    (two more columns) are in neither number.
    """
    gradient, rows = call.gradient, call.get("x1", call.get("self"))
    pairs = numel(call.outputs[0] if gradient is None else gradient)
    sides = 2 if "pdist_backward" in call.name else 1
    return counted(sides * pairs * int(rows.shape[-1]), call.bytes(), vector=pairs)
