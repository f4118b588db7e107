"""The rows of a profile: what the joining found of each operator, under a convention and a roof, by itself or in groups."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from flopkit import units
from flopkit.counter.breakdown import FORMATS as OF_COUNTS
from flopkit.counter.work import UNKNOWN
from flopkit.dtypes import format_of
from flopkit.profiling.joining import Joined
from flopkit.profiling.matching import COMPILED, Key
from flopkit.rooflines import Calls, program_bound

__all__ = ["beats", "flops_of", "grouped", "key_of", "rows_of"]

SMALL = {"bytes": 2**16, "flops": 2**20}  # of a call on a CPU: with less, most of its time is the way to the kernel
AT_ROOF = 0.8  # of the roof: what sits there has nothing to gain
BEATEN = 1.02  # of the roof: more than rounding
MARKS = ("operator", "module", "phase")
COLUMNS = ("seconds", "share", "flops", "bytes", "flops_per_s", "bytes_per_s", "of_roof", "bound", "launches")
SUMS = ("seconds", "flops", "launches", "waited", "communication", "hidden")
_UNITS = dict.fromkeys(("seconds", "before", "after", "saved", "low", "high", "exposed", "hidden", "start"), "s")
_UNITS |= {"flops_per_s": "FLOP/s", "bytes_per_s": "B/s", "of_roof": "%"}
FORMATS: dict[str, Callable[[Any], str]] = {
    **OF_COUNTS,
    **{column: partial(units.format_value, unit=unit) for column, unit in _UNITS.items()},
    **dict.fromkeys(("launches", "number"), lambda n: f"{n:,.4g}"),
}

Rows = list[dict[str, Any]]


def beats(row: dict[str, Any]) -> bool:
    """Whether a row is faster than its roof: then the roof is not its own, and says nothing of what it can gain."""
    return bool((row["of_roof"] or 0.0) > BEATEN)


def key_of(row: dict[str, Any]) -> Key:
    """Operator, module and phase of a row."""
    return row["operator"], row["module"], row["phase"]


def rows_of(joined: Joined, report: Any, device: Any, dtype: Any) -> Rows:
    """A row for each operator, module and phase, the most seconds first; with their least time, where a device is known."""
    keys = list(joined.rows)
    bounds: dict[Key, dict[str, Any]] = {}
    if device is not None:
        calls = [
            Calls(key[0], str(place), 1, format_of(entry.work.dtype) if flops else "", flops, _bytes(key, [entry]) or 0, entry.work.status != UNKNOWN)
            for place, key in enumerate(keys)
            for entry in joined.rows[key].entries
            for flops in (flops_of(report, [entry]),)
        ]  # fmt: skip
        places = [str(place) for place in range(len(keys))]  # each row is a phase to the bound, which adds up by phase
        bound = program_bound(calls, device, dtype, phases=places, convention=report.convention)
        bounds = {keys[int(row["phase"])]: row for row in bound.rows}
    found = []
    for key, row in joined.rows.items():
        least = bounds.get(key, {})
        found.append({
            **dict(zip(MARKS, key, strict=True)), "seconds": statistics.fmean(row.seconds), "flops": flops_of(report, row.entries),
            "bytes": _bytes(key, row.entries), "launches": row.launches / len(row.seconds), "waited": row.waited,
            "least": least.get("seconds"), "at_peak": least.get("at_peak"), "communication": row.communication, "hidden": row.hidden,
            "roof": "" if key[0].startswith(COMPILED) else least.get("bound", ""),
        })  # fmt: skip
    return _completed(found, joined)


def grouped(rows: Rows, place: Callable[[dict[str, Any]], Key], joined: Joined) -> Rows:
    """The rows that *place* puts together, added up."""
    groups: dict[Key, Rows] = {}
    for row in rows:
        groups.setdefault(place(row), []).append(row)
    found = []
    for key, members in groups.items():
        total: dict[str, Any] = {**dict(zip(MARKS, key, strict=True)), "bytes": None}
        total |= {name: sum(row[name] for row in members) for name in SUMS}
        if all(row["bytes"] is not None for row in members):
            total["bytes"] = sum(row["bytes"] for row in members)
        for name in ("least", "at_peak"):
            known = [row[name] for row in members if row[name] is not None]
            total[name] = sum(known) if known else None
        roofs = {row["roof"] for row in members if row["roof"]}
        total["roof"] = roofs.pop() if len(roofs) == 1 else "both" if roofs else ""
        found.append(total)
    return _completed(found, joined)


def _completed(rows: Rows, joined: Joined) -> Rows:
    """*rows* with their shares, rates and bounds, the most seconds first."""
    whole = statistics.fmean(joined.steps)
    for row in rows:
        seconds = row["seconds"]
        row["share"] = seconds / whole
        for rate, name in (("flops_per_s", "flops"), ("bytes_per_s", "bytes")):
            row[rate] = row[name] / seconds if seconds and row[name] else None
        row["of_roof"] = row["least"] / seconds if row["least"] and seconds else None
        small = all(row[name] is not None and row[name] < most * row["launches"] for name, most in SMALL.items())
        short = row["waited"] > seconds if joined.on_gpu else small
        launch = row["launches"] and short and (row["of_roof"] or 0.0) < AT_ROOF
        row["bound"] = "communication" if row["communication"] else "launch" if launch else row["roof"]
    return sorted(rows, key=lambda row: -row["seconds"])


def _bytes(key: Key, entries: Iterable[Any]) -> int | None:
    """What the operators of a row move; None where they were fused and move less."""
    return None if key[0].startswith(COMPILED) else sum(entry.work.bytes for entry in entries)


def flops_of(report: Any, entries: Iterable[Any]) -> Any:
    """What calls executed, under the report's convention."""
    return sum(report.convention.flops(macs) for entry in entries for macs in entry.work.carried_out)
