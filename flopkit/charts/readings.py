"""The namespace ``s`` that a figure's model writes on, in both readings: numbers in Python, Vega expressions in the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from flopkit.arithmetic import reading, vega
from flopkit.charts.panel import Control, OptionFields, Sweep, check_name
from flopkit.names import hint


class Modelled(Protocol):
    """What the namespace asks of the figure whose model writes on it."""

    name: str
    controls: dict[str, Control]
    sweep: Sweep | None
    model: Callable[..., None]

    def swept(self) -> Sequence[Any]:
        """The values that the rows run over."""


class Values:
    """The namespace ``s`` of a model: what is set on it is a result, and can be read back. In the Python reading, a number or a word."""

    def __init__(self, figure: Modelled, parent: Values | None = None) -> None:
        vars(self).update(_figure=figure, _found={}, _parent=parent)

    def __setattr__(self, name: str, value: Any) -> None:
        inside = f"figure {self._figure.name!r}: s.{name}"
        check_name(name, f"{inside}, result")
        if name in self._found or name in self._figure.controls:
            raise ValueError(f"{inside} is set twice, or is the name of a control; give each result a name of its own")
        self._found[name] = self._keep(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._found:
            return self._give(name)
        if self._parent is not None:
            return getattr(self._parent, name)
        raise AttributeError(f"figure {self._figure.name!r} has no result {name!r} so far; {hint(name, self._found)}")

    def found(self) -> dict[str, Any]:
        """Every result, by name."""
        return dict(self._found)

    def _keep(self, name: str, value: Any) -> Any:
        if not isinstance(value, (int, float, str)):
            raise _no_result(value, name)
        return value

    def _give(self, name: str) -> Any:
        return self._found[name]


class Signals(Values):
    """The Altair reading: results are Vega expressions, each stored once under its name and read back as a reference."""

    def __init__(self, figure: Modelled, altair: Any) -> None:
        super().__init__(figure)
        vars(self).update(_altair=altair, _fields={}, _flow=None)

    def expressions(self) -> dict[str, str]:
        """Vega text of every look-up and result, in an order in which each one needs only those before it."""
        return {**self._fields, **self._found}

    def controls(self) -> dict[str, Any]:
        """What the model gets for each control."""
        return {name: self._control(control) for name, control in self._figure.controls.items()}

    def _control(self, control: Control) -> Any:
        parameter = self._altair.param(name=control.name, value=control.value)
        if not control.fields:
            return parameter
        return option(control, control.name, parameter, self._field)

    def _field(self, name: str, text: str) -> Any:
        self._fields[name] = text
        return self._altair.param(name=name, expr=text)

    def _keep(self, name: str, value: Any) -> str:
        return vega_text(value, name)

    def _give(self, name: str) -> Any:
        return self._altair.param(name=name, expr=self._found[name])

    @property
    def rows(self) -> Any:
        """A chart (without a mark) of the figure's rows: one for each swept value, its results calculated in the page."""
        flow = self.flow()
        return self._altair.Chart(self._altair.Data(values=flow["values"])).transform_calculate(**flow["columns"])

    def flow(self) -> dict[str, Any]:
        """The figure's rows as a flow of data: the swept values, and the expression of each further column."""
        if self._figure.sweep is None:
            raise ValueError(f"figure {self._figure.name!r} has no rows; give Figure(rows=along('<control>'))")
        if self._flow is None:
            with unchecked():
                vars(self).update(_flow=self._flows(self._figure.sweep))
        return dict(self._flow)

    def _flows(self, sweep: Sweep) -> dict[str, Any]:
        figure, altair = self._figure, self._altair
        row = Columns(figure, altair, None if sweep.model is None else self)
        controls = self.controls()
        swept = figure.controls.get(sweep.name)
        here = altair.datum[sweep.name]
        controls[sweep.name] = (
            option(swept, f"datum.{sweep.name}", here, row._field) if swept and swept.fields else here
        )
        (sweep.model or figure.model)(row, **controls)
        return {"values": [{sweep.name: value} for value in figure.swept()], "columns": row.expressions()}

    def now(self, *names: str, **columns: Any) -> Any:
        """A chart (without a mark) of one row that follows the controls: named results, and further columns by expression."""
        columns = {**{name: self._reference(name) for name in names}, **columns}
        texts = {name: vega_text(value, name) for name, value in columns.items()}
        return self._altair.Chart(self._altair.Data(values=[{}])).transform_calculate(**texts)

    def _reference(self, name: str) -> Any:
        return self._altair.param(name=name) if name in self._figure.controls else getattr(self, name)


def unchecked() -> AbstractContextManager[None]:
    """While a model is read: Altair does not check each part of an expression as it is made, which costs its length squared."""
    from altair.utils.schemapi import debug_mode

    return debug_mode(False)


class Columns(Signals):
    """The Altair reading of a row: results are calculated columns, read back as ``datum.<name>``."""

    def __init__(self, figure: Modelled, altair: Any, parent: Values | None) -> None:
        super().__init__(figure, altair)
        vars(self).update(_parent=parent)

    def _field(self, name: str, text: str) -> Any:
        self._fields[name] = text
        return self._altair.datum[name]

    def _give(self, name: str) -> Any:
        return self._altair.datum[name]


def option(control: Control, key: str, parameter: Any, store: Callable[[str, str], Any]) -> Any:
    """What a model gets for a choice with numbers or fields behind it: look-ups in an object literal, stored once each."""
    behind = control.fields
    first = next(iter(behind.values()))
    if not isinstance(first, Mapping):
        return store(f"{control.name}_value", f"({literal(behind)})[{key}]")

    def read(field: str) -> Any:
        if field == "name":
            return parameter
        return store(f"{control.name}_{field}", f"({literal({each: behind[each][field] for each in behind})})[{key}]")

    return OptionFields(control.name, {"name": key, **first}, read)


def pick(key: Any, table: Mapping[Any, Any]) -> Any:
    """``table[key]`` in both readings: the values may be formulas.

    >>> pick("values", {"scores": 3, "values": 5})
    5
    """
    if reading(key, *table.values()) != "altair":
        return table[key]
    from altair.expr.core import ConstExpression

    # Names and values apart: the names are the same in every look-up of a figure, and such a page packs into less.
    names = json.dumps(list(map(str, table)), separators=(",", ":"), ensure_ascii=False)
    values = ",".join(vega_text(value, str(name)) for name, value in table.items())
    return ConstExpression(f"[{values}][indexof({names},''+{vega_text(key, 'key')})]")


def vega_text(value: Any, name: str) -> str:
    """Vega text of a result."""
    if isinstance(value, (int, float, str)):
        return json.dumps(value)  # NaN and Infinity as Vega spells them, too
    if reading(value) != "altair":
        raise _no_result(value, name)
    return vega(value)


def _no_result(value: Any, name: str) -> TypeError:
    said = f"s.{name} = {type(value).__name__}"
    return TypeError(f"{said}: a result is a number, a truth value or a word, such as cost.flops")


def literal(table: Mapping[Any, Any]) -> str:
    return json.dumps(dict(table), separators=(",", ":"), ensure_ascii=False)
