"""The least time of a program on a device: each operator's roofline, and their sum."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from flopkit import devices, units
from flopkit.counter.breakdown import FORMATS, format_of
from flopkit.counter.work import FREE, PHASES, UNKNOWN
from flopkit.derivations import number_format
from flopkit.rooflines import roofline as bound_of
from flopkit.tables import Table

__all__ = ["Timing", "roofline"]

COLUMNS = ("operator", "phase", "dtype", "calls", "flops", "bytes", "seconds", "share", "bound")
_WIDE = ("int16", "int32", "int64", "uint16", "uint32", "uint64")  # for which no maker prints a peak


@dataclass
class Timing:
    """The least time of a program on a device, and where that time goes: the result of `flopkit.Report.roofline`."""

    rows: list[dict[str, Any]]  # by operator and phase, the most time first: calls, flops, bytes, seconds, share, bound
    by_phase: dict[str, float]  # seconds of forward, backward, recompute and optimizer
    device: str
    dtype: str | None  # the format whose peak was used for every operator; None: each operator's own
    peaks: dict[str, float]  # FLOP/s by number format, for the formats of the program's products
    bandwidth: float  # bytes/s that the traffic was divided by
    convention: Any
    notes: list[str]  # what the numbers leave out

    @property
    def seconds(self) -> float:
        """The sum over all calls of ``max(flops / peak, bytes / bandwidth)``: the operators run one after the other."""
        return sum(self.by_phase.values())

    @property
    def compute_seconds(self) -> float:
        """Seconds of the calls that are compute-bound."""
        return float(sum(row["compute_seconds"] for row in self.rows))

    @property
    def memory_seconds(self) -> float:
        """Seconds of the calls that are memory-bound."""
        return float(sum(row["memory_seconds"] for row in self.rows))

    @property
    def utilisation(self) -> float:
        """The highest HFU that the program can reach: its share of the peak if it takes ``seconds``.

        If products run in several formats: the time that all products take at their peaks, divided by ``seconds``.
        """
        return float(sum(row["at_peak"] for row in self.rows) / self.seconds) if self.seconds else 0.0

    def table(self, most: int | None = None) -> Table:
        """The rows as a table, the first *most* of them; None: all.

        Notes
        -----
        Columns: *operator*, *phase*, *dtype* that its products run in, *calls*, *flops* that were executed, *bytes*, the least
        *seconds* of all its calls, their *share* of the total, and *bound*: compute or memory.
        """
        caption = f"least time on {self.device}, {self._formats()}, convention {self.convention}"
        if most is not None and len(self.rows) > most:
            caption += f" (the first {most} of {len(self.rows)}; .table() has all)"
        shown = [{name: row[name] for name in COLUMNS} for row in self.rows[:most]]
        return Table(shown, caption=caption, formats={**FORMATS, "seconds": _time})

    def summary(self) -> list[str]:
        """The timing in a few lines."""
        rates = [f"{units.format_value(peak, 'FLOP/s')} in {dtype}" for dtype, peak in self.peaks.items()]
        lines = [
            f"at least {_time(self.seconds)} on {self.device} ({self._formats()}), run operator by operator",
            ", ".join(f"{phase} {_time(s)}" for phase, s in self.by_phase.items() if s),
            f"{_time(self.compute_seconds)} bound by arithmetic{' at ' * bool(rates)}{' and '.join(rates)}, "
            f"{_time(self.memory_seconds)} by memory at {units.format_value(self.bandwidth, 'B/s')}; "
            f"at most {units.format_value(self.utilisation, '%')} of the peak",
            *self.notes,
        ]
        return [line for line in lines if line]

    def _formats(self) -> str:
        return self.dtype or " and ".join(self.peaks) or "no products"

    def __repr__(self) -> str:
        return "\n".join([*self.summary(), "", str(self.table(12))])

    def _repr_html_(self) -> str:
        return "".join(f"<div>{html.escape(line)}</div>" for line in self.summary()) + self.table(12)._repr_html_()


def roofline(report: Any, device: Any, dtype: Any) -> Timing:
    """Each operator's least time on *device*, what bounds it, and the sum: see `flopkit.Report.roofline`."""
    named = devices.device(device) if isinstance(device, str) else device
    if dtype is not None:
        dtype = number_format(dtype)
    peaks: dict[str, float] = {}
    own = dtype is None and hasattr(named, "bandwidth") and hasattr(named, "peak")
    # Else the bound says what is wrong with the device or the format.
    bandwidth = float(named.bandwidth if own else _bound(named, dtype or "fp32", "").bandwidth)
    twice = 2 / report.convention.fma
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    by_phase = dict.fromkeys(PHASES, 0.0)
    unknown = 0
    without_peak = Counter[str]()
    for entry, where, calls in report.lines():
        work, op, phase = entry.work, entry.op, where.phase
        if work.status == FREE and not work.bytes:
            continue
        flops = report.convention.flops(work.executed) + report.convention.flops(work.recomputed)
        format = (dtype or devices.fastest_mode(named, format_of(work.dtype))) if flops else ""
        if dtype is None and format in _WIDE and format not in getattr(named, "dtypes", (format,)):
            without_peak[format] += calls
            format = ""
        if format and format not in peaks:
            peaks[format] = float(_bound(named, format, op).peak)
        compute, memory = twice * flops / peaks[format] if format else 0.0, work.bytes / bandwidth
        seconds = calls * max(compute, memory)
        amounts = {"calls": calls, "flops": calls * flops, "bytes": calls * work.bytes, "seconds": seconds, "at_peak": calls * compute,
                   "compute_seconds" if compute >= memory else "memory_seconds": seconds}  # fmt: skip
        row = rows.setdefault((op, phase), {
            "operator": op, "phase": phase, "dtypes": {}, "calls": 0, "flops": 0, "bytes": 0, "seconds": 0.0, "compute_seconds": 0.0,
            "memory_seconds": 0.0, "at_peak": 0.0,
        })  # fmt: skip
        row["dtypes"][format] = None
        for name, amount in amounts.items():
            row[name] += amount
        by_phase[phase] += seconds
        unknown += calls * (work.status == UNKNOWN)
    total = sum(by_phase.values())
    for row in rows.values():
        row["share"] = row["seconds"] / total if total else 0.0
        row["bound"] = (
            "both"
            if row["compute_seconds"] and row["memory_seconds"]
            else "compute"
            if row["compute_seconds"]
            else "memory"
        )
        row["dtype"] = " and ".join(filter(None, row.pop("dtypes")))
    notes = [f"{unknown:,} calls of operators that nobody knows are in it with their bytes alone"] if unknown else []
    notes += [
        f"{calls:,} calls in {format}, for which the device has no peak, are in it with their bytes alone"
        for format, calls in without_peak.items()
    ]
    name = named.name if isinstance(getattr(named, "name", None), str) else type(named).__name__
    order = sorted(rows.values(), key=lambda row: -row["seconds"])
    return Timing(order, by_phase, name, dtype, peaks, bandwidth, report.convention, notes)


def _bound(device: Any, dtype: str, op: str) -> Any:
    """The device's bound in a format, with its peak and bandwidth."""
    try:
        return bound_of(SimpleNamespace(flops=0, bytes=0), device, dtype)
    except ValueError as error:
        if not op:
            raise
        raise ValueError(f"{op} runs in {dtype}: {error}; pass dtype= to take one format for every operator") from None


def _time(seconds: float) -> str:
    return units.format_value(seconds, "s")
