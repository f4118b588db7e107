"""Work, and the least time that it can take: what `mfu`, `hfu`, `mbu` and a `Meter` compare a time with."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flopkit import devices, units
from flopkit.arithmetic import reading, total, unmixed
from flopkit.conventions import EXACT, TORCH, Convention, as_convention
from flopkit.cost import Cost
from flopkit.derivations import number_format
from flopkit.sizes import positive, size
from flopkit.utilization.products import by_product

__all__ = ["Gauge", "Utilization", "is_bare", "lacks", "of_bytes", "of_flops", "under_both"]

# A printed bandwidth has two digits or more (4.8 TB/s), so a part may pass it by what was rounded away, and by no more.
_ROUNDED = 1.02


class Utilization(float):
    """A share of a peak, as `mfu`, `hfu` and `mbu` give it: a plain float, 0.412, that knows what it is a share of.

    Arithmetic, comparison, ``str``, formatting and JSON take it as the float that it is; a notebook and ``repr`` show the
    share, the peak, the device, the convention, and what the other convention would say.

    Attributes
    ----------
    peak : float
        What was divided by: FLOP/s or bytes/s of all devices together.
    convention : Convention | None
        The one under which the FLOPs were counted; None where a plain number was given, and for bytes.
    others : Mapping[str, float]
        The share under another convention, by its name, where it differs: that is where attention has a mask.
    """

    peak: float
    convention: Convention | None
    others: Mapping[str, float]
    _says: str | Callable[[], str]

    def __new__(
        cls,
        share: float,
        says: str | Callable[[], str],
        peak: float,
        convention: Convention | None,
        others: Mapping[str, float],
    ) -> Utilization:
        new = super().__new__(cls, share)
        new.peak, new.convention, new.others, new._says = peak, convention, dict(others), says
        return new

    __str__ = float.__repr__

    def __repr__(self) -> str:
        return self._says if isinstance(self._says, str) else self._says()

    def _repr_html_(self) -> str:
        return f"<div>{html.escape(repr(self)).replace(' %', '&nbsp;%')}</div>"

    def __reduce__(self) -> Any:
        return Utilization, (float(self), repr(self), self.peak, self.convention, self.others)


_EARLY = "The clock was read before the device had finished:"
_WAITS = {  # how a program waits for a device, by its maker
    "NVIDIA": "call torch.cuda.synchronize() first",
    "AMD": "call torch.cuda.synchronize() first, which on ROCm waits for this device",
    "Google": "call jax.block_until_ready(…) on what the step gave, or torch_xla.sync(wait=True) first",
    "Intel": "call torch.xpu.synchronize() first",
    "Huawei": "call torch.npu.synchronize() first, which torch_npu has",
    "Apple": "call torch.mps.synchronize() or mlx.core.eval(…) first",
    "AWS": "call torch_xla.sync(wait=True) first",
}
_GAUDI = "call torch.hpu.synchronize() first"  # Intel's accelerators that are no GPUs
_WAIT = "wait for it first, with torch.cuda.synchronize(), jax.block_until_ready(…) or what its framework has"
_SEVERAL = "of several devices, steps or batches beside the time of one; count= is the number of devices."
_FORMAT = "Another device or number format than the one that ran: fp32 runs as tf32 where that is allowed."
_EXPERTS = "All experts in N, of which a token uses a few."
_CACHED = "Bytes that stayed in a cache, or were not read, such as experts that no token chose."
_OVERCLOCKED = (
    "A memory that is clocked higher than the maker says: flopkit.Device(..., bandwidth=) describes such a card."
)


@dataclass(frozen=True)
class Gauge:
    """Work, and the least time it takes *count* devices: at the peak, and at the limit where one is known."""

    name: str
    unit: str
    amount: Any
    count: Any
    at_peak: Any
    at_limit: Any
    peak: Any
    title: str
    rule: str = ""
    causes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    convention: Convention | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    def share(self, seconds: Any) -> Any:
        """What took these seconds, as a share of the peak."""
        seconds = positive("seconds", seconds, "seconds", sweep=True)
        unmixed(self.at_peak, seconds)
        kind = reading(self.at_peak, seconds)
        if kind in ("sympy", "altair"):
            return self.at_peak / seconds
        if self.at_limit is not None:
            self._refuse_the_impossible(seconds)
        share = self.at_peak / seconds
        if kind == "numpy":
            return share
        others = {name: at_peak / seconds for name, at_peak in self.others.items() if at_peak != self.at_peak}
        return Utilization(share, lambda: self._says(share, others), self.count * self.peak, self.convention, others)

    def _says(self, share: float, others: Mapping[str, float]) -> str:
        says = f"{self.name} {units.percent(share)} of {self.of()}"
        says += "".join(f"; {units.percent(other)} under {name}" for name, other in others.items())
        return says

    def at_work(self, amount: Any, others: Mapping[str, Any]) -> Gauge:
        """The same gauge, of a training step, for other FLOPs; *others*: those under another convention."""
        at_peak = _among(amount / self.peak, self.count)
        at_limit = None if self.at_limit is None else self.at_limit / self.at_peak * at_peak
        there = {name: _among(other / self.peak, self.count) for name, other in others.items()}
        new = object.__new__(Gauge)  # in a training loop, which `replace` would take longer
        vars(new).update(vars(self), amount=amount, at_peak=at_peak, at_limit=at_limit, others=there)
        return new

    def of(self) -> str:
        """What the share is one of, and under which convention."""
        peak = units.si(self.peak, self.unit)
        parts = [f"{self.count:,} × {peak}" if self.count != 1 else peak, self.title]
        if self.formats:
            parts[0] += f" in {' and '.join(self.formats)}"
            parts.append(str(self.convention) if self.convention else "FLOPs as given")
        return ", ".join(parts)

    def _refuse_the_impossible(self, seconds: Any) -> None:
        row, where = (self.amount, self.count, self.at_limit, seconds), ""
        if reading(*row) == "numpy":
            import numpy

            sweep = numpy.broadcast_arrays(*(numpy.asarray(value, "float64") for value in row))
            wrong = numpy.flatnonzero(sweep[2] > sweep[3])
            if not wrong.size:
                return
            row, where = tuple(values.flat[wrong[0]] for values in sweep), f" at position {wrong[0]} of the sweep"
        amount, count, least, seconds = row
        if least <= seconds:
            return
        masked = [
            f"Attention's hidden pairs are counted, which the kernel may skip: .under('EXACT') makes it {units.percent(at_peak / seconds)}."
            for name, at_peak in self.others.items()
            if name == str(EXACT) and not where and at_peak < self.at_peak
        ]
        rate = amount / count / seconds
        raise ValueError(
            f"{self.name} is impossible{where}: {units.si(rate, self.unit)} on each {self.title} is above its limit of "
            f"{units.si(rate * seconds / least, self.unit)} ({self.rule}). Usual causes:"
            + "".join(f"\n- {cause}" for cause in (*masked, *self.causes))
        )


def of_bytes(work: Any, device: Any, count: Any) -> Gauge:
    """The gauge of MBU."""
    _all_counted(work, "MBU", "bytes")
    work = work.bytes if reading(work) == "plain" and hasattr(work, "bytes") else work
    moved = positive("bytes", work, "bytes", zero=True, sweep=True)
    device, count = _device(device, "bandwidth"), size("count", count)
    at_peak = _among(moved / device.bandwidth, count)
    return Gauge(
        "MBU", "B/s", moved, count, at_peak, at_peak / _ROUNDED, device.bandwidth, _title(device),
        rule=f"{_ROUNDED} × the printed bandwidth, which is rounded",
        causes=(_clock(device), f"Bytes {_SEVERAL}", _CACHED, _OVERCLOCKED),
    )  # fmt: skip


def of_flops(name: str, which: str, work: Any, device: Any, dtype: Any, count: Any) -> Gauge:
    """The gauge of MFU or HFU; *which* is the attribute of a step or a report that it takes."""
    _all_counted(work, name, which)
    device, count = _device(device, "peak"), size("count", count)
    flops = _by_format(work, which, device, dtype)
    at_peak = _time(flops, {format: _peak(device, format) for format in flops})
    limits = {format: device.limit(format) for format in flops} if isinstance(device, devices.Device) else {}
    bare, others = is_bare(work), {}
    convention = None if bare else as_convention(work.convention)
    if convention and hasattr(work, "under"):
        other = _other(convention)
        there = _by_format(work.under(other), which, device, dtype)
        others[str(other)] = _among(_time(there, {format: _peak(device, format) for format in there}), count)
    amount = sum(flops.values())
    return Gauge(
        name, "FLOP/s", amount, count, _among(at_peak, count), _among(_time(flops, limits), count) if limits else None,
        _peak(device, next(iter(flops))) if len(flops) == 1 else amount / at_peak, _title(device),
        rule="; ".join(f"{format}: {limit.rule}" for format, limit in limits.items()),
        causes=(_clock(device), f"FLOPs {_SEVERAL}", _FORMAT, *([_EXPERTS] if bare else [])),
        formats=tuple(flops), convention=convention, others=others,
    )  # fmt: skip


def lacks(uncounted: Sequence[Mapping[str, Any]], share: str) -> str:
    """Why there is no *share* of work whose report lists *uncounted* operators."""
    names = ", ".join(f"{row['operator']} ({units.count(row['calls'], 'calls')})" for row in uncounted[:5])
    return f"not counted: {names}{' …' * (len(uncounted) > 5)}, so no {share}: flopkit.formula registers a formula"


def _all_counted(work: Any, share: str, which: str) -> None:
    """A report that does not know all that ran has too few FLOPs and bytes, so a share of them would be too small."""
    if not is_bare(work) and (missed := getattr(work, "uncounted", ())):
        raise ValueError(
            f"{lacks(missed, share)}; or, if they do nothing that counts, pass the report's {which}, a number"
        )


def under_both(step: Any, which: str) -> dict[str, Any]:
    """FLOPs of a training step, a multiply-add as two, under its own convention and under the other that a gauge knows."""
    own = as_convention(step.convention)
    steps = {own: step, _other(own): step.under(_other(own))}
    return {str(each): getattr(there, which) * (2 // each.fma) for each, there in steps.items()}


def _other(convention: Convention) -> Convention:
    return TORCH if convention != TORCH else EXACT


def _by_format(work: Any, which: str, device: Any, dtype: Any) -> dict[str, Any]:
    """FLOPs, a multiply-add as two, by the number format whose peak they meet."""
    if isinstance(dtype, Mapping):
        found = by_product(work, which, dtype)
        fma = as_convention(work.convention).fma
        return found if fma == 2 else {format: 2 * flops for format, flops in found.items()}
    chosen = number_format("bf16" if dtype is None else dtype)
    if is_bare(work):
        instead = ", a Cost, a training step or a Report"
        return {chosen: positive("flops", work, "FLOPs", zero=True, sweep=True, instead=instead)}
    if isinstance(work, Cost):
        kinds = {
            kind: macs for kind, macs in work.macs_by_kind.items() if which == "hardware_flops" or kind != "recompute"
        }
        found = {chosen: work.convention.flops(kinds)}
    elif not hasattr(work, "flops_by_dtype"):
        amount = getattr(work, which, work)
        found = {chosen: positive(f"flops.{which}", amount, "FLOPs", zero=True, sweep=True)}
    else:
        found = work.flops_by_dtype(model=which == "model_flops")
        if dtype is not None:
            found = {chosen: sum(found.values())}
        elif not found:
            raise ValueError(
                "flops: this report counted no FLOPs, so no number format whose peak they would meet; pass dtype="
            )
        else:
            found = {devices.fastest_mode(device, format): flops for format, flops in found.items()}
    fma = as_convention(work.convention).fma
    return found if fma == 2 else {format: 2 * flops for format, flops in found.items()}


def _time(flops: Mapping[str, Any], rates: Mapping[str, Any]) -> Any:
    return total(flops[format] / rate for format, rate in rates.items())


def _among(value: Any, count: Any) -> Any:
    return value if isinstance(count, int) and count == 1 else value / count


def is_bare(work: Any) -> bool:
    """Whether this is a number, whose convention is the caller's. (An Altair parameter has every attribute.)"""
    return reading(work) != "plain" or not hasattr(work, "convention")


def _device(device: Any, wanted: str) -> Any:
    return device if reading(device) == "plain" and hasattr(device, wanted) else devices.device(device)


def _peak(device: Any, dtype: str) -> Any:
    peak = device.peak
    return peak(dtype) if reading(peak) == "plain" and callable(peak) else peak


def _clock(device: Any) -> str:
    """The first of the usual causes, in the words of the device's own framework."""
    gaudi = "gaudi" in _title(device).lower()
    return f"{_EARLY} {_GAUDI if gaudi else _WAITS.get(getattr(device, 'vendor', ''), _WAIT)}."


def _title(device: Any) -> str:
    return str(getattr(device, "title", "device"))
