"""The roofline: an operation takes at least as long as its arithmetic, and at least as long as its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit import devices, units
from flopkit.arithmetic import Number, brief, maximum, minimum, ratio, reading, same, unmixed, where
from flopkit.sizes import positive

__all__ = ["Roofline", "bound_by", "roofline"]


@dataclass(frozen=True, repr=False, eq=False)
class Roofline:
    """The least time an operation can take on a device, and what sets it.

    ``seconds`` is the larger of ``compute_seconds`` = flops / peak and ``memory_seconds`` = bytes / bandwidth, and
    ``bound`` says which ("compute" where they are equal). ``intensity`` is flops / bytes and ``ridge`` peak / bandwidth,
    in FLOPs per byte; ``attainable_flops_per_s`` = min(peak, intensity x bandwidth).

    Each is of the kind the sizes were: a number, a NumPy array, a SymPy or an Altair expression.
    """

    seconds: Number
    bound: Any
    attainable_flops_per_s: Number
    intensity: Number
    ridge: Number
    compute_seconds: Number
    memory_seconds: Number
    peak: Number
    bandwidth: Number

    __hash__ = None  # type: ignore[assignment]  # it may hold arrays

    def __eq__(self, other: object) -> bool:
        return same(vars(self), vars(other)) if isinstance(other, Roofline) else NotImplemented

    def __repr__(self) -> str:
        shown = [
            f"at least {_shown(self.seconds, 's')}, bound by {_shown(self.bound, '')}",
            f"arithmetic {_shown(self.compute_seconds, 's')} at {_shown(self.peak, 'FLOP/s')}",
            f"memory {_shown(self.memory_seconds, 's')} at {_shown(self.bandwidth, 'B/s')}",
            f"intensity {_shown(self.intensity, 'FLOP/B')}, ridge {_shown(self.ridge, 'FLOP/B')}",
            f"attainable {_shown(self.attainable_flops_per_s, 'FLOP/s')}",
        ]
        return "\n".join(shown)


def roofline(cost: Any, device: Any, dtype: Any = "bf16") -> Roofline:
    """The least time *cost* can take on *device*.

        seconds = max(flops / peak, bytes / bandwidth)

    Parameters
    ----------
    cost : Any
        Anything with ``flops`` and ``bytes``, such as a `Cost`.
    device : Any
        A name, a `Device`, or anything with ``bandwidth`` in bytes/s and ``peak``, a method of the number format or the
        rate in FLOP/s itself.
    dtype : Any, optional
        Chooses the peak, nothing else: the bytes are those of *cost*, which has a dtype of its own.

    Raises
    ------
    ValueError
        For a device or format that is not known.

    Notes
    -----
    Only ``flops`` meets the peak: element-wise work (``vector_flops``), launches and synchronisation are not in the
    bound, so a measured time is longer.
    Peaks count a multiply-add as two FLOPs, so it is twice the multiply-adds of *cost* that meet the peak, whatever its
    convention calls FLOPs.
    Under TORCH the hidden pairs of attention are work, too: then this bounds a kernel that computes them.

    References
    ----------
    S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52(4), 2009.

    Examples
    --------
    >>> import flopkit as fk
    >>> layer = fk.dense(tokens=1, d_in=4096, d_out=16384)
    >>> one = fk.roofline(layer, "h100-sxm")
    >>> one.bound, f"{one.seconds:.3g}"
    ('memory', '4.01e-05')
    >>> f"{one.intensity:.4f}", f"{one.ridge:.1f}"
    ('0.9997', '295.3')
    """
    for name in ("flops", "bytes"):
        if not hasattr(cost, name):
            order = "; write cost * parameter, as a parameter on the left swallows the cost" * (
                reading(cost) == "altair"
            )
            raise TypeError(f"cost={cost!r}: must have .flops and .bytes, as the result of fk.dense(...) has{order}")
    if isinstance(device, str):
        device = devices.device(device)
    if not hasattr(device, "peak") or not hasattr(device, "bandwidth"):
        raise TypeError(
            f"device={device!r}: must be a name such as 'h100-sxm', a flopkit.Device, "
            "or an object with .peak in FLOP/s and .bandwidth in bytes/s"
        )
    flops = 2 * cost.macs if hasattr(cost, "macs") else cost.flops  # every peak counts a multiply-add as two
    peak = device.peak if reading(device.peak) != "plain" or not callable(device.peak) else device.peak(dtype)
    return bound_by(flops, cost.bytes, peak, device.bandwidth)


def bound_by(flops: Number, bytes: Number, peak: Number, bandwidth: Number) -> Roofline:
    """The roofline from four quantities, each a number or an expression: what `roofline` does with a cost and a device.

    Parameters
    ----------
    flops, bytes : Number
        Work in FLOPs and traffic in bytes.
    peak, bandwidth : Number
        Rates in FLOP/s and bytes/s.

    Raises
    ------
    ValueError
        For a rate that is not positive.
    TypeError
        For numbers and expressions of different kinds.

    Examples
    --------
    >>> bound_by(
    ...     flops=2e12, bytes=1e9, peak=1e15, bandwidth=1e12
    ... ).bound
    'compute'
    """
    unmixed(flops, bytes, peak, bandwidth)
    for name, rate, unit in (("peak", peak, "FLOP/s"), ("bandwidth", bandwidth, "bytes/s")):
        positive(name, rate, unit, sweep=True)
    compute_seconds, memory_seconds = flops / peak, bytes / bandwidth
    intensity = ratio(flops, bytes)
    return Roofline(
        seconds=maximum(compute_seconds, memory_seconds),
        bound=where(compute_seconds >= memory_seconds, "compute", "memory"),
        attainable_flops_per_s=minimum(peak, intensity * bandwidth),
        intensity=intensity,
        ridge=peak / bandwidth,
        compute_seconds=compute_seconds,
        memory_seconds=memory_seconds,
        peak=peak,
        bandwidth=bandwidth,
    )


def _shown(value: Any, unit: str) -> str:
    return units.format_value(value, unit) if isinstance(value, (int, float, str)) else brief(value)
