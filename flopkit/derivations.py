"""What a peak rate is made of, and the rate that no run can pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from flopkit import dtypes, units

__all__ = ["Derivation", "Limit", "number_format"]

_HEADROOM = 1.1  # where the highest clock is not known, a part is taken to reach at most 1.1 x the clock of its peak
_MODES = ("nontensor", "tensor", "matrix", "fp16acc")


def number_format(dtype: Any) -> str:
    """The canonical name of a number format, with its mode: ``"float16_nontensor"`` is ``"fp16_nontensor"``."""
    if isinstance(dtype, str):
        base, _, mode = dtype.rpartition("_")
        if base and mode.lower() in _MODES:
            return f"{dtypes.canonical(base)}_{mode.lower()}"
    return dtypes.canonical(dtype)


@dataclass(frozen=True)
class Derivation:
    """What a peak is made of: units x FLOP per clock of a unit x clock, a multiply-add as two FLOPs.

    Parameters
    ----------
    unit : str
        What is counted: "SM", "CU", "MXU".
    units : int
        How many of them.
    clock : float
        The clock in Hz that the printed peaks belong to.
    flops_per_clock : Mapping[str, int]
        FLOPs that one unit does in a clock, by number format.
    own_clock : Mapping[str, float], optional
        Formats whose peak belongs to another clock, in Hz.
    highest_clock : float, optional
        The highest clock in Hz that the part is known to reach, if that is known.
    base_clock : float, optional
        The base clock in Hz, where data sheets print it beside the one of the peak.

    Examples
    --------
    >>> from flopkit import device
    >>> h100 = device("h100-sxm").derivation
    >>> h100.peak("bf16") == 132 * 4096 * 1830e6
    True
    """

    unit: str
    units: int
    clock: float
    flops_per_clock: Mapping[str, int]
    own_clock: Mapping[str, float] = field(default_factory=dict)
    highest_clock: float | None = None
    base_clock: float | None = None

    def __post_init__(self) -> None:
        for name in ("flops_per_clock", "own_clock"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __reduce__(self) -> Any:
        rates, clocks = dict(self.flops_per_clock), dict(self.own_clock)
        return Derivation, (self.unit, self.units, self.clock, rates, clocks, self.highest_clock, self.base_clock)

    def peak(self, dtype: Any, clock: float | None = None) -> float:
        """The product in FLOP/s, before the maker rounded it; at *clock* Hz, else at the clock of the peak."""
        key = number_format(dtype)
        return self.units * self.flops_per_clock[key] * self._clock(key, clock)

    def text(self, dtype: Any, clock: float | None = None) -> str:
        """The product spelled out.

        >>> from flopkit import device
        >>> device("t4").derivation.text("fp16")
        '40 SM × 1,024 FLOP/clock × 1,590 MHz = 65.13 TFLOP/s'
        """
        key = number_format(dtype)
        rate = units.si(self.peak(key, clock), "FLOP/s")
        megahertz = self._clock(key, clock) / 1e6
        return f"{self.units} {self.unit} × {self.flops_per_clock[key]:,} FLOP/clock × {megahertz:,.0f} MHz = {rate}"

    def _clock(self, key: str, clock: float | None) -> float:
        return clock or self.own_clock.get(key, self.clock)


class Limit(float):
    """A rate in FLOP/s that no run can pass, with the ``rule`` that gives it. It is a plain number otherwise."""

    rule: str

    def __new__(cls, value: float, rule: str) -> Limit:
        limit = super().__new__(cls, value)
        limit.rule = rule
        return limit

    @classmethod
    def of(cls, key: str, peak: float, made_of: Derivation | None) -> Limit:
        """The limit of a format whose printed peak is *peak*, from what that peak is made of."""
        if made_of is None or made_of.highest_clock is None or key not in made_of.flops_per_clock:
            return cls(_HEADROOM * peak, f"{_HEADROOM} × peak: the highest clock is not known")
        bound, text = made_of.peak(key, made_of.highest_clock), made_of.text(key, made_of.highest_clock)
        return cls(bound, text) if bound >= peak else cls(peak, f"the printed peak, which rounds {text} up")

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        return float(self), self.rule
