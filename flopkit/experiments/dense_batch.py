"""A dense layer over the batch: flat while the weight's bytes take longest, then a line
through the origin. The bend is the ridge point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span

TITLE = "A dense layer from one token to many"
PREDICTION = (
    "As long as the weight is what takes longest to read, a larger batch costs no time; then time grows with the batch. The bend lies where "
    "the intensity, about one FLOP per byte and token in bf16 and half of that in fp32, reaches the device's ridge point: about 200 tokens in "
    "bf16 on an H200 by its datasheet, some 10 to 20 fewer by what it reaches, as many in TF32, whose rate is half and whose numbers are twice as "
    "long, and 10 to 60 tokens in fp32 on a CPU of few cores. In between, time "
    "is above both lines, by up to twofold."
)


def _on_gpu(dtype: str, name: str) -> tuple[Expectation, ...]:
    def took(of: Cases, tokens: int) -> Span:
        return of.seconds(tokens=tokens, dtype=dtype)

    return (
        Expectation(
            f"{name}: well below the ridge a larger batch costs no time: less than a quarter", (0, 1.25),
            "time of 16 and 64 tokens over one", lambda of: [took(of, n) / took(of, 1) for n in (16, 64)],
        ),
        Expectation(
            f"{name}: far beyond it time grows with the batch: 2×, within a quarter", (1.5, 2.5),
            "time of 2,048 tokens over 1,024", lambda of: [took(of, 2048) / took(of, 1024)],
        ),
        Expectation(
            f"{name}: the bend lies at about 200 tokens, or 10 to 20 fewer: at 170 to 210", (170, 210),
            "where the lines through one token and 2,048 meet", lambda of: [took(of, 1) / took(of, 2048) * 2048], " tokens",
        ),
        Expectation(
            f"{name}: in between, time is above both lines by up to twofold", (1, 2),
            "time of 192 tokens over that of moving the bytes, and over that of the FLOPs",
            lambda of: [1 / of.bandwidth(tokens=192, dtype=dtype), 1 / of.speed(tokens=192, dtype=dtype)],
        ),
    )  # fmt: skip


EXPECTATIONS = {
    "gpu": (*_on_gpu("bf16", "bf16"), *_on_gpu("tf32", "TF32")),
    "cpu": (
        Expectation(
            "well below the ridge a larger batch costs no time: less than a quarter", (0, 1.25),
            "time of 4 tokens over one", lambda of: [of.seconds(tokens=4) / of.seconds(tokens=1)],
        ),
        Expectation(
            "far beyond it time grows with the batch: 2×, within a quarter", (1.5, 2.5),
            "time of 256 tokens over 128", lambda of: [of.seconds(tokens=256) / of.seconds(tokens=128)],
        ),
        Expectation(
            "in between, time is above both lines by up to twofold", (1, 2),
            "time of 8 tokens over that of moving its bytes", lambda of: [1 / of.bandwidth(tokens=8)],
        ),
        Expectation(
            "the bend lies between 10 and 60 tokens", (10, 60), "where the lines through one token and 256 meet",
            lambda of: [of.seconds(tokens=1) / of.seconds(tokens=256) * 256], " tokens",
        ),
    ),
}  # fmt: skip


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
    """Tokens at which the two lines cross: the flat one through the smallest batch, and
    the one through the origin and the largest.

    >>> times = {1: 1e-3, 64: 1.1e-3, 1000: 8e-3}
    >>> ridge({"params": {"tokens": n}, "seconds": {"mean": s}, "verdict": "ok"} for n, s in times.items())
    125.0
    """
    means = {each["params"]["tokens"]: each["seconds"]["mean"] for each in records if each["verdict"] == "ok"}
    if len(means) < 2:
        raise ValueError("ridge: needs records of two batches at least whose verdict is ok")
    few, many = min(means), max(means)
    return float(means[few] * many / means[many])


def from_fastest(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without the batches that are smaller than the fastest, and slower: the level line of `ridge` then goes through the shortest time.

    >>> times = {1: 1.2e-3, 64: 1e-3, 1000: 8e-3}
    >>> cases = [{"params": {"tokens": n}, "seconds": {"mean": s}, "verdict": "ok"} for n, s in times.items()]
    >>> ridge(cases), ridge(from_fastest(cases))
    (150.0, 125.0)
    """
    good = [each for each in records if each["verdict"] == "ok"]
    if not good:
        return []
    fastest = min(good, key=lambda each: each["seconds"]["mean"])["params"]["tokens"]
    return [each for each in good if each["params"]["tokens"] >= fastest]
