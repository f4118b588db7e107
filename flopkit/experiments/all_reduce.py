"""All-reduce between devices, by size, and a training step that hides it behind its
backward pass or does not.

The ranks are processes that ``torchrun`` starts, each with a GPU of its own over NCCL,
or two on the CPU over gloo where there are not two GPUs. What they run is in `ranks`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from flopkit.experiments import cards
from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span

TITLE = "All-reduce, and a step that overlaps it"
PREDICTION = (
    "A small all-reduce takes the same time whatever its size, a large one grows with it: the bytes on the wire, 2(n − 1)/n of the tensor's, "
    "by the time reach a level. A step that reduces after its backward pass takes the time of the step alone plus that of the all-reduce, "
    "within a tenth. Overlap hides part of it on GPUs, at most the time of the backward pass; with gloo it hides little, since the "
    "processors that compute also copy."
)
EXPECTATIONS = {
    "cpu": (
        Expectation(
            "a small one takes the same time whatever its size: less than 1.5×", (0, 1.5),
            "65,536 numbers over 4,096", lambda of: [_took(of, 65536) / _took(of, 4096)],
        ),
        Expectation(
            "a large one grows with its size: 8×, within a quarter", (6, 10),
            "8,388,608 numbers over 1,048,576", lambda of: [_took(of, 8388608) / _took(of, 1048576)],
        ),
        Expectation(
            "with gloo, overlap hides little: a step takes at least 90 % of one that reduces at its end", (0.9, 1.1),
            "overlapped over after", lambda of: [of.seconds(what="step", mode="overlapped") / of.seconds(what="step", mode="after")],
        ),
    ),
}  # fmt: skip


def _took(of: Cases, numbers: int) -> Span:
    return of.seconds(what="all_reduce", numbers=numbers)


# The gradients stay here, are reduced when all are there, or while others are computed.
MODES = ("alone", "after", "overlapped")


def run(bench: Bench) -> Iterator[Record]:
    """Seconds by the size of the tensor, then those of a step in three modes. ``extra``
    has the bytes that each rank sends."""
    import torch

    cards = torch.cuda.device_count() if bench.device.type == "cuda" else 0
    backend, ranks = ("nccl", cards) if cards > 1 else ("gloo", 2)
    dtype = bench.dtypes[0] if backend == "nccl" else "fp32"
    sizes = bench.pick(toy=(2**10, 2**14), cpu=(2**12, 2**16, 2**20, 2**23), gpu=(2**12, 2**16, 2**20, 2**24, 2**28))
    shape = bench.pick(toy=(2, 32, 8), cpu=(8, 512, 256), gpu=(8, 4096, 4096))
    if backend == "gloo" and bench.scale == "gpu":  # a single GPU has nobody to reduce with: the CPU shows how it works
        sizes, shape = (2**12, 2**16, 2**20, 2**23), (8, 512, 256)
    where = {"backend": backend, "ranks": ranks}
    cases: list[dict[str, Any]] = [{"what": "all_reduce", "numbers": numbers, **where} for numbers in sizes]
    step = dict(zip(("layers", "width", "batch"), shape, strict=True))
    cases += [{"what": "step", "mode": mode, **step, **where} for mode in MODES]
    yield from by_ranks(bench, "all_reduce", cases, dtype)


def by_ranks(bench: Bench, name: str, cases: list[dict[str, Any]], dtype: str) -> Iterator[Record]:
    """The records of an experiment whose *cases* are measured by ranks that are started for it; those that are known are not measured again."""
    missing = [params for params in cases if bench.key(name, params, dtype) not in bench.known]
    found = _measured(missing, dtype, 2.0 if bench.time_budget is None else bench.time_budget)
    with contextlib.closing(found):
        for params in cases:
            known = bench.known.get(bench.key(name, params, dtype))
            yield known or bench.add(name, params, dtype, next(found))


def _measured(cases: list[dict[str, Any]], dtype: str, time_budget: float) -> Generator[Record, None, None]:
    """Start the ranks and hand on what the first one writes, case by case."""
    asked = json.dumps({"cases": cases, "dtype": dtype, "time_budget": time_budget})
    here = str(Path(__file__).parents[2])  # of a checkout that is not installed
    paths = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(cases[0]["ranks"]),
    ]
    command = cards.command(asked) if "megabits" in cases[0] else [*torchrun, "-m", "flopkit.experiments.ranks", asked]
    env = {**os.environ, "PYTHONPATH": paths}
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=env) as process,
    ):
        try:
            assert process.stdout is not None
            yield from (json.loads(line) for line in process.stdout if line.startswith("{"))
            process.wait()
            said.seek(0)
            raise RuntimeError(f"the ranks ended before all cases were measured:\n{said.read()[-2000:]}")
        finally:
            process.terminate()  # it ends its ranks
