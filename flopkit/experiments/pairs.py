"""One measured case over another of the same device: how many times the FLOPs, the
bytes and the time, with the interval of the last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Span", "over", "with_interval"]


@dataclass(frozen=True)
class Span:
    """A measured number between the ends of its 95 % interval.

    A quotient takes the ends that lie farthest apart, so it holds the ratio of the
    means more often than in 95 % of all cases. Its high end is infinite where the
    divisor may be nothing at all. What is computed from spans keeps the cases on whose
    times they rest.

    >>> Span(3.0, 2.0, 4.0) / Span(2.0, 1.0, 4.0)
    Span(mean=1.5, low=0.5, high=4.0)
    >>> 8 / Span(2.0, 1.0, 4.0)
    Span(mean=4.0, low=2.0, high=8.0)
    """

    mean: float
    low: float
    high: float
    cases: tuple[Mapping[str, Any], ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def seconds(cls, record: Mapping[str, Any]) -> Span:
        """The time of a record; ValueError for one that was refused: its time is no
        result."""
        if record["verdict"] != "ok":
            raise ValueError(f"the measurement is {record['verdict']} and is not compared: {record.get('case')}")
        mean, low, high = (record["seconds"][end] for end in ("mean", "low", "high"))
        return cls(mean, low, high, (record,))

    @classmethod
    def exactly(cls, number: float) -> Span:
        return cls(number, number, number)

    def __truediv__(self, other: Span | float) -> Span:
        by = other if isinstance(other, Span) else Span.exactly(other)
        high = self.high / by.low if by.low > 0 else math.inf
        return Span(self.mean / by.mean, max(0.0, self.low) / by.high, high, (*self.cases, *by.cases))

    def __rtruediv__(self, number: float) -> Span:
        return Span.exactly(number) / self

    def __add__(self, number: float) -> Span:
        return Span(self.mean + number, self.low + number, self.high + number, self.cases)

    def __sub__(self, other: Span) -> Span:
        return Span(self.mean - other.mean, self.low - other.high, self.high - other.low, (*self.cases, *other.cases))

    def __mul__(self, number: float) -> Span:
        return Span(self.mean * number, self.low * number, self.high * number, self.cases)


def over(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, float]:
    """FLOPs, bytes and seconds of one record over those of another, and the interval of
    the seconds at its widest: see `Span`.

    Parameters
    ----------
    one, other : Mapping[str, Any]
        Records of one device, as `flopkit.recordings.records` and
        `flopkit.experiments.here` give them.

    Returns
    -------
    dict[str, float]
        Ratios: ``flops``, ``bytes``, ``seconds``, ``low``, ``high``.

    Raises
    ------
    ValueError
        For a record that was refused: its time is no result.

    Examples
    --------
    >>> counted = {"flops": 8, "bytes": 4}
    >>> one = {"verdict": "ok", "counted": counted, "seconds": {"mean": 3.0, "low": 2.0, "high": 4.0}}
    >>> other = {**one, "seconds": {"mean": 2.0, "low": 1.0, "high": 4.0}}
    >>> over(one, other)
    {'flops': 1.0, 'bytes': 1.0, 'seconds': 1.5, 'low': 0.5, 'high': 4.0}
    """
    times = Span.seconds(one) / Span.seconds(other)
    work = {name: one["counted"][name] / other["counted"][name] for name in ("flops", "bytes")}
    return {**work, "seconds": times.mean, "low": times.low, "high": times.high}


def with_interval(found: Mapping[str, float]) -> str:
    """The ratio of times as a table shows it, with its interval where there is one.

    >>> with_interval({"seconds": 1.5, "low": 0.5, "high": 4.0})
    '1.50 (0.50 to 4.00)'
    """
    sure = found["low"] > 0 and found["high"] < math.inf
    width = f"{found['low']:.2f} to {found['high']:.2f}" if sure else "too noisy for an interval"
    return f"{found['seconds']:.2f} ({width})"
