"""Run a naive algorithm on numbers of its own and keep what was counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from flopkit.tally.ledger import LIMIT, Ledger, counting, too_large
from flopkit.tally.scalar import numbers, plain

__all__ = ["run"]


def run(title: str, shapes: Mapping[str, tuple[int, ...]], algorithm: Callable[..., Any], **given: Any) -> Ledger:
    """Draw the inputs of the given *shapes*, run *algorithm* on them, and return the ledger.

    The ledger keeps the plain numbers of ``inputs`` and ``output``, so that another library can be asked whether
    the algorithm is right.

    Raises
    ------
    ValueError
        Where there are too many numbers to count by hand.

    Examples
    --------
    >>> run("double", {"x": (3,)}, lambda x: [value + value for value in x]).adds
    3
    """
    if sum(math.prod(shape) for shape in shapes.values()) > LIMIT:
        raise ValueError(too_large(title))
    drawn = {name: numbers(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    with counting(title) as ledger:
        output = algorithm(**drawn, **given)
    ledger.inputs = {**{name: plain(values) for name, values in drawn.items()}, **given}
    ledger.output = plain(output)
    return ledger
