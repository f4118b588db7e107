"""Operators whose work is so much for each element that is read, and so much for each that is written: one row of a table each.

What works element by element on its result stands in `recipes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flopkit.counter.calls import OpCall, numel, tensors
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise
from flopkit.layers.pointwise import SOFTMAX_FLOPS

__all__ = ["SIMPLE"]

_BIN = (4, 0, "a bin for each number: subtract, multiply, round, add")

# FLOPs of an element of the first argument, of an element of the (first) result, and what they are. Sums start from zero, so n numbers take
# n additions; a running sum has as many results as inputs; selecting takes a compare for each element, whatever the method; windows that
# overlap are summed. Bytes are those of every operator.
SIMPLE: Mapping[str, tuple[int, int, str]] = {
    **dict.fromkeys(("sum", "cumsum", "bincount", "_sparse_sum", "_sparse_csr_sum", "unfold_backward", "col2im"), (1, 0, "add")),
    "nansum": (2, 0, "compare, add"),
    **dict.fromkeys(("prod", "cumprod", "_sparse_csr_prod"), (1, 0, "multiply")),
    "mean": (1, 1, "add; a division"),
    **dict.fromkeys(("max", "min", "amax", "amin", "argmax", "argmin", "cummax", "cummin", "_cummax_helper",
                     "_cummin_helper", "kthvalue", "median", "nanmedian", "mode"), (1, 0, "compare")),
    **dict.fromkeys(("aminmax", "_aminmax"), (2, 0, "two compares")),
    **dict.fromkeys(("all", "_is_all_true"), (1, 0, "and")),
    **dict.fromkeys(("any", "_is_any_true"), (1, 0, "or")),
    "count_nonzero": (2, 0, "compare, add"),
    **dict.fromkeys(("var", "var_mean"), (4, 2, "add, subtract, multiply, add; two divisions")),
    **dict.fromkeys(("std", "std_mean"), (4, 3, "add, subtract, multiply, add; two divisions, a root")),
    "logsumexp": (4, 2, "compare, subtract, exponential, add; a logarithm, an add"),
    "hash_tensor": (1, 0, "exclusive or"),
    **dict.fromkeys(("logcumsumexp", "_logcumsumexp"), (5, 0, "compare, subtract, exponential, logarithm, add")),
    **dict.fromkeys(("histogram", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors", "_histogramdd_bin_edges"), _BIN),
    "histc": _BIN,
    "renorm": (3, 0, "power, add, multiply"),
    "segment_reduce": (1, 0, "one operation"),
    "_segment_reduce_backward": (0, 1, "one operation"),
    "equal": (1, 0, "compare; the answer is a bool"),
    # softmax
    **dict.fromkeys(
        ("softmax", "_softmax", "_safe_softmax", "_masked_softmax", "_sparse_softmax", "_nested_tensor_softmax_with_shape"),
        (SOFTMAX_FLOPS, 0, "compare, subtract, exponential, add, divide"),
    ),
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward", "_sparse_softmax_backward_data",
         "_sparse_log_softmax_backward_data"),
        (4, 0, "y·(g − Σ g·y), or g − exp(y)·Σ g"),
    ),
    # batch normalisation over several devices
    "batch_norm_backward_reduce": (4, 0, "the sums of g and of g·(x − mean)"),
    "batch_norm_backward_elemt": (6, 0, "from those sums: subtract, multiply, two subtracts, two multiplies"),
    # gated linear units, and attention's fast path
    "glu_backward": (7, 0, "two gradients from a pair: sigmoid (3), g·s, ·(1 − s) (2), ·a"),
    "glu_jvp": (0, 8, "ȧ·s + y·(1 − s)·ḃ, s = σ(b): three for s, subtract, three multiplies, add"),
    "glu_backward_jvp": (0, 8, "the tangent of both gradients: three for s, about thirteen multiplies, adds and subtracts for a pair"),
    "_transform_bias_rescale_qkv": (1, 1, "queries, keys and values get their bias, queries are scaled"),
    # images read between their pixels: a sum of t taps is t multiplies and t − 1 adds, one dimension after the other
    "upsample_linear1d": (0, 3, "two multiplies, add"),
    "upsample_bilinear2d": (0, 9, "3 along each row, 3 along the column"),
    "upsample_trilinear3d": (0, 21, "a sum of two taps in each of three dimensions"),
    "upsample_bicubic2d": (0, 35, "7 along each of four rows, 7 along the column"),
    "upsample_linear1d_backward": (2 * 2, 0, "for each of 2 taps a multiply and an add"),
    "upsample_bilinear2d_backward": (4 * 3, 0, "for each of 4 taps two multiplies and an add"),
    "upsample_trilinear3d_backward": (8 * 4, 0, "for each of 8 taps three multiplies and an add"),
    "upsample_bicubic2d_backward": (16 * 3, 0, "for each of 16 taps two multiplies and an add"),
    **{f"{kind}{n}d_backward": (1, 0, "add") for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)},
    # mixed precision
    "_amp_foreach_non_finite_check_and_unscale": (2, 0, "multiply, compare (is it finite)"),
}  # fmt: skip


def _simple(name: str) -> Callable[[OpCall], Work]:
    each, last, _ = SIMPLE[name]

    def work(call: OpCall) -> Work:
        several = isinstance(call.args[0], (list, tuple))
        if (
            name in ("max", "min") and not several and len(list(tensors(call.args))) > 1
        ):  # max(x, y): element by element
            return elementwise(numel(call.outputs[0]), call.bytes())
        source = list(tensors(call.args[0]))
        results = list(tensors(call.out)) if several else call.outputs[:1]
        flops = each * sum(map(numel, source)) + last * sum(map(numel, results))
        complex_ = 2 if any(t.dtype.is_complex for t in source) else 1
        return elementwise(complex_ * flops, call.bytes())

    return work


for _name in SIMPLE:
    explains(f"aten::{_name}", f"aten::{_name}_")(_simple(_name))
explains("aten::_foreach_max")(_simple("max"))
