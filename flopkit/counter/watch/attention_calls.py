"""What a call of `scaled_dot_product_attention` says of itself: sizes, mask, and how many calls it stands for."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import torch

from flopkit.counter.formulas.attention_shapes import UNKNOWN_LENGTHS, Shape, in_common, of_lengths, shape_of
from flopkit.counter.formulas.visibility import lengths_from, values_of
from flopkit.counter.watch.decompose import is_wrapper
from flopkit.counter.watch.internals import has_tangents, mapped_over, ragged, transformation

__all__ = ["Said", "cast_of", "in_dtype", "read"]


class Said(NamedTuple):
    """A call: its shape, whether that is the whole of it, and the dtype that autocast turns its tensors to.

    Where it is not the whole (forward-mode gradients, tensors that are distributed), the operators inside count, and the shape
    only tells which share of their pairs is visible.
    """

    shape: Shape
    whole: bool = True
    cast: Any = None


# equivalent: 0.0 -> 1.0 (dropout is an operator of its own)
def read(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
         *rest: Any, **others: Any) -> Said | None:  # fmt: skip
    """What the arguments of attention say; None where nothing can be said, and the operators inside speak for themselves."""
    three = (query, key, value)
    plain = type(query) in _PLAIN and type(key) in _PLAIN and type(value) in _PLAIN
    if not plain and not all(isinstance(t, torch.Tensor) for t in three):
        return None
    if query.is_nested or key.is_nested or value.is_nested:
        return _nested(query, key, value, is_causal) if all(t.is_nested for t in three) else None
    if min(query.dim(), key.dim(), value.dim()) < 2:
        return None
    last = False
    if type(attn_mask).__name__ == "CausalBias":  # a mask that says what it is
        is_causal, last, attn_mask = True, attn_mask.variant.name == "LOWER_RIGHT", None
    shape = _shape(query, key, value, is_causal, last, attn_mask)
    if not plain and any(is_wrapper(type(t)) for t in three):
        return Said(shape, whole=False)
    cast = cast_of(query)
    if cast is not None:
        shape = in_dtype(shape, cast, query)
    return _transformed(shape, three, cast)


_PLAIN = (torch.Tensor, torch.nn.Parameter)
_known: dict[Any, Shape] = {}


def _shape(query: Any, key: Any, value: Any, causal: bool, last: bool, mask: Any) -> Shape:
    """The shape of a call; one that was met before is known."""
    masked = mask is not None and 0 not in mask.shape
    common = in_common(query, key, value, _same)
    sign: Any = (
        query.shape, query.stride(), query.dtype, key.shape, key.stride(), key.dtype, value.shape, value.stride(), value.dtype,
        causal, last, masked, common,
    )  # fmt: skip
    try:
        found = _known.get(sign)
    except TypeError:  # a symbolic size
        found = sign = None
    if found is None:
        found = shape_of(query, key, value, causal=causal, bottom_right=last, mask=mask, common=common)
        if sign is not None:
            # equivalent: 1024 -> 1025 (how many are remembered)
            if len(_known) >= 1024:
                _known.clear()
            _known[sign] = found
    return found


def _same(one: Any, other: Any) -> bool:
    """Whether two tensors are one, or show the same part of one storage in the same way.

    Of a subclass, and of what is transformed, only whether they are one: their storage may be none, or tell nothing of what they hold.
    """
    if one is other:
        return True
    if not all(type(t) in _PLAIN or type(t).__name__ == "FakeTensor" for t in (one, other)):
        return False
    if one.shape != other.shape or one.stride() != other.stride() or one.storage_offset() != other.storage_offset():
        return False
    try:
        return one.dtype is other.dtype and one.untyped_storage() is other.untyped_storage()
    except (NotImplementedError, RuntimeError):  # transformed: it has no storage of its own
        return False


def cast_of(tensor: Any) -> Any:
    """The dtype that autocast gives to this call; None where it leaves it as it is."""
    device = tensor.device.type
    if device == "meta" or not torch.amp.autocast_mode.is_autocast_available(device):
        return None
    if not torch.is_autocast_enabled(device) or tensor.dtype is torch.float64 or not tensor.dtype.is_floating_point:
        return None
    dtype = torch.get_autocast_dtype(device)
    return None if dtype == tensor.dtype else dtype


def in_dtype(shape: Shape, dtype: Any, tensor: Any) -> Shape:
    """The same shape in another dtype; each tensor is cast by itself, whether or not it was one with another."""
    old, new = int(tensor.element_size()), int(dtype.itemsize)
    sizes = {name: getattr(shape, name) // old * new for name in ("q_bytes", "k_bytes", "v_bytes", "o_bytes", "unseen")}
    return replace(shape, width=new, common="", dtype=str(dtype).removeprefix("torch."), **sizes)


def _transformed(shape: Shape, three: tuple[Any, ...], cast: Any) -> Said:
    """Under `torch.vmap` a call stands for as many as it is mapped over; under forward-mode gradients for more products."""
    if has_tangents():
        return Said(shape, whole=False, cast=cast)
    if transformation() is None:
        return Said(shape, cast=cast)
    q, k, v = map(mapped_over, three)
    every = {**q, **k, **v}
    if set(q) | set(k) != set(every):  # the scores are the same for all values: they are computed once
        return Said(shape, whole=False, cast=cast)
    return Said(shape.times(*(prod(sizes.values()) for sizes in (every, q, k, v))), cast=cast)


def _nested(query: Any, key: Any, value: Any, causal: bool) -> Said | None:
    """Sequences of unequal length, (batch, heads, length, size), in either layout."""
    found = [_rows(t) for t in (query, key, value)]
    if any(rows is None for rows in found):
        return None
    (q, d, heads, known), (kv, _, kv_heads, also), (_, dv, _, _) = found  # type: ignore[misc]
    shape = of_lengths(
        zip(q, kv, strict=True), heads=heads, kv_heads=kv_heads, head_dim=d, v_head_dim=dv,
        width=int(query.element_size()), causal=causal, note="" if known and also else UNKNOWN_LENGTHS,
        common=in_common(query, key, value), dtype=str(query.dtype).removeprefix("torch."),
    )  # fmt: skip
    return Said(shape)


def _rows(tensor: Any) -> tuple[list[int], int, int, bool] | None:
    """Lengths, size and heads of nested (batch, heads, length, size) tensors, and whether the lengths are known."""
    if tensor.dim() != 4:
        return None
    if tensor.layout is torch.strided:
        sizes = tensor._nested_tensor_size().tolist()
        # equivalent: 0 -> 1 [4] | 0 -> 1 [5] (there is nothing then that it could be multiplied with)
        return [int(s[1]) for s in sizes], *((int(sizes[0][2]), int(sizes[0][0])) if sizes else (0, 0)), True
    dimension, longest = ragged(tensor)
    if dimension != 2:
        return None
    size, heads = int(tensor.shape[-1]), int(tensor.shape[1])
    if tensor.lengths() is not None:  # sequences with room behind them
        found = values_of(tensor.lengths())
        return None if found is None else (found, size, heads, True)
    lengths, known = lengths_from(tensor.offsets(), int(tensor._values.shape[1]), longest)
    return list(lengths), size, heads, known
