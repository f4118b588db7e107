"""A model, read twice: in Python it gives numbers, in the page it becomes Vega expressions behind sliders.

    def dense_on(s, *, tokens, d_in, d_out, device):
        cost = fk.dense(tokens=tokens, d_in=d_in, d_out=d_out)
        s.flops = cost.flops
        s.intensity = cost.intensity
        s.rate = minimum(device.peak, s.intensity * device.bandwidth)

The model gets a namespace and the controls' values and names its results on the namespace. Because flopkit's formulas take Altair
parameters as well as ints, there is no second copy of any formula in the page, and ``figure.at(tokens=64)["flops"]`` is what the page shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flopkit.charts import theme
from flopkit.charts.code import Code
from flopkit.charts.packages import need
from flopkit.charts.panel import Control, Paste, Shown, Sweep
from flopkit.charts.readings import Signals, Values, unchecked
from flopkit.names import hint

_SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAMED = re.compile(r"\{(\w+)\}")


class Answers:
    """What a figure says at each of its settings, in both readings. `Figure` is one that shows itself."""

    def __init__(
        self,
        *,
        name: str,
        title: str,
        alt: str,
        model: Callable[..., None],
        controls: Sequence[Control],
        readouts: Sequence[Shown] = (),
        presets: Mapping[str, Mapping[str, Any]] | None = None,
        rows: Sweep | None = None,
        chart: Callable[[Any], Any] | None = None,
        table: Sequence[Shown] = (),
        caption: str = "",
        height: int = 300,
        refused: str = "",
        paste: Paste | None = None,
        code: Code | None = None,
        presets_label: str = "Preset",
    ) -> None:
        if not _SLUG.fullmatch(name):
            raise ValueError(f"Figure(name={name!r}): use small letters, digits and hyphens, as in 'dense-roofline'")
        if not alt.strip():
            raise ValueError(f"figure {name!r}: alt is empty; say in a sentence what the picture shows")
        self.name, self.title, self.alt, self.caption, self.height = name, title, alt, caption, height
        self.model, self.chart, self.sweep, self.refused, self.paste = model, chart, rows, refused, paste
        self.code, self.presets_label = code, presets_label
        self.number = ""  # in its chapter, such as "2.1"
        self._signals: Signals | None = None
        self._asked: tuple[Any, ...] = ()
        self._answer: dict[str, Any] = {}
        self.presets = {label: dict(settings) for label, settings in (presets or {}).items()}
        self.controls = {control.name: control for control in controls}
        if len(self.controls) < len(controls):
            raise ValueError(f"figure {name!r}: two controls share a name: {', '.join(c.name for c in controls)}")
        for label, settings in self.presets.items():
            self.settings(settings, where=f"preset {label!r} of ")
        for key, control in self.controls.items():
            self.controls[key] = control.with_values(s[key] for s in self.presets.values() if key in s)
        self.readouts, self.table = tuple(readouts), tuple(table)
        start = self.at()
        self._check_names("read-out", self.readouts, start)
        for result in (*[control.idle for control in self.controls.values()], refused):
            if result and not isinstance(start.get(result), str):
                raise ValueError(
                    f"figure {name!r}: {result!r} is not a word that the model sets; {hint(result, start)}"
                )
        self.description()
        self.python()
        if self.table:
            if not rows and any(each.instead for each in self.table):
                raise ValueError(f"figure {name!r}: a column's instead is a result of its row, and there are no rows")
            self._check_names("column", self.table, self.data()[0])

    @property
    def heading(self) -> str:
        """The title, with the number before it where the figure has one."""
        return f"Figure {self.number}. {self.title}" if self.number else self.title

    # --- the Python reading ---------------------------------------------------------------------------------------------------------

    def settings(self, given: Mapping[str, Any] | None = None, where: str = "") -> dict[str, Any]:
        """Value of every control, by name: those given, checked, and the start values of the others."""
        for name, value in (given or {}).items():
            if name not in self.controls:
                raise ValueError(f"{where}figure {self.name!r} has no control {name!r}; {hint(name, self.controls)}")
            self.controls[name].check(value)
        return {name: (given or {}).get(name, control.value) for name, control in self.controls.items()}

    def at(self, **settings: Any) -> dict[str, Any]:
        """The results at these settings, by name; controls that are not given stand where they start."""
        values = self.settings(settings)
        asked = (self.model, *values.values())
        if asked != self._asked:  # texts, labels and descriptions ask for the same settings in turn
            results = Values(self)
            self.model(results, **{name: self.controls[name].read(value) for name, value in values.items()})
            self._answer, self._asked = results.found(), asked
        return dict(self._answer)

    def rows(self, **settings: Any) -> list[dict[str, Any]]:
        """The data set behind the chart at these settings; an empty list where the figure has none."""
        if self.sweep is None:
            return []
        values = {name: self.controls[name].read(value) for name, value in self.settings(settings).items()}
        results = Values(self)
        self.model(results, **values)
        rows = []
        for value in self.swept():
            row = Values(self, None if self.sweep.model is None else results)
            control = self.controls.get(self.sweep.name)
            (self.sweep.model or self.model)(
                row, **{**values, self.sweep.name: control.read(value) if control else value}
            )
            rows.append({self.sweep.name: value, **row.found()})
        return rows

    def data(self, **settings: Any) -> list[dict[str, Any]]:
        """What the data table shows: the rows, or, without any, one row of the settings and results."""
        return self.rows(**settings) or [{**self.settings(settings), **self.at(**settings)}]

    def texts(self, **settings: Any) -> dict[str, str]:
        """The text of every read-out at these settings, as the page shows it: a dash where they are refused."""
        results = self.at(**settings)
        none = bool(results.get(self.refused))
        found = {shown.name: "–" if none else shown.said(results) for shown in self.readouts}
        told = {**self.setting_texts(**settings), **found} if any(shown.sentence for shown in self.readouts) else {}
        return found | {shown.name: self._name_in(found[shown.name], told) for shown in self.readouts if shown.sentence}

    def setting_texts(self, **settings: Any) -> dict[str, str]:
        """The text of every control at these settings, as the page shows it."""
        return {name: self.controls[name].text(value) for name, value in self.settings(settings).items()}

    def description(self, **settings: Any) -> str:
        """The alternative text of the picture at these settings; where they are refused, why."""
        return self._fill(self.at(**settings).get(self.refused) or self.alt, **settings)

    def python(self, **settings: Any) -> str:
        """The library's calls for the same answer at these settings, as text; "" where the figure has none, and why where they are refused."""
        if self.code is None:
            return ""
        if self.at(**settings).get(self.refused):
            return f"# {self.description(**settings)}"
        return self.code.text(self.settings(settings), self.presets)

    def idle(self, **settings: Any) -> dict[str, str]:
        """The controls that have no effect at these settings, each with the reason."""
        results = self.at(**settings)
        idle = {name: results[control.idle] for name, control in self.controls.items() if control.idle}
        return {name: self._fill(why, **settings) for name, why in idle.items() if why}

    def say(self, label: str, **settings: Any) -> str:
        """A label of a read-out, in which a control may stand by its name: "each device (1/{count})"."""
        return self._fill(label, **settings) if "{" in label else label

    def _fill(self, text: str, **settings: Any) -> str:
        """``text`` with what controls and read-outs say in place of their names in braces."""
        return self._name_in(text, {**self.setting_texts(**settings), **self.texts(**settings)})

    def _name_in(self, text: str, said: Mapping[str, str]) -> str:
        def say(named: re.Match[str]) -> str:
            if named[1] not in said:
                raise ValueError(
                    f"figure {self.name!r}: {named[0]} in a text is no control and no read-out; {hint(named[1], said)}"
                )
            return said[named[1]]

        return _NAMED.sub(say, text)

    # --- the Altair reading ---------------------------------------------------------------------------------------------------------

    def spec(self, **settings: Any) -> dict[str, Any]:
        """The figure as a Vega-Lite specification: a parameter for each control, a named expression for each result."""
        altair = need("altair")
        values = self.settings(settings)
        signals = self.signals()
        chart = self.chart(signals) if self.chart else altair.Chart(altair.Data(values=[])).mark_point()
        spec: dict[str, Any] = chart.to_dict(validate=False)
        spec.pop("config", None)
        spec.pop("$schema", None)
        own = spec.pop("params", [])
        if "layer" in spec or "mark" in spec:
            size = {"width": "container", "height": "container", "autosize": {"type": "fit", "contains": "padding"}}
            spec = {**size, **spec}
        params = [{"name": name, "value": value} for name, value in values.items()]
        params += [{"name": name, "expr": text} for name, text in signals.expressions().items()]
        return {**spec, "params": params + own, "config": theme.config()}

    def signals(self) -> Signals:
        """The namespace of the model in the Altair reading, filled; its ``flow()`` holds the rows."""
        if self._signals is None:
            signals = Signals(self, need("altair"))
            with unchecked():
                self.model(signals, **signals.controls())
            if self.sweep:
                signals.flow()  # so that every look-up that a row needs is among the expressions, used in the chart or not
            self._signals = signals
        return self._signals

    def svg(self, *, mode: str = "light", width: int = 640, **settings: Any) -> str:
        """The chart at these settings, drawn here (no browser), in the colours of ``mode="light"`` or ``"dark"``."""
        if mode not in ("light", "dark"):
            raise ValueError(f"mode={mode!r}: must be 'light' or 'dark'")
        spec = self.spec(**settings)
        if spec.get("width") == "container":  # here the height is that of the plot, and the axes come to it
            spec |= {"width": width, "height": self.height, "autosize": {"type": "fit-x", "contains": "padding"}}
        if mode == "dark":
            spec = theme.swap(spec, theme.DARK)
        return str(need("vl_convert").vegalite_to_svg(spec))

    def swept(self) -> Sequence[Any]:
        """The values that the rows run over."""
        assert self.sweep is not None
        if self.sweep.values is not None:
            return self.sweep.values
        if self.sweep.name not in self.controls:
            raise ValueError(
                f"figure {self.name!r}: along({self.sweep.name!r}) is not a control; {hint(self.sweep.name, self.controls)} "
                "Or give values and a model"
            )
        return self.controls[self.sweep.name].options

    def _check_names(self, what: str, shown: Iterable[Shown], known: Mapping[str, Any]) -> None:
        for each in shown:
            if each.name not in known:
                raise ValueError(
                    f"figure {self.name!r}: {what} {each.name!r} is not set by the model; {hint(each.name, known)}"
                )
            each.format(known[each.name])
            if each.instead and not isinstance(known.get(each.instead), str):
                raise ValueError(
                    f"figure {self.name!r}: {each.instead!r} is not a word that the model sets; {hint(each.instead, known)}"
                )
