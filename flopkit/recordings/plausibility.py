"""Whether a published measurement can be true: its share of the peak, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flopkit import units
from flopkit.devices import device
from flopkit.names import Word
from flopkit.recordings.rates import Rate, rate

__all__ = ["VERDICTS", "Plausibility", "judged"]


class Plausibility(Word):
    """Whether a published rate can be true."""

    POSSIBLE = "possible"
    ABOVE_PEAK = "above the peak"
    SUSPECT = "suspect"
    NOT_JUDGED = "not judged"


VERDICTS = {
    Plausibility.POSSIBLE: "at or below the peak",
    Plausibility.ABOVE_PEAK: "the rate is above the peak, by the count that is named; the reason says more",
    Plausibility.SUSPECT: "no bound refutes it, but something else does",
    Plausibility.NOT_JUDGED: "the work, the peak or both are not known",
}


class PublishedSource(Protocol):
    """What a verdict asks of the data set that a row comes from."""

    @property
    def peaks(self) -> Mapping[str, Mapping[str, float]]:
        """The peaks that the source itself states, by device and number format."""

    @property
    def above_peak(self) -> str:
        """What is known of its rates above a peak."""

    def suspicion(self, row: Mapping[str, Any]) -> str:
        """Why *row* is suspect, or nothing."""


def judged(row: dict[str, Any], source: PublishedSource) -> dict[str, Any]:
    """*row* with its rate, its share of the peak, the verdict and the reason.

    Notes
    -----
    A rate above the peak needs a reason: either fewer operations were done than were counted, or the device is not the one
    named, or it clocks higher. The reason says what is known of that.

    Examples
    --------
    >>> from flopkit.recordings import dataset
    >>> row = {"kind": "matmul", "unit": "TFLOP/s", "value": 1200, "count": 1, "device": "H100", "device_name": "h100-sxm"}
    >>> found = judged({**row, "table": "gemm", "precision": "bf16"}, dataset("deepseek_kernels"))
    >>> found["verdict"], round(found["share"], 3)
    ('above the peak', 1.213)
    """
    found = rate(row)
    peak, of = _peak(row, found, source) if found else (None, None)
    share = found.value / (row["count"] * peak) if found and peak else None
    why, verdict = source.suspicion(row), Plausibility.NOT_JUDGED if share is None else Plausibility.POSSIBLE
    if why:
        verdict = Plausibility.SUSPECT
    if share is not None and share > 1 and found:
        verdict, why = (
            Plausibility.ABOVE_PEAK,
            "; ".join(filter(None, (_above(row, found, share, str(of), source), why))),
        )
    return {
        **row, "flops_per_s": found.value if found and found.unit == "FLOP/s" else None,
        "bytes_per_s": found.value if found and found.unit == "B/s" else None, "counted": found.counted if found else None,
        "share": share, "share_of": of, "verdict": verdict, "why": why,
    }  # fmt: skip


def _peak(row: Mapping[str, Any], found: Rate, source: PublishedSource) -> tuple[float | None, str | None]:
    """What one device can do at most, and what that is called."""
    name, precision = row["device_name"], row["precision"]
    if name is None:
        stated = source.peaks.get(row["device"], {}).get(precision)
        return stated, f"the {precision} peak that the source states" if stated else None
    card = device(name)
    if found.unit == "B/s":
        return card.bandwidth, f"the bandwidth of {name}"
    return (card.peak(precision), f"the {precision} peak of {name}") if precision in card.dtypes else (None, None)


def _above(row: Mapping[str, Any], found: Rate, share: float, of: str, source: PublishedSource) -> str:
    rate_ = units.si(found.value / row["count"], found.unit)
    text = f"{rate_} a device is {100 * share:.1f} % of {of}, counted {found.counted}"
    if row["device_name"] and found.unit == "FLOP/s":
        limit = device(row["device_name"]).limit(row["precision"])
        beyond = found.value / row["count"] > limit
        text += f"; {'above' if beyond else 'below'} its limit, {limit.rule}"
    return f"{text}; {source.above_peak}" if source.above_peak else text
