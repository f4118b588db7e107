"""One measured case over another of the same device: how many times the FLOPs, the bytes and the time, with the interval of the last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["over", "with_interval"]


def over(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, float]:
    """FLOPs, bytes and seconds of one record over those of another, and the interval of the seconds at its widest.

    ``low`` and ``high`` take the ends of both 95 % intervals that lie farthest apart, so they hold the ratio of the means more often than in
    95 % of all cases. ``high`` is infinite where the other case may have taken no time at all.

    Parameters
    ----------
    one, other : Mapping[str, Any]
        Records of one device, as `flopkit.recordings.records` and `flopkit.experiments.here` give them.

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
    for each in (one, other):
        if each["verdict"] != "ok":
            raise ValueError(f"the measurement is {each['verdict']} and is not compared: {each.get('case')}")
    upper, lower = one["seconds"], other["seconds"]
    return {
        **{name: one["counted"][name] / other["counted"][name] for name in ("flops", "bytes")},
        "seconds": upper["mean"] / lower["mean"],
        "low": max(0.0, upper["low"]) / lower["high"],
        "high": upper["high"] / lower["low"] if lower["low"] > 0 else math.inf,
    }


def with_interval(found: Mapping[str, float]) -> str:
    """The ratio of times as a table shows it, with its interval where there is one.

    >>> with_interval({"seconds": 1.5, "low": 0.5, "high": 4.0})
    '1.50 (0.50 to 4.00)'
    """
    sure = found["low"] > 0 and found["high"] < math.inf
    width = f"{found['low']:.2f} to {found['high']:.2f}" if sure else "too noisy for an interval"
    return f"{found['seconds']:.2f} ({width})"
