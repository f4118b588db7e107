"""The attention kernels of torch, called by themselves: compiled and exported graphs, sequences of unequal length, libraries.

`scaled_dot_product_attention` is met above the dispatcher, see `flopkit.counter.watch.attention`; these formulas are for what calls its
kernels directly. Each kernel has a layout of its own: ``_scaled_dot_product_*`` and cuDNN take (batch, heads, length, size),
``_flash_attention_*`` and ``_efficient_attention_*`` take (batch, length, heads, size), and all take (tokens, heads, size) with
cumulative lengths for sequences that lie one behind the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.formulas.attention_shapes import (
    HIDDEN_MASK,
    UNKNOWN_LENGTHS,
    Shape,
    in_common,
    of_lengths,
    shape_of,
)
from flopkit.counter.formulas.attentions import KERNELS, backward_work, forward_work, wanted
from flopkit.counter.formulas.visibility import lengths_from, values_of
from flopkit.counter.registry import explains
from flopkit.counter.work import Work

__all__ = ["BACKWARD", "BY_VALUE", "part_of", "wanted_of_kernel"]

_TRAINED = ("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention",
            "aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_flash_attention_for_cpu",
            "aten::_scaled_dot_product_fused_attention_overrideable")  # fmt: skip
_DENSE = (*_TRAINED, "aten::_scaled_dot_product_attention_math_for_mps", "aten::_triton_scaled_dot_attention")
_PACKED = ("aten::_flash_attention_forward", "aten::_flash_attention_forward_no_dropout_inplace",
           "aten::_efficient_attention_forward", "aten::_cudnn_attention_forward", "torch_attn::_varlen_attn",
           "torch_attn::_varlen_attn_out")  # fmt: skip

# The backward of each kernel, and which one it is of.
BACKWARD = {
    **{f"{name}_backward": name for name in _TRAINED},
    "aten::_flash_attention_backward": "aten::_flash_attention_forward",
    "aten::_efficient_attention_backward": "aten::_efficient_attention_forward",
    "aten::_cudnn_attention_backward": "aten::_cudnn_attention_forward",
    "torch_attn::_varlen_attn_backward": "torch_attn::_varlen_attn",
}
_DENSE_BACKWARD = tuple(name for name, of in BACKWARD.items() if of in _DENSE)
_PACKED_BACKWARD = tuple(name for name, of in BACKWARD.items() if of in _PACKED)
BY_VALUE = frozenset((*_PACKED, *BACKWARD))


@explains(*_DENSE)
def dense(call: OpCall) -> Work:
    """Attention in one kernel."""
    return forward_work(_dense_shape(call), KERNELS[call.name])


@explains(*_DENSE_BACKWARD)
def dense_backward(call: OpCall) -> Work:
    """Its gradients."""
    return backward_work(_dense_shape(call), KERNELS[BACKWARD[call.name]], wanted_of_kernel(call))


@explains(*_PACKED)
def packed(call: OpCall) -> Work:
    """Attention of sequences in (length, heads, size) layout, of equal length or one behind the other."""
    return forward_work(_packed_shape(call), KERNELS[call.name])


@explains(*_PACKED_BACKWARD)
def packed_backward(call: OpCall) -> Work:
    """Its gradients."""
    return backward_work(_packed_shape(call), KERNELS[BACKWARD[call.name]], wanted_of_kernel(call))


def _first(call: OpCall, *names: str) -> Any:
    """The first of these arguments that the operator has and that was given."""
    return next((call.get(name) for name in names if call.get(name) is not None), None)


def wanted_of_kernel(call: OpCall) -> tuple[bool, ...]:
    """Which gradients a call of a fused backward is for: of q, k, v and an additive mask."""
    mask = call.get("grad_input_mask")
    if mask is not None:
        return tuple(map(bool, mask))
    found = wanted(call)
    # equivalent: 3 -> 4 (both say it of the mask)
    return (*found[:3], bool(call.get("bias_requires_grad", False)))


def part_of(shape: Shape, call: OpCall) -> Shape:
    """What *call*, of a fused backward, differentiates of a call of attention of this *shape*: the whole, as a rule.

    Under `torch.vmap` these kernels run once for each sample (torch has no batching rule for them), whichever way the forward ran.
    """
    grad = _first(call, "grad_out", "grad_out_")
    if BACKWARD[call.name] not in _DENSE or grad.is_nested or not (grad.numel() and shape.v_head_dim):
        return shape
    rows, whole = numel(grad) // int(grad.shape[-1]), shape.outputs // shape.v_head_dim
    if rows == whole or not whole:
        return shape
    # Each run reads its own tensors, in the size that the program gave them: a kernel may have had its heads padded.
    sizes = ((("query", "q"), shape.head_dim), (("key", "k"), shape.head_dim), (("value", "v"), shape.v_head_dim))
    given = [(_first(call, *names), size) for names, size in sizes]
    q, k, v = (extent(t) // int(t.shape[-1]) * size for t, size in given)
    return replace(shape.part(rows, whole), q_bytes=q, k_bytes=k, v_bytes=v)


def _dense_shape(call: OpCall) -> Shape:
    query, key, value = (_first(call, *names) for names in (("query", "q"), ("key", "k"), ("value", "v")))
    mask = _first(call, "attn_mask", "attn_bias")
    # The CUDA flash kernel aligns with the last key; `scaled_dot_product_attention` does not send it other calls.
    last = call.name.startswith("aten::_scaled_dot_product_flash_attention") and "_for_cpu" not in call.name
    return shape_of(query, key, value, causal=bool(call.get("is_causal")), mask=mask, bottom_right=last,
                    common=in_common(query, key, value))  # fmt: skip


def _packed_shape(call: OpCall) -> Shape:
    name = call.name
    query, key, value = call["query"], call["key"], call["value"]
    mask, common = _first(call, "attn_bias", "bias"), in_common(query, key, value)
    causal, left, right, last = _band(call, name)
    starts = _first(call, "cum_seq_q", "cu_seqlens_q", "cu_seq_q")
    if starts is None or 0 in starts.shape:
        return shape_of(query, key, value, causal=causal, left=left, right=right, bottom_right=last, mask=mask,
                        heads_first=name.startswith("aten::_cudnn"), common=common)  # fmt: skip
    queries, known = lengths_from(starts, int(query.shape[-3]), _number(call, "max_q", "max_seqlen_q"))
    keys, both = _keys(call, key, len(queries))
    shape = of_lengths(
        zip(queries, keys, strict=True),
        heads=int(query.shape[-2]), kv_heads=int(key.shape[-2]), head_dim=int(query.shape[-1]),
        v_head_dim=int(value.shape[-1]), width=int(query.element_size()),
        causal=causal, left=left, right=right, bottom_right=last,
        note=HIDDEN_MASK if mask is not None else "" if known and both else UNKNOWN_LENGTHS, common=common,
    )  # fmt: skip
    if known and both:
        return shape
    outputs = int(query.numel()) // int(query.shape[-1]) * shape.v_head_dim
    return replace(shape, q_bytes=extent(query), k_bytes=extent(key), v_bytes=extent(value), outputs=outputs,
                   o_bytes=outputs * shape.width, unseen=0)  # fmt: skip


def _keys(call: OpCall, key: Any, batch: int) -> tuple[list[int], bool]:
    """How many keys each sequence has, and whether that is known."""
    used = _first(call, "seqused_k", "seqlen_k")
    if used is not None:  # a cache: its room is longer than what is in it
        found = values_of(used)
        longest = _number(call, "max_k", "max_seqlen_k") or 0
        return (found, True) if found is not None else ([longest] * batch, False)
    starts = _first(call, "cum_seq_k", "cu_seqlens_k", "cu_seq_k")
    lengths, known = lengths_from(starts, int(key.shape[-3]), _number(call, "max_k", "max_seqlen_k"))
    return list(lengths), known


def _number(call: OpCall, *names: str) -> int | None:
    found = _first(call, *names)
    return int(found) if isinstance(found, int) else None


def _band(call: OpCall, name: str) -> tuple[bool, int | None, int | None, bool]:
    """What the mask is: causal, how far to the left and to the right, and whether it is aligned with the last key."""
    if name.startswith("aten::_efficient"):
        kind = int(call["custom_mask_type"])  # 0: none, 1: causal from the top left, 2: from the bottom right
        width = call.get("window_size")
        return kind > 0, int(width) - 1 if width else None, None, kind == 2
    left, right = call.get("window_size_left"), call.get("window_size_right")
    both = call.get("window_size")
    if both is not None:
        left, right = both
    left = None if left is None or int(left) < 0 else int(left)
    right = None if right is None or int(right) < 0 else int(right)
    return bool(call["is_causal"]), left, right, not name.startswith("aten::_cudnn")
