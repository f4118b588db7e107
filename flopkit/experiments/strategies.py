"""Six ways to share a training step among processes: the bytes that each writes to its
sockets beside those that are foretold, and the seconds of a step.

The ranks are processes on the CPU over gloo, which writes to sockets what it sends: the
system counts it in ``/proc/self/io``. What they run is in `sharded`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from flopkit.experiments.all_reduce import by_ranks
from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Expectation
from flopkit.experiments.sharded import STRATEGIES

TITLE = "Six ways to share a step: bytes on the wire"
PREDICTION = (
    "Of each strategy the processes write as many bytes as the counter says of a rank, within 2 %: a header a message is all that is added. "
    "gloo has no reduce-scatter of its own and runs an all-reduce, so that fully sharded and sequence parallel steps write more than a ring "
    "would. On a machine whose processes share their cores, a step that sends more takes longer: a fully sharded one than a data-parallel one."
)
EXPECTATIONS = {
    "cpu": (
        Expectation(
            "the processes write what is foretold, and at most 2 % more", (1, 1.02),
            "written over foretold", lambda of: [part for name in STRATEGIES for part in _written(of(strategy=name)["extra"])],
        ),
        Expectation(
            "a step that sends more takes longer: a fully sharded one than a data-parallel one", (1, math.inf),
            "fully sharded over data parallel", lambda of: [of.seconds(strategy="fully_sharded") / of.seconds(strategy="data")],
        ),
    ),
}  # fmt: skip


def _written(extra: Mapping[str, Any]) -> list[float]:
    """Bytes by those foretold; nothing where the system does not say what a process writes."""
    return [extra["written"] / extra["foretold"]] if "written" in extra else []


def run(bench: Bench) -> Iterator[Record]:
    """Seconds of a step by strategy. ``extra`` has the bytes that all ranks together were
    seen to write in one step, where the system says it, those that are foretold of gloo,
    and of a ring."""
    ranks = bench.pick(toy=2, cpu=min(4, max(2, os.cpu_count() or 2)), gpu=4)
    shape = bench.pick(toy=(2, 128, 128), cpu=(4, 512, 256), gpu=(4, 512, 256))
    sizes: dict[str, Any] = dict(zip(("layers", "width", "tokens"), shape, strict=True))
    cases = [{"what": "strategy", "strategy": name, **sizes, "backend": "gloo", "ranks": ranks} for name in STRATEGIES]
    yield from by_ranks(bench, "strategies", cases, "fp32")
