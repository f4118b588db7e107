"""Attention as one piece of work: the `Shape` of a call, and what each kernel does with a call of that shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flopkit.counter.calls import OpCall, extent
from flopkit.counter.work import COUNTED, Work
from flopkit.layers.attentions import SCALE_FLOPS, SOFTMAX_KIND
from flopkit.layers.pointwise import SOFTMAX_FLOPS
from flopkit.macs import band_keys, band_pairs, broadcast
from flopkit.training.backward import FLASH_SOFTMAX, ROW_SUM, SCORES_AGAIN, THROUGH_SOFTMAX

# What could not be known of a mask: nothing that matters where every position counts anyway.
HIDDEN_MASK = "the mask is in a tensor: every position counts as visible"
ADDED_MASK = "attn_mask adds numbers to the scores, a bias or a mask: every position counts as visible"
UNSEEN_BLOCKS = "the block mask has no values here: every position counts as visible"
MANY_BLOCKS = "the block mask is too large to look at pair by pair: whole blocks count as visible"
ABOUT_MASKS = frozenset((HIDDEN_MASK, ADDED_MASK, UNSEEN_BLOCKS, MANY_BLOCKS))

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


# -- sizes, which pairs of queries and keys see each other, what is read ------------------------------------------


@dataclass(frozen=True)
class Shape:
    """The size of one call of attention, all heads and sequences together."""

    pairs: int  # positions of the score matrices
    visible: int  # those that the mask lets through
    head_dim: int  # size of a key
    v_head_dim: int  # size of a value
    q_bytes: int
    k_bytes: int  # of keys and values, those that a window lets any query see
    v_bytes: int
    o_bytes: int
    outputs: int  # numbers of the output
    width: int  # bytes of a score
    unseen: int  # bytes of keys and values that no query sees: not read, but their gradients, zeros, are written
    hides: bool = False  # whether the program says that some pairs are hidden
    note: str = ""  # what could not be known
    computed: int | None = None  # pairs that a kernel computes which skips what is hidden; None: the visible ones
    common: str = ""  # which of q, k and v are one tensor ("kv", "qkv"): a kernel reads it once
    dtype: str = ""  # number format of q, k and v, by torch's name

    def split(self, each: float, shown: int | None = None) -> dict[str, float]:
        """*each* for every pair, by what the mask says of it, or as if it let *shown* of them through."""
        shown = self.visible if shown is None else shown
        hidden = {"hidden": (self.pairs - shown) * each} if self.hides else {}
        return {"scores": shown * each, **hidden}

    def run(self, each: float) -> dict[str, float]:
        """The same, of what a fused kernel computes: where it skips whole blocks only, the rest of a block is computed, too."""
        return self.split(each, self.computed)

    def all(self, each: float) -> dict[str, float]:
        """*each* for every pair, none of them skipped."""
        return {"scores": self.pairs * each}

    def read(self) -> int:
        """Bytes that one kernel reads of q, k and v: what two of them have in common once."""
        k, v = self.k_bytes * ("qk" not in self.common), self.v_bytes * ("v" not in self.common)
        return self.q_bytes + k + v


def _note_of(mask: Any) -> str:
    """What is not known of a mask that comes in a tensor, if there is one."""
    if mask is None or 0 in mask.shape:
        return ""
    return HIDDEN_MASK if str(mask.dtype) == "torch.bool" else ADDED_MASK


def in_common(q: Any, k: Any, v: Any) -> str:
    """Which of the three are one tensor: "qkv", "qk", "kv", "qv", or none of them."""
    if q is k:
        return "qkv" if k is v else "qk"
    return "kv" if k is v else "qv" if q is v else ""


def shape_of(q: Any, k: Any, v: Any, *, causal: bool = False, mask: Any = None, heads_first: bool = True,
             left: int | None = None, right: int | None = None, bottom_right: bool = False, common: str = "") -> Shape:  # fmt: skip
    """The `Shape` of a call with (batch, heads, length, size) tensors, or (batch, length, heads, size).

    Keys and values may have fewer heads (each then serves several query heads) or sizes of 1 that are broadcast. *causal* is
    aligned with the first key as in `scaled_dot_product_attention`, or *bottom_right* with the last.
    """
    length, head = (-2, -3) if heads_first else (-3, -2)
    queries, keys = int(q.shape[length]), int(k.shape[length])
    d, dv, width = int(q.shape[-1]), int(v.shape[-1]), int(q.element_size())
    rows = broadcast(*((*t.shape[:-3], *((t.shape[head],) if t.dim() > 2 else ())) for t in (q, k, v)))
    right = 0 if causal else right
    band = (queries, keys, left, right, keys - queries if bottom_right else 0)
    share = band_keys(*band) if left is not None else keys
    k_bytes, v_bytes = (extent(t) * share // keys if keys else 0 for t in (k, v))
    return Shape(
        pairs=rows * queries * keys, visible=rows * band_pairs(*band), head_dim=d, v_head_dim=dv,
        q_bytes=extent(q), k_bytes=k_bytes, v_bytes=v_bytes, unseen=extent(k) + extent(v) - k_bytes - v_bytes,
        outputs=rows * queries * dv, o_bytes=rows * queries * dv * width, width=width,
        hides=left is not None or right is not None, note=_note_of(mask),
        common=common, dtype=str(q.dtype).removeprefix("torch."),
    )  # fmt: skip


def of_lengths(
    lengths: Iterable[tuple[int, int]], *, heads: int, kv_heads: int, head_dim: int, v_head_dim: int, width: int,
    causal: bool = False, left: int | None = None, right: int | None = None, bottom_right: bool = False, mask: Any = None,
    note: str = "", common: str = "", dtype: str = "",
) -> Shape:  # fmt: skip
    """The `Shape` of sequences of unequal length: (queries, keys) of each."""
    right = 0 if causal else right
    pairs = visible = queries = rows = keys = 0
    for q, kv in lengths:
        band = (q, kv, left, right, kv - q if bottom_right else 0)
        pairs += q * kv
        visible += band_pairs(*band)
        queries += q
        keys += kv
        rows += band_keys(*band) if left is not None else kv
    outputs, kv_width = queries * heads * v_head_dim, kv_heads * width
    return Shape(
        pairs=heads * pairs, visible=heads * visible, head_dim=head_dim, v_head_dim=v_head_dim,
        q_bytes=queries * heads * head_dim * width, k_bytes=rows * kv_width * head_dim, v_bytes=rows * kv_width * v_head_dim,
        unseen=(keys - rows) * kv_width * (head_dim + v_head_dim), outputs=outputs, o_bytes=outputs * width, width=width,
        hides=left is not None or right is not None, note=_note_of(mask) or note, common=common, dtype=dtype,
    )  # fmt: skip


# -- what a kernel does -------------------------------------------------------------------------------------------


def _softmax_of(pairs: Mapping[str, float]) -> dict[str, float]:
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
        vector=_softmax_of(shape.all(vector) if math else shape.run(vector)),
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
        vector = _softmax_of(shape.all(inner * THROUGH_SOFTMAX))
        return replace(work, executed=shape.all(products), vector=vector, bytes=moved)
    twice = kernel.startswith("flex")
    gradients = shape.q_bytes + shape.k_bytes + shape.v_bytes + shape.unseen
    return replace(
        work,
        executed=shape.run(2 * d + 2 * dv),
        recomputed=shape.run(d + twice * (d + dv)),
        vector={**_softmax_of(shape.run(FLASH_SOFTMAX)), "elementwise": ROW_SUM * shape.outputs},
        vector_recomputed=_softmax_of(shape.run(SCORES_AGAIN + twice * (SCORES_AGAIN + FLASH_SOFTMAX))),
        bytes=shape.read() + 2 * shape.o_bytes + gradients,  # o_bytes: the output and its gradient are read
    )


# -- which gradients are needed, where one kernel computes more than were asked for -------------------------------


def wanted(call: OpCall) -> tuple[bool, ...]:
    """Which of q, k, v (and what comes behind) autograd needs a gradient of, in the backward pass that is running."""
    inputs = 3 if call.node is None else len(call.node.next_functions)
    return asked(call.node, min(max(inputs, 3), 4))


def asked(node: Any, count: int) -> tuple[bool, ...]:
    """Which of the first *count* inputs autograd needs a gradient of, for the node that is running; all where none is known."""
    if node is None:
        return (True,) * count
    answers = [follower is not None and _runs(follower) for follower, _ in node.next_functions[:count]]
    answers += [True] * (count - len(answers))
    return tuple(answers) if any(answers) else (True,) * count


def _runs(follower: Any) -> bool:
    from flopkit.counter.watch.autograd import will_run

    try:
        return bool(will_run(follower))
    except RuntimeError:  # a leaf, in autograd.grad: asked for
        return True
