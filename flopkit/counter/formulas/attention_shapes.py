"""What is known of a call of attention: its sizes, which pairs of queries and keys see each other, and what it reads."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from flopkit.counter.calls import extent
from flopkit.counter.formulas.indexing import broadcast
from flopkit.counter.formulas.visibility import band_pairs, visible_rows

__all__ = ["HIDDEN_MASK", "UNKNOWN_LENGTHS", "Shape", "in_common", "of_lengths", "shape_of"]

HIDDEN_MASK = "the mask is in a tensor: every position counts as visible"
UNKNOWN_LENGTHS = (
    "the lengths of the sequences have no values here: taken as unequal as their total and the longest allow"
)


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
    hides: bool = False  # whether the program says that some pairs are hidden
    note: str = ""  # what could not be known
    computed: int | None = None  # pairs that a kernel computes which skips what is hidden; None: the visible ones
    unseen: int = 0  # bytes of keys and values that no query sees: not read, but their gradients, zeros, are written
    common: str = ""  # which of q, k and v are one tensor ("kv", "qkv"): a kernel reads it once
    dtype: str = ""  # number format of q, k and v, by torch's name

    def split(self, each: float) -> dict[str, float]:
        """*each* for every pair, by what the mask says of it."""
        return self._split(each, self.visible)

    def run(self, each: float) -> dict[str, float]:
        """The same, of what a fused kernel computes: where it skips whole blocks only, the rest of a block is computed, too."""
        return self._split(each, self.visible if self.computed is None else self.computed)

    def all(self, each: float) -> dict[str, float]:
        """*each* for every pair, none of them skipped."""
        return {"scores": self.pairs * each}

    def _split(self, each: float, shown: int) -> dict[str, float]:
        hidden = {"hidden": (self.pairs - shown) * each} if self.hides else {}
        return {"scores": shown * each, **hidden}

    def read(self) -> int:
        """Bytes that one kernel reads of q, k and v: what two of them have in common once."""
        k, v = self.k_bytes * ("qk" not in self.common), self.v_bytes * ("v" not in self.common)
        return self.q_bytes + k + v

    def times(self, n: int, q: int, k: int, v: int) -> Shape:
        """*n* such calls at once, for which *q*, *k* and *v* of the tensors are read."""
        return replace(
            self.part(n, 1), q_bytes=q * self.q_bytes, k_bytes=k * self.k_bytes, v_bytes=v * self.v_bytes, unseen=k * self.unseen
        )  # fmt: skip

    def part(self, rows: int, whole: int) -> Shape:
        """The share that *rows* of the output are of the *whole*; what is read of keys and values is for the caller to say."""
        return replace(
            self, pairs=self.pairs * rows // whole, visible=self.visible * rows // whole,
            outputs=self.outputs * rows // whole, o_bytes=self.o_bytes * rows // whole,
            computed=None if self.computed is None else self.computed * rows // whole,
        )  # fmt: skip


def in_common(q: Any, k: Any, v: Any, same: Callable[[Any, Any], bool] = operator.is_) -> str:
    """Which of the three are one tensor: "qkv", "qk", "kv", "qv", or none of them.

    >>> in_common("x", "y", "y")
    'kv'
    """
    if same(q, k):
        return "qkv" if same(k, v) else "qk"
    return "kv" if same(k, v) else "qv" if same(q, v) else ""


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
    share = visible_rows(*band) if left is not None else keys
    k_bytes, v_bytes = (extent(t) * share // keys if keys else 0 for t in (k, v))
    return Shape(
        pairs=rows * queries * keys, visible=rows * band_pairs(*band), head_dim=d, v_head_dim=dv,
        q_bytes=extent(q), k_bytes=k_bytes, v_bytes=v_bytes, unseen=extent(k) + extent(v) - k_bytes - v_bytes,
        outputs=rows * queries * dv, o_bytes=rows * queries * dv * width, width=width,
        hides=left is not None or right is not None, note=HIDDEN_MASK if mask is not None and 0 not in mask.shape else "",
        common=common, dtype=str(q.dtype).removeprefix("torch."),
    )  # fmt: skip


def of_lengths(
    lengths: Iterable[tuple[int, int]], *, heads: int, kv_heads: int, head_dim: int, v_head_dim: int, width: int,
    causal: bool = False, left: int | None = None, right: int | None = None, bottom_right: bool = False, note: str = "",
    common: str = "", dtype: str = "",
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
        rows += visible_rows(*band) if left is not None else kv
    outputs, kv_width = queries * heads * v_head_dim, kv_heads * width
    return Shape(
        pairs=heads * pairs, visible=heads * visible, head_dim=head_dim, v_head_dim=v_head_dim,
        q_bytes=queries * heads * head_dim * width, k_bytes=rows * kv_width * head_dim, v_bytes=rows * kv_width * v_head_dim,
        unseen=(keys - rows) * kv_width * (head_dim + v_head_dim), outputs=outputs, o_bytes=outputs * width, width=width,
        hides=left is not None or right is not None, note=note, common=common, dtype=dtype,
    )  # fmt: skip
