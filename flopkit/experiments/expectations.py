"""What a prediction lets one expect of recorded cases: in words, between which limits,
and how the cases are asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flopkit.devices import device
from flopkit.experiments.pairs import Span
from flopkit.names import Word
from flopkit.recordings.cases import Case

__all__ = ["Cases", "Confirmation", "Expectation", "Finding", "launch", "weak"]

WAITS = "launching a call takes the host"  # how the note begins of a case whose device waited for its host
PRECISE = {" %": (10.0,), " tokens": (), "×": (100.0, 10.0, 0.1)}  # a value below each has one more decimal


class Confirmation(Word):
    """Whether recorded cases confirm a part of a prediction."""

    HELD = "held"
    NOT_CLEAR = "not clear"
    FAILED = "failed"


@dataclass(frozen=True)
class Expectation:
    """A part of a prediction, and how recorded cases are judged by it.

    Parameters
    ----------
    says : str
        What is expected.
    limits : tuple[float, float]
        Between which two numbers each value should lie.
    of : str | Callable[[Cases], str]
        What the values are of.
    measured : Callable[[Cases], Iterable[Span | float]]
        The values; plain numbers are exact.
    unit : str, optional
        Of the values: ``"×"``, ``" %"`` or ``" tokens"``.

    Examples
    --------
    >>> twice = Expectation(
    ...     "twice as long", (1.8, 2.2), "time",
    ...     lambda of: [of.seconds(n=2) / of.seconds(n=1)],
    ... )
    >>> def case(n, seconds):
    ...     took = {"mean": seconds, "low": seconds, "high": seconds}
    ...     record = {"verdict": "ok", "dtype": "fp32", "params": {"n": n}}
    ...     return Case({**record, "seconds": took}, "ours", "", "a CPU")
    >>> found = twice.judged([case(1, 0.5), case(2, 1.0)])
    >>> found.seen, found.confirmation
    ('time: 2.00×', 'held')
    """

    says: str
    limits: tuple[float, float]
    of: str | Callable[[Cases], str]
    measured: Callable[[Cases], Iterable[Span | float]]
    unit: str = "×"

    def judged(self, records: Iterable[Case]) -> Finding:
        """What these cases of the experiment show."""
        of = Cases(records)
        values = tuple(each if isinstance(each, Span) else Span.exactly(each) for each in self.measured(of))
        if not values:  # nothing would lie outside
            raise ValueError(f"{self.says!r} is judged by no value: the cases have none of what it asks for")
        return Finding(self, self.of if isinstance(self.of, str) else self.of(of), values, tuple(of.timed))


@dataclass(frozen=True)
class Finding:
    """What recorded cases show of an expectation: the values, and the cases on whose
    times they rest."""

    expected: Expectation
    of: str
    values: tuple[Span, ...]
    cases: tuple[Case, ...]

    @property
    def seen(self) -> str:
        return f"{self.of}: {', '.join(map(self._shown, self.values))}"

    def _shown(self, value: Span) -> str:
        unit = self.expected.unit
        by = 100 if unit == " %" else 1
        digits = sum(by * value.mean < step for step in PRECISE[unit])
        mean, low, high = (f"{by * end:.{digits}f}" for end in (value.mean, value.low, value.high))
        return f"{mean}{unit}" if low == high else f"{mean}{unit} ({low} to {high})"

    @property
    def missed(self) -> tuple[Span, ...]:
        """The values whose whole intervals lie outside the limits."""
        least, most = self.expected.limits
        return tuple(each for each in self.values if each.high < least or each.low > most)

    @property
    def confirmation(self) -> Confirmation:
        """Failed if a value missed whose cases were steady and not launch-bound, held
        if all intervals lie inside, and else not clear."""
        if any(not weak(each.cases) for each in self.missed):
            return Confirmation.FAILED
        least, most = self.expected.limits
        inside = all(least <= each.low and each.high <= most for each in self.values)
        return Confirmation.HELD if inside else Confirmation.NOT_CLEAR

    @property
    def doubt(self) -> str:
        """Why the part is not clear, in words; empty where it held or failed."""
        if self.confirmation != Confirmation.NOT_CLEAR:
            return ""
        why = weak(case for each in self.missed for case in each.cases)
        return f"missed, but {why}" if why else "an interval crosses a limit"

    @property
    def weak(self) -> str:
        return weak(self.cases)


def weak(cases: Iterable[Mapping[str, Any]]) -> str:
    """What makes the times of these cases less sure, in words; empty where nothing
    does. No prediction fails by such a case."""
    cases = list(cases)
    found = {
        "launch-bound": any(launch(each) is not None for each in cases),
        "unsteady": any(not each["steady"] for each in cases),
    }
    return ", ".join(word for word, true in found.items() if true)


def launch(case: Mapping[str, Any]) -> float | None:
    """Seconds that the host took to launch a call, of a case whose device waited for
    that.

    >>> launch({"notes": ["launching a call takes the host 0.0346 s: the device waits"]})
    0.0346
    """
    said = [each.removeprefix(WAITS) for each in case["notes"] if each.startswith(WAITS)]
    return float(said[0].split()[0]) if said else None


class Cases:
    """The cases of one experiment on one device, found by their parameters and their
    number format. It keeps those whose times it was asked for."""

    def __init__(self, records: Iterable[Case]) -> None:
        self.records = list(records)
        self.timed: list[Case] = []
        self.dtypes = list(dict.fromkeys(each["dtype"] for each in self.records))

    def __call__(self, **params: Any) -> Case:
        found = [each for each in self.records if params.items() <= {**each["params"], "dtype": each["dtype"]}.items()]
        if len(found) != 1:
            raise ValueError(f"{params}: {len(found)} of the {len(self.records)} cases; name the parameters of one")
        return found[0]

    def seconds(self, **params: Any) -> Span:
        """Of a case; it is kept among those that were timed."""
        case = self(**params)
        self.timed.append(case)
        return Span.seconds(case)

    def rate(self, **params: Any) -> Span:
        """FLOP/s, as counted."""
        flops: float = self(**params)["counted"]["flops"]
        return flops / self.seconds(**params)

    def bandwidth(self, **params: Any) -> Span:
        """Bytes/s of a case, as a share of the most that was measured of the device."""
        case = self(**params)
        roof = max(each["bytes_per_s"] for each in _ceilings(case)["traffic"].values())
        share: float = case["counted"]["bytes"] / roof
        return share / self.seconds(**params)

    def speed(self, **params: Any) -> Span:
        """FLOP/s of a case, as a share of the most that was measured of the device in
        this format."""
        case = self(**params)
        peak: float = _ceilings(case)["matmul"][case["dtype"]]["flops_per_s"]
        return self.rate(**params) / peak

    def peak(self, **params: Any) -> float:
        """FLOP/s of the device's data sheet, in the format of a case."""
        case = self(**params)
        return device(case.device).peak(case["dtype"])


def _ceilings(case: Case) -> Mapping[str, Any]:
    if case.ceilings is None:
        raise ValueError(
            f"{case['case']}: its recording has no ceilings; record on a device whose ceilings are measured"
        )
    return case.ceilings
