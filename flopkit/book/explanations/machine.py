"""A machine of ours: its recording, and what an explanation says of it in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from flopkit import units
from flopkit.experiments.catalogue import experiment
from flopkit.experiments.expectations import Cases, Finding
from flopkit.recordings.cases import Case, recordings, records
from flopkit.recordings.recording import Recording
from flopkit.recordings.search import words

__all__ = ["Machine"]


@dataclass(frozen=True, eq=False)
class Machine:
    """A machine whose recording comes with flopkit.

    Parameters
    ----------
    device : str
        Words of its name, for `flopkit.recordings.records`.
    scale : str
        How large its cases are, ``"gpu"`` or ``"cpu"``.
    name : str
        What the page of predictions calls it.
    heading, lead : str
        What its failures have in common.
    digits : int
        Of a number in an explanation.
    missing : dict[str, str]
        Experiments that are not in the recording, and why.
    only : tuple[str, ...], optional
        The experiments for which the recording was made, where it was not made for all.
    reasons : dict[str, Callable[[Machine], str]], optional
        What probably explains the parts of a prediction that missed their limits, by
        experiment. `explains` fills it.

    Examples
    --------
    >>> from flopkit.book.explanations import XEON
    >>> XEON.time("matmul_sizes", n=64, data="normal")
    '9.658 µs'
    >>> [found.confirmation for found in XEON.findings("decode")]
    ['failed', 'failed', 'held']
    """

    device: str
    scale: str
    name: str
    heading: str
    lead: str
    digits: int
    missing: dict[str, str]
    only: tuple[str, ...] = ()
    reasons: dict[str, Callable[[Machine], str]] = field(default_factory=dict)

    def explains(self, reason: Callable[[Machine], str]) -> Callable[[Machine], str]:
        """The decorated function gives the reason. Its name is the experiment's."""
        self.reasons[reason.__name__] = reason
        return reason

    @cached_property
    def recording(self) -> Recording:
        [found] = [one for one in recordings("ours") if words(self.device) <= words(one.device)]
        return found

    def records(self, name: str) -> list[Case]:
        """The cases of an experiment."""
        return _records(name, self.device)

    def asked(self, name: str) -> bool:
        """Whether its recording was made for this experiment, too."""
        return not self.only or name in self.only

    def findings(self, name: str) -> list[Finding]:
        """What they show of each part of its prediction; nothing where there are none."""
        return (
            []
            if name in self.missing or not self.asked(name)
            else experiment(name).findings(self.scale, self.records(name))
        )

    def cases(self, name: str) -> Cases:
        return Cases(self.records(name))

    def seconds(self, name: str, **params: Any) -> float:
        return float(self.cases(name)(**params)["seconds"]["mean"])

    @property
    def bandwidth(self) -> float:
        """The most bytes/s that were measured."""
        return float(max(each["bytes_per_s"] for each in self.ceilings["traffic"].values()))

    def peak(self, dtype: str) -> float:
        """The most FLOP/s that were measured in this format."""
        return float(self.ceilings["matmul"][dtype]["flops_per_s"])

    @property
    def ceilings(self) -> Any:
        return self.recording.ceilings

    def si(self, value: float, unit: str) -> str:
        return units.si(value, unit, self.digits)

    def time(self, name: str, **params: Any) -> str:
        return self.si(self.seconds(name, **params), "s")

    def flops(self, name: str, **params: Any) -> str:
        """FLOP/s of a case."""
        return self.si(self.cases(name)(**params)["rates"]["flops_per_s"], "FLOP/s")

    def moved(self, name: str, **params: Any) -> str:
        """Bytes/s of a case."""
        return self.si(self.cases(name)(**params)["rates"]["bytes_per_s"], "B/s")

    def reached(self, name: str, **params: Any) -> str:
        """Bytes/s of a case, as a share of the most that was measured."""
        return f"{100 * self.cases(name).bandwidth(**params).mean:.0f} %"


@cache
def _records(name: str, device: str) -> list[Case]:
    return records(name, owner="ours", device=device)
