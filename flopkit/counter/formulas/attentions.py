"""Attention that is one operator: what each kernel does with a call of a `Shape`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flopkit.counter.calls import OpCall
from flopkit.counter.formulas.attention_shapes import Shape
from flopkit.counter.formulas.gradients import asked
from flopkit.counter.work import COUNTED, Work
from flopkit.layers.attentions import SCALE_FLOPS, SOFTMAX_KIND
from flopkit.layers.pointwise import SOFTMAX_FLOPS
from flopkit.training.backward import FLASH_SOFTMAX, ROW_SUM, SCORES_AGAIN, THROUGH_SOFTMAX

__all__ = ["KERNELS", "backward_work", "forward_work", "split_of", "wanted"]

# What torch names its kernels. A name that begins with "math" moves the scores.
KERNELS: Mapping[str, str] = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash (CPU)",
    "aten::_scaled_dot_product_fused_attention_overrideable": "fused",
    "aten::_scaled_dot_product_attention_math_for_mps": "math (MPS)",
    "aten::_flash_attention_forward": "flash",
    "aten::_flash_attention_forward_no_dropout_inplace": "flash",
    "aten::_efficient_attention_forward": "efficient",
    "aten::_cudnn_attention_forward": "cudnn",
    "torch_attn::_varlen_attn": "flash",
    "torch_attn::_varlen_attn_out": "flash",
}


def softmax_of(pairs: Mapping[str, float]) -> dict[str, float]:
    """Element-wise work of pairs, under the kinds that it has."""
    return {SOFTMAX_KIND[kind]: n for kind, n in pairs.items()}


def split_of(macs: Mapping[str, float], shape: Shape) -> dict[str, float]:
    """Products inside of a call of this shape, by what its mask says of their pairs."""
    whole = sum(macs.values())
    visible = int(whole) * shape.visible // shape.pairs if shape.pairs else 0
    return {"scores": visible, **({"hidden": whole - visible} if shape.hides else {})}


def forward_work(shape: Shape, kernel: str) -> Work:
    """Scores and values: (head_dim + v_head_dim) multiply-adds a pair. ``"math"`` computes hidden pairs, too, and moves the scores."""
    each, vector = shape.head_dim + shape.v_head_dim, SCALE_FLOPS + SOFTMAX_FLOPS
    math = kernel.startswith("math")
    if math:  # the values are read by a product of their own
        shape = replace(shape, common=shape.common.rstrip("v"))
    return Work(
        COUNTED,
        model=shape.split(each),
        executed=shape.all(each) if math else shape.run(each) if shape.computed is not None else None,
        vector=softmax_of(shape.all(vector) if math else shape.run(vector)),
        bytes=shape.read() + shape.o_bytes + (4 * shape.pairs * shape.width if math else 0),
        kernel=kernel,
        note=shape.note,
        dtype=shape.dtype,
    )


def backward_work(shape: Shape, kernel: str, wanted: tuple[bool, ...] = (True, True, True)) -> Work:
    """The gradients of values (v_head_dim a pair), probabilities (v_head_dim), queries and keys (head_dim each).

    A fused kernel computes all of them and, before, the scores once more (head_dim): that is ``recomputed``. FlexAttention's goes over
    the blocks twice, for the queries' gradient and for the keys' and values': it makes the scores and the probabilities' gradient in
    both (torch/_inductor/kernel/flex/templates/flex_backwards.py.jinja: seven products). What the mathematics asks for follows
    *wanted*: which of q, k, v (and an additive mask) need a gradient; ``"math"`` computes just that.
    """
    d, dv = shape.head_dim, shape.v_head_dim
    q, k, v, *bias = wanted
    inner = q or k or any(bias)
    products = dv * v + dv * inner + d * q + d * k
    work = Work(COUNTED, model=shape.split(products), kernel=kernel, note=shape.note, dtype=shape.dtype)
    if kernel.startswith("math"):
        # Values: probabilities and the output's gradient in, one out. Probabilities: that gradient and the values in, theirs out;
        # softmax: two read, one written. Queries and keys: the scores' gradient and the other of them in, one out.
        scores = shape.pairs * shape.width
        moved = v * (scores + shape.o_bytes + shape.v_bytes) + inner * (shape.o_bytes + shape.v_bytes + 4 * scores)
        moved += (q + k) * (scores + shape.q_bytes + shape.k_bytes)
        vector = softmax_of(shape.all(inner * THROUGH_SOFTMAX))
        return replace(work, executed=shape.all(products), vector=vector, bytes=moved)
    twice = kernel.startswith("flex")
    gradients = shape.q_bytes + shape.k_bytes + shape.v_bytes + shape.unseen
    return replace(
        work,
        executed=shape.run(2 * d + 2 * dv),
        recomputed=shape.run(d + twice * (d + dv)),
        vector={**softmax_of(shape.run(FLASH_SOFTMAX)), "elementwise": ROW_SUM * shape.outputs},
        vector_recomputed=softmax_of(shape.run(SCORES_AGAIN + twice * (SCORES_AGAIN + FLASH_SOFTMAX))),
        bytes=shape.read() + 2 * shape.o_bytes + gradients,  # o_bytes: the output and its gradient are read
    )


def wanted(call: OpCall) -> tuple[bool, ...]:
    """Which of q, k, v (and what comes behind) autograd needs a gradient of, in the backward pass that is running."""
    inputs = 3 if call.node is None else len(call.node.next_functions)
    return asked(call.node, min(max(inputs, 3), 4))
