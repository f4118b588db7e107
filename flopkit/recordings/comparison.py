"""Two measurements of one case: on one device their times by interval, on two devices the shares of each one's own ceilings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit import units
from flopkit.names import Word
from flopkit.recordings.cases import Case

__all__ = ["Comparison", "Outcome", "compare"]

CEILINGS = {"FLOP/s": "of_ceiling_flops", "bytes/s": "of_ceiling_bytes"}


class Outcome(Word):
    """The first of two measurements against the second."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    OTHER_DEVICE = "other device"


@dataclass(frozen=True, repr=False)
class Comparison:
    """What `compare` found.

    Parameters
    ----------
    verdict : Outcome
        Of the first measurement against the second: ``"faster"``, ``"slower"``, ``"same"`` or ``"ambiguous"``. On another device
        ``"other device"``: times of two devices say nothing of each other.
    why : str
        What the verdict rests on.
    whose : tuple[str, str]
        Who measured the first one, and the second one.
    ratio : float | None
        Seconds of the first by seconds of the second; None on another device.
    shares : dict[str, tuple[float, float]]
        On another device: what each reached of its own ceilings, by FLOP/s and by bytes/s, as far as both are known.
    """

    verdict: Outcome
    why: str
    whose: tuple[str, str]
    ratio: float | None
    shares: dict[str, tuple[float, float]]

    def __repr__(self) -> str:
        return f"{self.verdict}: {self.why} ({self.whose[0]}; {self.whose[1]})"


def compare(a: Case, b: Case) -> Comparison:
    """Compare two measurements of the same case.

    Parameters
    ----------
    a : Case
        A measurement, as `records` gives it.
    b : Case
        The one to compare it with.

    Returns
    -------
    Comparison
        On one device, a CPU with as many threads, by the 95 % intervals of the means: ``"faster"`` or ``"slower"`` where they are apart, ``"same"`` where each mean lies in
        the other's interval, ``"ambiguous"`` between these, and where a clock was not steady. On two devices only the shares of their own
        measured ceilings.

    Raises
    ------
    ValueError
        For different cases or conventions, for a result that was refused or has no times, and on two devices where the ceilings of one are not known.

    Examples
    --------
    >>> a = {
    ...     "experiment": "x", "params": {"n": 8}, "dtype": "fp32", "verdict": "ok", "steady": True,
    ...     "counted": {"flops": 1024, "bytes": 768, "convention": "EXACT"},
    ...     "seconds": {"mean": 2.0, "low": 1.9, "high": 2.1}, "rates": {},
    ... }
    >>> b = {**a, "seconds": {"mean": 3.0, "low": 2.8, "high": 3.2}}
    >>> compare(Case(a, "yours", "yours: a CPU", "a CPU"), Case(b, "ours", "recorded by us", "a CPU"))
    faster: 2 s against 3 s, 0.667×; the intervals are apart (yours: a CPU; recorded by us)
    """  # fmt: skip
    for each in (a, b):
        if each["verdict"] != "ok":
            raise ValueError(f"the measurement is {each['verdict']} and is not compared ({each.whose})")
        if "seconds" not in each:
            raise ValueError(f"a published row has no interval to compare by ({each.whose})")
    ours, theirs = a["counted"]["convention"], b["counted"]["convention"]
    if ours != theirs:
        raise ValueError(
            f"one counts by {ours}, the other by {theirs}: their rates are of different work ({a.whose}; {b.whose})"
        )
    for name in ("experiment", "params", "dtype"):
        if a[name] != b[name]:
            raise ValueError(f"different cases: {name} is {a[name]!r} and {b[name]!r}")
    if a["counted"] != b["counted"]:
        raise ValueError(f"different work in the same case: {a['counted']} and {b['counted']}")
    whose = a.whose, b.whose
    if (a.device, _threads(a)) != (b.device, _threads(b)):
        shares = {
            name: (first, second)
            for name, key in CEILINGS.items()
            if (first := a["rates"].get(key)) is not None and (second := b["rates"].get(key)) is not None
        }
        if not shares:
            raise ValueError(
                f"{a.device} and {b.device} differ, or their threads do, and shares of their own ceilings are not known of both: "
                "fk.ceilings() measures them, record anew after that"
            )
        said = "; ".join(
            f"{units.percent(x)} against {units.percent(y)} of its own ceiling in {name}"
            for name, (x, y) in shares.items()
        )
        return Comparison(Outcome.OTHER_DEVICE, said, whose, None, shares)
    x, y = a["seconds"], b["seconds"]
    said = f"{units.seconds(x['mean'])} against {units.seconds(y['mean'])}, {units.times(x['mean'] / y['mean'])}"
    if not (a["steady"] and b["steady"]):
        verdict, why = Outcome.AMBIGUOUS, "a clock was not steady"
    elif x["high"] < y["low"] or y["high"] < x["low"]:
        verdict, why = Outcome.FASTER if x["mean"] < y["mean"] else Outcome.SLOWER, "the intervals are apart"
    elif y["low"] <= x["mean"] <= y["high"] and x["low"] <= y["mean"] <= x["high"]:
        verdict, why = Outcome.SAME, "each mean lies in the other's interval"
    else:
        verdict, why = Outcome.AMBIGUOUS, "the intervals overlap, and a mean lies outside of the other"
    return Comparison(verdict, f"{said}; {why}", whose, x["mean"] / y["mean"], {})


def _threads(case: Case) -> Any:
    """Threads that computed, on a CPU; None on another device, and where nothing says how many."""
    return (case.ceilings or {}).get("threads")
