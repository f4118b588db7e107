"""A report in print: a few lines that leave nothing out, a table that fits a page, and what the report cannot know."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from flopkit import units
from flopkit.conventions import EXACT, TORCH
from flopkit.counter.breakdown import FORMATS
from flopkit.counter.formulas.attentions import ABOUT_MASKS
from flopkit.counter.work import PHASES, UNKNOWN
from flopkit.tables import Table

ROWS = 12  # of the table that a report shows
WRITTEN_OUT = "softmax next to batched products: if this is hand-written attention, masked positions are counted, too"


def summary(report: Any) -> list[str]:
    """The report in a few lines."""
    show = partial(units.format_value, unit="FLOPs")
    other = report.under(EXACT if report.convention != EXACT else TORCH)
    lines = [
        f"{show(each.model_flops)} of the model, {show(each.flops)} executed [{each.convention}]"
        for each in ([report, other] if other.model_flops != report.model_flops else [report])
    ]
    costs = [(phase, getattr(report, phase)) for phase in PHASES]
    lines.append(", ".join(f"{phase} {show(c.flops)}" for phase, c in costs if c.flops or c.vector_flops or c.bytes))
    vector, moved = show(report.vector_flops), show(report.bytes, unit="B")
    lines.append(f"{vector} element-wise, {moved}, {show(report.intensity, unit='FLOP/B')}")
    if sent := _sent(report):
        lines.append(sent)
    if missing := report.uncounted:
        names = ", ".join(f"{row['operator']} ({units.count(row['calls'], 'calls')})" for row in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        share = show(report.coverage, unit="%").replace("100 %", "more than 99.9 %")  # which it is, rounded
        lines.append(
            f"NOT COUNTED: {names}{more}; formulas cover {share} of the bytes. Register a formula with @fk.formula"
        )
    else:
        lines.append("every operator is accounted for")
    return [line for line in [*lines, *report.notes] if line]


def _sent(report: Any) -> str:
    """What went to other ranks: how much, by which collectives; the largest first."""
    calls, sent = Counter[str](), Counter[str]()
    for row in report.communication:
        calls[row["collective"]] += row["calls"]
        sent[row["collective"]] += row["sent"]
    parts = [
        f"{kind} {units.format_value(sent[kind], 'B')} in {units.count(calls[kind], 'calls')}"
        for kind, _ in sent.most_common()
        if kind != "receive"
    ]
    return f"{units.format_value(sent.total(), 'B')} sent to other ranks: {', '.join(parts)}" if parts else ""


def table(report: Any) -> Table:
    """The first rows of `by_op`, narrow enough for a page."""
    rows = [row for row in report.by_op() if row["flops"] or row["vector_flops"] or row["bytes"]]
    caption = f"by operator, convention {report.convention}"
    if len(rows) > ROWS:
        caption += f" (the first {ROWS} of {len(rows)}; .by_op() has all)"
    shown = []
    for row in rows[:ROWS]:
        kernel = row["kernel"].replace(" (assumed: nothing runs on meta)", ", assumed")
        shown.append({
            "operator": f"{row['operator']} [{kernel}]" if kernel else row["operator"], "phase": row["phase"], "calls": row["calls"],
            "FLOPs": row["flops"], "share": row["share"], "vector": row["vector_flops"], "bytes": row["bytes"], "FLOP/B": row["intensity"],
        })  # fmt: skip
    formats = {**FORMATS, "FLOPs": _short, "vector": _short, "FLOP/B": units.format_value}
    return Table(shown, caption=caption, formats=formats)


def _short(flops: Any) -> str:
    return units.format_value(flops, "FLOPs").removesuffix("FLOPs").removesuffix("FLOP").strip()


def notes(report: Any) -> list[str]:
    """What single calls left unsaid, each with how many there were."""
    hidden = Counter[str]()
    of_masks = report.convention.hidden != report.convention.scores
    unimportant = frozenset() if of_masks else ABOUT_MASKS  # every position counts, whatever a mask says
    for entry, where, calls in report.lines():
        note = entry.work.note
        if note and note not in unimportant and (where.phase == "forward" or entry.work.status == UNKNOWN):
            hidden[note] += calls
    if of_masks and (calls := _written_out(report)):
        hidden[WRITTEN_OUT] = calls
    return [f"{note} ({units.count(calls, 'calls')})" for note, calls in hidden.items()]


def _written_out(report: Any) -> int:
    """Calls of softmax next to batched products, less those of attention calls whose two products were counted by themselves."""
    softmaxes, batched, of_calls = Counter[str](), Counter[str](), Counter[str]()
    for entry, where, calls in report.lines():
        if where.phase == "forward" and entry.op in ("_softmax", "_safe_softmax"):
            softmaxes[where.path] += calls
        elif where.phase == "forward" and entry.op in ("bmm", "baddbmm"):
            products = of_calls if "scores" in entry.work.model else batched
            products[where.path] += calls
    beside = [path for path in softmaxes if {path, path.rpartition(".")[0]} & batched.keys()]
    return sum(max(softmaxes[path] - of_calls[path] // 2, 0) for path in beside)
