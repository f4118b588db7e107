"""Matrix products whose rows grow by a little: what whole tiles and whole waves of
tiles cost."""

from __future__ import annotations

from collections.abc import Iterator

from flopkit.arithmetic import ceil_div
from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span

TITLE = "Tiles and waves of a matrix product"
PREDICTION = (
    "A GPU computes the output in whole tiles, for large products mostly of 128 × 256 numbers, and each of its multiprocessors takes one at "
    "a time. FLOP/s are highest where the last wave of tiles is full and drop just behind: on an H200, with 132 multiprocessors and 8192 "
    "columns, 4224 rows fill 8 waves, 4288 rows need a ninth, and FLOP/s fall by about 10 %. 4097 rows take as long as 4224. "
    "A CPU has no waves, and its tiles are small: one row more than a multiple of 16 costs less than 5 %."
)
EXPECTATIONS = {
    "gpu": (
        Expectation(
            "FLOP/s are highest where the last wave is full, at 4,224 rows", (0, 1),
            lambda of: f"FLOP/s, the best of {len(of.records) - 1} others", lambda of: [_best_other(of, 4224)],
        ),
        Expectation(
            "at 4,288 rows they fall by about 10 %: by 8 to 12", (0.88, 0.92),
            "FLOP/s of 4,288 rows over 4,224", lambda of: [of.rate(rows=4288) / of.rate(rows=4224)],
        ),
        Expectation(
            "4,097 rows take as long as 4,224: within 1.5 %, half of the difference in rows", (0.985, 1.015),
            "time", lambda of: [of.seconds(rows=4097) / of.seconds(rows=4224)],
        ),
    ),
    "cpu": (
        Expectation(
            "one row more than a multiple of 16 costs less than 5 %", (0, 1.05),
            "time of 241 and 257 rows, over 240 and 256",
            lambda of: [of.seconds(rows=n + 1) / of.seconds(rows=n) for n in (240, 256)],
        ),
    ),
}  # fmt: skip


def _best_other(of: Cases, full: int) -> Span:
    """The highest FLOP/s of other rows, over those of *full*."""
    others = [each["params"]["rows"] for each in of.records if each["params"]["rows"] != full]
    return max((of.rate(rows=rows) / of.rate(rows=full) for rows in others), key=lambda each: each.mean)


TILE = (128, 256)  # rows and columns, in the kernels that cuBLAS mostly takes for large products on GPUs since Ampere


def run(bench: Bench) -> Iterator[Record]:
    """FLOP/s over the rows, in steps that are smaller than a tile. *extra* has the
    tiles, the waves and the share of them that is used."""
    import torch

    columns, inner = bench.pick(toy=(48, 32), cpu=(1024, 1024), gpu=(8192, 8192))
    dtype = bench.dtypes[0]
    on_cpu, on_gpu = sorted({*range(240, 273, 4), 241, 257}), sorted({*range(3968, 4993, 64), 4097})
    for rows in bench.pick(toy=(15, 16, 17), cpu=on_cpu, gpu=on_gpu):
        params = {"rows": rows, "columns": columns, "inner": inner}
        product = bench.random(torch.mm, dtype, (rows, inner), (inner, columns))
        yield bench.case("matmul_tiles", params, product, dtype, extra=_expected(bench, rows, columns))


def waves(rows: int, columns: int, multiprocessors: int) -> dict[str, float]:
    """Tiles of an output, waves that they need, and the share of the multiprocessors'
    time that computes numbers of the output.

    >>> waves(4224, 8192, multiprocessors=132)
    {'tiles': 1056, 'waves': 8, 'share_used': 1.0}
    >>> waves(4288, 8192, multiprocessors=132)["waves"]
    9
    """
    high, wide = TILE
    tiles = ceil_div(rows, high) * ceil_div(columns, wide)
    needed = ceil_div(tiles, multiprocessors)
    used = rows * columns / (needed * multiprocessors * high * wide)
    return {"tiles": tiles, "waves": needed, "share_used": used}


def _expected(bench: Bench, rows: int, columns: int) -> dict[str, float]:
    """By a GPU's multiprocessors; a CPU has none."""
    if bench.device.type != "cuda":
        return {}
    import torch

    return waves(rows, columns, torch.cuda.get_device_properties(bench.device).multi_processor_count)
