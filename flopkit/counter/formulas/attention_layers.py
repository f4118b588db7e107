"""Whole attention layers that torch runs as one operator in its inference fast path, projections included.

Bytes are those of one operator: the tokens and every weight read once, the result written. What is between its products stays
inside of it. The operator gets but the tensor of a mask, so every position counts, also where the layer was told that it is causal.
"""

from __future__ import annotations

from typing import Any

from flopkit.counter.calls import OpCall
from flopkit.counter.formulas.attention_shapes import HIDDEN_MASK, of_lengths
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work
from flopkit.layers.attentions import SCALE_FLOPS
from flopkit.layers.normalisations import normalised
from flopkit.layers.pointwise import ACTIVATIONS, SOFTMAX_FLOPS

__all__ = ["BY_VALUE"]

BY_VALUE = frozenset(("aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"))  # nested lengths


@explains("aten::_native_multi_head_attention")
def multi_head_attention(call: OpCall) -> Work:
    """Three projections, the scores and values, and the projection of the output.

    Products: ``(3·tokens of q, k, v + tokens of q)·embed_dim²`` multiply-adds. Vector: their biases, scale and softmax.
    """
    lengths = [_lengths(call[name]) for name in ("query", "key", "value")]
    queries, tokens, width = sum(lengths[0]), sum(map(sum, lengths)), int(call["embed_dim"])
    macs = tokens * int(call["qkv_weight"].shape[1]) * width + queries * width * width
    return _layer(call, macs, (tokens + queries) * width, call["query"], lengths[1])


@explains("aten::_transformer_encoder_layer_fwd")
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
        width=int(call["qkv_weight"].element_size()), note=HIDDEN_MASK if call["mask"] is not None else "",
    )  # fmt: skip
    pairs = shape.pairs
    if (
        tokens.is_nested and tokens.device.type == "cpu"
    ):  # projections run on the tokens there are, scores on padded ones
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
