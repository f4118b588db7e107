"""The least time of a program on a device: the roofline of each of its calls, and their sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from flopkit import devices, units
from flopkit.arithmetic import Number
from flopkit.conventions import Convention
from flopkit.derivations import number_format
from flopkit.rooflines.bounds import Roofline, roofline
from flopkit.tables import Table, as_html

__all__ = ["Calls", "ProgramBound", "program_bound"]

_COLUMNS = ("operator", "phase", "dtype", "calls", "flops", "bytes", "seconds", "share", "bound")
_UNITS = {"flops": "FLOPs", "bytes": "B", "seconds": "s", "share": "%"}
COMMUNICATION = "communication"
_UNKNOWN = "of operators that nobody knows"
_WIDE = ("int16", "int32", "int64", "uint16", "uint32", "uint64")  # for which no maker prints a peak


class Calls(NamedTuple):
    """Calls of one operator that cost the same, in one phase of a program."""

    operator: str
    phase: str
    calls: int
    dtype: str  # number format of the operands
    flops: Number  # that one call executes, as the program's convention counts them
    bytes: int  # that one call moves
    is_known: bool  # whether somebody has said what the operator computes


@dataclass
class ProgramBound:
    """The least time of a program on a device, and where that time goes: the result of `flopkit.Report.roofline`."""

    rows: list[dict[str, Any]]  # by operator and phase, the most time first: calls, flops, bytes, seconds, share, bound
    by_phase: dict[str, float]  # seconds of forward, backward, recompute and optimizer; on a cluster, of communication
    device: str
    dtype: str | None  # the format whose peak was used for every operator; None: each operator's own
    peaks: dict[str, float]  # FLOP/s by number format, for the formats of the program's products
    bandwidth: float  # bytes/s that the traffic was divided by
    convention: Any
    notes: list[str]  # what the numbers leave out

    @property
    def seconds(self) -> float:
        """The sum over all calls of ``max(flops / peak, bytes / bandwidth)``, on a cluster with communication: one after the other."""
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

    @property
    def communication_seconds(self) -> float:
        """Seconds of what goes between the devices of a cluster, one collective after the other; 0 on a device."""
        return self.by_phase.get(COMMUNICATION, 0.0)

    @property
    def overlapped_seconds(self) -> float:
        """The least time if communication runs beside all else: the longer of the two. ``seconds`` is their sum, where nothing hides."""
        return max(self.seconds - self.communication_seconds, self.communication_seconds)

    def beside(self, rows: list[dict[str, Any]], where: str, notes: list[str]) -> ProgramBound:
        """The same with *rows* of communication, which have an operator, calls and seconds, on the cluster *where*.

        Parameters
        ----------
        rows : list[dict[str, Any]]
            What was communicated.
        where : str
            The cluster's name.
        notes : list[str]
            What the rows leave out.
        """
        nothing = dict.fromkeys(("flops", "bytes", "compute_seconds", "memory_seconds", "at_peak"), 0)
        added = [{"phase": COMMUNICATION, "dtype": "", **nothing, "bound": COMMUNICATION, **row} for row in rows]
        by_phase = self.by_phase | {COMMUNICATION: float(sum(row["seconds"] for row in rows))}
        total = sum(by_phase.values())
        order = [{**row, "share": row["seconds"] / total if total else 0.0} for row in (*self.rows, *added)]
        order.sort(key=lambda row: -row["seconds"])
        return replace(self, rows=order, by_phase=by_phase, device=where, notes=[*self.notes, *notes])

    def table(self, most: int | None = None) -> Table:
        """The rows as a table, the first *most* of them; None: all.

        Notes
        -----
        Columns: *operator*, *phase*, *dtype* that its products run in, *calls*, *flops* that were executed, *bytes*, the least
        *seconds* of all its calls, their *share* of the total, and *bound*: compute, memory or communication.
        """
        caption = f"least time on {self.device}, {self._formats()}, convention {self.convention}"
        if most is not None and len(self.rows) > most:
            caption += f" (the first {most} of {len(self.rows)}; .table() has all)"
        shown = [{name: row[name] for name in _COLUMNS} for row in self.rows[:most]]
        formats = {name: partial(units.format_value, unit=unit) for name, unit in _UNITS.items()}
        return Table(shown, caption=caption, formats=formats)

    def summary(self) -> list[str]:
        """The timing in a few lines."""

        def show(number: float, unit: str = "s") -> str:
            return units.format_value(number, unit)

        rates = " and ".join(f"{show(peak, 'FLOP/s')} in {dtype}" for dtype, peak in self.peaks.items())
        lines = [
            f"at least {show(self.seconds)} on {self.device} ({self._formats()}), run operator by operator",
            ", ".join(f"{phase} {show(seconds)}" for phase, seconds in self.by_phase.items() if seconds),
            f"{show(self.compute_seconds)} bound by arithmetic{' at ' * bool(rates)}{rates}, "
            f"{show(self.memory_seconds)} by memory at {show(self.bandwidth, 'B/s')}; "
            f"at most {show(self.utilisation, '%')} of the peak",
            f"{show(self.communication_seconds)} of communication over links and network; at least {show(self.overlapped_seconds)} if it runs "
            "beside all else"
            if COMMUNICATION in self.by_phase
            else "",
            *self.notes,
        ]
        return [line for line in lines if line]

    def _formats(self) -> str:
        return self.dtype or " and ".join(self.peaks) or "no products"

    def __repr__(self) -> str:
        return "\n".join([*self.summary(), "", str(self.table(12))])

    def _repr_html_(self) -> str:
        return as_html(self.summary(), self.table(12))


def program_bound(
    calls: Iterable[Calls], device: Any, dtype: Any, *, phases: Sequence[str], convention: Convention
) -> ProgramBound:
    """The roofline of each of *calls* on *device*, and their sum.

        seconds = Σ calls · max(flops / peak, bytes / bandwidth)

    Peaks count a multiply-add as two FLOPs, so it is twice the multiply-adds that meet the peak, whatever *convention* calls FLOPs.

    Parameters
    ----------
    calls : Iterable[Calls]
        What the program called.
    device : Any
        A name, a `flopkit.Device`, or anything with ``peak`` and ``bandwidth``, as for `roofline`.
    dtype : Any
        Number format whose peak applies to every call; None: that of each call's own operands.
    phases : Sequence[str]
        The phases that a program has, in their order.
    convention : Convention
        How the FLOPs of the calls were counted.

    Raises
    ------
    ValueError
        For a device or a number format that is not known, or for which the device has no peak.
    TypeError
        For what is no device.

    Examples
    --------
    A product by arithmetic, then a sum by memory: 2 and 3 seconds.

    >>> from flopkit import conventions, device, Device
    >>> mine = Device("mine", peak={"fp32": 1000.0}, bandwidth=10.0)
    >>> program = [
    ...     Calls("mm", "forward", 1, "fp32", flops=2000, bytes=12, is_known=True),
    ...     Calls("add", "forward", 2, "fp32", flops=0, bytes=15, is_known=True),
    ... ]
    >>> timing = program_bound(
    ...     program, mine, None, phases=["forward"], convention=conventions.TORCH
    ... )
    >>> timing.seconds, timing.compute_seconds, timing.memory_seconds
    (5.0, 2.0, 3.0)
    """
    named = devices.device(device) if isinstance(device, str) else device
    if dtype is not None:
        dtype = number_format(dtype)
    own = dtype is None and hasattr(named, "bandwidth") and hasattr(named, "peak")
    # Else the bound says what is wrong with the device or the format.
    bandwidth = float(named.bandwidth if own else _bound(named, dtype or "fp32").bandwidth)
    peaks: dict[str, float] = {}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    by_phase = dict.fromkeys(phases, 0.0)
    alone = Counter({_UNKNOWN: 0})  # calls by what stands in the way of their FLOPs
    for each in calls:
        format = (dtype or devices.fastest_mode(named, each.dtype)) if each.flops else ""
        if dtype is None and format in _WIDE and format not in getattr(named, "dtypes", (format,)):
            alone[f"in {format}, for which the device has no peak,"] += each.calls
            format = ""
        if format and format not in peaks:
            peaks[format] = float(_bound(named, format, each.operator).peak)
        compute = 2 / convention.fma * each.flops / peaks[format] if format else 0.0
        memory = each.bytes / bandwidth
        bound, seconds = "compute" if compute >= memory else "memory", each.calls * max(compute, memory)
        row = rows.setdefault((each.operator, each.phase), {
            "operator": each.operator, "phase": each.phase, "dtypes": {}, "calls": 0, "flops": 0, "bytes": 0, "seconds": 0.0,
            "compute_seconds": 0.0, "memory_seconds": 0.0, "at_peak": 0.0,
        })  # fmt: skip
        row["dtypes"][format] = None
        row["calls"] += each.calls
        row["flops"] += each.calls * each.flops
        row["bytes"] += each.calls * each.bytes
        row["seconds"] += seconds
        row[f"{bound}_seconds"] += seconds
        row["at_peak"] += each.calls * compute
        by_phase[each.phase] += seconds
        if not each.is_known:
            alone[_UNKNOWN] += each.calls
    total = sum(by_phase.values())
    for row in rows.values():
        bounds = [bound for bound in ("compute", "memory") if row[f"{bound}_seconds"]] or ["memory"]
        row["share"] = row["seconds"] / total if total else 0.0
        row["bound"] = bounds[0] if len(bounds) == 1 else "both"
        row["dtype"] = " and ".join(filter(None, row.pop("dtypes")))
    notes = [f"{n:,} calls {which} are in it with their bytes alone" for which, n in alone.items() if n]
    name = named.name if isinstance(getattr(named, "name", None), str) else type(named).__name__
    order = sorted(rows.values(), key=lambda row: -row["seconds"])
    return ProgramBound(order, by_phase, name, dtype, peaks, bandwidth, convention, notes)


def _bound(device: Any, dtype: str, op: str = "") -> Roofline:
    """The device's bound in a format, with its peak and bandwidth."""
    try:
        return roofline(SimpleNamespace(flops=0, bytes=0), device, dtype)
    except ValueError as error:
        if not op:
            raise
        raise ValueError(f"{op} runs in {dtype}: {error}; pass dtype= to take one format for every operator") from None
