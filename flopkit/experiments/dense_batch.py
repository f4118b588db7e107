"""A dense layer over the batch: flat while the weight's bytes take longest, then a line through the origin. The bend is the ridge point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flopkit.experiments.bench import Bench, Record

TITLE = "A dense layer from one token to many"
PREDICTION = (
    "As long as the weight is what takes longest to read, a larger batch costs no time; then time grows with the batch. The bend lies where "
    "the intensity, about one FLOP per byte and token in bf16 and half of that in fp32, reaches the device's ridge point: about 200 tokens in "
    "bf16 on an H200 by its datasheet, some 10 to 20 fewer by what it reaches, as many in TF32, whose rate is half and whose numbers are twice as "
    "long, and 10 to 60 tokens in fp32 on a CPU of few cores. In between, time "
    "is above both lines, by up to twofold."
)


def run(bench: Bench) -> Iterator[Record]:
    """Seconds over the tokens of a square layer, by number format."""
    from torch.nn.functional import linear

    width = bench.pick(toy=32, cpu=4096, gpu=8192)
    many = (1, 16, 64, 128, 192, 256, 384, 512, 1024, 2048)
    batches = bench.pick(toy=(1, 4), cpu=[2**n for n in range(9)], gpu=many)
    for dtype in bench.dtypes[:2]:
        for tokens in batches:
            layer = bench.random(linear, dtype, (tokens, width), (width, width))
            yield bench.case("dense_batch", {"tokens": tokens, "width": width}, layer, dtype)


def ridge(records: Iterable[Mapping[str, Any]]) -> float:
    """Tokens at which the two lines cross: the flat one through the smallest batch, and the one through the origin and the largest.

    >>> times = {1: 1e-3, 64: 1.1e-3, 1000: 8e-3}
    >>> ridge({"params": {"tokens": n}, "seconds": {"mean": s}, "verdict": "ok"} for n, s in times.items())
    125.0
    """
    means = {each["params"]["tokens"]: each["seconds"]["mean"] for each in records if each["verdict"] == "ok"}
    if len(means) < 2:
        raise ValueError("ridge: needs records of two batches at least whose verdict is ok")
    few, many = min(means), max(means)
    return float(means[few] * many / means[many])
