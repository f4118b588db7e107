"""Square products of matrices from tiny to large, and the same product with zeros in
it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span
from flopkit.measuring.workloads import torch_dtype

TITLE = "Square matrix products"
PREDICTION = (
    "Small products are bound by the cost of a call, so FLOP/s grow with the cube of n; large ones reach a level of their own. "
    "On a GPU whose power is capped zeros run faster than normal numbers, on a CPU they do not."
)
EXPECTATIONS = {
    "gpu": (
        Expectation(
            "FLOP/s of small products grow with the cube of n: 8× from 256 to 512, within a quarter", (6, 10),
            "FLOP/s, bf16, TF32, fp32", lambda of: _growth(of, 256, 512),
        ),
        Expectation(
            "large ones reach a level: from 4,096 to 8,192 within a tenth", (0.9, 1.1),
            "FLOP/s, bf16, TF32, fp32", lambda of: _growth(of, 4096, 8192),
        ),
        Expectation(
            "with capped power zeros are faster than normal numbers", (0, 1), "time, 8,192 in bf16", lambda of: _zeros(of, 8192)
        ),
    ),
    "cpu": (
        Expectation(
            "FLOP/s of small products grow with the cube of n: 8× from 64 to 128, within a quarter", (6, 10),
            "FLOP/s", lambda of: _growth(of, 64, 128),
        ),
        Expectation(
            "large ones reach a level: from 512 to 1,024 within a tenth", (0.9, 1.1), "FLOP/s", lambda of: _growth(of, 512, 1024)
        ),
        Expectation(
            "zeros are not faster than normal numbers, within a tenth", (0.9, 1.1), "time", lambda of: _zeros(of, 1024)
        ),
    ),
}  # fmt: skip


def _growth(of: Cases, a: int, b: int) -> list[Span]:
    return [of.rate(n=b, data="normal", dtype=d) / of.rate(n=a, data="normal", dtype=d) for d in of.dtypes]


def _zeros(of: Cases, n: int) -> list[Span]:
    """The time of zeros over that of normal numbers, in the first format: zeros are
    measured in no other."""
    first = {"n": n, "dtype": of.dtypes[0]}
    return [of.seconds(**first, data="zeros") / of.seconds(**first, data="normal")]


def run(bench: Bench) -> Iterator[Record]:
    """FLOP/s over n, by number format; at one size, data of zeros beside normal
    numbers."""
    sizes = bench.pick(toy=(16, 32), cpu=(64, 128, 256, 512, 1024), gpu=(256, 512, 1024, 2048, 4096, 8192, 16384))
    for dtype in bench.dtypes:
        for n in sizes:
            yield _case(bench, n, "normal", dtype)
    yield _case(bench, bench.pick(toy=32, cpu=1024, gpu=8192), "zeros", bench.dtypes[0])


def _case(bench: Bench, n: int, data: str, dtype: str) -> Record:
    def make() -> tuple[Any, ...]:
        import torch

        fill = torch.randn if data == "normal" else torch.zeros
        a, b = (fill(n, n, device=bench.device).to(torch_dtype(dtype)) for _ in range(2))
        return torch.mm, a, b

    return bench.case("matmul_sizes", {"n": n, "data": data}, make, dtype)
