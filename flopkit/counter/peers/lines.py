"""The ledger as another tool meets it: operators as the dispatcher saw them, with their arguments by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from flopkit.counter.calls import name_of
from flopkit.counter.ledger import Entry

__all__ = ["ATTENTION", "Line", "arguments", "lines", "shape", "truth"]

ATTENTION = "scaled_dot_product_attention"  # flopkit.counter.beyond.regions.OP, which cannot be had without torch


class Line(NamedTuple):
    """Calls of an operator with certain shapes.

    Parameters
    ----------
    entry, calls, phase, path : what ran, how often, in which pass, in which module.
    group : the row it belongs to: its operator, or the attention call that it is a part of.
    inside : it is part of an attention call, which has a line of its own.
    hidden : who watches only the dispatcher of the main thread does not see it: "thread", "kernel", or "".
    """

    entry: Entry
    calls: int
    phase: str
    path: str
    group: str
    inside: bool
    hidden: str


def lines(source: Any) -> Iterator[Line]:
    """Every line of what *source* saw, those inside of attention included."""
    ledger = source.ledger()
    named = {entry.op for entry, where in ledger.calls if entry.func is None and not where.inside}
    for key, calls in list(ledger.calls.items()):
        entry, where = key
        group = ATTENTION if where.inside and entry.op not in named else entry.op
        elsewhere = ledger.elsewhere.get(key, 0)
        beneath = min(ledger.hidden.get(key, 0), calls - elsewhere)
        for part, hidden in ((elsewhere, "thread"), (beneath, "kernel"), (calls - elsewhere - beneath, "")):
            if part:
                yield Line(entry, part, where.phase, where.path, group, where.inside, hidden)


def truth(line: Line) -> int:
    """FLOPs that were executed, convention TORCH: every position of a score matrix counts."""
    if line.inside:
        return 0
    work = line.entry.work
    return round(2 * line.calls * (sum(work.done.values()) + sum(work.again.values())))


def arguments(entry: Entry) -> dict[str, Any]:
    """What is remembered of an operator's arguments, by name: of a tensor its shape, strides and dtype, of the rest the value."""
    func, key = entry.func, entry.key
    schema = getattr(func, "_schema", None)
    if schema is None or not isinstance(key, tuple) or len(key) < 2:
        return {}
    given = key[1] if isinstance(key[1], tuple) else ()
    named = dict(key[2]) if len(key) > 2 and isinstance(key[2], tuple) else {}
    found = {}
    for place, argument in enumerate(schema.arguments):
        if place < len(given) and not argument.kwarg_only:
            found[argument.name] = given[place]
        else:
            found[argument.name] = named.get(argument.name, argument.default_value)
    return found


def shape(remembered: Any) -> tuple[int, ...] | None:
    """The shape of a remembered tensor; None where there was none."""
    import torch

    if isinstance(remembered, tuple) and remembered and isinstance(remembered[0], torch.Size):
        return tuple(int(size) for size in remembered[0])
    return None


def name(entry: Entry) -> str:
    """``aten::mm``; empty for a line that is no operator."""
    return name_of(entry.func) if entry.func is not None else ""
