"""A whole training step of a language model: forward, backward and AdamW, by number
format and compiled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.decoder import DecoderSizes, step_case
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span

TITLE = "A training step of a language model"
PREDICTION = (
    "A larger batch makes better use of the device, since the optimiser reads and writes the same 28 bytes a parameter of fp32 for every "
    "batch: at the largest batch it takes less than a tenth of the step. On a GPU the MFU of the eager step in half precision is between "
    "25 and 45 %, and compiling it brings 1.2 to 1.6 times the speed with the same FLOPs. 6N a token is within a quarter of the exact count."
)


def _expected(on: str = "") -> tuple[Expectation, ...]:
    return (
        Expectation(
            "a larger batch makes better use of the device", (1, math.inf),
            f"FLOP/s of 4 sequences over 1, and of 16 over 4{on}", _better,
        ),
        Expectation("6N a token is within a quarter of the exact count", (0.75, 1.25), "6N over it", _six_n),
    )  # fmt: skip


def _better(of: Cases) -> list[Span]:
    """FLOP/s of the eager step, over those at a quarter of the batch."""
    eager = [{"dtype": dtype, "compiled": False} for dtype in of.dtypes]
    return [of.rate(**step, batch=4 * n) / of.rate(**step, batch=n) for step in eager for n in (1, 4)]


def _six_n(of: Cases) -> list[float]:
    one = of(batch=1, dtype=of.dtypes[0])["extra"]
    return [one["six_n_flops"] / one["model_flops"]]


LARGEST = {"batch": 16, "dtype": "bf16"}
EXPECTATIONS = {
    "gpu": (
        *_expected(", bf16, TF32, fp32"),
        Expectation(
            "the MFU of the eager step in half precision is 25 to 45 %, at the largest batch", (0.25, 0.45),
            "16 sequences, of the data sheet's peak", lambda of: [_mfu(of, **LARGEST, compiled=False)], " %",
        ),
        Expectation(
            "compiling it brings 1.2 to 1.6 times the speed", (1.2, 1.6), "16 sequences, bf16",
            lambda of: [of.seconds(**LARGEST, compiled=False) / of.seconds(**LARGEST, compiled=True)],
        ),
    ),
    "cpu": _expected(),
}  # fmt: skip


def _mfu(of: Cases, **step: Any) -> Span:
    flops: float = of(**step)["extra"]["model_flops"]
    return flops / of.peak(**step) / of.seconds(**step)


def sizes_of(bench: Bench) -> tuple[DecoderSizes, int]:
    """The model, and the tokens of a sequence. On a GPU it is as wide and deep as GPT-2
    small."""
    gpu = DecoderSizes(layers=12, d_model=768, heads=12, kv_heads=12, d_ff=2048, vocab=50304), 1024
    cpu = DecoderSizes(layers=4, d_model=256, heads=4, kv_heads=4, d_ff=704, vocab=4096), 128
    toy = DecoderSizes(layers=2, d_model=32, heads=4, kv_heads=4, d_ff=64, vocab=128), 16
    return bench.pick(toy=toy, cpu=cpu, gpu=gpu)  # type: ignore[no-any-return]


def run(bench: Bench) -> Iterator[Record]:
    """Seconds of a step over the batch, by number format; on a GPU the largest batch
    compiled, too."""
    batches = bench.pick(toy=(1, 2), cpu=(1, 4, 16), gpu=(1, 4, 16))
    for dtype in bench.dtypes:
        for batch in batches:
            yield _case(bench, batch, dtype)
    if bench.scale == "gpu":  # on a CPU the compiler takes minutes
        yield _case(bench, batches[-1], bench.dtypes[0], compiled=True)


def _case(bench: Bench, batch: int, dtype: str, compiled: bool = False) -> Record:
    sizes, seq = sizes_of(bench)
    params = {"batch": batch, "seq": seq, "layers": sizes.layers, "d_model": sizes.d_model, "compiled": compiled}
    tokens = batch * seq
    extra = {"six_n_flops": 6 * sizes.model().params * tokens, "tokens": tokens}
    return step_case(
        bench, "gpt_step", params, sizes, dtype, compiled=compiled, updated=True, time_budget=5, extra=extra
    )
