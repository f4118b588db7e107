"""A mixture of experts, token by token: route, choose, run the chosen, combine."""

from __future__ import annotations

import math
from typing import Any

from flopkit.sizes import Factor, Flag, Whole, checked, number
from flopkit.tally.ledger import Ledger, elementwise
from flopkit.tally.pointwise import silu, softened, total
from flopkit.tally.products import linear
from flopkit.tally.runs import run
from flopkit.tally.scalar import Tally

__all__ = ["moe"]


def best(chances: Any, top_k: int) -> list[int]:
    """The places of the *top_k* largest, by that many scans of all."""
    left, chosen = list(chances), []
    for _ in range(top_k):
        place, highest = -1, Tally(-math.inf)
        for i, chance in enumerate(left):
            if chance > highest:
                place, highest = i, chance
        chosen.append(place)
        left[place] = Tally(-math.inf)
    return chosen


@checked
def moe(
    *, tokens: Whole, d_model: Whole, d_ff: Whole, experts: Whole, top_k: Whole, shared: int = 0, gated: Flag = True,
    capacity: Factor | None = None,
) -> Ledger:  # fmt: skip
    """A router and experts of two matrices (three where *gated*), SiLU between them.

    With a *capacity* each expert has that many rows, times the average load: the first tokens that choose it fill them, later ones are
    dropped, and rows that stay empty are computed as zeros and added with the weight 0.

    >>> moe(tokens=2, d_model=4, d_ff=3, experts=5, top_k=2).macs_by_kind
    {'router': 40, 'products': 144}
    """
    shared, gated = number("shared", shared, minimum=0), bool(gated)
    share: Any = capacity
    if top_k > experts:
        raise ValueError(f"top_k={top_k} is more than experts={experts}: choose at most as many as there are")

    def algorithm(x: Any, router: Any, up: Any, down: Any, gate: Any = None) -> Any:
        def expert(row: Any, e: int) -> Any:
            hidden = linear([row], up[e])[0]
            gating = hidden if gate is None else linear([row], gate[e])[0]
            with elementwise():
                active = [silu(value) for value in gating]
                active = active if gate is None else [a * h for a, h in zip(active, hidden, strict=True)]
            return linear([active], down[e])[0]

        outputs: list[Any] = []
        waiting: list[list[tuple[int, Any]]] = [[] for _ in range(experts)]
        for place, row in enumerate(x):
            logits = linear([row], router, kind="router")[0]
            with elementwise("routing"):
                chances = softened(logits)
                chosen = best(chances, top_k)
                sum_ = total(chances[e] for e in chosen)
                weights = [chances[e] / sum_ for e in chosen]
            output = [Tally(0.0) for _ in row]
            for weight, e in zip(weights, chosen, strict=True):
                if capacity is not None:
                    waiting[e].append((place, weight))
                    continue
                y = expert(row, e)
                with elementwise():
                    output = [value + weight * more for value, more in zip(output, y, strict=True)]
            for e in range(experts, experts + shared):
                y = expert(row, e)
                with elementwise():
                    output = [value + more for value, more in zip(output, y, strict=True)]
            outputs.append(output)
        if capacity is None:
            return outputs
        nothing = [Tally(0.0)] * d_model
        outputs.append(nothing)
        for e, queue in enumerate(waiting):
            padding = [(-1, Tally(0.0))] * (rows - len(queue))  # its place is the last one, which is cut off
            for place, weight in queue[:rows] + padding:
                y = expert([*x, nothing][place], e)
                with elementwise():
                    outputs[place] = [value + weight * more for value, more in zip(outputs[place], y, strict=True)]
        return outputs[:-1]

    rows = 0 if capacity is None else math.ceil(share * tokens * top_k / experts)
    every = experts + shared
    shapes: dict[str, tuple[int, ...]] = {"x": (tokens, d_model), "router": (experts, d_model)}
    shapes |= {"up": (every, d_ff, d_model), "down": (every, d_model, d_ff)}
    shapes |= {"gate": (every, d_ff, d_model)} if gated else {}
    return run(f"moe({tokens=}, {d_model=}, {d_ff=}, {experts=}, {top_k=}, {shared=}, {gated=})", shapes, algorithm)
