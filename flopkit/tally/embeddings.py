"""Embeddings and positions, one operation at a time."""

from __future__ import annotations

import math
from typing import Any

from flopkit.sizes import Whole, checked
from flopkit.tally.ledger import Ledger, elementwise
from flopkit.tally.runs import run

__all__ = ["embedding", "learned_positions", "rotary", "sinusoidal_positions"]


def turned(row: Any, position: int) -> Any:
    """A head's features, the first half paired with the second, each pair turned by its angle at *position*."""
    half = len(row) // 2
    angles = [position * 10_000 ** (-i / half) for i in range(half)]
    left = [row[i] * math.cos(a) - row[half + i] * math.sin(a) for i, a in enumerate(angles)]
    right = [row[half + i] * math.cos(a) + row[i] * math.sin(a) for i, a in enumerate(angles)]
    return left + right


@checked
def embedding(*, tokens: Whole, vocab: Whole, d_model: Whole) -> Ledger:
    """Rows of a table, copied: no arithmetic.

    >>> embedding(tokens=3, vocab=10, d_model=4).operations
    0
    """
    return run(
        f"embedding({tokens=}, {vocab=}, {d_model=})",
        {"table": (vocab, d_model)},
        lambda table, ids: [list(table[i]) for i in ids],
        ids=[7 * token % vocab for token in range(tokens)],
    )


@checked
def learned_positions(*, batch: Whole, seq: Whole, positions: Whole, d_model: Whole) -> Ledger:
    """A row of a table added to each token's features.

    >>> learned_positions(batch=2, seq=3, positions=5, d_model=4).adds
    24
    """
    title = f"learned_positions({batch=}, {seq=}, {positions=}, {d_model=})"
    return run(title, {"x": (batch, seq, d_model), "table": (positions, d_model)}, _added)


@checked
def sinusoidal_positions(*, batch: Whole, seq: Whole, d_model: Whole) -> Ledger:
    """A row of a fixed table of sines and cosines added to each token's features.

    >>> sinusoidal_positions(batch=2, seq=3, d_model=4).adds
    24
    """
    wave = (math.sin, math.cos)
    table = [[wave[i % 2](p * 10_000 ** (-(i - i % 2) / d_model)) for i in range(d_model)] for p in range(seq)]
    title = f"sinusoidal_positions({batch=}, {seq=}, {d_model=})"
    return run(title, {"x": (batch, seq, d_model)}, _added, table=table)


@checked
def rotary(*, batch: Whole, seq: Whole, heads: Whole, head_dim: Whole) -> Ledger:
    """Each pair of features turned by its position's angle: four multiplications, an addition and a subtraction.

    >>> rotary(batch=1, seq=2, heads=3, head_dim=4)
    rotary(batch=1, seq=2, heads=3, head_dim=4)
    operation        in contractions  element-wise
    multiplications                0            48
    additions                      0            12
    subtractions                   0            12
    all                            0            72
    72 vector FLOPs
    """
    if head_dim % 2:
        raise ValueError(f"head_dim={head_dim}: features are turned in pairs, so pass an even number")

    def algorithm(x: Any) -> Any:
        with elementwise():
            return [[[turned(row, p) for row in token] for p, token in enumerate(sequence)] for sequence in x]

    return run(f"rotary({batch=}, {seq=}, {heads=}, {head_dim=})", {"x": (batch, seq, heads, head_dim)}, algorithm)


def _added(x: Any, table: Any) -> Any:
    with elementwise():
        return [
            [[value + t for value, t in zip(row, table[p], strict=True)] for p, row in enumerate(sequence)]
            for sequence in x
        ]
