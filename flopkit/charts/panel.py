"""What stands around a chart: controls, presets, read-outs, the columns of the data table. Declarations only, checked here.

slider("tokens", "Tokens", steps(1, 65536), value=64, unit="tokens")
choice("device", "Device", {"H100 SXM": dict(peak=989.4e12, bandwidth=3.35e12)})
switch("causal", "Causal mask", value=True)
readout("flops", "Arithmetic", "FLOPs")
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flopkit import units
from flopkit.names import hint

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
WITHIN = " › "
"""Between a heading over controls and one that folds inside it."""
# Names that mean something else inside a Vega expression or a Vega view.
_TAKEN = frozenset(
    "width height padding autosize background style parent datum event item group xy x y view unit cursor now rows data found controls expressions "
    "E LN2 LN10 LOG2E LOG10E MAX_VALUE MIN_VALUE NaN PI SQRT1_2 SQRT2 true false null undefined Infinity "
    "break case catch class const continue debugger default delete do else enum export extends finally for function if import in instanceof let "
    "new return static super switch this throw try typeof var void while with yield".split()
)


def steps(lo: int, hi: int, per_octave: int = 1) -> list[int]:
    """A ladder of round integers from ``lo`` to ``hi``, both included, with 1, 2 or 4 steps from a power of two to the next.

    >>> steps(1, 16), steps(1, 16, per_octave=2), steps(4, 16, per_octave=4)
    ([1, 2, 4, 8, 16], [1, 2, 3, 4, 6, 8, 12, 16], [4, 5, 6, 7, 8, 10, 12, 14, 16])
    """
    if per_octave not in (1, 2, 4):
        raise ValueError(f"steps(per_octave={per_octave!r}): choose 1, 2 or 4")
    if not (isinstance(lo, int) and isinstance(hi, int) and 1 <= lo < hi):
        raise ValueError(f"steps({lo!r}, {hi!r}): give two whole numbers with 1 <= lo < hi")
    octaves = (2**k for k in range(hi.bit_length()))
    ladder = {
        base * (per_octave + j) // per_octave
        for base in octaves
        for j in range(per_octave)
        if base * j % per_octave == 0
    }
    return sorted({step for step in ladder if lo < step < hi} | {lo, hi})


class OptionFields:
    """What stands behind an option, as attributes: ``device.peak``."""

    def __init__(self, control: str, fields: Mapping[str, Any], read: Callable[[str], Any] | None = None) -> None:
        self._control, self._fields, self._read = control, fields, read or fields.__getitem__

    def __getattr__(self, field: str) -> Any:
        if field.startswith("_"):
            raise AttributeError(field)
        if field not in self._fields:
            raise AttributeError(
                f"the options of {self._control!r} have no field {field!r}; {hint(field, self._fields)}"
            )
        return self._read(field)


@dataclass(frozen=True)
class Control:
    """One thing a reader can set. ``options`` are the values it can take, in order; ``value`` is where it starts.

    ``idle`` names a result of the model, a word: why the control has no effect at these settings, or "" where it has one.
    ``group`` is the heading under which it folds away together with others, "" where it stands by itself.
    """

    name: str
    label: str
    options: tuple[Any, ...]
    value: Any
    unit: str = ""
    kind: str = "slider"
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    idle: str = ""
    group: str = ""

    def text(self, value: Any) -> str:
        """The value as the panel shows it: "4,096 tokens", "H100 SXM", "on"."""
        if self.kind == "switch":
            return "on" if value else "off"
        return units.format_value(value, self.unit)

    def check(self, value: Any) -> Any:
        """The value, if this control can take it; a slider takes any positive number, not only its steps."""
        if self.kind == "slider":
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
                raise ValueError(f"{self.name}={value!r}: give a number, such as {self.value!r}")
        elif isinstance(value, (list, dict)) or value not in self.options:
            raise ValueError(f"{self.name}={value!r} is not an option; {hint(value, self.options)}")
        return value

    def read(self, value: Any) -> Any:
        """What a model gets for this value in the Python reading: the value itself, or the fields of the option."""
        if not self.fields:
            return value
        chosen = self.fields[value]
        return OptionFields(self.name, {"name": value, **chosen}) if isinstance(chosen, Mapping) else chosen

    def with_values(self, values: Iterable[Any]) -> Control:
        """A slider whose ladder also holds ``values``, so that a preset can be reached."""
        if self.kind != "slider":
            return self
        return replace(self, options=tuple(sorted({*self.options, *values})))


def slider(
    name: str, label: str, values: Sequence[float], value: float | None = None, unit: str = "", idle: str = ""
) -> Control:
    """A slider over a ladder of numbers (see `steps`). ``value``, by default the middle, joins the ladder if it is not on it.

    ``idle`` names a result of the model that says why the slider has no effect now; it is then disabled, with this sentence below it.
    """
    values = list(values)
    if len(values) < 2:
        raise ValueError(f"slider({name!r}): give at least two values, as in steps(1, 65536)")
    start = values[len(values) // 2] if value is None else value
    control = Control(check_name(name, "slider"), label, tuple(values), start, unit, idle=idle)
    for each in (*values, start):
        control.check(each)
    return control.with_values([start])


def choice(
    name: str, label: str, options: Mapping[str, Any] | Sequence[Any], value: Any = None, idle: str = ""
) -> Control:
    """A drop-down. The model gets the option itself, or, where ``options`` is a dict, what stands behind it:

    a number (``{"bf16": 2, "fp32": 4}``), or fields to be read as attributes (``{"H100 SXM": dict(peak=989.4e12)}``, ``device.peak``;
    ``device.name`` is the option). ``idle`` as for a `slider`.
    """
    if isinstance(options, str) or not options:
        raise ValueError(f"choice({name!r}): give a list of options, or a dict of option to number or fields")
    fields = dict(options) if isinstance(options, Mapping) else {}
    shapes = {tuple(sorted(v)) if isinstance(v, Mapping) else None for v in fields.values()}
    if len(shapes) > 1:
        raise ValueError(f"choice({name!r}): every option needs the same fields, got {' and '.join(map(str, shapes))}")
    names = tuple(options)
    control = Control(
        check_name(name, "choice"), label, names, names[0] if value is None else value, "", "choice", fields, idle
    )
    control.check(control.value)
    return control


def switch(name: str, label: str, value: bool = False, idle: str = "") -> Control:
    """A check box. The model gets True or False; use ``where(causal, a, b)`` on it, never ``if``. ``idle`` as for a `slider`."""
    if not isinstance(value, bool):
        raise ValueError(f"switch({name!r}, value={value!r}): give True or False")
    return Control(check_name(name, "switch"), label, (False, True), value, kind="switch", idle=idle)


def grouped(heading: str, controls: Iterable[Control]) -> list[Control]:
    """The same controls under a heading, where a reader folds them away: for a figure with more of them than one looks at.

    >>> [control.group for control in grouped("Sizes", [slider("n", "Rows", [1, 2])])]
    ['Sizes']
    """
    return [replace(control, group=heading) for control in controls]


@dataclass(frozen=True)
class Paste:
    """A box into which a reader pastes a JSON object, from which controls are set.

    ``table`` says where, for each value of the field ``model_type``: see ``flopkit.models.files.config_table``. What the figure has no
    control for stands in ``unable``, with the reason. ``texts``: under which keys a model of text and images keeps its part for text; ``wholes``: what is known of such models.
    ``formats``: which option of a control a ``quantization_config`` names, and what is not read of it. ``names``: configurations by the
    names of their models, which a reader may write in their place; ``others``: further spellings, and the name that each stands for.
    ``words``: what files call one size (``sizes``), under which keys other tools keep it (``parts``), and which keys tell other files (``typed``).
    """

    label: str
    table: Mapping[str, Any] = field(hash=False)
    unable: Mapping[str, str] = field(default_factory=dict, hash=False)
    texts: tuple[str, ...] = ()
    wholes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    formats: Mapping[str, Any] = field(default_factory=dict, hash=False)
    names: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    others: Mapping[str, str] = field(default_factory=dict, hash=False)
    words: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Shown:
    """A result shown as text: a read-out, or a column of the data table.

    ``instead``: another result, a word that is shown in this one's place unless it is "". ``sentence``: this result is a sentence that may name
    controls and read-outs in braces, and it stands above the others in larger letters. ``digits``: significant ones, of a number that is worth no more.
    """

    name: str
    label: str
    unit: str = ""
    text: Mapping[Any, str] = field(default_factory=dict, hash=False)
    instead: str = ""
    sentence: bool = False
    digits: int = 0

    def said(self, results: Mapping[str, Any]) -> str:
        """What is shown at these results."""
        return (self.instead and results[self.instead]) or self.format(results[self.name])

    def format(self, value: Any) -> str:
        if self.text:
            if value not in self.text:
                raise ValueError(f"readout {self.name!r} has no text for {value!r}; {hint(value, self.text)}")
            return self.text[value]
        if self.digits and not isinstance(value, str):
            value = units.rounded(value, self.digits)
        return units.format_value(value, self.unit)


def readout(
    name: str, label: str, unit: str = "", text: Mapping[Any, str] | None = None, instead: str = "", sentence: bool = False, digits: int = 0
) -> Shown:  # fmt: skip
    """A result of the model, shown as text: a number in ``unit``, or, for words and truth values, ``text[value]``.

    ``instead`` names a result that is a word, why there is no such number, or "". A ``sentence`` may name controls and read-outs: "{users} fit."
    ``digits`` rounds the text, not the number behind it.
    """
    return Shown(check_name(name, "readout"), label, unit, text or {}, instead, sentence, digits)


def column(name: str, label: str, unit: str = "", text: Mapping[Any, str] | None = None, instead: str = "") -> Shown:
    """A column of the data table behind the chart; ``instead`` as for a `readout`, of the same row."""
    return Shown(check_name(name, "column"), label, unit, text or {}, instead)


@dataclass(frozen=True)
class Sweep:
    """Rows behind a curve: the model, run once for each of ``values`` of ``name``."""

    name: str
    values: tuple[Any, ...] | None = None
    model: Callable[..., None] | None = field(default=None, compare=False)


def along(name: str, values: Sequence[Any] | None = None, model: Callable[..., None] | None = None) -> Sweep:
    """The rows of a figure. ``along("tokens")`` runs the figure's own model over all steps of that control; ``values`` sets other steps.

    With a ``model`` of its own, ``name`` can be anything: ``model(r, *, intensity, device, ...)`` gets the row's namespace, the
    swept value and the controls; what it does not set on ``r`` it reads from the figure's results.
    """
    if model is not None and values is None:
        raise ValueError(
            f"along({name!r}): a model of its own needs values, as in along({name!r}, steps(1, 4096), model)"
        )
    return Sweep(name, None if values is None else tuple(values), model)


def check_name(name: str, kind: str) -> str:
    """``name``, unless Vega would read it as something else."""
    if not _IDENTIFIER.fullmatch(name):
        raise ValueError(f"{kind}({name!r}): a name is a Python identifier, such as 'd_model'")
    if name in _TAKEN:
        raise ValueError(f"{kind}({name!r}): Vega uses this name itself; take another, such as '{name}_'")
    return name
