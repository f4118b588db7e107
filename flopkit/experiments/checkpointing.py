"""A training step of a language model that keeps its activations, and one that computes
them again: time against FLOPs."""

from __future__ import annotations

from collections.abc import Iterator

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.decoder import DecoderSizes, step_case
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span

TITLE = "Checkpointing: time against FLOPs"
PREDICTION = (
    "Computing every block again executes between 1.2 and 1.33 times the model FLOPs, 4/3 less the head and the last product of each block, "
    "which is not repeated. Time grows by nearly the same factor, 1.2 to 1.35: HFU stays within 5 %, MFU falls by a fifth to a quarter. "
    "Both steps give the same loss."
)


def _expected(on: str = "") -> tuple[Expectation, ...]:
    return (
        Expectation(
            "executed FLOPs are 1.2 to 1.33 times the model FLOPs", (1.2, 1.33), f"counted, over the model FLOPs{on}",
            lambda of: [_executed(of(recompute="full", dtype=dtype)) for dtype in of.dtypes],
        ),
        Expectation("time grows by 1.2 to 1.35", (1.2, 1.35), f"time{on}", _grown),
        Expectation(
            "HFU stays within 5 %", (0.95, 1.05), f"HFU with recompute over without{on}",
            lambda of: [of.rate(recompute="full", dtype=d) / of.rate(recompute="none", dtype=d) for d in of.dtypes],
        ),
        Expectation(
            "MFU falls by a fifth to a quarter", (0.75, 0.8), f"MFU with recompute over without{on}",
            lambda of: [1 / each for each in _grown(of)],
        ),
    )  # fmt: skip


def _executed(case: Record) -> float:
    """FLOPs that were counted, over those of the model."""
    return case["counted"]["flops"] / case["extra"]["model_flops"]  # type: ignore[no-any-return]


def _grown(of: Cases) -> list[Span]:
    """The time of the step that recomputes over that of the one that does not, by
    number format."""
    return [of.seconds(recompute="full", dtype=d) / of.seconds(recompute="none", dtype=d) for d in of.dtypes]


EXPECTATIONS = {"gpu": _expected(", bf16 and TF32"), "cpu": _expected()}
POLICIES = {"none": False, "full": True}


def sizes_of(bench: Bench) -> tuple[DecoderSizes, int, int]:
    """The model, sequences and tokens of each."""
    gpu = DecoderSizes(layers=12, d_model=2048, heads=16, kv_heads=16, d_ff=5504, vocab=32000), 4, 2048
    cpu = DecoderSizes(layers=6, d_model=384, heads=6, kv_heads=6, d_ff=1024, vocab=4096), 2, 256
    toy = DecoderSizes(layers=2, d_model=32, heads=4, kv_heads=4, d_ff=64, vocab=128), 2, 16
    return bench.pick(toy=toy, cpu=cpu, gpu=gpu)  # type: ignore[no-any-return]


def run(bench: Bench) -> Iterator[Record]:
    """Forward and backward with and without recomputing, by number format. ``extra``
    has the model FLOPs, for MFU; counted are the executed."""
    sizes, batch, seq = sizes_of(bench)
    for dtype in bench.dtypes[:2]:
        for recompute, checkpointed in POLICIES.items():
            params = {
                "recompute": recompute,
                "batch": batch,
                "seq": seq,
                "layers": sizes.layers,
                "d_model": sizes.d_model,
            }
            yield step_case(bench, "checkpointing", params, sizes, dtype, checkpointed=checkpointed)
