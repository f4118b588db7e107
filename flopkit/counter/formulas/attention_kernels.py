"""The attention kernels of torch, called by themselves: compiled and exported graphs, sequences of unequal length, libraries.

`scaled_dot_product_attention` is met above the dispatcher, see `flopkit.counter.watch.attention`; these formulas are for what calls its
kernels directly. Each kernel has a layout of its own: ``_scaled_dot_product_*`` and cuDNN take (batch, heads, length, size),
``_flash_attention_*`` and ``_efficient_attention_*`` take (batch, length, heads, size), and all take (tokens, heads, size) with
cumulative lengths for sequences that lie one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.formulas.attentions import (
    KERNELS,
    Shape,
    backward_work,
    forward_work,
    in_common,
    of_lengths,
    shape_of,
    wanted,
)  # fmt: skip
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work
from flopkit.layers.attentions import SCALE_FLOPS
from flopkit.layers.normalisations import normalised
from flopkit.layers.pointwise import ACTIVATIONS, SOFTMAX_FLOPS

UNKNOWN_LENGTHS = "the lengths of the sequences have no values here: taken as unequal as their total and the longest allow"  # fmt: skip

# Which forward each backward is of. (Some of these names no operator has.)
BACKWARD = {name.removesuffix("_forward") + "_backward": name for name in KERNELS}
_PACKED = [name for name in KERNELS if "_scaled_dot_product_" not in name]
_WHOLE_LAYERS = ("aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention")
BY_VALUE = frozenset((*_PACKED, *BACKWARD, *_WHOLE_LAYERS))  # lengths are numbers in tensors


@explains(*KERNELS)
def forward(call: OpCall) -> Work:
    """Attention in one kernel."""
    return forward_work(shape_of_call(call), KERNELS[call.name])


@explains(*BACKWARD)
def backward(call: OpCall) -> Work:
    """Its gradients."""
    return backward_work(shape_of_call(call), KERNELS[BACKWARD[call.name]], wanted_of_kernel(call))


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


def shape_of_call(call: OpCall) -> Shape:
    """What a call of a kernel, or of its backward, says of itself."""
    kernel = BACKWARD.get(call.name, call.name)
    query, key, value = call["query"], call["key"], call["value"]
    mask, common = _first(call, "attn_mask", "attn_bias", "bias"), in_common(query, key, value)
    if kernel not in _PACKED:
        # The CUDA flash kernel aligns with the last key; `scaled_dot_product_attention` does not send it other calls.
        last, causal = kernel == "aten::_scaled_dot_product_flash_attention", bool(call.get("is_causal"))
        return shape_of(query, key, value, causal=causal, mask=mask, bottom_right=last, common=common)
    causal, left, right, last = _band(call)
    band: dict[str, Any] = {"causal": causal, "left": left, "right": right, "bottom_right": last, "common": common}
    starts = _first(call, "cum_seq_q", "cu_seqlens_q", "cu_seq_q")
    if starts is None or 0 in starts.shape:
        return shape_of(query, key, value, mask=mask, heads_first=kernel.startswith("aten::_cudnn"), **band)
    queries, known = lengths_from(starts, int(query.shape[-3]), _number(call, "max_q", "max_seqlen_q"))
    keys, both = _keys(call, key, len(queries))
    shape = of_lengths(
        zip(queries, keys, strict=True), heads=int(query.shape[-2]), kv_heads=int(key.shape[-2]), head_dim=int(query.shape[-1]),
        v_head_dim=int(value.shape[-1]), width=int(query.element_size()),
        mask=mask, note="" if known and both else UNKNOWN_LENGTHS, **band,
    )  # fmt: skip
    if known and both:
        return shape
    outputs = numel(query) // int(query.shape[-1]) * shape.v_head_dim
    return replace(shape, q_bytes=extent(query), k_bytes=extent(key), v_bytes=extent(value), outputs=outputs,
                   o_bytes=outputs * shape.width, unseen=0)  # fmt: skip


def _keys(call: OpCall, key: Any, batch: int) -> tuple[list[int], bool]:
    """How many keys each sequence has, and whether that is known."""
    used = _first(call, "seqused_k", "seqlen_k")
    if used is not None:  # a cache: its room is longer than what is in it
        found = _values_of(used)
        longest = _number(call, "max_k", "max_seqlen_k") or 0
        return (found, True) if found is not None else ([longest] * batch, False)
    starts = _first(call, "cum_seq_k", "cu_seqlens_k", "cu_seq_k")
    lengths, known = lengths_from(starts, int(key.shape[-3]), _number(call, "max_k", "max_seqlen_k"))
    return list(lengths), known


def _number(call: OpCall, *names: str) -> int | None:
    found = _first(call, *names)
    return int(found) if isinstance(found, int) else None


def _band(call: OpCall) -> tuple[bool, int | None, int | None, bool]:
    """What the mask is: causal, how far to the left and to the right, and whether it is aligned with the last key."""
    if call.name.startswith("aten::_efficient"):
        kind = int(call["custom_mask_type"])  # 0: none, 1: causal from the top left, 2: from the bottom right
        width = call.get("window_size")
        return kind > 0, int(width) - 1 if width else None, None, kind == 2
    both = call.get("window_size") or (call.get("window_size_left"), call.get("window_size_right"))
    left, right = (None if side is None or int(side) < 0 else int(side) for side in both)
    return bool(call["is_causal"]), left, right, not call.name.startswith("aten::_cudnn")


def _values_of(tensor: Any) -> list[int] | None:
    """The whole numbers in *tensor*; None where it has none (meta and fake tensors, tensors under a transformation)."""
    import torch

    from flopkit.counter.watch.internals import is_transformed, without_dispatch

    if tensor is None or tensor.device.type == "meta" or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if is_transformed(tensor):
        return None
    with without_dispatch():
        found = tensor.detach().tolist()
    return [int(number) for number in found]


def lengths_from(offsets: Any, total: int, longest: int | None) -> tuple[Sequence[int], bool]:
    """Lengths of sequences that lie one behind the other, of their cumulative *offsets*, and whether they are known.

    Where the numbers cannot be read (meta, fake tensors), the sequences are taken to be as unequal as their total and the longest
    allow, which counts too much rather than too little; where the longest is not said either, to be of one length.
    """
    found = _values_of(offsets)
    if found is not None:
        return [b - a for a, b in pairwise(found)], True
    batch = max(int(offsets.shape[0]) - 1, 0)
    if batch == 0:
        return [], True
    if longest and batch * int(longest) >= total:
        whole, rest = divmod(total, int(longest))
        return ([int(longest)] * whole + [rest] + [0] * batch)[:batch], batch * int(longest) == total
    each, rest = divmod(total, batch)
    return [each + (place < rest) for place in range(batch)], batch == 1


# -- whole layers of the inference fast path, projections included ------------------------------------------------
#
# Bytes are those of one operator: the tokens and every weight read once, the result written. What is between its products stays inside of
# it. The operator gets but the tensor of a mask, so every position counts, also where the layer was told that it is causal.


@explains("_native_multi_head_attention")
def multi_head_attention(call: OpCall) -> Work:
    """Three projections, the scores and values, and the projection of the output.

    Products: ``(3·tokens of q, k, v + tokens of q)·embed_dim²`` multiply-adds. Vector: their biases, scale and softmax.
    """
    lengths = [_lengths(call[name]) for name in ("query", "key", "value")]
    queries, tokens, width = sum(lengths[0]), sum(map(sum, lengths)), int(call["embed_dim"])
    macs = tokens * int(call["qkv_weight"].shape[1]) * width + queries * width * width
    # equivalent: 1 -> 2 (keys and values are as many)
    return _layer(call, macs, (tokens + queries) * width, call["query"], lengths[1])


@explains("_transformer_encoder_layer_fwd")
def encoder_layer(call: OpCall) -> Work:
    """The same, two dense layers with an activation between them, two norms and two residual sums."""
    source = call["src"]
    width, inner, tokens = int(call["embed_dim"]), int(call["ffn_weight_1"].shape[0]), sum(_lengths(source))
    activation = ACTIVATIONS["gelu" if call["use_gelu"] else "relu"].flops
    biases, norms = tokens * (5 * width + inner), 2 * normalised(tokens * width, tokens, 2)
    macs = tokens * (4 * width * width + 2 * width * inner)
    return _layer(call, macs, biases + norms + tokens * (inner * activation + 2 * width), source, _lengths(source))


def _layer(call: OpCall, macs: int, vector: int, tokens: Any, keys: list[int]) -> Work:
    """*macs* and *vector* of what is around the scores and values of *tokens* that look at *keys*."""
    queries, heads = _lengths(tokens), int(call.get("num_head") or call.get("num_heads"))
    size = int(call["embed_dim"]) // heads
    shape = of_lengths(
        zip(queries, keys, strict=True), heads=heads, kv_heads=heads, head_dim=size, v_head_dim=size,
        width=int(call["qkv_weight"].element_size()), mask=call["mask"],
    )  # fmt: skip
    pairs = shape.pairs
    if tokens.is_nested and tokens.device.type == "cpu":  # there scores run on padded tokens, projections do not
        # equivalent: 0 -> 1 (there is nothing then that it could be multiplied with)
        pairs = len(queries) * heads * max(queries, default=0) ** 2
    return Work(
        COUNTED,
        {"products": macs, **shape.split(2 * size)},
        executed={"products": macs, "scores": pairs * 2 * size},
        vector={"elementwise": vector, "softmax": pairs * (SCALE_FLOPS + SOFTMAX_FLOPS)},
        bytes=call.bytes(),
        note=shape.note,
    )


def _lengths(tokens: Any) -> list[int]:
    """Length of each sequence of (batch, length, features) tokens, nested or not."""
    if tokens.is_nested:
        return [int(size[0]) for size in tokens._nested_tensor_size().tolist()]
    return [int(tokens.shape[1])] * int(tokens.shape[0])
