"""A report in print: a few lines that leave nothing out, a table that fits a page, and what the report cannot know."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flopkit import units
from flopkit.conventions import EXACT, TORCH
from flopkit.counter.breakdown import FORMATS
from flopkit.counter.work import PHASES, UNKNOWN
from flopkit.tables import Table

__all__ = ["calls_of", "notes", "summary", "table", "uncounted"]

WRITTEN_OUT = (
    "softmax beside batched products: if that is attention written out, its mask is not seen, and every position counts"
)


def summary(report: Any) -> list[str]:
    """The report in a few lines."""

    def show(number: Any, unit: str = "FLOPs") -> str:
        return units.format_value(number, unit)

    other = report.under(EXACT if report.convention != EXACT else TORCH)
    lines = [
        f"{show(each.model_flops)} of the model, {show(each.flops)} executed [{each.convention}]"
        for each in ([report, other] if other.model_flops != report.model_flops else [report])
    ]
    costs = [(phase, getattr(report, phase)) for phase in PHASES]
    lines.append(", ".join(f"{phase} {show(c.flops)}" for phase, c in costs if c.flops or c.vector_flops or c.bytes))
    lines.append(
        f"{show(report.vector_flops)} element-wise, {show(report.bytes, 'B')}, {show(report.intensity, 'FLOP/B')}"
    )
    missing = report.uncounted
    if missing:
        names = ", ".join(map(calls_of, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        lines.append(
            f"NOT COUNTED: {names}; formulas cover {show(report.coverage, '%')} of the bytes. Register a formula with @fk.formula"
        )
    else:
        lines.append("every operator is accounted for")
    return [line for line in [*lines, *report.notes] if line]


def table(report: Any, most: int = 12) -> Table:
    """The first rows of `by_op`, narrow enough for a page."""
    rows = [row for row in report.by_op() if row["flops"] or row["vector_flops"] or row["bytes"]]
    caption = f"by operator, convention {report.convention}"
    if len(rows) > most:
        caption += f" (the first {most} of {len(rows)}; .by_op() has all)"
    shown = []
    for row in rows[:most]:
        kernel = row["kernel"].replace(" (assumed: nothing runs on meta)", ", assumed")
        shown.append({
            "operator": f"{row['operator']} [{kernel}]" if kernel else row["operator"], "phase": row["phase"], "calls": row["calls"],
            "FLOPs": row["flops"], "share": row["share"], "vector": row["vector_flops"], "bytes": row["bytes"], "FLOP/B": row["intensity"],
        })  # fmt: skip
    formats = {**FORMATS, "FLOPs": _short, "vector": _short, "FLOP/B": lambda v: units.format_value(v, "")}
    return Table(shown, caption=caption, formats=formats)


def _short(flops: Any) -> str:
    return units.format_value(flops, "FLOPs").removesuffix("FLOPs").removesuffix("FLOP").strip()


def uncounted(report: Any) -> list[dict[str, Any]]:
    """Operators without a formula, their calls and bytes."""
    rows: dict[str, dict[str, Any]] = {}
    for entry, _, calls in report.lines():
        if entry.work.status == UNKNOWN:
            row = rows.setdefault(entry.op, {"operator": entry.op, "calls": 0, "bytes": 0})
            row["calls"] += calls
            row["bytes"] += calls * entry.work.bytes
    return sorted(rows.values(), key=lambda row: -row["bytes"])


def calls_of(row: dict[str, Any]) -> str:
    """An operator that nobody could explain, with its calls.

    >>> calls_of({"operator": "mylib.op", "calls": 1, "bytes": 8})
    'mylib.op (1 call)'
    """
    return f"{row['operator']} ({row['calls']:,} call{'s' * (row['calls'] != 1)})"


def notes(report: Any) -> list[str]:
    """What single calls left unsaid, each with how many there were."""
    hidden = Counter[str]()
    for entry, where, calls in report.lines():
        if entry.work.note and (where.phase == "forward" or entry.work.status == UNKNOWN):
            hidden[entry.work.note] += calls
    if report.convention.hidden != report.convention.scores and (calls := _written_out(report)):
        hidden[WRITTEN_OUT] = calls
    return [f"{note} ({calls} call{'s' * (calls != 1)})" for note, calls in hidden.items()]


def _written_out(report: Any) -> int:
    """Calls of softmax beside batched products, less those of attention calls whose two products were counted by themselves."""
    batched: set[str] = set()
    softmaxes, of_calls = Counter[str](), Counter[str]()
    for entry, where, calls in report.lines():
        if where.phase != "forward":
            continue
        if entry.op in ("_softmax", "_safe_softmax"):
            softmaxes[where.path] += calls
        elif entry.op in ("bmm", "baddbmm") and "scores" in entry.work.model:
            of_calls[where.path] += calls
        elif entry.op in ("bmm", "baddbmm"):
            batched.add(where.path)
    return sum(
        max(calls - of_calls[path] // 2, 0)
        for path, calls in softmaxes.items()
        if {path, path.rpartition(".")[0]} & batched
    )
