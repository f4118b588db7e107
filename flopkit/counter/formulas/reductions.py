"""So much for each element that is read, and so much for each that is written: sums, extremes, softmax, upsampling; norms, sorting, searching.

What works element by element on its result stands in `elementwise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from flopkit.counter.calls import OpCall, extent, numel, tensors
from flopkit.counter.formulas.elementwise import plain
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise
from flopkit.layers.pointwise import SOFTMAX_FLOPS
from flopkit.macs import broadcast, levels

# FLOPs of an element of the first argument, of an element of the (first) result, and what they are. Sums start from zero, so n numbers take
# n additions; a running sum has as many results as inputs; selecting takes a compare for each element, whatever the method; windows that
# overlap are summed. Bytes are those of every operator.
_ROWS = {
    "sum cumsum bincount _sparse_sum _sparse_csr_sum unfold_backward col2im": (1, 0, "add"),
    "nansum": (2, 0, "compare, add"),
    "prod cumprod _sparse_csr_prod": (1, 0, "multiply"),
    "mean": (1, 1, "add; a division"),
    "max min amax amin argmax argmin cummax cummin _cummax_helper _cummin_helper kthvalue median nanmedian mode": (1, 0, "compare"),
    "aminmax _aminmax": (2, 0, "two compares"),
    "all _is_all_true": (1, 0, "and"),
    "any _is_any_true": (1, 0, "or"),
    "count_nonzero": (2, 0, "compare, add"),
    "var var_mean": (4, 2, "add, subtract, multiply, add; two divisions"),
    "std std_mean": (4, 3, "add, subtract, multiply, add; two divisions, a root"),
    "logsumexp": (4, 2, "compare, subtract, exponential, add; a logarithm, an add"),
    "logcumsumexp _logcumsumexp": (5, 0, "compare, subtract, exponential, logarithm, add"),
    "histogram histc": (4, 0, "a bin for each number: subtract, multiply, round, add"),
    "equal": (1, 0, "compare; the answer is a bool"),
    # softmax
    "softmax _softmax _safe_softmax _masked_softmax _sparse_softmax _nested_tensor_softmax_with_shape":
        (SOFTMAX_FLOPS, 0, "compare, subtract, exponential, add, divide"),
    "_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward _sparse_softmax_backward_data _sparse_log_softmax_backward_data":
        (4, 0, "y·(g − Σ g·y), or g − exp(y)·Σ g"),
    # batch normalisation over several devices (the statistics are brought together in `normalisations`)
    "batch_norm_stats": (4, 5, "add, subtract, multiply, add; two divisions, add epsilon, root, divide"),
    "batch_norm_backward_reduce": (4, 0, "the sums of g and of g·(x − mean)"),
    "batch_norm_backward_elemt": (6, 0, "from those sums: subtract, multiply, two subtracts, two multiplies"),
    # gated linear units, and attention's fast path
    "glu_backward": (7, 0, "two gradients from a pair: sigmoid (3), g·s, ·(1 − s) (2), ·a"),
    "_transform_bias_rescale_qkv": (1, 1, "queries, keys and values get their bias, queries are scaled"),
    # images read between their pixels: a sum of t taps is t multiplies and t − 1 adds, one dimension after the other
    "upsample_linear1d": (0, 3, "two multiplies, add"),
    "upsample_bilinear2d": (0, 9, "3 along each row, 3 along the column"),
    "upsample_trilinear3d": (0, 21, "a sum of two taps in each of three dimensions"),
    "upsample_bicubic2d": (0, 35, "7 along each of four rows, 7 along the column"),
    "upsample_linear1d_backward": (4, 0, "for each of 2 taps a multiply and an add"),
    "upsample_bilinear2d_backward": (4 * 3, 0, "for each of 4 taps two multiplies and an add"),
    "upsample_trilinear3d_backward": (8 * 4, 0, "for each of 8 taps three multiplies and an add"),
    "upsample_bicubic2d_backward": (16 * 3, 0, "for each of 16 taps two multiplies and an add"),
    "upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward _upsample_nearest_exact1d_backward "
    "_upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward": (1, 0, "add"),
    # mixed precision
    "_amp_foreach_non_finite_check_and_unscale": (2, 0, "multiply, compare (is it finite)"),
}  # fmt: skip
SIMPLE: Mapping[str, tuple[int, int, str]] = {name: row for names, row in _ROWS.items() for name in names.split()}


@explains(*(f"{name} {name}_" for name in SIMPLE), "_foreach_max")
def simple(call: OpCall) -> Work:
    """A row of the table; a complex number is two."""
    name = plain(call.name)
    each, last, _ = SIMPLE[name]
    several = isinstance(call.args[0], (list, tuple))
    if name in ("max", "min") and not several and len(list(tensors(call.args))) > 1:  # element by element
        return elementwise(numel(call.outputs[0]), call.bytes())
    source = list(tensors(call.args[0]))
    results = list(tensors(call.out)) if several else call.outputs[:1]
    flops = each * sum(map(numel, source)) + last * sum(map(numel, results))
    return elementwise(flops * (2 if any(t.dtype.is_complex for t in source) else 1), call.bytes())


# -- what is no row of a table --------------------------------------------------------------------------------


@explains("linalg_vector_norm norm native_norm _foreach_norm linalg__powsum _foreach_powsum")
def norm(call: OpCall) -> Work:
    """(Σ |x|ᵖ)^(1/p): power, add; a root. Of p = 1 an add, of ±∞ a compare, of 0 a compare and an add, without a root.

    Of complex numbers |x| takes four and a compare two; |x|² is two multiplies and an add.
    """
    given, numbers = call.get("ord", call.get("p")), list(tensors(call.args[0]))
    p = 2 if given is None else given
    rootless = p in (0, 1, inf, -inf)
    each = 1 if rootless and p != 0 else 2
    if any(t.dtype.is_complex for t in numbers):
        each = {0: 3, 2: 4}.get(p, each + 4)
    roots = 0 if rootless or "powsum" in call.name else sum(map(numel, tensors(call.out)))
    return elementwise(each * sum(map(numel, numbers)) + roots, call.bytes())


@explains("trace")
def trace(call: OpCall) -> Work:
    """The numbers on the diagonal are read and added."""
    matrix = call["self"]
    n = min(map(int, matrix.shape))
    flops = n * (2 if matrix.dtype.is_complex else 1)
    return elementwise(flops, n * int(matrix.element_size()) + extent(call.outputs[0]))


@explains("sort _unique _unique2 unique_consecutive unique_dim unique_dim_consecutive")
def sort(call: OpCall) -> Work:
    """⌈log₂ n⌉ compares for each of the n numbers of a row: what sorting by comparing takes. Consecutive: one."""
    source = call.args[0]
    if not hasattr(source, "shape"):  # TorchScript's own lists
        return elementwise(0)
    whole = call.name.endswith(("_unique", "_unique2")) or source.dim() == 0
    n = 2 if "consecutive" in call.name else numel(source) if whole else int(source.shape[call["dim"]])
    return elementwise(numel(source) * levels(n), call.bytes())


@explains("topk")
def topk(call: OpCall) -> Work:
    """A compare for each element to select, ⌈log₂ k⌉ for each of the k that are found, where they are sorted."""
    # equivalent: 0 -> 1 [1] (values and places are as many)
    order = numel(call.outputs[0]) * levels(int(call["k"])) if call["sorted"] else 0
    return elementwise(numel(call["self"]) + order, call.bytes())


@explains("searchsorted bucketize isin")
def search(call: OpCall) -> Work:
    """Bisection: ⌈log₂(n + 1)⌉ compares for each number that is looked up among n, sorted ones or those of `isin`."""
    rows = call.get("sorted_sequence")
    among = rows if rows is not None else call.get("boundaries", call.get("test_elements"))
    n = 1 if among is None else numel(among) if rows is None else int(rows.shape[-1])
    return elementwise(numel(call.outputs[0]) * levels(n + 1), call.bytes())


@explains("dist allclose")
def compared(call: OpCall) -> Work:
    """‖x − y‖: subtract, power, add for each pair of numbers; a root. |x − y| ≤ a + r·|y|: subtract, multiply, add, compare, and an and."""
    pairs = broadcast(call.args[0].shape, call.args[1].shape)
    return elementwise(3 * pairs + 1 if "dist" in call.name else 5 * pairs, call.bytes())
