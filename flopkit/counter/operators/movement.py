"""Operators without arithmetic: views, copies, gathers, fills, random numbers, communication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.counter.calls import Call, extent
from flopkit.counter.work import Work, free

__all__ = ["formula_of", "is_view"]

# Nothing moves: names, flags, memory that is only set aside.
STILL = frozenset(
    "_unsafe_view _reshape_alias detach alias lift_fresh _has_compatible_shallow_copy_type is_same_size resize_ set_ "
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted record_stream _assert_async _assert_scalar "
    "_assert_tensor_metadata is_pinned _local_scalar_dense item size stride numel storage_offset sym_size sym_numel sym_stride "
    "sym_storage_offset sym_constrain_range sym_constrain_range_for_size _fused_sdp_choice equal is_nonzero "
    "_nested_view_from_buffer _nested_tensor_storage_offsets _nested_tensor_size _nested_tensor_strides _nested_get_values "
    "_nested_get_offsets _nested_get_lengths _nested_get_ragged_idx _nested_get_min_seqlen _nested_get_max_seqlen "
    "_coalesced_ _indices _values values indices crow_indices col_indices ccol_indices row_indices _nnz _dimI _dimV dense_dim "
    "sparse_dim is_coalesced _version _debug_has_internal_overlap dim layout".split()
)

# The result is written; nothing else is read than it holds.
WRITTEN = frozenset(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange linspace logspace eye scalar_tensor rand randn "
    "randint randperm rand_like randn_like randint_like normal uniform fill_ zero_ uniform_ normal_ random_ bernoulli_ exponential_ "
    "geometric_ log_normal_ cauchy_ tril_indices triu_indices _efficientzerotensor complex_zeros hann_window hamming_window "
    "multinomial bernoulli poisson native_dropout_mask _foreach_zero_ fill zero".split()
)

# Inputs are read, the result is written.
COPIED = frozenset(
    "clone copy copy_ _to_copy cat stack constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
    "replication_pad2d replication_pad3d pad roll flip repeat repeat_interleave where masked_fill masked_fill_ tril triu tril_ triu_ "
    "diag_embed im2col col2im pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle _foreach_copy_ complex polar "
    "view_copy slice_copy expand_copy permute_copy _conj_physical conj_physical lift_fresh_copy split_with_sizes_copy unfold_copy "
    "slice_scatter select_scatter diagonal_scatter as_strided_scatter nonzero masked_select unique_dim _unique2 unique_consecutive "
    "bucketize searchsorted one_hot _pin_memory _to_dense to_dense _to_sparse _to_sparse_csr to_mkldnn to_sparse coalesce _coalesce "
    "sparse_coo_tensor _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors _sparse_csr_tensor_unsafe "
    "_sparse_compressed_tensor_unsafe sparse_mask quantize_per_tensor nonzero_static rot90 tensor_split_copy max_unpool2d "
    "max_unpool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d positive "
    "_nested_tensor_from_mask _nested_tensor_from_tensor_list nested_to_padded_tensor _padded_dense_to_jagged_forward "
    "_jagged_to_padded_dense_forward _nested_from_padded _nested_from_padded_and_nested_example split_copy "
    "unbind_copy linalg_diagonal_copy _foreach_clone fold unfold_backward slice_backward select_backward "
    "diagonal_backward".split()
)

# As much is read as comes out; the indices are read; the rest of the source stays where it is.
GATHERED = frozenset(
    "embedding index index_select gather take take_along_dim _unsafe_index embedding_renorm_ _index_put_impl_get".split()
)

# The rows that are named are written (and read, where they are added to).
SCATTERED = frozenset(
    "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_put index_put_ _index_put_impl_ _unsafe_index_put "
    "index_add index_add_ index_copy index_copy_ index_fill index_fill_ masked_scatter masked_scatter_ put put_".split()
)

# The gradient of a gather: a whole table is written, the rows that were named are added to.
SPREAD = frozenset(
    "embedding_dense_backward gather_backward index_select_backward max_pool2d_with_indices_backward".split()
)

COMMUNICATION = ("c10d::", "_c10d_functional::", "c10d_functional::", "symm_mem::", "fsdp::", "_dtensor::")


def is_view(func: Any, name: str) -> bool:
    """Whether the operator moves nothing at all."""
    return bool(getattr(func, "is_view", False)) or name.rsplit("::", 1)[-1] in STILL


def formula_of(func: Any, name: str) -> Callable[[Call], Work] | None:
    """The formula of an operator that moves numbers and does no arithmetic; None where it is not known as one."""
    if name.startswith(COMMUNICATION):
        return _copied
    if name.startswith(("prim::", "profiler::")):
        return lambda call: free()
    if not name.startswith(("aten::", "prims::")):
        return None
    short = name.split("::", 1)[1]
    if short in WRITTEN:
        return _written
    if short in COPIED:
        return _copied
    if short in GATHERED:
        return _gathered
    if short in SCATTERED:
        return _scattered
    if short in SPREAD:
        return _spread
    return None


def _written(call: Call) -> Work:
    return free(sum(map(extent, call.outputs or call.inputs[:1])))


def _copied(call: Call) -> Work:
    return free(call.bytes())


def _gathered(call: Call) -> Work:
    indices = sum(extent(t) for t in call.inputs[1:] if not t.dtype.is_floating_point)
    return free(2 * sum(map(extent, call.outputs)) + indices)


def _scattered(call: Call) -> Work:
    # The source and the indices are read; as many numbers as the source has are written.
    rest = call.inputs[1:]
    source = sum(extent(t) for t in rest if t.dtype == call.inputs[0].dtype)
    return free(sum(map(extent, rest)) + source)


def _spread(call: Call) -> Work:
    return free(call.bytes())
