"""Operators without arithmetic: views, copies, fills, random numbers, sparse and quantised bookkeeping, communication."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from flopkit.counter.calls import OpCall, extent, tensors
from flopkit.counter.work import Work, free

__all__ = ["COPIES", "FILLS", "PARTS", "STILL", "formula_of", "is_view", "packs"]

# Nothing moves: memory that is only set aside, parts of a tensor that are tensors themselves. (And whatever returns no tensor: see `is_view`.)
STILL = frozenset(
    "_unsafe_view _reshape_alias detach detach_ alias lift lift_fresh resize_ resize_as_ set_ as_strided_ squeeze_ unsqueeze_ t_ "
    "transpose_ swapdims_ swapaxes_ _resize_output_ sparse_resize_ sparse_resize_and_clear_ resize_as_sparse_ empty empty_like "
    "empty_strided new_empty new_empty_strided empty_permuted empty_quantized _empty_affine_quantized "
    "_empty_per_channel_affine_quantized from_file record_stream _functional_sym_constrain_range "
    "_functional_sym_constrain_range_for_size _functional_assert_async _functional_assert_scalar _make_dep_token "
    "_nested_view_from_buffer _nested_tensor_storage_offsets _nested_tensor_size _nested_tensor_strides _nested_get_values "
    "_nested_get_offsets _nested_get_lengths _nested_get_min_seqlen _nested_get_max_seqlen _nested_get_jagged_dummy "
    "_nested_compute_contiguous_strides_offsets _coalesced _coalesced_ _indices _values values indices crow_indices col_indices "
    "ccol_indices row_indices _sparse_coo_tensor_with_dims _sparse_compressed_tensor_with_dims q_per_channel_scales "
    "q_per_channel_zero_points unsafe_split unsafe_split_with_sizes _cudnn_init_dropout_state _philox_key_split "
    "_philox_key_fold_in".split()
)  # fmt: skip

# The result is written; nothing is read, or no more than a shape. (And whatever takes no tensor, or is named for it: see `formula_of`.)
FILLS = frozenset(
    "linspace logspace fill_ zero_ fill zero uniform_ normal_ random_ random exponential_ exponential geometric_ geometric "
    "log_normal_ log_normal cauchy_ cauchy uniform _foreach_zero_ _foreach_zero _new_zeros_with_same_feature_meta _philox_normal "
    "_philox_normal_ _philox_uniform _philox_uniform_ _fill_mem_eff_dropout_mask_ normal_functional _sparse_mask_projection "
    "native_dropout_mask".split()
)  # fmt: skip

# Inputs are read, the result is written.
COPIES = frozenset(
    "clone copy copy_ to _to_copy cat concat stack _stack _chunk_cat block_diag constant_pad_nd reflection_pad1d reflection_pad2d "
    "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pad roll flip repeat repeat_interleave where masked_fill "
    "masked_fill_ tril triu tril_ triu_ diag_embed im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle _foreach_copy "
    "_foreach_copy_ _foreach_clone complex polar _lazy_clone _conj_physical conj_physical conj_physical_ lift_fresh_copy positive "
    "nonzero nonzero_static masked_select one_hot _pin_memory pin_memory slice_scatter select_scatter diagonal_scatter as_strided_scatter "
    "rot90 max_unpool2d max_unpool3d slice_backward select_backward diagonal_backward _nested_select_backward _copy_from _copy_from_and_resize "
    "copy_sparse_to_sparse copy_sparse_to_sparse_ _to_dense to_dense _to_sparse to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr "
    "_to_sparse_bsc _to_sparse_semi_structured to_mkldnn coalesce _coalesce sparse_mask _sparse_coo_tensor_unsafe sparse_coo_tensor "
    "_sparse_coo_tensor_with_dims_and_tensors _sparse_csr_tensor_unsafe _sparse_compressed_tensor_unsafe sparse_compressed_tensor "
    "_sparse_broadcast_to _sparse_sum_backward _spdiags _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo "
    "_nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list _nested_from_padded _nested_from_padded_tensor "
    "_nested_from_padded_and_nested_example nested_to_padded_tensor to_padded_tensor _padded_dense_to_jagged_forward "
    "_jagged_to_padded_dense_forward _nested_sum_backward _pack_padded_sequence _pad_packed_sequence _mkldnn_transpose _mkldnn_transpose_ _mkldnn_reshape "
    "mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight _cudnn_rnn_flatten_weight _reshape_copy set resize resize_as _resize_output "
    "resize_as_sparse sparse_resize sparse_resize_and_clear int_repr _make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor "
    "_convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight _cslt_compress _sparse_semi_structured_tile "
    "_sparse_semi_structured_apply _sparse_semi_structured_apply_dense lu_unpack _nested_get_values_copy bernoulli bernoulli_ poisson "
    "multinomial binomial normal _standard_gamma _sample_dirichlet _triton_pack".split()
)  # fmt: skip

# A part of the input is read, as much as comes out.
PARTS = frozenset("narrow_copy slice_copy select_copy diagonal_copy as_strided_copy unfold_copy diag_copy".split())

_INDUCTOR = ("_reinterpret_tensor", "resize_storage_bytes_", "_alloc_from_pool")

COMMUNICATION = (
    "c10d::",
    "_c10d_functional::",
    "_c10d_functional_autograd::",
    "c10d_functional::",
    "symm_mem::",
    "fsdp::",
    "_dtensor::",
)
_LIBRARIES = ("quantized", "_quantized", "onednn", "mkldnn", "mkldnn_prepacked", "mkl")
_BOOKKEEPING = ("prim::", "profiler::", "streams::", "rngprims::")


def is_view(func: Any, name: str) -> bool:
    """Whether the operator moves nothing at all."""
    import torch

    # equivalent: 1 -> 2 [1] (an operator's name has one pair of colons)
    short = name.rsplit("::", 1)[-1]
    if name.startswith("inductor::"):
        return short in _INDUCTOR
    if torch.Tag.inplace_view in getattr(func, "tags", ()):
        return True
    if bool(getattr(func, "is_view", False)) or not name.startswith("aten::"):
        return bool(getattr(func, "is_view", False))
    # A size, a flag, a number about a tensor, a check: by the schema, no tensor comes out and none is changed.
    schema = func._schema
    return short in STILL or not (
        short in COPIES or schema.is_mutable or any("Tensor" in str(r.type) for r in schema.returns)
    )


def formula_of(func: Any, name: str) -> Callable[[OpCall], Work] | None:
    """The formula of an operator that moves numbers and does no arithmetic; None where it is not known as one."""
    import torch

    if name.startswith(COMMUNICATION) or packs(name):
        return copied
    if name.startswith(_BOOKKEEPING):
        return lambda call: free()
    # equivalent: 1 -> 2 [1] (an operator's name has one pair of colons)
    short = name.split("::", 1)[1]
    if not name.startswith("aten::"):
        return None
    if short in FILLS or short.startswith("new_") or short.endswith("_like"):
        return filled
    if not any("Tensor" in str(argument.type) for argument in func._schema.arguments if not argument.is_out):
        return filled
    if short in PARTS:
        return parts
    if (
        short in COPIES
        or short.endswith("_copy")
        or re.fullmatch(r"_?upsample_nearest(_exact)?\dd", short)
        or torch.Tag.view_copy in getattr(func, "tags", ())
    ):
        return copied
    return None


def packs(name: str) -> bool:
    """Whether a library's operator brings a weight into its own layout, or back: once, before a program runs."""
    space, _, short = name.partition("::")
    return space in _LIBRARIES and any(
        word in short for word in ("prepack", "unpack", "_reorder_", "make_quantized_cell_params")
    )


def filled(call: OpCall) -> Work:
    """Only writes; some return nothing."""
    return free(sum(map(extent, call.outputs or call.changed()[0].values())))


def copied(call: OpCall) -> Work:
    """Reads its inputs, writes its result."""
    return free(call.bytes())


def parts(call: OpCall) -> Work:
    """Reads as much as it writes."""
    return free(2 * sum(map(extent, call.outputs)))


def changed(call: OpCall) -> list[Any]:
    """The tensors that the operator changes in place."""
    schema = call.func._schema
    found: list[Any] = []
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write and not argument.is_out:
            found += tensors(call[argument.name])
    return found
