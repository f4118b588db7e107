"""A report's numbers: by phase, by number format, by operator, and by module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from flopkit import units
from flopkit.cost import Cost
from flopkit.counter.ledger import Entry
from flopkit.counter.work import FREE, PHASES, UNKNOWN, settled
from flopkit.dtypes import canonical
from flopkit.rooflines import Calls
from flopkit.sizes import choice
from flopkit.tables import Table

__all__ = ["FORMATS", "by_dtype", "by_module", "by_op", "format_of", "model_flops", "parts", "phase"]

FORMATS = {
    **{name: (lambda v: units.format_value(v, "FLOPs")) for name in ("flops", "model_flops", "vector_flops", *PHASES)},
    "share": lambda v: units.format_value(v, "%"),
    "bytes": lambda v: units.format_value(v, "B"),
    "intensity": lambda v: units.format_value(v, "FLOP/B"),
}
_PARTS = {
    "complex32": "fp16", "complex64": "fp32", "complex128": "fp64", "quint8": "int8", "qint8": "int8", "qint32": "int32",
}  # fmt: skip
MODEL = ("forward", "backward")  # the phases that the mathematics asks for


class Part(NamedTuple):
    """What calls of one kind did in one phase. A fused backward has a part of its own for the forward work that it recomputes."""

    entry: Entry
    path: str
    phase: str
    calls: int
    macs: Mapping[str, Any]
    model: Mapping[str, Any]
    vector: Mapping[str, Any]
    bytes: int


def parts(report: Any) -> Iterator[Part]:
    """What was seen, phase by phase."""
    for entry, where, calls in report.lines():
        work, phase = entry.work, where.phase
        model = work.model if phase in MODEL else {}
        yield Part(entry, where.path, phase, calls, work.executed, model, work.vector, work.bytes)
        if work.recomputed or work.vector_recomputed:
            yield Part(entry, where.path, "recompute", calls, work.recomputed, {}, work.vector_recomputed, 0)


def model_flops(report: Any) -> Any:
    """What the mathematics asks for, of the forward and the backward pass."""
    return settled(sum(part.calls * report.convention.flops(part.model) for part in parts(report)))


def phase(report: Any, name: str) -> Cost:
    """What ran in one of the phases."""
    macs: dict[str, Any] = {}
    vector: dict[str, Any] = {}
    moved = 0
    for part in parts(report):
        if part.phase == name:
            for total, counts in ((macs, part.macs), (vector, part.vector)):
                for kind, n in counts.items():
                    total[kind] = total.get(kind, 0) + part.calls * n
            moved += part.calls * part.bytes
    macs = {kind: settled(n) for kind, n in macs.items()}
    return replace(Cost(name, macs_by_kind=macs, vector_by_kind=vector, bytes=moved), convention=report.convention)


def by_dtype(report: Any, model: bool) -> dict[str, Any]:
    """FLOPs by the number format of the operands: those that were executed, or those of the *model*."""
    found: dict[str, Any] = {}
    for part in parts(report):
        if flops := report.convention.flops(part.model if model else part.macs):
            format = format_of(part.entry.work.dtype)
            found[format] = found.get(format, 0) + part.calls * flops
    return {format: settled(flops) for format, flops in found.items()}


def calls(report: Any) -> Iterator[Calls]:
    """What was executed, as a roofline takes it: a fused backward that computes scores again is one call of the backward pass."""
    for entry, where, calls in report.lines():
        work = entry.work
        if work.status != FREE or work.bytes:
            flops = report.convention.flops(work.executed) + report.convention.flops(work.recomputed)
            format = format_of(work.dtype) if flops else ""
            yield Calls(entry.op, where.phase, calls, format, flops, work.bytes, work.status != UNKNOWN)


def format_of(dtype: str) -> str:
    """The format whose peak a product of such numbers meets."""
    return _PARTS.get(dtype) or canonical(dtype or "fp32")


SORTS = ("flops", "model_flops", "vector_flops", "bytes", "calls", "operator")


def by_op(report: Any, sort: str = "flops") -> Table:
    """One row for each operator, phase and kernel, the most of *sort* first."""
    choice("sort", sort, SORTS)
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for part in parts(report):
        work, calls = part.entry.work, part.calls
        key = (part.entry.op, part.phase, work.kernel)
        row = rows.setdefault(key, {
            "operator": part.entry.op, "phase": part.phase, "kernel": work.kernel, "calls": 0, "flops": 0, "share": 0.0, "model_flops": 0,
            "vector_flops": 0, "bytes": 0, "intensity": 0.0, "status": work.status,
        })  # fmt: skip
        row["calls"] += calls * bool(work.executed or not work.model)
        row["flops"] += calls * report.convention.flops(part.macs)
        row["model_flops"] += calls * report.convention.flops(part.model)
        row["vector_flops"] += calls * report.convention.vector_flops(part.vector)
        row["bytes"] += calls * part.bytes
    whole = report.flops
    for row in rows.values():
        row.update({name: settled(row[name]) for name in ("flops", "model_flops", "vector_flops")})
        row["share"] = row["flops"] / whole if whole else 0.0
        row["intensity"] = row["flops"] / row["bytes"] if row["bytes"] else 0.0
    order = sorted(
        rows.values(), key=lambda row: row[sort] if sort == "operator" else (-row[sort], -row["flops"], -row["bytes"])
    )
    return Table(order, caption=f"by operator, convention {report.convention}", formats=FORMATS)


def by_module(report: Any, depth: int | None) -> Table:
    """One row for each module, what it calls included, in the order in which they were called; what no module asked for comes last."""
    if depth is not None and (not isinstance(depth, int) or isinstance(depth, bool) or depth < 0):
        raise ValueError(f"depth={depth!r}: must be 0 (the model alone), 1, 2, … or None (all the way)")
    columns = ("module", "flops", "share", *PHASES, "model_flops", "vector_flops", "bytes")
    rows: dict[str, dict[str, Any]] = {}
    for part in parts(report):
        names = part.path.split(".")
        amounts = {
            part.phase: part.calls * report.convention.flops(part.macs),
            "model_flops": part.calls * report.convention.flops(part.model),
            "vector_flops": part.calls * report.convention.vector_flops(part.vector),
            "bytes": part.calls * part.bytes,
        }
        for length in range(1, len(names) + 1):  # the module, and those around it
            row = rows.setdefault(".".join(names[:length]), dict.fromkeys(columns, 0))
            for name, amount in amounts.items():
                row[name] += amount
    whole, name_of = report.flops, _names(list(rows))
    shown = []
    for path in sorted(rows, key=lambda path: not path):
        row, name = rows[path], name_of(path)
        if depth is None or name.count(".") + bool(name) <= depth:
            row["flops"] = sum(row[phase] for phase in PHASES)
            row.update({column: settled(n) for column, n in row.items()})
            row.update(module=name, share=row["flops"] / whole if whole else 0.0)
            shown.append(row)
    idle = {phase for phase in PHASES[1:] if not any(row[phase] for row in shown)}  # kept in the rows, and not shown
    return Table(
        shown, caption=f"by module, convention {report.convention}", columns=[name for name in columns if name not in idle] * bool(shown),
        formats={**FORMATS, "module": lambda name: name or "(the model)"},
    )  # fmt: skip


def _names(paths: list[str]) -> Any:
    """How a path is called: without the root's name, if there is one root that calls others."""
    roots = {path.split(".", 1)[0] for path in paths if path}
    parents = roots if len(roots) == 1 else {path.split(".", 1)[0] for path in paths if "." in path}
    root = next(iter(parents)) if len(parents) == 1 else None

    def name(path: str) -> str:
        if root is not None and (path == root or path.startswith(f"{root}.")):
            return path[len(root) + 1 :]
        return path or ("(no module)" if roots else "")

    return name
