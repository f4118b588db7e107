"""Pooling, one compare or addition at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from flopkit.sizes import Whole, number, spread
from flopkit.tally.ledger import Ledger, elementwise
from flopkit.tally.pointwise import largest, total
from flopkit.tally.runs import run
from flopkit.tally.scalar import Tally

__all__ = ["avg_pool2d", "max_pool2d"]


def max_pool2d(**sizes: Any) -> Ledger:
    """The largest element under each kernel: batch, channels, h_out, w_out, kernel, stride and padding (of −∞).

    >>> max_pool2d(batch=1, channels=2, h_out=3, w_out=3, kernel=2).comparisons
    72
    """
    return _pool("max_pool2d", largest, -math.inf, **sizes)


def avg_pool2d(**sizes: Any) -> Ledger:
    """The mean of the elements under each kernel: batch, channels, h_out, w_out, kernel, stride and padding (of 0).

    >>> counted = avg_pool2d(batch=1, channels=2, h_out=3, w_out=3, kernel=2)
    >>> counted.adds, counted.divides
    (72, 18)
    """
    return _pool("avg_pool2d", lambda values: total(values) / len(values), 0.0, **sizes)


def _pool(
    name: str, pooled: Callable[[list[Any]], Any], fill: float, *, batch: Whole, channels: Whole, h_out: Whole, w_out: Whole,
    kernel: Any, stride: Any = None, padding: int = 0,
) -> Ledger:  # fmt: skip
    batch, channels = number("batch", batch), number("channels", channels)
    outs = number("h_out", h_out), number("w_out", w_out)
    taps = spread("kernel", kernel, 2, number)
    steps = taps if stride is None else spread("stride", stride, 2, number)
    padding = number("padding", padding, minimum=0)
    ins = tuple(max((n - 1) * s + k - 2 * padding, 1) for n, s, k in zip(outs, steps, taps, strict=True))

    def algorithm(x: Any) -> Any:
        def under(plane: Any, row: int, column: int) -> list[Any]:
            rows = [row * steps[0] - padding + i for i in range(taps[0])]
            columns = [column * steps[1] - padding + j for j in range(taps[1])]
            inside = [(0 <= r < ins[0] and 0 <= c < ins[1], r, c) for r, c in itertools.product(rows, columns)]
            return [plane[r][c] if is_inside else Tally(fill) for is_inside, r, c in inside]

        with elementwise():
            return [
                [[[pooled(under(p, r, c)) for c in range(outs[1])] for r in range(outs[0])] for p in image]
                for image in x
            ]

    title = (
        f"{name}({batch=}, {channels=}, h_out={outs[0]}, w_out={outs[1]}, kernel={taps}, stride={steps}, {padding=})"
    )
    return run(title, {"x": (batch, channels, *ins)}, algorithm)
