"""A measurement: how long a call takes, how certain the time is, its rate, and whether that is physically possible."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any

from flopkit import units
from flopkit.names import Word
from flopkit.tables import Table

__all__ = ["Judgement", "Measurement"]


class Judgement(Word):
    """What can be said of a measurement."""

    OK = "ok"
    WRONG = "wrong"
    IMPOSSIBLE = "impossible"
    DISTURBED = "disturbed"


@dataclass(frozen=True, repr=False)
class Measurement:
    """What `flopkit.measure` found.

    Parameters
    ----------
    name : str
        What was called.
    device : str
        What it ran on.
    seconds : float
        Sustained mean of a call: all time by all calls, none dropped.
    seconds_ci : tuple[float, float]
        The 95 % interval of the mean, from the means of the rounds.
    median, fastest : float
        Seconds of the call in the middle, and of the fastest one.
    calls, rounds : int
        Calls that were timed, and rounds.
    flops, bytes : float
        Work of a call.
    mfu, mbu : float | None
        Model FLOPs, without what is computed again, by time and the device's dense peak; bytes/s by its bandwidth. None where these are not known.
    steady : bool
        Whether the clock was steady when timing began.
    verdict : Judgement
        ``"ok"``, ``"wrong"`` (the result is), ``"impossible"`` (the time is) or ``"disturbed"`` (a few calls took so much longer than most
        that the mean tells of them).
    error : float | None
        Relative error of the result, where it was checked.
    notes : tuple[str, ...]
        What a reader of the number should know.
    protocol : dict[str, Any]
        Timer, warm-up, rotation.
    round_means : tuple[float, ...], optional
        Mean seconds of a call in each round.
    p10_p90 : tuple[float, float], optional
        A tenth of the calls took less than the first, a tenth more than the second.
    floor : float, optional
        Seconds that a lower bound of the work takes on the device at least; None where its peak is not known.
    of_ceiling_flops, of_ceiling_bytes : float, optional
        FLOP/s and bytes/s by the ceilings that `flopkit.ceilings` kept of this device; None where there are none.
    monitor : dict[str, Any], optional
        Clock, power, temperature while it ran, where they can be read.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> found = fk.measure(torch.mm, torch.randn(64, 64), torch.randn(64, 64), time_budget=0.2)
    >>> low, high = found.seconds_ci
    >>> low <= found.seconds <= high, found.mfu  # the peak of a CPU is not known
    (True, None)
    """

    name: str
    device: str
    seconds: float
    seconds_ci: tuple[float, float]
    median: float
    fastest: float
    calls: int
    rounds: int
    flops: float
    bytes: float
    mfu: float | None
    mbu: float | None
    steady: bool
    verdict: Judgement
    error: float | None
    notes: tuple[str, ...]
    protocol: dict[str, Any]
    round_means: tuple[float, ...] = ()
    p10_p90: tuple[float, float] | None = None
    floor: float | None = None
    of_ceiling_flops: float | None = None
    of_ceiling_bytes: float | None = None
    monitor: dict[str, Any] | None = None

    @property
    def flops_per_s(self) -> float:
        """FLOP/s of the sustained mean."""
        return self.flops / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Bytes/s of the sustained mean."""
        return self.bytes / self.seconds

    def record(self) -> dict[str, Any]:
        """The measurement as plain values: the form that recordings keep.

        >>> import torch, flopkit as fk
        >>> found = fk.measure(torch.mm, torch.randn(64, 64), torch.randn(64, 64), time_budget=0.2)
        >>> found.record()["counted"]
        {'flops': 524288, 'bytes': 49152, 'convention': 'EXACT'}
        """
        low, high = self.seconds_ci
        error = None if self.error == math.inf else self.error  # JSON has no such number; a note says it
        return {
            "verdict": self.verdict, "steady": self.steady, "notes": list(self.notes), "error": error, "floor": self.floor,
            "counted": {"flops": self.flops, "bytes": self.bytes, "convention": "EXACT"},
            "seconds": {
                "mean": self.seconds, "low": low, "high": high, "median": self.median, "p10_p90": list(self.p10_p90 or ()),
                "fastest": self.fastest, "calls": self.calls, "round_means": list(self.round_means),
            },
            "rates": {
                "flops_per_s": self.flops_per_s, "bytes_per_s": self.bytes_per_s, "mfu": self.mfu, "mbu": self.mbu,
                "of_ceiling_flops": self.of_ceiling_flops, "of_ceiling_bytes": self.of_ceiling_bytes,
            },
            "protocol": dict(self.protocol), "monitor": self.monitor,
        }  # fmt: skip

    def table(self) -> Table:
        """One row a quantity."""
        low, high = self.seconds_ci
        lines = [
            ("time", units.seconds(self.seconds)), ("95 % interval", f"{units.seconds(low)} to {units.seconds(high)}"),
            ("median", units.seconds(self.median)), ("calls", f"{self.calls:,} in {self.rounds} rounds"),
            ("work", f"{units.si(self.flops, 'FLOPs')}, {units.si(self.bytes, 'B')}"),
            ("rate", f"{units.si(self.flops_per_s, 'FLOP/s')}, {units.si(self.bytes_per_s, 'B/s')}"),
            ("of the peak, of the bandwidth", f"{_share(self.mfu)}, {_share(self.mbu)}"),
            ("of the measured ceilings", f"{_share(self.of_ceiling_flops)}, {_share(self.of_ceiling_bytes)}"),
            ("verdict", self.verdict if self.steady else f"{self.verdict}, the clock was not steady"),
        ]  # fmt: skip
        return Table(
            [{"quantity": name, "value": value} for name, value in lines], caption=f"{self.name} on {self.device}"
        )

    def __repr__(self) -> str:
        low, high = self.seconds_ci
        half = (high - low) / 2 / self.seconds
        text = (
            f"{self.name}: {units.seconds(self.seconds)} ± {units.percent(half)}, {units.si(self.flops_per_s, 'FLOP/s')}, "
            f"{units.si(self.bytes_per_s, 'B/s')} on {self.device}: {self.verdict}"
        )
        return "\n".join((text, *(f"- {note}" for note in self.notes)))

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"{self.table()._repr_html_()}<ul>{notes}</ul>"


def _share(value: float | None) -> str:
    return "not known" if value is None else units.percent(value)
