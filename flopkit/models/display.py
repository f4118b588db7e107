"""How a model shows itself: a line, a few rows of its sizes, and the table of all its
parts."""

from __future__ import annotations

from functools import partial
from typing import Any

from flopkit.arithmetic import ratio
from flopkit.cost import Cost, amount
from flopkit.models import passes
from flopkit.models.parts import Part, Run
from flopkit.models.stack import Stack
from flopkit.tables import Table

__all__ = ["in_a_line", "model_table", "summary"]

_COLUMNS = ["part", "times", "formula", "FLOPs", "share", "params", "bytes"]


def model_table(model: Stack, run: Run) -> Table:
    """The pass that *run* describes, one row a part, the total last: what `Model.table`
    shows, and says of its columns."""
    parts = passes.through(model, run)
    total = Cost.total("total", (each.cost for each in parts))
    rows = [row for each in parts for row in _rows(each, each.times, 0, total.flops)]
    rows.append(_row("total", 1, "", total, total.flops, 0))
    units = {"times": "", "FLOPs": "FLOPs", "share": "%", "params": "", "bytes": "B"}
    formats = {column: partial(amount, unit=unit) for column, unit in units.items()}
    caption = f"{model.name}, forward, {amount(run.batch)} × {amount(run.q)} tokens, convention {total.convention}"
    return Table(rows, caption=caption, formats=formats, columns=_COLUMNS)


def _rows(part: Part, times: Any, level: int, whole: Any) -> list[dict[str, Any]]:
    """A part, whose cost is that of all of them, and what is inside."""
    found = [_row(part.cost.name, times, part.formula, part.cost, whole, level)]
    for inner in part.inside:
        all_of_them = inner._replace(cost=(inner.cost * times).named(inner.cost.name))
        found += _rows(all_of_them, times * inner.times, level + 1, whole)
    return found


def _row(name: str, times: Any, formula: str, cost: Cost, whole: Any, level: int) -> dict[str, Any]:
    return {
        "part": "  " * level + name, "times": times, "formula": formula, "FLOPs": cost.flops, "share": ratio(cost.flops, whole),
        "params": cost.params, "bytes": cost.bytes, "level": level,
    }  # fmt: skip


def summary(model: Stack, params: Any, active: Any) -> Table:
    """What a model of *params* parameters is, *active* of them working for a token, one
    row a size.

    >>> from flopkit.models import transformer
    >>> small = transformer(name="small", d_model=64, vocab=100, layers=2, heads=4, kv_heads=2, d_ff=96)
    >>> print(summary(small, small.params, small.active_params))
    small
    size        value
    parameters  74,560
    active      74,560
    layers      2
    width       64
    heads       4, 2 for keys and values
    vocabulary  100
    """
    sizes = {"parameters": amount(params), "active": amount(active)} | _sizes(model)
    if model.source:
        sizes["source"] = model.source
    return Table([{"size": name, "value": value} for name, value in sizes.items()], caption=model.name)


def in_a_line(model: Stack, params: Any, active: Any) -> str:
    """The same in one line.

    >>> from flopkit.models import transformer
    >>> small = transformer(name="small", d_model=64, vocab=100, layers=2, heads=4, d_ff=96)
    >>> in_a_line(small, small.params, small.active_params)
    'small: 82,752 parameters, layers 2, width 64, heads 4, vocabulary 100'
    """
    words = [f"{amount(params)} parameters"]
    if amount(active) != amount(params):
        words.append(f"{amount(active)} of them active")
    words += [f"{name} {value}" for name, value in _sizes(model).items()]
    return f"{model.name}: {', '.join(words)}" + (f" [{model.source}]" if model.source else "")


def _sizes(model: Stack) -> dict[str, str]:
    """Layers, width, heads and vocabulary, in words."""
    layers = amount(model.layers)
    if model.encoder is not None:
        layers += f" and {amount(model.encoder.layers)} of the encoder"
    found = {"layers": layers, "width": amount(model.d_model)}
    if heads := _heads(model.blocks[0][0].mixer):
        found["heads"] = heads
    return found | {"classes" if model.head == "classes" else "vocabulary": amount(model.vocab)}


def _heads(mixer: Any) -> str:
    heads, kv_heads = getattr(mixer, "heads", None), getattr(mixer, "kv_heads", None)
    if heads is None:
        return ""
    if kv_heads is None or amount(kv_heads) == amount(heads):
        return amount(heads)
    return f"{amount(heads)}, {amount(kv_heads)} for keys and values"
