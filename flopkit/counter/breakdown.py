"""A report's numbers, part by part: by phase, by operator, and by module; and its calls, for a roofline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from flopkit import units
from flopkit.cost import Cost
from flopkit.counter.ledger import Entry
from flopkit.counter.work import FREE, PHASES, UNKNOWN, settled
from flopkit.dtypes import format_of
from flopkit.rooflines import Calls
from flopkit.sizes import choice
from flopkit.tables import Table

_FLOPS = ("flops", "model_flops", "vector_flops")
_UNITS = {
    **dict.fromkeys((*_FLOPS, *PHASES, "seen"), "FLOPs"),
    "share": "%",
    **dict.fromkeys(("bytes", "sent", "payload"), "B"),
    "intensity": "FLOP/B",
}
FORMATS: dict[str, Callable[[Any], str]] = {
    column: partial(units.format_value, unit=unit) for column, unit in _UNITS.items()
}

SORTS = (*_FLOPS, "bytes", "calls", "operator")


class Line(NamedTuple):
    """What calls of one kind did in one phase. A fused backward has a part of its own for the forward work that it recomputes, and a fused
    forward for the gradients that it computes ahead."""

    entry: Entry
    path: str
    phase: str
    calls: int
    macs: Mapping[str, Any]  # those of one call, as `vector` and `bytes`
    model: Mapping[str, Any]  # of the macs, those that the mathematics asks for
    vector: Mapping[str, Any]
    bytes: int


@dataclass(eq=False, repr=False, slots=True)
class Sum:
    """What calls of several kinds did together, whichever convention they are counted by afterwards."""

    entry: Entry  # of the first of them
    phase: str
    calls: int = 0
    macs: Counter[str] = field(default_factory=Counter)
    model: Counter[str] = field(default_factory=Counter)
    vector: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    sent: Any = 0  # to other ranks, in bytes

    def add(self, part: Line) -> None:
        """Take one more kind of call in."""
        work, calls = part.entry.work, part.calls
        self.calls += calls * bool(work.executed or not work.model)
        self.bytes += calls * part.bytes
        self.sent += calls * sum(each.sent for each in work.exchanges)
        for total, counts in ((self.macs, part.macs), (self.model, part.model), (self.vector, part.vector)):
            for kind, n in counts.items():
                total[kind] += calls * n

    def amounts(self, convention: Any) -> dict[str, Any]:
        """What they come to under *convention*, by column."""
        return {
            "flops": convention.flops(self.macs), "model_flops": convention.flops(self.model),
            "vector_flops": convention.vector_flops(self.vector), "bytes": self.bytes, "sent": round(self.sent),
        }  # fmt: skip


def sums(report: Any, key: Callable[[Line], Any]) -> dict[Any, Sum]:
    """The parts that *key* says the same of, each lot added up, in the order in which they were first seen."""
    found: dict[Any, Sum] = {}
    for part in parts(report):
        name = key(part)
        if name not in found:
            found[name] = Sum(part.entry, part.phase)
        found[name].add(part)
    return found


def parts(report: Any) -> Iterator[Line]:
    """What was seen, phase by phase."""
    for entry, where, calls in report.lines():
        work, phase = entry.work, where.phase
        model = work.model if phase in ("forward", "backward") else {}
        yield Line(entry, where.path, phase, calls, work.executed, model, work.vector, work.bytes)
        if work.recomputed or work.vector_recomputed:
            yield Line(entry, where.path, "recompute", calls, work.recomputed, {}, work.vector_recomputed, 0)
        if work.ahead:
            later = "backward" if phase == "forward" else phase
            yield Line(entry, where.path, later, calls, work.ahead, work.ahead if model else {}, {}, 0)


def phase(report: Any, name: str) -> Cost:
    """What ran in one of the phases."""
    macs, vector, moved = Counter[str](), Counter[str](), 0
    for each in report.sums():
        if each.phase == name:
            moved += each.bytes
            for total, counts in ((macs, each.macs), (vector, each.vector)):
                for kind, n in counts.items():
                    total[kind] += n
    exact = {kind: settled(n) for kind, n in macs.items()}
    return Cost(name, macs_by_kind=exact, vector_by_kind=dict(vector), bytes=moved, convention=report.convention)


def calls(report: Any) -> Iterator[Calls]:
    """What was executed, for a roofline: a fused backward that computes scores again is one call, of the backward pass."""
    for entry, where, calls in report.lines():
        work = entry.work
        if work.status != FREE or work.bytes:
            flops = sum(map(report.convention.flops, work.carried_out))
            format = format_of(work.dtype) if flops else ""
            yield Calls(entry.op, where.phase, calls, format, flops, work.bytes, work.status != UNKNOWN)


def by_op(report: Any, sort: str) -> Table:
    """`Report.by_op`."""
    choice("sort", sort, SORTS)
    rows, whole = [], report.flops
    for each in report.sums():
        work, amounts = each.entry.work, each.amounts(report.convention)
        amounts |= {name: settled(amounts[name]) for name in _FLOPS}
        flops, moved = amounts["flops"], amounts["bytes"]
        rows.append({
            "operator": each.entry.op, "phase": each.phase, "kernel": work.kernel, "calls": each.calls, "flops": flops,
            "share": flops / whole if whole else 0.0, **amounts, "intensity": flops / moved if moved else 0.0, "status": work.status,
        })  # fmt: skip
    order = sorted(
        rows, key=lambda row: row[sort] if sort == "operator" else (-row[sort], -row["flops"], -row["bytes"])
    )
    columns = [name for name in order[0] if name != "sent" or any(row["sent"] for row in order)] if order else []
    return Table(order, caption=f"by operator, convention {report.convention}", formats=FORMATS, columns=columns)


def check_depth(depth: Any) -> None:
    """Refuse what is no number of levels."""
    if depth is not None and (not isinstance(depth, int) or isinstance(depth, bool) or depth < 0):
        raise ValueError(f"depth={depth!r}: must be 0 (the model alone), 1, 2, … or None (all the way)")


def by_module(report: Any, depth: int | None) -> Table:
    """`Report.by_module`. What no module asked for comes last."""
    check_depth(depth)
    columns = ("module", "flops", "share", *PHASES, "model_flops", "vector_flops", "bytes", "sent")
    rows: dict[str, dict[str, Any]] = {}
    for (path, phase), each in sums(report, lambda part: (part.path, part.phase)).items():
        amounts = each.amounts(report.convention)
        amounts[phase] = amounts["flops"]
        names = path.split(".")
        for length in range(1, len(names) + 1):  # the module, and those around it
            row = rows.setdefault(".".join(names[:length]), dict.fromkeys(columns, 0))
            for name, amount in amounts.items():
                row[name] += amount
    whole, names_of = report.flops, module_names(rows.keys())
    if depth == 0 and "" not in names_of.values():  # several models, or none
        depth = 1
    shown = []
    for path in sorted(rows, key=lambda path: not path):
        row, name = rows[path], names_of[path]
        if depth is None or name.count(".") + bool(name) <= depth:
            row.update({column: settled(n) for column, n in row.items()})
            row.update(module=name, share=row["flops"] / whole if whole else 0.0)
            shown.append(row)
    idle = {
        phase for phase in (*PHASES[1:], "sent") if not any(row[phase] for row in shown)
    }  # kept in the rows, and not shown
    return Table(
        shown, caption=f"by module, convention {report.convention}", columns=[name for name in columns if name not in idle] * bool(shown),
        formats={**FORMATS, "module": lambda name: name or "(the model)"},
    )  # fmt: skip


def communication(report: Any) -> Table:
    """`Report.communication`."""
    lines = [(where, calls, each) for entry, where, calls in report.lines() for each in entry.work.exchanges]
    names_of = module_names({where.path for _, where, _ in report.lines()})
    rows: dict[Any, dict[str, Any]] = {}
    for where, calls, (collective, ranks, payload, sent, _) in lines:
        key = {"collective": collective, "ranks": ranks, "phase": where.phase, "module": names_of[where.path]}
        row = rows.setdefault(tuple(key.values()), {**key, "calls": 0, "payload": 0, "sent": 0})
        for column, amount in (("calls", 1), ("payload", payload), ("sent", sent)):
            row[column] += calls * amount
    order = [{**row, "sent": round(row["sent"])} for row in sorted(rows.values(), key=lambda row: -row["sent"])]
    formats = {**FORMATS, "module": lambda name: name or "(the model)"}
    return Table(order, caption="sent to other ranks, by a ring", formats=formats)


def module_names(paths: Collection[str]) -> dict[str, str]:
    """What each path is called: without the root's name, if there is one root that calls others."""
    roots = {path.split(".", 1)[0] for path in paths if path}
    parents = roots if len(roots) == 1 else {path.split(".", 1)[0] for path in paths if "." in path}
    names = {path: path or "(no module)" for path in paths}
    if len(parents) == 1:
        (root,) = parents
        names.update({path: path[len(root) + 1 :] for path in paths if f"{path}.".startswith(f"{root}.")})
    return names
