"""How a model shows itself: a line, a few rows of its sizes, and the table of all its
parts; and what it says that makes no text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from flopkit.arithmetic import ratio
from flopkit.cost import Cost, amount
from flopkit.models.stacks.parts import Part
from flopkit.models.stacks.stack import Stack
from flopkit.tables import Table

__all__ = ["Named", "in_a_line", "model_table", "no_text", "stack_sizes", "summary"]

_COLUMNS = ["part", "times", "formula", "FLOPs", "share", "params", "bytes"]


class Named(Protocol):
    """What every model has to show."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def params(self) -> Any: ...
    @property
    def active_params(self) -> Any: ...


def model_table(caption: str, parts: Sequence[Part]) -> Table:
    """The forward pass that *parts* make up, one row a part, the total last: what
    `Model.table` shows, and says of its columns."""
    total = Cost.total("total", (each.cost for each in parts))
    rows = [row for each in parts for row in _rows(each, each.times, 0, total.flops)]
    rows.append(_row("total", 1, "", total, total.flops, 0))
    units = {"times": "", "FLOPs": "FLOPs", "share": "%", "params": "", "bytes": "B"}
    formats = {column: partial(amount, unit=unit) for column, unit in units.items()}
    caption = f"{caption}, convention {total.convention}"
    return Table(rows, caption=caption, formats=formats, columns=_COLUMNS)


def _rows(part: Part, times: Any, level: int, whole: Any) -> list[dict[str, Any]]:
    """A part, whose cost is that of all of them, and what is inside."""
    found = [_row(part.cost.name, times, part.formula, part.cost, whole, level)]
    for inner in part.inside:
        whole_cost = (inner.cost * times).named(inner.cost.name)
        if part.shared:
            whole_cost = replace(whole_cost, params_by_role=inner.cost.params_by_role)
        all_of_them = inner._replace(cost=whole_cost)
        found += _rows(all_of_them, times * inner.times, level + 1, whole)
    return found


def _row(name: str, times: Any, formula: str, cost: Cost, whole: Any, level: int) -> dict[str, Any]:
    return {
        "part": "  " * level + name, "times": times, "formula": formula, "FLOPs": cost.flops, "share": ratio(cost.flops, whole),
        "params": cost.params, "bytes": cost.bytes, "level": level,
    }  # fmt: skip


def summary(model: Named, sizes: Mapping[str, str]) -> Table:
    """What a model is, one row a size.

    >>> from flopkit.models import transformer
    >>> small = transformer(name="small", d_model=64, vocab=100, layers=2, heads=4, kv_heads=2, d_ff=96)
    >>> print(summary(small, stack_sizes(small)))
    small
    size        value
    parameters  74,560
    active      74,560
    layers      2
    width       64
    heads       4, 2 for keys and values
    vocabulary  100
    """
    found = {"parameters": amount(model.params), "active": amount(model.active_params), **sizes}
    if model.source:
        found["source"] = model.source
    return Table([{"size": name, "value": value} for name, value in found.items()], caption=model.name)


def in_a_line(model: Named, sizes: Mapping[str, str]) -> str:
    """The same in one line.

    >>> from flopkit.models import transformer
    >>> small = transformer(name="small", d_model=64, vocab=100, layers=2, heads=4, d_ff=96)
    >>> in_a_line(small, stack_sizes(small))
    'small: 82,752 parameters, layers 2, width 64, heads 4, vocabulary 100'
    """
    params, active = amount(model.params), amount(model.active_params)
    words = [f"{params} parameters"]
    if active != params:
        words.append(f"{active} of them active")
    words += [f"{name} {value}" for name, value in sizes.items()]
    return f"{model.name}: {', '.join(words)}" + (f" [{model.source}]" if model.source else "")


def no_text(model: Named, asked: str) -> ValueError:
    """What a model says that is asked for a cache or a step of decoding, and makes no
    text."""
    return ValueError(f"{model.name} makes no text token by token: it has no {asked}")


def stack_sizes(model: Stack) -> dict[str, str]:
    """Layers, width, heads and vocabulary, in words."""
    layers = amount(model.layers)
    if model.encoder is not None:
        layers += f" and {amount(model.encoder.layers)} of the encoder"
    layers += "".join(f" and {each}" for each in _behind(model))
    found = {"layers": layers, "width": amount(model.d_model)}
    if heads := _heads(model.blocks[0][0].mixer):
        found["heads"] = heads
    if model.waves is None:  # sound has no words
        found["classes" if model.patches is not None else "vocabulary"] = amount(model.vocab)
    return found if model.formats is None else found | {"weights": str(model.formats)}


def _behind(model: Stack) -> list[str]:
    """The layers of each tower that stands behind or beside the first one."""
    towers = [getattr(end, "tower", None) for end in model.ends]
    return [words for tower in towers if tower is not None for words in (amount(tower.layers), *_behind(tower))]


def _heads(mixer: Any) -> str:
    heads, kv_heads = getattr(mixer, "heads", None), getattr(mixer, "kv_heads", None)
    if heads is None:
        return ""
    if kv_heads is None or amount(kv_heads) == amount(heads):
        return amount(heads)
    return f"{amount(heads)}, {amount(kv_heads)} for keys and values"
