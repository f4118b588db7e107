"""A report's numbers: in all, by phase, by number format, by operator, and by module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flopkit import units
from flopkit.cost import Cost
from flopkit.counter.ledger import Entry
from flopkit.counter.work import PHASES, settled
from flopkit.sizes import choice
from flopkit.tables import Table

__all__ = ["FORMATS", "by_dtype", "by_module", "by_op", "model_flops", "phase"]

FORMATS = {
    **{name: (lambda v: units.format_value(v, "FLOPs")) for name in ("flops", "model_flops", "vector_flops", *PHASES)},
    "share": lambda v: units.format_value(v, "%"),
    "bytes": lambda v: units.format_value(v, "B"),
    "intensity": lambda v: units.format_value(v, "FLOP/B"),
}


def model_flops(report: Any) -> Any:
    """What the mathematics asks for, of the forward and the backward pass."""
    found = (
        calls * report.flops_of(entry.work.model)
        for entry, where, calls in report.lines()
        if where.phase in ("forward", "backward")
    )
    return settled(sum(found))


def phase(report: Any, name: str) -> Cost:
    """What ran in one of the phases."""
    macs: dict[str, Any] = {}
    vector: dict[str, Any] = {}
    moved = 0
    for entry, where, calls in report.lines():
        work = entry.work
        if where.phase == name:
            _add(macs, work.done, calls)
            _add(vector, work.vector, calls)
            moved += calls * work.bytes
        if name == "recompute":
            _add(macs, work.again, calls)
            _add(vector, work.vector_again, calls)
    macs = {kind: settled(n) for kind, n in macs.items()}
    return replace(Cost(name, macs_by_kind=macs, vector_by_kind=vector, bytes=moved), convention=report.convention)


def _add(total: dict[str, Any], counts: Mapping[str, float], calls: int) -> None:
    for kind, n in counts.items():
        total[kind] = total.get(kind, 0) + calls * n


def by_dtype(report: Any, model: bool) -> dict[str, Any]:
    """FLOPs by the number format of the operands: those that were executed, or those of the *model*."""
    from flopkit.counter.timing import format_of

    found: dict[str, Any] = {}
    for entry, where, calls in report.lines():
        work = entry.work
        if model:
            kinds = [work.model] if where.phase in ("forward", "backward") else []
        else:
            kinds = [work.done, work.again]
        if flops := sum(report.flops_of(macs) for macs in kinds):
            format = format_of(work.dtype)
            found[format] = found.get(format, 0) + calls * flops
    return {format: settled(flops) for format, flops in found.items()}


SORTS = ("flops", "model_flops", "vector_flops", "bytes", "calls", "operator")


def by_op(report: Any, sort: str = "flops") -> Table:
    """One row for each operator, phase and kernel, the most of *sort* first."""
    choice("sort", sort, SORTS)
    groups: dict[tuple[str, str, str], list[tuple[Entry, int, bool]]] = {}
    for entry, where, calls in report.lines():
        groups.setdefault((entry.op, where.phase, entry.work.kernel), []).append((entry, calls, False))
        if entry.work.again:
            groups.setdefault((entry.op, "recompute", entry.work.kernel), []).append((entry, calls, True))
    whole = report.flops
    rows: list[dict[str, Any]] = []
    for (op, phase, kernel), lines in groups.items():
        flops = settled(
            sum(
                calls * report.flops_of(entry.work.again if again else entry.work.done) for entry, calls, again in lines
            )
        )
        model = sum(calls * report.flops_of(entry.work.model) for entry, calls, again in lines if not again)
        vector = sum(
            calls * report.vector_of(entry.work.vector_again if again else entry.work.vector)
            for entry, calls, again in lines
        )
        moved = sum(calls * entry.work.bytes for entry, calls, again in lines if not again)
        rows.append(
            {
                "operator": op,
                "phase": phase,
                "kernel": kernel,
                "calls": sum(calls for entry, calls, _ in lines if entry.work.done or not entry.work.model),
                "flops": flops,
                "share": flops / whole if whole else 0.0,
                "model_flops": settled(model) if phase in ("forward", "backward") else 0,
                "vector_flops": settled(vector),
                "bytes": moved,
                "intensity": flops / moved if moved else 0.0,
                "status": lines[0][0].work.status,
            }
        )
    rows.sort(key=lambda row: row["operator"] if sort == "operator" else (-row[sort], -row["flops"], -row["bytes"]))
    return Table(rows, caption=f"by operator, convention {report.convention}", formats=FORMATS)


def by_module(report: Any, depth: int | None) -> Table:
    """One row for each module, what it calls included, in the order in which they were called; what no module asked for comes last."""
    if depth is not None and (not isinstance(depth, int) or isinstance(depth, bool) or depth < 0):
        raise ValueError(f"depth={depth!r}: must be 0 (the model alone), 1, 2, … or None (all the way)")
    inclusive: dict[str, dict[str, Any]] = {}
    names = _names(report)
    for entry, where, calls in report.lines():
        path = where.path
        while True:
            row = inclusive.setdefault(path, dict.fromkeys((*PHASES, "model", "vector", "bytes"), 0))
            if where.phase in ("forward", "backward"):
                row["model"] += calls * report.flops_of(entry.work.model)
            row[where.phase] += calls * report.flops_of(entry.work.done)
            row["recompute"] += calls * report.flops_of(entry.work.again)
            row["vector"] += calls * (report.vector_of(entry.work.vector) + report.vector_of(entry.work.vector_again))
            row["bytes"] += calls * entry.work.bytes
            if "." not in path:
                break
            path = path.rsplit(".", 1)[0]
    rows = []
    whole = report.flops
    order = {path: place for place, path in enumerate(_order(report))}
    for path in sorted(
        inclusive, key=lambda p: (not p, order.get(p, len(order)))
    ):  # what no module asked for comes last
        name = names(path)
        if depth is not None and name.count(".") + bool(name) > depth:
            continue
        row = inclusive[path]
        flops = sum(row[phase] for phase in PHASES)
        rows.append(
            {
                "module": name,
                "flops": settled(flops),
                "share": flops / whole if whole else 0.0,
                **{phase: settled(row[phase]) for phase in PHASES},
                "model_flops": settled(row["model"]),
                "vector_flops": settled(row["vector"]),
                "bytes": row["bytes"],
            }
        )
    idle = {phase for phase in PHASES[1:] if not any(row[phase] for row in rows)}  # kept in the rows, and not shown
    columns = [name for name in (rows[0] if rows else ()) if name not in idle]
    formats = {**FORMATS, "module": lambda name: name or "(the model)"}
    return Table(rows, caption=f"by module, convention {report.convention}", formats=formats, columns=columns)


def _order(report: Any) -> list[str]:
    found: dict[str, None] = {}
    for _, where, _ in report.lines():
        path = where.path
        above = [path]
        while "." in path:
            path = path.rsplit(".", 1)[0]
            above.append(path)
        found.update(dict.fromkeys(reversed(above)))
    return list(found)


def _names(report: Any) -> Any:
    roots = {path.split(".", 1)[0] for path in _order(report) if path}
    if not roots:
        return lambda path: path
    parents = roots if len(roots) == 1 else {path.split(".", 1)[0] for path in _order(report) if "." in path}
    if len(parents) != 1:
        return lambda path: path or "(no module)"
    (root,) = parents

    def name(path: str) -> str:
        if path == root or path.startswith(f"{root}."):
            return path[len(root) + 1 :]
        return path or "(no module)"

    return name
