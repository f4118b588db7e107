"""The least time of a program on a device: each operator's roofline, and their sum."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from flopkit import devices, units
from flopkit.counter.work import FREE, PHASES, UNKNOWN
from flopkit.rooflines import roofline as bound_of
from flopkit.tables import Table

__all__ = ["Timing", "roofline"]


class Timing:
    """What `flopkit.Report.roofline` gives: how long a program takes at least on a device, and where that time goes.

    Parameters
    ----------
    rows : one for each operator and phase, the most time first: calls, flops, bytes, seconds, share, bound.
    seconds : the sum over all calls of ``max(flops / peak, bytes / bandwidth)``: an eager program, one operator after the other.
    fused_seconds : the same without the bytes that need not move where element-wise operators in a row are merged.
    by_phase : `seconds` of forward, backward, recompute and optimizer.
    device, dtype, peak, bandwidth : what was divided by, in FLOP/s and bytes/s.
    convention : under which the FLOPs are counted.
    notes : what is not in the numbers.
    """

    def __init__(
        self, rows: list[dict[str, Any]], by_phase: Mapping[str, float], fused_seconds: float, device: str, dtype: str, peak: float,
        bandwidth: float, convention: Any, notes: list[str],
    ) -> None:  # fmt: skip
        self.rows = rows
        self.by_phase = dict(by_phase)
        self.seconds = sum(by_phase.values())
        self.fused_seconds = fused_seconds
        self.device, self.dtype, self.peak, self.bandwidth = device, dtype, peak, bandwidth
        self.convention = convention
        self.notes = notes

    @property
    def compute_seconds(self) -> float:
        """Seconds of the calls that arithmetic bounds."""
        return float(sum(row["compute_seconds"] for row in self.rows))

    @property
    def memory_seconds(self) -> float:
        """Seconds of the calls that memory bounds."""
        return float(sum(row["memory_seconds"] for row in self.rows))

    @property
    def utilisation(self) -> float:
        """Share of the peak that the program reaches at most, if it takes `seconds`: a ceiling for HFU."""
        flops = sum(row["flops"] for row in self.rows) * 2 / self.convention.fma
        return float(flops / (self.seconds * self.peak)) if self.seconds else 0.0

    def table(self, most: int | None = None) -> Table:
        """The rows as a table, the first *most* of them; None: all."""
        columns = ("operator", "phase", "calls", "flops", "bytes", "seconds", "share", "bound")
        shown = [{name: row[name] for name in columns} for row in self.rows[:most]]
        caption = f"least time on {self.device}, {self.dtype}, convention {self.convention}"
        if most is not None and len(self.rows) > most:
            caption += f" (the first {most} of {len(self.rows)}; .table() has all)"
        return Table(shown, caption=caption, formats=_FORMATS)

    def summary(self) -> list[str]:
        """The timing in a few lines."""
        parts = [f"{phase} {_time(s)}" for phase, s in self.by_phase.items() if s]
        return [
            f"at least {_time(self.seconds)} on {self.device} ({self.dtype}), run operator by operator; {_time(self.fused_seconds)} "
            "where element-wise operators in a row are fused",
            ", ".join(parts),
            f"{_time(self.compute_seconds)} bound by arithmetic at {units.format_value(self.peak, 'FLOP/s')}, "
            f"{_time(self.memory_seconds)} by memory at {units.format_value(self.bandwidth, 'B/s')}; "
            f"at most {units.format_value(self.utilisation, '%')} of the peak",
            *self.notes,
        ]

    def __repr__(self) -> str:
        return "\n".join([*(line for line in self.summary() if line), "", str(self.table(12))])

    def _repr_html_(self) -> str:
        lines = "".join(f"<div>{html.escape(line)}</div>" for line in self.summary() if line)
        return lines + self.table(12)._repr_html_()


def roofline(report: Any, device: Any, dtype: Any = "bf16") -> Timing:
    """Each operator's least time on *device*, what bounds it, and the sum.

        seconds = Σ over calls of max(flops / peak, bytes / bandwidth)

    Parameters
    ----------
    report : what was counted. Executed FLOPs, under its convention; where that counts a multiply-add as one, it is brought to two,
        as peaks have it.
    device : a name, a `flopkit.Device`, or anything with `peak` and `bandwidth` (see `flopkit.roofline`).
    dtype : chooses the peak, the same for every operator; bytes are those of the tensors that were there.

    Left out, so that a measured time is longer: launching (microseconds a call: in a program of small operators that is most of
    the time), element-wise arithmetic (`vector_flops` runs on other units than the peak is of), kernels that move more than they have
    to, traffic between devices, and the FLOPs of operators that nobody knows, which stand here with their bytes. Left out the other
    way: caches, from which a small tensor is read faster than from memory.
    A fused backward that computes scores again (flash attention) is one call, and stands with the backward pass.

    Raises ``ValueError`` for a device or a number format that is not known, ``TypeError`` for what is no device.

    >>> import torch, flopkit as fk
    >>> with torch.device("meta"):
    ...     layer, x = torch.nn.Linear(4096, 4096, bias=False), torch.empty(8192, 4096)
    >>> timing = fk.count(layer, x).roofline("h100-sxm", "tf32")
    >>> f"{timing.seconds:.3g}", timing.rows[0]["bound"]
    ('0.000556', 'compute')
    """
    named = devices.device(device) if isinstance(device, str) else device
    nothing = bound_of(_Pair(0, 0), named, dtype)  # says what is wrong with the device or the format
    peak, bandwidth = float(nothing.peak), float(nothing.bandwidth)
    twice = 2 / report.convention.fma
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    by_phase = dict.fromkeys(PHASES, 0.0)
    unknown = 0
    for entry, where, calls in report.lines():
        work = entry.work
        if work.status == FREE and not work.bytes:
            continue
        flops = report.flops_of(work.done) + report.flops_of(work.again)
        compute, memory = twice * flops / peak, work.bytes / bandwidth
        row = rows.setdefault((entry.op, where.phase), _row(entry.op, where.phase))
        row["calls"] += calls
        row["flops"] += calls * flops
        row["bytes"] += calls * work.bytes
        row["seconds"] += calls * max(compute, memory)
        row["compute_seconds" if compute >= memory else "memory_seconds"] += calls * max(compute, memory)
        by_phase[where.phase] += calls * max(compute, memory)
        unknown += calls * (work.status == UNKNOWN)
    total = sum(by_phase.values())
    for row in rows.values():
        row["share"] = row["seconds"] / total if total else 0.0
        row["bound"] = _bound(row)
    saved = sum(report._source.ledger().merged_away.values()) / bandwidth
    notes = [f"{unknown:,} calls of operators that nobody knows are in it with their bytes alone"] if unknown else []
    name = named.name if isinstance(getattr(named, "name", None), str) else type(named).__name__
    return Timing(
        sorted(rows.values(), key=lambda row: -row["seconds"]), by_phase, total - saved, name, str(dtype), peak, bandwidth,
        report.convention, notes,
    )  # fmt: skip


class _Pair:
    """FLOPs and bytes."""

    def __init__(self, flops: int, bytes: int) -> None:
        self.flops, self.bytes = flops, bytes


def _row(op: str, phase: str) -> dict[str, Any]:
    return {"operator": op, "phase": phase, "calls": 0, "flops": 0, "bytes": 0, "seconds": 0.0, "share": 0.0, "bound": "",
            "compute_seconds": 0.0, "memory_seconds": 0.0}  # fmt: skip


def _bound(row: Mapping[str, Any]) -> str:
    """What bounds most of the time: calls of other shapes may be bound by the other."""
    if row["compute_seconds"] and row["memory_seconds"]:
        return "both"
    return "compute" if row["compute_seconds"] else "memory"


def _time(seconds: float) -> str:
    return units.format_value(seconds, "s")


_FORMATS = {
    "flops": lambda v: units.format_value(v, "FLOPs"),
    "bytes": lambda v: units.format_value(v, "B"),
    "seconds": _time,
    "share": lambda v: units.format_value(v, "%"),
}
