"""Operators without arithmetic: views, copies, fills, random numbers, sparse and quantised bookkeeping, communication."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from typing import Any

from flopkit.counter.calls import OpCall, extent
from flopkit.counter.work import Work, free


def _names(patterns: str) -> Callable[[str], object]:
    """Whether a name is one of *patterns*: ``*`` stands for anything, ``?`` for one character."""
    return re.compile("|".join(map(translate, patterns.split()))).match


# Nothing moves: memory is only set aside, parts of a tensor are tensors themselves, shapes of nested tensors are read.
# (And whatever is a view by its schema, or returns no tensor: see `is_view`.)
STILL = _names(
    "_unsafe_view unsafe_split* lift empty* _empty* new_empty* from_file record_stream _resize_output_ *resize_as_sparse_ sparse_resize*_ "
    "_functional_* _make_dep_token _nested_get_[!v]* _nested_tensor_size _nested_tensor_st* _nested_compute_* _coalesced* _sparse_*_tensor_with_dims "
    "q_per_channel_* _cudnn_init_dropout_state _philox_key_*"
)

# The result is written; nothing is read, or no more than a shape. (And whatever takes no tensor: see `formula_of`.)
FILLS = _names(
    "fill fill_ _fill* zero* _foreach_zero* new_* *_like _new_zeros* linspace logspace uniform* normal_* random* exponential* geometric* "
    "log_normal* cauchy* _philox_* _sparse_mask_projection"
)

# A part of the input is read, as much as comes out.
PARTS = _names("narrow_copy slice_copy select_copy diagonal_copy as_strided_copy unfold_copy")

# Inputs are read, the result is written.
COPIES = _names(
    # the numbers as they are, in other layouts, in other places
    "clone *_clone copy copy_ *_copy _foreach_copy_ _copy_from* copy_sparse_* _stack stack cat concat _chunk_cat block_diag diag_embed "
    "pad *_pad?d *_pad_nd repeat* roll rot90 flip im2col pixel_* *channel_shuffle max_unpool?d *upsample_nearest* *_scatter slice_backward "
    "select_backward diagonal_backward _pin_memory resize resize_as _resize_output set complex polar *conj_physical* "
    # chosen, drawn
    "where masked_fill* masked_select nonzero* one_hot tril* triu* bernoulli* poisson multinomial binomial normal _standard_gamma "
    "_sample_dirichlet "
    # sparse, nested, jagged and packed tensors
    "to_sparse* _to_sparse* *to_dense *coalesce sparse_*tensor* _sparse_*tensor* sparse_mask sparse_resize* resize_as_sparse _sparse_sum_backward _spdiags "
    "_convert_indices_* nested_to_padded* _nested_from_* _nested_tensor_from_* _nested_select_backward _nested_sum_backward to_padded_tensor "
    "*padded_dense_* _pack_padded_sequence _pad_packed_sequence "
    # packed weights, quantised numbers
    "to_mkldnn _mkldnn_reshape _mkldnn_transpose* mkldnn_reorder_* _cudnn_rnn_flatten_weight lu_unpack int_repr _make_per_*_tensor "
    "_convert_weight_* _dyn_quant_pack_* _cslt_compress _sparse_semi_structured_tile _sparse_semi_structured_apply*"
)

_INDUCTOR = ("_reinterpret_tensor", "resize_storage_bytes_", "_alloc_from_pool")
COMMUNICATION = ("c10d::", "_c10d_functional", "c10d_functional::", "symm_mem::", "fsdp::", "_dtensor::")
_BOOKKEEPING = ("prim::", "profiler::", "streams::", "rngprims::")
_LIBRARIES = ("quantized", "_quantized", "onednn", "mkldnn", "mkldnn_prepacked", "mkl")


def is_view(func: Any, name: str) -> bool:
    """Whether the operator moves nothing at all."""
    import torch

    space, _, short = name.partition("::")
    if space == "inductor":
        return short in _INDUCTOR
    if getattr(func, "is_view", False) or torch.Tag.inplace_view in getattr(func, "tags", ()):
        return True
    # A size, a flag, a number about a tensor, a check: by the schema, no tensor comes out and none is changed.
    schema = func._schema
    looks = not (schema.is_mutable or any("Tensor" in str(r.type) for r in schema.returns))
    return space == "aten" and bool(STILL(short) or (looks and not COPIES(short)))


def formula_of(func: Any, name: str) -> Callable[[OpCall], Work] | None:
    """The formula of an operator that moves numbers and does no arithmetic; None where it is not known as one."""
    import torch

    space, _, short = name.partition("::")
    if name.startswith(COMMUNICATION) or packs(name):
        return _copied
    if name.startswith(_BOOKKEEPING):
        return lambda call: free()
    if space != "aten":
        return None
    takes = any("Tensor" in str(argument.type) for argument in func._schema.arguments if not argument.is_out)
    if FILLS(short) or not takes:
        return _filled
    if PARTS(short):
        return _parts
    return _copied if COPIES(short) or torch.Tag.view_copy in getattr(func, "tags", ()) else None


def packs(name: str) -> bool:
    """Whether a library's operator brings a weight into its own layout, or back: once, before a program runs."""
    space, _, short = name.partition("::")
    return space in _LIBRARIES and re.search("prepack|unpack|_reorder_|make_quantized_cell_params", short) is not None


def _filled(call: OpCall) -> Work:
    """Only writes; some return nothing."""
    return free(sum(map(extent, call.outputs or call.changed()[0].values())))


def _copied(call: OpCall) -> Work:
    """Reads its inputs, writes its result."""
    return free(call.bytes())


def _parts(call: OpCall) -> Work:
    """Reads as much as it writes."""
    return free(2 * sum(map(extent, call.outputs)))
