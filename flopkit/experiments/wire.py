"""All-reduce between two processes over a wire whose speed is chosen: a latency, and the
bytes that a rank sends over the speed.

Each rank has a network card of its own, whose speed Linux limits: see `cards`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from flopkit import units
from flopkit.experiments import cards
from flopkit.experiments.all_reduce import by_ranks
from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span
from flopkit.recordings.cases import Case
from flopkit.tables import Table

__all__ = ["by_speed", "run"]

TITLE = "All-reduce over a wire of a chosen speed"
PREDICTION = (
    "Over a wire of a chosen speed, an all-reduce takes a latency, and then the bytes that a rank sends over the wire's speed: 2(n − 1)/n of "
    "the tensor's. Headers add at most 2 % to the bytes of a large tensor. At 100 Mbit/s a further byte takes the wire's time for it, within 3 %, "
    "and at 1 Gbit/s within a fifth, since the processors copy and add, too. At 10 Gbit/s two cores cannot keep up, and a further byte takes at "
    "least twice the wire's time. A tensor of 16 kB is mostly latency: at 1 Gbit/s it takes less than one and a half times as long as at 10 Gbit/s."
)
SMALL, MIDDLE, LARGE = 2**12, 2**18, 2**20  # numbers in fp32
EXPECTATIONS = {
    "cpu": (
        Expectation(
            "a card sends what a ring needs, and at most 2 % more", (1, 1.02),
            "sent over 2(n − 1)/n of the tensor, of 1 MB and 4 MB", lambda of: [part for n in (MIDDLE, LARGE) for part in _sent(of, n)],
        ),
        Expectation(
            "at 100 Mbit/s a further byte takes the wire's time, within 3 %", (0.97, 1.03),
            "4 MB less 1 MB, by the wire's time", lambda of: [_per_byte(of, 100)],
        ),
        Expectation(
            "at 1 Gbit/s it does within a fifth", (0.8, 1.2), "4 MB less 1 MB, by the wire's time", lambda of: [_per_byte(of, 1000)],
        ),
        Expectation(
            "at 10 Gbit/s it takes at least twice as long", (2, math.inf),
            "4 MB less 1 MB, by the wire's time", lambda of: [_per_byte(of, 10000)],
        ),
        Expectation(
            "16 kB take less than 1.5 times as long at 1 Gbit/s as at 10 Gbit/s", (0, 1.5),
            "1 Gbit/s over 10 Gbit/s", lambda of: [of.seconds(numbers=SMALL, megabits=1000) / of.seconds(numbers=SMALL, megabits=10000)],
        ),
    ),
}  # fmt: skip


def _sent(of: Cases, numbers: int) -> list[float]:
    cases = [of(numbers=numbers, megabits=speed)["extra"] for speed in (100, 1000, 10000)]
    return [each["card_bytes"] / each["wire_bytes"] for each in cases]


def _per_byte(of: Cases, megabits: int) -> Span:
    small, large = ({"numbers": numbers, "megabits": megabits} for numbers in (MIDDLE, LARGE))
    for each in (small, large):
        of.seconds(**each)  # so that it is kept among those that were timed
    return _further(of(**small), of(**large))


def _further(small: Case, large: Case) -> Span:
    """The time of a further byte by that of the wire, between two tensors: the latency of
    both is the same."""
    more = large["extra"]["wire_bytes"] - small["extra"]["wire_bytes"]
    return (Span.seconds(large) - Span.seconds(small)) / _seconds(more, large["params"]["megabits"])


def _seconds(bytes: float, megabits: int) -> float:
    return 8 * bytes / (1e6 * megabits)


def by_speed(cases: Iterable[Case]) -> Table:
    """What cases show, a row a wire: ``seconds = sent / speed + latency``.

    Parameters
    ----------
    cases : Iterable[Case]
        As `flopkit.experiments.here` and `flopkit.recordings.records` give them.

    Returns
    -------
    Table
        *whose*; *wire*, in Mbit/s; *smallest*, the seconds of the smallest tensor, which are mostly latency; *largest*, those of the largest;
        *by the wire*, the share of these that its bytes take at the wire's speed; *further byte*, the time of one between the two largest by
        the wire's. Refused cases are left out, and what rests on them is None.

    Examples
    --------
    >>> def case(numbers, seconds):
    ...     took = {"mean": seconds, "low": seconds, "high": seconds}
    ...     record = {"verdict": "ok", "dtype": "fp32", "params": {"megabits": 8, "numbers": numbers}}
    ...     return Case({**record, "seconds": took, "extra": {"wire_bytes": 4e6 * numbers}}, "yours", "", "a CPU")
    >>> print(by_speed([case(1, 4.5), case(2, 8.5)]))
    An all-reduce of two processes, by the speed of the wire
    whose  wire      smallest  largest  by the wire  further byte
    yours  8 Mbit/s     4.5 s    8.5 s       94.1 %         1.00×
    """
    wires: dict[tuple[str, str, int], list[Case]] = {}
    for case in cases:
        wires.setdefault((case.owner, case.device, case["params"]["megabits"]), []).append(case)
    rows: list[dict[str, Any]] = []
    for (owner, _, speed), found in wires.items():
        found.sort(key=lambda case: case["params"]["numbers"])
        first, last = found[0], found[-1]
        whole = last["verdict"] == "ok"
        rows.append({
            "whose": owner, "wire": speed, "smallest": first["seconds"]["mean"] if first["verdict"] == "ok" else None,
            "largest": last["seconds"]["mean"] if whole else None,
            "by the wire": _seconds(last["extra"]["wire_bytes"], speed) / last["seconds"]["mean"] if whole else None,
            "further byte": _further(*found[-2:]).mean if {each["verdict"] for each in found[-2:]} == {"ok"} and len(found) > 1 else None,
        })  # fmt: skip
    formats = {
        "wire": lambda speed: f"{speed:,} Mbit/s", "smallest": units.seconds, "largest": units.seconds, "by the wire": units.percent,
        "further byte": lambda times: f"{times:.2f}×",
    }  # fmt: skip
    return Table(
        rows, caption="An all-reduce of two processes, by the speed of the wire", formats=formats, folded="yours"
    )


def run(bench: Bench) -> Iterator[Record]:
    """Seconds by the speed of the wire and the size of the tensor. ``extra`` has the bytes
    that each rank sends in a ring, those that the first rank's card was seen to send, and
    those that a card which was idle sends at once.

    Raises
    ------
    OSError
        Where the system refuses such a wire: why, and what would allow it.
    """
    speeds = bench.pick(toy=(100, 400), cpu=(100, 1000, 10000), gpu=(100, 1000, 10000))
    sizes = bench.pick(toy=(2**14, 2**17), cpu=(SMALL, MIDDLE, LARGE), gpu=(SMALL, MIDDLE, LARGE))
    cases: list[dict[str, Any]] = [
        {"what": "wire", "megabits": speed, "numbers": numbers, "backend": "gloo", "ranks": cards.RANKS}
        for speed in speeds
        for numbers in sizes
    ]
    yield from by_ranks(bench, "wire", cases, "fp32")
