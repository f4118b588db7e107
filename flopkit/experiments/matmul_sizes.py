"""Square products of matrices from tiny to large, and the same product with zeros in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.measuring.workloads import torch_dtype

TITLE = "Square matrix products"
PREDICTION = (
    "Small products are bound by the cost of a call, so FLOP/s grow with the cube of n; large ones reach a level of their own. "
    "On a GPU whose power is capped zeros run faster than normal numbers, on a CPU they do not."
)


def run(bench: Bench) -> Iterator[Record]:
    """FLOP/s over n, by number format; at one size, data of zeros beside normal numbers."""
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
