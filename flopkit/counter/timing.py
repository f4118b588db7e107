"""The least time of a program on a device: each operator's roofline, and their sum."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping
from typing import Any

from flopkit import devices, units
from flopkit.counter.work import FREE, PHASES, UNKNOWN
from flopkit.derivations import number_format
from flopkit.dtypes import canonical
from flopkit.rooflines import roofline as bound_of
from flopkit.tables import Table

__all__ = ["Timing", "format_of", "roofline"]


class Timing:
    """The least time of a program on a device, and where that time goes: the result of `flopkit.Report.roofline`.

    Attributes
    ----------
    rows : list[dict[str, Any]]
        One for each operator and phase, the most time first: calls, flops, bytes, seconds, share, bound.
    seconds : float
        The sum over all calls of ``max(flops / peak, bytes / bandwidth)``: the operators run one after the other.
    by_phase : Mapping[str, float]
        ``seconds`` of forward, backward, recompute and optimizer.
    device : str
        Name of the device.
    bandwidth : float
        Bytes/s that the traffic was divided by.
    peaks : Mapping[str, float]
        Peaks in FLOP/s by number format, for the formats of the program's products.
    dtype : str | None
        The format whose peak was used for every operator; None: each operator's own.
    convention : Any
        The convention of the FLOPs.
    notes : list[str]
        What the numbers leave out.
    """

    def __init__(
        self, rows: list[dict[str, Any]], by_phase: Mapping[str, float], device: str, dtype: str | None,
        peaks: Mapping[str, float], bandwidth: float, convention: Any, notes: list[str],
    ) -> None:  # fmt: skip
        self.rows = rows
        self.by_phase = dict(by_phase)
        self.seconds = sum(by_phase.values())
        self.device, self.dtype, self.peaks, self.bandwidth = device, dtype, dict(peaks), bandwidth
        self.convention = convention
        self.notes = notes

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
        columns = ("operator", "phase", "dtype", "calls", "flops", "bytes", "seconds", "share", "bound")
        shown = [{name: row[name] for name in columns} for row in self.rows[:most]]
        caption = f"least time on {self.device}, {self._formats()}, convention {self.convention}"
        if most is not None and len(self.rows) > most:
            caption += f" (the first {most} of {len(self.rows)}; .table() has all)"
        return Table(shown, caption=caption, formats=_FORMATS)

    def summary(self) -> list[str]:
        """The timing in a few lines."""
        parts = [f"{phase} {_time(s)}" for phase, s in self.by_phase.items() if s]
        return [
            f"at least {_time(self.seconds)} on {self.device} ({self._formats()}), run operator by operator",
            ", ".join(parts),
            f"{_time(self.compute_seconds)} bound by arithmetic{self._rates()}, "
            f"{_time(self.memory_seconds)} by memory at {units.format_value(self.bandwidth, 'B/s')}; "
            f"at most {units.format_value(self.utilisation, '%')} of the peak",
            *self.notes,
        ]

    def _formats(self) -> str:
        return self.dtype or " and ".join(self.peaks) or "no products"

    def _rates(self) -> str:
        rates = [f"{units.format_value(peak, 'FLOP/s')} in {dtype}" for dtype, peak in self.peaks.items()]
        return f" at {' and '.join(rates)}" if rates else ""

    def __repr__(self) -> str:
        return "\n".join([*(line for line in self.summary() if line), "", str(self.table(12))])

    def _repr_html_(self) -> str:
        lines = "".join(f"<div>{html.escape(line)}</div>" for line in self.summary() if line)
        return lines + self.table(12)._repr_html_()


def roofline(report: Any, device: Any, dtype: Any = None) -> Timing:
    """Each operator's least time on *device*, what bounds it, and the sum.

        seconds = Σ over calls of max(flops / peak, bytes / bandwidth)

    Parameters
    ----------
    report : Any
        What was counted. Executed FLOPs, under its convention; where that counts a multiply-add as one, it is brought to
        two, as peaks have it.
    device : Any
        A name, a `flopkit.Device`, or anything with ``peak`` and ``bandwidth`` (see `flopkit.roofline`).
    dtype : Any, optional
        The format whose peak is met. None: each operator meets that of its own operands (a complex number that of its parts;
        attention that of its queries, though products that stand in for its kernel may be wider). A format: the peak of
        that one for every operator, such as ``"tf32"`` for a program in float32 that is allowed to use it. Bytes are those
        of the tensors that were there, either way.

    Raises
    ------
    ValueError
        For a device or a number format that is not known, or for which the device has no peak.
    TypeError
        For what is no device.

    Notes
    -----
    Left out, so that a measured time is longer: launching (microseconds a call: in a program of small operators that is most of
    the time), element-wise arithmetic (`vector_flops` runs on other units than the peak is of), kernels that move more than they have
    to, traffic between devices, and the FLOPs of operators that nobody knows, which stand here with their bytes. Left out the other
    way: caches, from which a small tensor is read faster than from memory.
    A fused backward that computes scores again (flash attention) is one call, and stands with the backward pass.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> with torch.device("meta"):
    ...     layer, x = torch.nn.Linear(4096, 4096, bias=False), torch.empty(8192, 4096)
    >>> report = fk.count(layer, x)
    >>> [f"{report.roofline('h100-sxm', dtype).seconds:.3g}" for dtype in (None, "tf32")]  # float32 tensors
    ['0.0041', '0.000556']
    """
    named = devices.device(device) if isinstance(device, str) else device
    if dtype is not None:
        dtype = number_format(dtype)
    peaks: dict[str, float] = {}
    own = dtype is None and hasattr(named, "bandwidth") and hasattr(named, "peak")
    bandwidth = float(
        named.bandwidth if own else _bound(named, dtype or "fp32", "").bandwidth
    )  # says what is wrong with either
    twice = 2 / report.convention.fma
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    by_phase = dict.fromkeys(PHASES, 0.0)
    unknown = 0
    without_peak = Counter[str]()
    for entry, where, calls in report.lines():
        work = entry.work
        if work.status == FREE and not work.bytes:
            continue
        flops = report.flops_of(work.done) + report.flops_of(work.again)
        format = (dtype or devices.fastest_mode(named, format_of(work.dtype))) if flops else ""
        if dtype is None and format in _WIDE and format not in getattr(named, "dtypes", (format,)):
            without_peak[format] += calls
            format = ""
        if format and format not in peaks:
            peaks[format] = float(_bound(named, format, entry.op).peak)
        compute, memory = twice * flops / peaks[format] if format else 0.0, work.bytes / bandwidth
        row = rows.setdefault((entry.op, where.phase), _row(entry.op, where.phase))
        row["dtypes"][format] = None
        row["calls"] += calls
        row["flops"] += calls * flops
        row["bytes"] += calls * work.bytes
        row["seconds"] += calls * max(compute, memory)
        row["at_peak"] += calls * compute
        row["compute_seconds" if compute >= memory else "memory_seconds"] += calls * max(compute, memory)
        by_phase[where.phase] += calls * max(compute, memory)
        unknown += calls * (work.status == UNKNOWN)
    total = sum(by_phase.values())
    for row in rows.values():
        row["share"] = row["seconds"] / total if total else 0.0
        row["bound"] = _what_bounds(row)
        row["dtype"] = " and ".join(filter(None, row.pop("dtypes")))
    notes = [f"{unknown:,} calls of operators that nobody knows are in it with their bytes alone"] if unknown else []
    notes += [
        f"{calls:,} calls in {format}, for which the device has no peak, are in it with their bytes alone"
        for format, calls in without_peak.items()
    ]
    name = named.name if isinstance(getattr(named, "name", None), str) else type(named).__name__
    return Timing(
        sorted(rows.values(), key=lambda row: -row["seconds"]), by_phase, name, dtype, peaks, bandwidth,
        report.convention, notes,
    )  # fmt: skip


class _Pair:
    """FLOPs and bytes."""

    def __init__(self, flops: int, bytes: int) -> None:
        self.flops, self.bytes = flops, bytes


def _bound(device: Any, dtype: str, op: str) -> Any:
    """The device's bound in a format, with its peak and bandwidth."""
    try:
        return bound_of(_Pair(0, 0), device, dtype)
    except ValueError as error:
        runs = f"{op} runs in {dtype}: " if op else ""
        raise ValueError(
            f"{runs}{error}" + ("; pass dtype= to take one format for every operator" if op else "")
        ) from None


_WIDE = ("int16", "int32", "int64", "uint16", "uint32", "uint64")  # for which no maker prints a peak
_PARTS = {
    "complex32": "fp16",
    "complex64": "fp32",
    "complex128": "fp64",
    "quint8": "int8",
    "qint8": "int8",
    "qint32": "int32",
}


def format_of(dtype: str) -> str:
    """The format whose peak a product of such numbers meets."""
    return _PARTS.get(dtype) or canonical(dtype or "fp32")


def _row(op: str, phase: str) -> dict[str, Any]:
    return {"operator": op, "phase": phase, "dtypes": {}, "calls": 0, "flops": 0, "bytes": 0, "seconds": 0.0, "share": 0.0, "bound": "",
            "compute_seconds": 0.0, "memory_seconds": 0.0, "at_peak": 0.0}  # fmt: skip


def _what_bounds(row: Mapping[str, Any]) -> str:
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
