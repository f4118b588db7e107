"""Attention, pair by pair: a pair that the mask hides is not computed."""

from __future__ import annotations

from typing import Any

from flopkit.sizes import Whole, checked, choice, divides, number
from flopkit.tally.ledger import Ledger, elementwise
from flopkit.tally.pointwise import softened
from flopkit.tally.products import dot
from flopkit.tally.runs import run
from flopkit.tally.scalar import Tally

__all__ = ["attention", "visible"]


def visible(query: int, key: int, q: int, kv: int, mask: Any) -> bool:
    """Whether query number *query* of *q* sees key number *key* of *kv*. The last query stands at the last key.

    >>> [[visible(i, j, 2, 3, "causal") for j in range(3)] for i in range(2)]
    [[True, True, False], [True, True, True]]
    """
    place = kv - q + query
    width = getattr(mask, "width", None)  # a flopkit.window
    if width is not None:
        return bool(place - width < key <= place)
    return choice("mask", mask, ("full", "causal")) == "full" or key <= place


def attended(queries: Any, keys: Any, values: Any, mask: Any, scale: float) -> Any:
    """One head: softmax(Q·Kᵀ·scale)·V over the pairs that are visible; zeros for a query that sees nothing."""
    q, kv = len(queries), len(keys)
    outputs = []
    for i, query in enumerate(queries):
        seen = [j for j in range(kv) if visible(i, j, q, kv, mask)]
        scores = [dot(query, keys[j], "scores") for j in seen]
        with elementwise("softmax"):
            weights = softened([score * scale for score in scores])
        columns = range(len(values[0]))
        outputs.append([dot(weights, [values[j][c] for j in seen], "scores") if seen else Tally(0.0) for c in columns])
    return outputs


@checked
def attention(
    *, batch: Whole, q: Whole, kv: Whole, heads: Whole, head_dim: Whole, kv_heads: Whole | None = None, v_head_dim: Whole | None = None,
    mask: Any = "full",
) -> Ledger:  # fmt: skip
    """The attention core. Query heads share key-value heads where there are fewer of those; causal is bottom-right.

    >>> attention(batch=1, q=3, kv=3, heads=1, head_dim=4, mask="causal")
    attention(batch=1, q=3, kv=3, heads=1, head_dim=4, kv_heads=1, v_head_dim=4, mask=causal)
    operation                   in contractions  element-wise
    multiplications                          48             6
    additions                                30             6
    subtractions                              0             6
    divisions                                 0             6
    comparisons                               0             6
    exponentials and their like               0             6
    all                                      78            36
    48 multiply-adds, counted as 2 each: 96 FLOPs; 36 vector FLOPs
    """
    if hasattr(mask, "width"):
        number("width", mask.width)
    kv_heads = heads if kv_heads is None else kv_heads
    v_head_dim = head_dim if v_head_dim is None else v_head_dim
    divides("kv_heads", kv_heads, "heads", heads)
    shared = heads // kv_heads

    def algorithm(q: Any, k: Any, v: Any) -> Any:
        return [
            [attended(one[h], keys[h // shared], values[h // shared], mask, head_dim**-0.5) for h in range(heads)]
            for one, keys, values in zip(q, k, v, strict=True)
        ]

    title = f"attention({batch=}, {q=}, {kv=}, {heads=}, {head_dim=}, {kv_heads=}, {v_head_dim=}, mask={mask})"
    shapes = {
        "q": (batch, heads, q, head_dim),
        "k": (batch, kv_heads, kv, head_dim),
        "v": (batch, kv_heads, kv, v_head_dim),
    }
    return run(title, shapes, algorithm)
