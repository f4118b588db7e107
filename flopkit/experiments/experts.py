"""A layer of experts under a balanced and under a skewed load, with few tokens and with
many, beside a dense layer of the same FLOPs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span
from flopkit.measuring.workloads import torch_dtype

TITLE = "A mixture of experts, balanced and skewed"
PREDICTION = (
    "With many tokens the experts take at most 1.5 times as long as the dense layer with the same FLOPs, and skew changes the time of one "
    "device by less than a tenth: the FLOPs are the same, and the busiest expert's product is only larger. With few tokens the experts take "
    "many times as long as the dense layer, since the weights of all experts are read, as many times its bytes as there are experts for each "
    "one that a token chooses. What skew costs a cluster, where all wait for the busiest device, one device does not show."
)


def _expected(few: int, many: int) -> tuple[Expectation, ...]:
    def over(of: Cases, tokens: int, load: str, other: str) -> list[Span]:
        return [of.seconds(tokens=tokens, load=load) / of.seconds(tokens=tokens, load=other)]

    return (
        Expectation(
            "with many tokens at most 1.5 times as long as the dense layer", (0, 1.5),
            f"{many:,} tokens", lambda of: over(of, many, "balanced", "dense"),
        ),
        Expectation(
            "skew changes the time by less than a tenth", (0.9, 1.1),
            f"{many:,} tokens", lambda of: over(of, many, "skewed", "balanced"),
        ),
        Expectation(
            "with few tokens many times as long, at least 4", (4, math.inf),
            f"{few} tokens", lambda of: over(of, few, "balanced", "dense"),
        ),
    )  # fmt: skip


EXPECTATIONS = {"gpu": _expected(64, 16384), "cpu": _expected(16, 1024)}
LOADS = {"balanced": 1, "skewed": 4}  # tokens of the busiest expert, over those of the average one


def run(bench: Bench) -> Iterator[Record]:
    """Seconds of the layer over its tokens: the experts under both loads, and the dense
    layer."""
    for tokens in bench.pick(toy=(16, 64), cpu=(16, 128, 1024), gpu=(64, 1024, 16384)):
        for load in (*LOADS, "dense"):
            yield _case(bench, tokens, load, bench.dtypes[0])


def sizes_of(bench: Bench) -> tuple[int, int, int, int]:
    """Width, width of an expert, experts, and those that a token chooses."""
    return bench.pick(toy=(32, 64, 8, 2), cpu=(256, 512, 16, 2), gpu=(2048, 1024, 64, 8))  # type: ignore[no-any-return]


def chosen(tokens: int, experts: int, top_k: int, skew: float) -> list[int]:
    """Tokens of each expert, the busiest first: the load that `flopkit.expert_load`
    describes by its skew, in whole numbers.

    >>> chosen(64, 8, 2, 1), chosen(64, 8, 2, 4)
    ([16, 16, 16, 16, 16, 16, 16, 16], [64, 17, 11, 10, 7, 7, 6, 6])
    """
    steep = math.log(skew) / math.log(experts)
    ends = [round(tokens * top_k * (i / experts) ** (1 - steep)) for i in range(experts + 1)]
    return [b - a for a, b in itertools.pairwise(ends)]


def _case(bench: Bench, tokens: int, load: str, dtype: str) -> Record:
    d_model, d_ff, experts, top_k = sizes_of(bench)
    counts = [tokens] if load == "dense" else chosen(tokens, experts, top_k, LOADS[load])
    wide = top_k * d_ff if load == "dense" else d_ff

    def make() -> tuple[Any, ...]:
        import torch

        def normal(*shape: int) -> Any:
            return (torch.randn(shape, device=bench.device) / shape[-2] ** 0.5).to(torch_dtype(dtype))

        weights = normal(len(counts), d_model, 2 * wide), normal(len(counts), wide, d_model)
        if load == "dense":
            return _gated, normal(tokens, d_model), weights[0][0], weights[1][0]
        # The assignments by expert: token after token, round and round, so each token has its top_k, and no expert has one twice.
        order = torch.arange(tokens * top_k, device=bench.device) % tokens
        owner = torch.repeat_interleave(torch.arange(experts), torch.tensor(counts)).to(bench.device)

        def layer(x: Any, router: Any, gate_up: Any, down: Any, order: Any, owner: Any) -> Any:
            shares = (x @ router).softmax(-1)[order, owner]
            parts = zip(x[order].split(counts), gate_up, down, strict=True)
            rows = torch.cat([_gated(*each) for each in parts])
            return torch.zeros_like(x).index_add_(0, order, rows * shares[:, None])

        return layer, normal(tokens, d_model), normal(d_model, experts), *weights, order, owner

    params = {"tokens": tokens, "load": load, "experts": experts, "top_k": top_k, "d_model": d_model, "d_ff": d_ff}
    extra = {"busiest": max(counts), "weights": 3 * len(counts) * d_model * wide}
    return bench.case("experts", params, make, dtype, time_budget=5, extra=extra)


def _gated(x: Any, gate_up: Any, down: Any) -> Any:
    """A gated network of two layers: an expert, or the dense layer."""
    from torch.nn import functional

    gate, up = (x @ gate_up).chunk(2, -1)
    return (functional.silu(gate) * up) @ down
