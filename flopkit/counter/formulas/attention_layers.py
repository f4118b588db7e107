"""Whole attention layers that torch runs as one operator in its inference fast path, projections included.

Bytes are those of one operator: the tokens and every weight read once, the result written. What is between its products stays
inside of it.
"""

from __future__ import annotations

import sys
from typing import Any

from flopkit.counter.calls import OpCall
from flopkit.counter.formulas.attention_shapes import HIDDEN_MASK, Shape, of_lengths
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work
from flopkit.layers.attentions import SCALE_FLOPS
from flopkit.layers.normalisations import normalised
from flopkit.layers.pointwise import ACTIVATIONS, SOFTMAX_FLOPS

__all__ = ["BY_VALUE"]

BY_VALUE = frozenset(
    ("aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention")
)  # nested lengths, a caller's word


@explains("aten::_native_multi_head_attention", "aten::_triton_multi_head_attention")
def multi_head_attention(call: OpCall) -> Work:
    """Three projections, the scores and values, and the projection of the output.

    Products: ``(3·tokens of q, k, v + tokens of q)·embed_dim²`` multiply-adds. Vector: their biases, scale and softmax.
    """
    lengths = [_lengths(call[name]) for name in ("query", "key", "value")]
    width = int(call["embed_dim"])
    tokens = [sum(each) for each in lengths]
    # equivalent: 1 -> 2 (keys and values are as long)
    shape = _core(call, lengths[0], lengths[1])
    projected = sum(tokens) + tokens[0]
    features = int(call["qkv_weight"].shape[1])
    macs = sum(tokens) * features * width + tokens[0] * width * width
    return _layer(call, macs, projected * width, shape, call["query"])


@explains("aten::_transformer_encoder_layer_fwd")
def encoder_layer(call: OpCall) -> Work:
    """The same, two dense layers with an activation between them, two norms and two residual sums."""
    lengths = _lengths(call["src"])
    width, inner = int(call["embed_dim"]), int(call["ffn_weight_1"].shape[0])
    tokens = sum(lengths)
    activation = ACTIVATIONS["gelu" if call["use_gelu"] else "relu"].flops
    macs = tokens * (4 * width * width + 2 * width * inner)
    vector = tokens * (4 * width + inner * (1 + activation) + width + 2 * width) + 2 * normalised(
        tokens * width, tokens, 2
    )
    return _layer(call, macs, vector, _core(call, lengths, lengths), call["src"])


def _layer(call: OpCall, macs: int, vector: int, shape: Shape, tokens: Any) -> Work:
    each = shape.head_dim + shape.v_head_dim
    model = {"products": macs, **shape.split(each)}
    pairs = shape.pairs
    if (
        tokens.is_nested and tokens.device.type == "cpu"
    ):  # projections run on the tokens there are, scores on padded ones
        lengths = _lengths(tokens)
        heads = int(call["embed_dim"]) // shape.head_dim
        # equivalent: 0 -> 1 (there is nothing then that it could be multiplied with)
        pairs = len(lengths) * heads * max(lengths, default=0) ** 2
    executed = {"products": macs, "scores": pairs * each}
    around = {"elementwise": vector, "softmax": pairs * (SCALE_FLOPS + SOFTMAX_FLOPS)}
    return Work(COUNTED, model, executed=executed, vector=around, bytes=call.bytes(), note=shape.note)


def _core(call: OpCall, queries: list[int], keys: list[int]) -> Shape:
    heads = int(call.get("num_head") or call.get("num_heads"))
    size = int(call["embed_dim"]) // heads
    masked = call["mask"] is not None
    causal = masked and _told_causal()
    return of_lengths(
        zip(queries, keys, strict=True), heads=heads, kv_heads=heads, head_dim=size, v_head_dim=size,
        width=int(call["qkv_weight"].element_size()), causal=causal, note=HIDDEN_MASK if masked and not causal else "",
    )  # fmt: skip


def _lengths(tokens: Any) -> list[int]:
    """Length of each sequence of (batch, length, features) tokens, nested or not."""
    if tokens.is_nested:
        return [int(size[0]) for size in tokens._nested_tensor_size().tolist()]
    return [int(tokens.shape[1])] * int(tokens.shape[0])


def _told_causal() -> bool:
    """Whether the encoder layer that called was told that its mask is the causal one: the operator itself gets but the mask."""
    # equivalent: 1 -> 2 (the frame left out is the formula's own)
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward" and code.co_filename.endswith(
            ("modules/transformer.py", "modules\\transformer.py")
        ):
            said = frame.f_locals
            if "src_key_padding_mask" in said and "src_mask" in said:
                return bool(said.get("is_causal")) and said["src_key_padding_mask"] is None
        frame = frame.f_back
    return False
