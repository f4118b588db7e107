"""The rows of a profile: what the joining found of each operator, under a convention and a roof, by itself or in groups."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from flopkit import devices, units
from flopkit.counter.breakdown import FORMATS as OF_COUNTS
from flopkit.counter.work import UNKNOWN
from flopkit.dtypes import format_of
from flopkit.measuring.protocol import interval
from flopkit.profiling.compiled import COMPILED
from flopkit.profiling.joining import Joined
from flopkit.profiling.matching import Key
from flopkit.rooflines import Calls, program_bound, roofline

__all__ = ["beats", "compared", "grouped", "key_of", "main_roof", "rows_of"]

SMALL = (2**16, 2**20)  # bytes and FLOPs of a call on a CPU: with less, most of its time is the way to the kernel
AT_ROOF = 0.8  # of the roof: what sits there has nothing to gain
_BEATEN = 1.02  # of the roof: more than rounding
MARKS = ("operator", "module", "phase")
COLUMNS = ("seconds", "share", "flops", "bytes", "flops_per_s", "bytes_per_s", "of_roof", "bound", "launches")
FORMATS: dict[str, Callable[[Any], str]] = {
    **OF_COUNTS,
    **{
        column: partial(units.format_value, unit=unit)
        for column, unit in {
            "seconds": "s", "flops_per_s": "FLOP/s", "bytes_per_s": "B/s", "of_roof": "%", "at most": "%",
            "before": "s", "after": "s", "saved": "s", "low": "s", "high": "s", "exposed": "s", "hidden": "s", "start": "s",
        }.items()
    },
    "launches": lambda n: f"{n:,.4g}",
}  # fmt: skip


Rows = list[dict[str, Any]]


def beats(row: dict[str, Any]) -> bool:
    """Whether a row is faster than its roof: then the roof is not its own, and says nothing of what it can gain."""
    return bool((row["of_roof"] or 0.0) > _BEATEN)


def key_of(row: dict[str, Any]) -> Key:
    """Operator, module and phase of a row."""
    return row["operator"], row["module"], row["phase"]


def rows_of(joined: Joined, report: Any, device: Any, dtype: Any) -> Rows:
    """A row for each operator, module and phase, the most seconds first; with their least time, where a device is known."""
    keys, whole = list(joined.rows), statistics.fmean(joined.steps)
    bounds: dict[Key, dict[str, Any]] = {}
    if device is not None:
        calls = [
            Calls(key[0], str(place), 1, format_of(entry.work.dtype) if flops else "", flops, _bytes(key, [entry]) or 0, entry.work.status != UNKNOWN)
            for place, key in enumerate(keys)
            for entry in joined.rows[key].entries
            for flops in (_flops(report, [entry]),)
        ]  # fmt: skip
        places = [str(place) for place in range(len(keys))]  # each row is a phase to the bound, which adds up by phase
        bound = program_bound(calls, device, dtype, phases=places, convention=report.convention)
        bounds = {keys[int(row["phase"])]: row for row in bound.rows}
    found = []
    for key, row in joined.rows.items():
        least = bounds.get(key, {})
        found.append(_completed({
            **dict(zip(MARKS, key, strict=True)), "seconds": statistics.fmean(row.seconds), "flops": _flops(report, row.entries),
            "bytes": _bytes(key, row.entries), "launches": row.launches / len(row.seconds),
            "least": least.get("seconds"), "at_peak": least.get("at_peak"), "roof": "" if key[0].startswith(COMPILED) else least.get("bound", ""),
            "waited": row.waited, "communication": row.communication, "hidden": row.hidden,
        }, whole, joined.on_gpu))  # fmt: skip
    return sorted(found, key=lambda row: -row["seconds"])


def grouped(rows: Rows, place: Callable[[dict[str, Any]], Key], whole: float, on_gpu: bool) -> Rows:
    """The rows that *place* puts together, added up; *whole* is the step."""
    groups: dict[Key, Rows] = {}
    for row in rows:
        groups.setdefault(place(row), []).append(row)
    found = []
    for key, members in groups.items():
        total: dict[str, Any] = dict(zip(MARKS, key, strict=True))
        for name in ("seconds", "flops", "launches", "waited", "communication", "hidden"):
            total[name] = sum(row[name] for row in members)
        moved = [row["bytes"] for row in members]
        total["bytes"] = None if None in moved else sum(moved)
        for name in ("least", "at_peak"):
            known = [row[name] for row in members if row[name] is not None]
            total[name] = sum(known) if known else None
        roofs = {row["roof"] for row in members if row["roof"]}
        total["roof"] = roofs.pop() if len(roofs) == 1 else "both" if roofs else ""
        found.append(_completed(total, whole, on_gpu))
    return sorted(found, key=lambda row: -row["seconds"])


def _completed(row: dict[str, Any], whole: float, on_gpu: bool) -> dict[str, Any]:
    """*row* with its shares, rates and bound."""
    seconds = row["seconds"]
    row["share"] = seconds / whole if whole else 0.0
    row["flops_per_s"] = row["flops"] / seconds if seconds and row["flops"] else None
    row["bytes_per_s"] = row["bytes"] / seconds if seconds and row["bytes"] else None
    row["of_roof"] = row["least"] / seconds if row["least"] and seconds else None
    small = all(
        row[name] is not None and row[name] < most * row["launches"]
        for name, most in zip(("bytes", "flops"), SMALL, strict=True)
    )
    short = row["waited"] > seconds if on_gpu else small
    if row["communication"]:
        row["bound"] = "communication"
    elif row["launches"] and short and (row["of_roof"] or 0.0) < AT_ROOF:
        row["bound"] = "launch"
    else:
        row["bound"] = row["roof"]
    return row


def _bytes(key: Key, entries: Iterable[Any]) -> int | None:
    """What the operators of a row move; None where they were fused and move less."""
    return None if key[0].startswith(COMPILED) else sum(entry.work.bytes for entry in entries)


def _flops(report: Any, entries: Iterable[Any]) -> Any:
    return sum(report.convention.flops(macs) for entry in entries for macs in entry.work.carried_out)


def main_roof(joined: Joined, report: Any, device: Any, dtype: Any) -> tuple[float, float]:
    """Bandwidth of the device, and its peak in the number format with the most FLOPs."""
    flops: dict[str, Any] = {}
    for entry in (entry for row in joined.rows.values() for entry in row.entries):
        format = format_of(entry.work.dtype)
        flops[format] = flops.get(format, 0) + _flops(report, [entry])
    named = devices.device(device) if isinstance(device, str) else device
    mode = dtype or devices.fastest_mode(named, max(flops, key=lambda format: flops[format]))
    at_ridge = roofline(SimpleNamespace(flops=1, bytes=1), named, mode)
    return float(at_ridge.bandwidth), float(at_ridge.peak)


def compared(before: Joined, after: Joined) -> Rows:
    """Seconds of the step and of each operator and phase before and after, what was saved, and its 95 % interval."""

    def by_step(joined: Joined) -> dict[tuple[str, str], Sequence[float]]:
        found: dict[tuple[str, str], Sequence[float]] = {("(the step)", ""): joined.steps}
        for (operator, _, phase), row in joined.rows.items():
            others = found.get((operator, phase), [0.0] * len(row.seconds))
            found[operator, phase] = [a + b for a, b in zip(others, row.seconds, strict=True)]
        return found

    mine, theirs = by_step(before), by_step(after)
    rows: Rows = []
    for operator, phase in dict.fromkeys([*mine, *theirs]):
        a = mine.get((operator, phase), [0.0] * len(before.steps))
        b = theirs.get((operator, phase), [0.0] * len(after.steps))
        saved, half = statistics.fmean(a) - statistics.fmean(b), math.hypot(interval(a), interval(b))
        verdict = "faster" if saved > half else "slower" if saved < -half else "no difference seen"
        rows.append({"operator": operator, "phase": phase, "before": statistics.fmean(a), "after": statistics.fmean(b),
                     "saved": saved, "low": saved - half, "high": saved + half, "verdict": verdict})  # fmt: skip
    return [rows[0], *sorted(rows[1:], key=lambda row: -abs(row["saved"]))]
