"""Attention that is one operator: what is known of its shapes, and what each kernel does with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flopkit.counter.calls import Call, extent
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work
from flopkit.layers.attentions import SCALE_FLOPS
from flopkit.layers.pointwise import SOFTMAX_FLOPS

__all__ = ["BY_VALUE", "KERNELS", "Shape", "backward_work", "forward_work", "shape_of", "top_left_pairs", "wanted"]

# Element-wise FLOPs of a pair in the backward pass of a fused kernel.
AGAIN_FLOPS = 3  # the probability once more: scale, subtract, exponential
GRADIENT_FLOPS = 3  # of the score: subtract, multiply, scale
HIDDEN_MASK = "the mask is in a tensor: every position counts as visible"

# What torch names its kernels.
KERNELS: Mapping[str, str] = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash (CPU)",
    "aten::_scaled_dot_product_fused_attention_overrideable": "fused",
    "aten::_flash_attention_forward": "flash",
    "aten::_efficient_attention_forward": "efficient",
    "aten::_cudnn_attention_forward": "cudnn",
}


@dataclass(frozen=True)
class Shape:
    """The size of one call of attention, all heads and sequences together.

    Parameters
    ----------
    pairs, visible : positions of the score matrices, and those that the mask lets through.
    head_dim, v_head_dim : of a key, of a value.
    q_bytes, k_bytes, v_bytes, o_bytes : of the tensors.
    outputs : numbers of the output.
    width : bytes of a score.
    hides : whether the program says that some pairs are hidden.
    note : what could not be known.
    """

    pairs: int
    visible: int
    head_dim: int
    v_head_dim: int
    q_bytes: int
    k_bytes: int
    v_bytes: int
    o_bytes: int
    outputs: int
    width: int
    hides: bool = False
    note: str = ""

    def split(self, each: float) -> dict[str, float]:
        """*each* for every pair, by what the mask says of it."""
        hidden = {"hidden": (self.pairs - self.visible) * each} if self.hides else {}
        return {"scores": self.visible * each, **hidden}

    def all(self, each: float) -> dict[str, float]:
        """*each* for every pair, none of them skipped."""
        return {"scores": self.pairs * each}


def top_left_pairs(q: int, kv: int) -> int:
    """Pairs that torch's ``is_causal`` lets through: query i sees keys 0 to i.

    >>> top_left_pairs(3, 5), top_left_pairs(5, 3)
    (6, 12)
    """
    short = min(q, kv)
    return short * (short + 1) // 2 + max(q - kv, 0) * kv


def shape_of(q: Any, k: Any, v: Any, *, causal: bool, mask: Any = None, heads_first: bool = True) -> Shape:
    """The `Shape` of a call with (batch, heads, length, size) tensors, or (batch, length, heads, size)."""
    length, head = (-2, -3) if heads_first else (-3, -2)
    queries, keys = int(q.shape[length]), int(k.shape[length])
    rows = 1
    for size in q.shape[:-3]:
        rows *= int(size)
    heads = int(q.shape[head]) if q.dim() > 2 else 1
    rows *= heads
    d, dv = int(q.shape[-1]), int(v.shape[-1])
    pairs = rows * queries * keys
    width = int(q.element_size())
    outputs = rows * queries * dv
    return Shape(
        pairs=pairs,
        visible=rows * top_left_pairs(queries, keys) if causal else pairs,
        head_dim=d,
        v_head_dim=dv,
        q_bytes=extent(q),
        k_bytes=extent(k),
        v_bytes=extent(v),
        o_bytes=outputs * width,
        outputs=outputs,
        width=width,
        hides=bool(causal),
        note=HIDDEN_MASK if mask is not None else "",
    )


def forward_work(shape: Shape, kernel: str) -> Work:
    """Scores and values: (head_dim + v_head_dim) multiply-adds a pair. ``"math"`` computes hidden pairs, too, and moves the scores."""
    each = shape.head_dim + shape.v_head_dim
    moved = shape.q_bytes + shape.k_bytes + shape.v_bytes + shape.o_bytes
    math = kernel.startswith("math")
    vector = SCALE_FLOPS + SOFTMAX_FLOPS
    return Work(
        COUNTED,
        model=shape.split(each),
        executed=shape.all(each) if math else None,
        vector=shape.all(vector) if math else shape.split(vector),
        bytes=moved + (4 * shape.pairs * shape.width if math else 0),
        kernel=kernel,
        note=shape.note,
    )


def backward_work(shape: Shape, kernel: str, wanted: tuple[bool, bool, bool] = (True, True, True)) -> Work:
    """The gradients of values (v_head_dim a pair), probabilities (v_head_dim), queries and keys (head_dim each).

    A fused kernel computes all of them and, before, the scores once more (head_dim): that is ``again``. What the mathematics asks
    for follows *wanted*: which of q, k, v need a gradient.
    """
    d, dv = shape.head_dim, shape.v_head_dim
    q, k, v = wanted
    asked = dv * v + dv * (q or k) + d * q + d * k
    inputs = shape.q_bytes + shape.k_bytes + shape.v_bytes
    math = kernel.startswith("math")
    rowsum = 2 * shape.outputs
    split = shape.all if math else shape.split
    vector = split(GRADIENT_FLOPS)
    vector["scores"] += rowsum
    # Read q, k, v, the output's gradient (and the output); write three gradients. Math: probabilities read for the gradient of
    # the values, their gradient written, both read and the scores' gradient written by softmax, that one read for q and for k.
    moved = 2 * inputs + shape.o_bytes * (1 if math else 2) + (7 * shape.pairs * shape.width if math else 0)
    return Work(
        COUNTED,
        model=shape.split(asked),
        executed=split(asked) if math else shape.split(2 * d + 2 * dv),
        again={} if math else shape.split(d),
        vector=vector,
        vector_again={} if math else split(AGAIN_FLOPS),
        bytes=moved,
        kernel=kernel,
        note=shape.note,
    )


def wanted(call: Call) -> tuple[bool, bool, bool]:
    """Which of q, k and v autograd needs a gradient of, in the backward pass that is running."""
    import torch

    if call.node is None:
        return (True, True, True)
    answers = []
    for follower, _ in call.node.next_functions[:3]:
        if follower is None:
            answers.append(False)
            continue
        try:
            answers.append(bool(torch._C._will_engine_execute_node(follower)))
        except RuntimeError:  # a leaf, in autograd.grad: asked for
            answers.append(True)
    answers += [True] * (3 - len(answers))
    if not any(answers):
        return (True, True, True)
    return (answers[0], answers[1], answers[2])


FORWARD = ("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention",
           "aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_flash_attention_for_cpu",
           "aten::_scaled_dot_product_fused_attention_overrideable")  # fmt: skip
BACKWARD = tuple(f"{name}_backward" for name in FORWARD)
BY_VALUE = frozenset(BACKWARD)


@explains(*FORWARD)
def fused(call: Call) -> Work:
    """Attention in one kernel, called without `scaled_dot_product_attention` in sight (compiled graphs, TorchScript)."""
    mask = call.get("attn_mask") if call.get("attn_mask") is not None else call.get("attn_bias")
    shape = shape_of(call["query"], call["key"], call["value"], causal=call["is_causal"], mask=mask)
    return forward_work(shape, KERNELS[_name(call)])


@explains(*BACKWARD)
def fused_backward(call: Call) -> Work:
    """Its gradients."""
    mask = call.get("attn_mask") if call.get("attn_mask") is not None else call.get("attn_bias")
    shape = shape_of(call["query"], call["key"], call["value"], causal=call["is_causal"], mask=mask)
    return backward_work(shape, KERNELS[_name(call).removesuffix("_backward")], wanted(call))


def _name(call: Call) -> str:
    return str(call.func._schema.name)
