"""A report in print: a few lines that leave nothing out, and a table that fits a page."""

from __future__ import annotations

import html
from typing import Any

from flopkit import units
from flopkit.conventions import EXACT, TORCH
from flopkit.cost import Cost
from flopkit.counter.breakdown import FORMATS
from flopkit.counter.work import PHASES
from flopkit.tables import Table

__all__ = ["as_html", "calls_of", "summary", "table"]


def summary(report: Any) -> list[str]:
    """The report in a few lines."""
    other = report.under(EXACT if report.convention != EXACT else TORCH)
    lines = [
        f"{units.format_value(report.model_flops, 'FLOPs')} of the model, {units.format_value(report.flops, 'FLOPs')} executed "
        f"[{report.convention}]"
    ]
    if other.model_flops != report.model_flops:
        lines.append(
            f"{units.format_value(other.model_flops, 'FLOPs')} of the model, {units.format_value(other.flops, 'FLOPs')} executed "
            f"[{other.convention}]"
        )
    parts = [(phase, getattr(report, phase)) for phase in PHASES]
    lines.append(", ".join(f"{phase} {units.format_value(cost.flops, 'FLOPs')}" for phase, cost in parts if _ran(cost)))
    lines.append(
        f"{units.format_value(report.vector_flops, 'FLOPs')} element-wise, {units.format_value(report.bytes, 'B')}, "
        f"{units.format_value(report.intensity, 'FLOP/B')}"
    )
    missing = report.uncounted
    if missing:
        names = ", ".join(map(calls_of, missing[:5]))
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        lines.append(
            f"NOT COUNTED: {names}{more}; formulas cover {units.format_value(report.coverage, '%')} of the bytes. "
            "Register a formula with @fk.formula"
        )
    else:
        lines.append("every operator is accounted for")
    lines += report.notes
    return [line for line in lines if line]


def as_html(report: Any) -> str:
    """The same and the table, for a notebook."""
    return "".join(f"<div>{html.escape(line)}</div>" for line in summary(report)) + table(report)._repr_html_()


def table(report: Any, most: int = 12) -> Table:
    """The first rows of `by_op`, narrow enough for a page."""
    rows = [row for row in report.by_op() if row["flops"] or row["vector_flops"] or row["bytes"]]
    caption = f"by operator, convention {report.convention}"
    if len(rows) > most:
        caption += f" (the first {most} of {len(rows)}; .by_op() has all)"
    shown = [
        {
            "operator": f"{row['operator']} [{row['kernel'].replace(' (assumed: nothing runs on meta)', ', assumed')}]"
            if row["kernel"]
            else row["operator"],
            "phase": row["phase"],
            "calls": row["calls"],
            "FLOPs": row["flops"],
            "share": row["share"],
            "vector": row["vector_flops"],
            "bytes": row["bytes"],
            "FLOP/B": row["intensity"],
        }
        for row in rows[:most]
    ]
    formats = {
        "FLOPs": _short,
        "share": FORMATS["share"],
        "vector": _short,
        "bytes": FORMATS["bytes"],
        "FLOP/B": lambda v: units.format_value(v, ""),
    }
    return Table(shown, caption=caption, formats=formats)


def calls_of(row: dict[str, Any]) -> str:
    """An operator that nobody could explain, with its calls.

    >>> calls_of({"operator": "mylib.op", "calls": 1, "bytes": 8})
    'mylib.op (1 call)'
    """
    return f"{row['operator']} ({row['calls']:,} call{'s' * (row['calls'] != 1)})"


def _short(flops: Any) -> str:
    return units.format_value(flops, "FLOPs").removesuffix("FLOPs").removesuffix("FLOP").strip()


def _ran(cost: Cost) -> bool:
    return bool(cost.flops or cost.vector_flops or cost.bytes)
