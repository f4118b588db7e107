"""Matrix products and dense layers, one multiplication at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flopkit.sizes import Flag, Whole, checked
from flopkit.tally.ledger import Ledger, contraction, elementwise
from flopkit.tally.runs import run

__all__ = ["dense", "dot", "matmul"]


def dot(xs: Sequence[Any], ys: Sequence[Any], kind: str = "products") -> Any:
    """x₀·y₀ + x₁·y₁ + …: K multiplications and K − 1 additions.

    >>> from flopkit.tally import counting, numbers
    >>> with counting() as ledger:
    ...     total = dot(numbers(4), numbers(4))
    >>> ledger.multiplies, ledger.adds, ledger.macs
    (4, 3, 4)
    """
    with contraction(kind):
        total = xs[0] * ys[0]
        for x, y in zip(xs[1:], ys[1:], strict=True):
            total = total + x * y
    return total


def product(a: Any, b: Any) -> Any:
    """The matrix product of lists of rows: each entry is the `dot` of a row of *a* and a column of *b*."""
    return linear(a, list(zip(*b, strict=True)))


def linear(x: Any, weight: Any, bias: Any = None, kind: str = "products") -> Any:
    """x·weightᵀ, and a bias added to each row: *weight* has one row an output, as in torch."""
    y = [[dot(row, column, kind) for column in weight] for row in x]
    if bias is None:
        return y
    with elementwise():
        return [[value + b for value, b in zip(row, bias, strict=True)] for row in y]


@checked
def matmul(*, m: Whole, k: Whole, n: Whole, batch: Whole = 1) -> Ledger:
    """(m × k) · (k × n), *batch* times, by three nested loops.

    >>> matmul(m=5, k=3, n=7)
    matmul(m=5, k=3, n=7, batch=1)
    operation        in contractions  element-wise
    multiplications              105             0
    additions                     70             0
    all                          175             0
    105 multiply-adds, counted as 2 each: 210 FLOPs
    """
    return run(
        f"matmul({m=}, {k=}, {n=}, {batch=})",
        {"a": (batch, m, k), "b": (batch, k, n)},
        lambda a, b: [product(one, other) for one, other in zip(a, b, strict=True)],
    )


@checked
def dense(*, tokens: Whole, d_in: Whole, d_out: Whole, bias: Flag = False) -> Ledger:
    """A dense layer: the product of *tokens* rows with a d_in × d_out weight, and a bias added to each output.

    >>> dense(tokens=2, d_in=3, d_out=4, bias=True)
    dense(tokens=2, d_in=3, d_out=4, bias=True)
    operation        in contractions  element-wise
    multiplications               24             0
    additions                     16             8
    all                           40             8
    24 multiply-adds, counted as 2 each: 48 FLOPs; 8 vector FLOPs
    """
    bias = bool(bias)
    shapes = {"x": (tokens, d_in), "weight": (d_out, d_in)} | ({"bias": (d_out,)} if bias else {})
    return run(f"dense({tokens=}, {d_in=}, {d_out=}, {bias=})", shapes, linear)
