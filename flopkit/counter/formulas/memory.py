"""Operators that only move numbers: views, copies, fills, random numbers, sparse and quantised bookkeeping, communication; and those that
pick numbers from places that a tensor names, or put (or add) them there."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from math import prod
from typing import Any

from flopkit.counter.calls import OpCall, extent, numel, tensors
from flopkit.counter.formulas import collectives
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise, free
from flopkit.macs import broadcast


def _names(patterns: str) -> Callable[[str], object]:
    """Whether a name is one of *patterns*: ``*`` stands for anything, ``?`` for one character."""
    return re.compile("|".join(map(translate, patterns.split()))).match


# Nothing moves: memory is only set aside, parts of a tensor are tensors themselves, shapes of nested tensors are read.
# (And whatever is a view by its schema, or returns no tensor: see `is_view`.)
STILL = _names(
    "_unsafe_view unsafe_split* lift shallow_copy_data_ empty* _empty* new_empty* from_file record_stream _resize_output_ *resize_as_sparse_ sparse_resize*_ "
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
_BOOKKEEPING = ("prim::", "profiler::", "streams::", "rngprims::", "torchvision::_cuda_version")
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
    if name.startswith(collectives.SPACES):
        return collectives.formula_of(name)
    if name == "fsdp::all_gather_copy_in":
        return _gathered_in_place
    if space == "fsdp" or packs(name):
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


def _gathered_in_place(call: OpCall) -> Work:
    """This rank's shards go into their place in the tensor that is to be gathered; the rest of it stays as it is."""
    return free(2 * sum(map(extent, tensors(call["all_gather_inputs"]))))


def _parts(call: OpCall) -> Work:
    """Reads as much as it writes."""
    return free(2 * sum(map(extent, call.outputs)))


# -- places that a tensor names ------------------------------------------------------------------------------------

# What the arguments that say where are called.
PLACES = ("index", "indices", "mask")


def _read_places(call: OpCall) -> int:
    places = {id(t): t for name in PLACES for t in tensors(call.get(name))}
    return sum(map(extent, places.values()))


@explains("embedding index _unsafe_index index_select gather take take_along_dim masked_scatter_backward _unsafe_masked_index")  # fmt: skip
def gathered(call: OpCall) -> Work:
    """Reads as much as comes out, and the indices; the rest of the source stays where it is."""
    return free(2 * sum(map(extent, call.outputs)) + _read_places(call))


@explains("_embedding_bag _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward")
def embedding_bag(call: OpCall) -> Work:
    """Sum, mean or maximum of rows: an add or a compare for each number read, a multiplication with weights of samples, a division in a mean.

    Of the gradient of those weights a multiply and an add for each number.
    """
    weight, result = call["weight"], call.outputs[0]
    read = numel(call["indices"]) * int(weight.shape[1])
    two = "backward" in call.name or call["per_sample_weights"] is not None
    means = 0 if "backward" in call.name else numel(result) * (call["mode"] == 1)
    rest = sum(extent(t) for t in (*call.inputs, *call.outputs) if t is not weight)
    return elementwise(read * (1 + two) + means, read * weight.element_size() + rest)


_ADDING = "scatter_add index_add scatter_reduce index_reduce _unsafe_masked_index_put_accumulate".split()
_PUTTING = "scatter index_put _index_put_impl _unsafe_index_put index_copy index_fill masked_scatter put".split()


@explains(*(f"{name} {name}_" for name in (*_ADDING, *_PUTTING)))
def scattered(call: OpCall) -> Work:
    """Reads the source and the indices and writes as many numbers as are named; where it adds, reads those, too: one FLOP each.

    The form that returns a new tensor copies the old one first. A mask of bools is taken to name every place that it covers.
    """
    name = call.name.removeprefix("aten::").removesuffix("_")
    adds = name in _ADDING or bool(call.get("accumulate", False)) or call.get("reduce") is not None
    target = call["self"]
    source = next((call.get(n) for n in ("src", "source", "values", "value") if hasattr(call.get(n), "numel")), None)
    named = _named(call, name)
    copy = 0 if call.name.endswith("_") else extent(target) + sum(map(extent, call.outputs))
    moved = copy + named * target.element_size() * (1 + adds) + _read_places(call)
    if source is not None:
        moved += min(extent(source), named * source.element_size())
    scale = call.get("alpha", 1) not in (None, 1)
    return elementwise(named * (1 + scale), moved) if adds else free(moved)


def _named(call: OpCall, name: str) -> int:
    """How many numbers of the target are named."""
    target = call["self"]
    if name == "masked_scatter":
        return max(numel(call["mask"]), numel(target))
    if name == "put" or name.startswith("scatter"):
        return numel(call["index"])
    if "dim" in call.named:  # index_add, index_copy, index_fill
        rows = max(int(target.shape[int(call["dim"])]), 1) if target.dim() else 1
        return numel(target) // rows * numel(call["index"])
    # Places are broadcast against each other; a mask of bools covers as many dimensions as it has; what no index is given for is written whole.
    given = [(t, t is not None and str(t.dtype) in ("torch.bool", "torch.uint8")) for t in call["indices"]]
    rest, place = 1, 0
    for index, masks in given:
        rest *= int(target.shape[place]) if index is None else 1
        place += index.dim() if masks else 1
    rest *= prod(map(int, target.shape[place:]))
    masks_cover = prod(numel(index) for index, masks in given if masks)
    return rest * masks_cover * broadcast(*(t.shape for t, masks in given if t is not None and not masks))


@explains("embedding_dense_backward _embedding_bag_dense_backward _embedding_bag_backward")
def spread(call: OpCall) -> Work:
    """A table of zeros is written, and the gradient's rows are added to it."""
    gradient = call.gradient
    weighed = call.get("per_sample_weights") is not None or call.get("mode") == 1
    return elementwise(numel(call["indices"]) * int(gradient.shape[-1]) * (1 + weighed), call.bytes())


_TAKEN = [f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)]
_TAKEN += ["max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"]


@explains(*(f"{name}_backward" for name in _TAKEN))
def returned(call: OpCall) -> Work:
    """Each gradient is added where its number came from, inside of a border or at a maximum. The input is not read: its shape is enough."""
    gradient = call.gradient
    return elementwise(numel(gradient), extent(gradient) + _read_places(call) + sum(map(extent, call.outputs)))
