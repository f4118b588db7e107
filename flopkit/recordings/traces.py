"""Traces: thousands of calls one after the other, each with its time, and the clock, the power and the temperature of the card beside them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from flopkit.sizes import positive

__all__ = ["Sample", "Trace", "traces"]

CAPPED = 0x4  # NVML's bit for a power limit that holds the clock down


@dataclass(frozen=True)
class Sample:
    """What NVML said of the card at one moment.

    Parameters
    ----------
    at : float
        Seconds since the first call began; negative before it.
    sm_mhz, memory_mhz : float
        Clocks of the multiprocessors and of the memory.
    watts : float
        Power, which the card averages over some time before it tells it.
    celsius : float
        Temperature of the chip.
    capped : bool
        Whether the card said that its power limit holds the clock down.
    """

    at: float
    sm_mhz: float
    memory_mhz: float
    watts: float
    celsius: float
    capped: bool


@dataclass(frozen=True, repr=False)
class Trace:
    """Calls of one matrix product, one after the other on a card that had been idle.

    Parameters
    ----------
    whose : str
        Who recorded it, on what, when.
    device : str
        What the machine calls the device.
    dtype : str
        Number format of the product.
    n : int
        Side of the square matrices.
    data : str
        ``"normal"`` random numbers, or ``"zeros"``.
    seconds : tuple[float, ...]
        Of each call, between two events.
    samples : tuple[Sample, ...]
        About every ten milliseconds.

    Examples
    --------
    >>> one = traces(n=6144, data="normal")[0]
    >>> len(one.seconds), one.samples[0].sm_mhz
    (10000, 1980)
    """

    whose: str
    device: str
    dtype: str
    n: int
    data: str
    seconds: tuple[float, ...]
    samples: tuple[Sample, ...]

    @property
    def flops(self) -> int:
        """FLOPs of a call."""
        return 2 * self.n**3

    @property
    def ends(self) -> list[float]:
        """Seconds from the beginning of the first call to the end of each, without the gaps between two calls."""
        return list(itertools.accumulate(self.seconds))

    def rates(self, every: float) -> Iterator[tuple[float, float]]:
        """FLOP/s over time: the middle of each stretch of about *every* seconds, and all FLOPs of its calls by their time.

        >>> from itertools import islice
        >>> [(round(at, 2), round(rate / 1e12)) for at, rate in islice(traces(n=6144, data="normal")[0].rates(0.5), 2)]
        [(0.25, 679), (0.75, 639)]
        """
        positive("every", every, "seconds")
        began = 0
        for i, end in enumerate(self.ends):
            if end - (self.ends[began - 1] if began else 0.0) >= every or i == len(self.seconds) - 1:
                took = sum(self.seconds[began : i + 1])
                yield end - took / 2, (i + 1 - began) * self.flops / took
                began = i + 1

    def __repr__(self) -> str:
        return f"{len(self.seconds):,} products of {self.n} × {self.n} in {self.dtype} ({self.data}), {self.whose}"


def traces(n: int | None = None, data: str | None = None) -> list[Trace]:
    """The traces that come with flopkit.

    Parameters
    ----------
    n : int, optional
        Side of the matrices. None: all.
    data : str, optional
        ``"normal"`` or ``"zeros"``. None: both.

    Raises
    ------
    ValueError
        Where there is none, with those that there are.

    Examples
    --------
    >>> [(one.n, one.data, len(one.seconds)) for one in traces()]
    [(6144, 'normal', 10000), (6144, 'zeros', 3000), (1024, 'normal', 10000)]
    """
    found: list[Trace] = []
    for file in sorted(files("flopkit").joinpath("data/traces").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".json"):
            found += _read(json.loads(file.read_text("utf-8")))
    kept = [one for one in found if n in (None, one.n) and data in (None, one.data)]
    if not kept:
        raise ValueError(f"n={n!r}, data={data!r}: there are traces of {', '.join(f'{t.n}, {t.data}' for t in found)}")
    return kept


def _read(kept: dict[str, Any]) -> Iterator[Trace]:
    by, about = kept["attribution"], kept["provenance"]
    whose = f"recorded by {by['who']} on {by['machine']}, {about['when'][:10]}"
    for each in kept["traces"]:
        samples = tuple(
            Sample(at, sm, memory, watts, celsius, bool(held_down & CAPPED))
            for at, sm, memory, watts, celsius, held_down in each["samples"]
        )
        seconds = tuple(nanoseconds / 1e9 for nanoseconds in each["nanoseconds"])
        yield Trace(whose, about["device"], each["dtype"], each["n"], each["data"], seconds, samples)
