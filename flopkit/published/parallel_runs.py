"""Published training steps on many devices, each with its layout: what `flopkit.parallel.gap` needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from flopkit.models import Model, load, transformer
from flopkit.parallel import Gap, Layout, gap
from flopkit.parallel.gaps import step_seconds_of
from flopkit.published.rows import read
from flopkit.published.training import gpt

__all__ = ["ParallelRun", "parallel_runs"]


@dataclass(frozen=True)
class ParallelRun:
    """A published step: of which table, which row, and the arguments of `flopkit.parallel.gap`.

    Attributes
    ----------
    table : str
        The table's name.
    run : str
        Which row.
    model : Model
        What was trained.
    layout : Layout
        The degrees.
    cluster : str
        Where, of `flopkit.parallel.cluster_names`.
    seq, batch : int
        Tokens of a sequence, sequences of a step.
    rate : dict[str, float]
        The published rate, by its name in `flopkit.parallel.gap`.
    convention : str
        How the source counts FLOPs.
    dtype : Any
        The format of the products.
    precision : str
        Of the states.
    uneven : int
        Stages of a rank, where they are not equal.
    assumed : str
        What we took from elsewhere because the source does not print it.
    """

    table: str
    run: str
    model: Model
    layout: Layout
    cluster: str
    seq: int
    batch: int
    rate: dict[str, float]
    convention: str = "EXACT"
    dtype: Any = "bf16"
    precision: str = "mixed-fp32-gradients"
    uneven: int = 1
    assumed: str = ""

    @property
    def seconds(self) -> float:
        """Of the step, as it is printed or follows from the printed rate."""
        whole = self.model.train_step(seq=self.seq, batch=self.batch)
        tokens = self.seq * self.batch / self.layout.ranks
        return step_seconds_of(whole, math.nan, tokens, self.layout.ranks, self.convention, self.rate)

    def gap(self, **more: Any) -> Gap:
        """Its gap.

        Parameters
        ----------
        **more : Any
            Further arguments of `flopkit.parallel.gap`, such as *products* and *overlap*.
        """
        rate: dict[str, Any] = dict(self.rate)
        return gap(
            self.model, self.layout, self.cluster, seq=self.seq, batch=self.batch, convention=self.convention, dtype=self.dtype,
            precision=self.precision, uneven=self.uneven, **rate, **more,
        )  # fmt: skip


_ONE = "micro-batches of one sequence"

_LLAMA_3 = (
    f"{_ONE}; eight stages a rank; TFLOP/s that count half of the scores: by 6N, as the paper counts the whole run, the step of 131,072 tokens would be "
    "shorter than its arithmetic at the measured share of the peak and what it waits for"
)


@cache
def parallel_runs() -> tuple[ParallelRun, ...]:
    """The steps of papers and of Megatron-LM's README: Korthikanti 2022, MegaScale 2024, Llama 3 2024, Megatron-Core 2024.

    Examples
    --------
    >>> runs = parallel_runs()
    >>> len(runs), runs[0].run, runs[0].gap().below_bound
    (32, '22B', False)
    """
    return (*_korthikanti(), *_megascale(), *_llama_3(), *_megatron_core())


def _korthikanti() -> Iterator[ParallelRun]:
    data = read("korthikanti_2022")
    stages = {"22B": (1, 1, 4), "175B": (8, 3, 1), "530B": (35, 3, 1), "1T": (64, 1, 1)}  # table 3
    for name, heads, hidden, layers, gpus, batch, seconds, *_ in data["runs"]:
        p, v, micro = stages[name]
        layout = Layout(tensor=8, pipeline=p, data=gpus // (8 * p), virtual=v, micro_batch=micro, recompute="selective")
        model = gpt(hidden, heads, layers, data["vocab"], data["seq"])
        rate = {"step_seconds": seconds}
        yield ParallelRun("korthikanti_2022", name, model, layout, "dgx-a100", data["seq"], batch, rate)


def _megascale() -> Iterator[ParallelRun]:
    data = read("megascale")
    sizes, seq = data["model"]["175B"], data["model"]["seq"]
    model = gpt(sizes["hidden"], sizes["heads"], sizes["layers"], data["model"]["vocab"], seq)
    for table in data["table2"]:
        system = table["system"]
        assumed = _ONE if system == "Megatron-LM" else f"{_ONE}; no sliding window and no parallel block, which it had"
        for gpus, seconds, *_ in table["rows"]:
            layout = Layout(
                tensor=sizes["tp"], pipeline=sizes["pp"], virtual=sizes["interleave"],
                data=gpus // (sizes["tp"] * sizes["pp"]),
            )  # fmt: skip
            run = f"{system} 175B, {gpus:,} GPUs"
            rate = {"step_seconds": seconds}
            yield ParallelRun("megascale", run, model, layout, "dgx-a100", seq, table["batch"], rate, assumed=assumed)


def _llama_3() -> Iterator[ParallelRun]:
    data = read("llama_3")
    for row in data["rows"]:
        layout = Layout(tensor=row["tp"], context=row["cp"], pipeline=row["pp"], data=row["dp"], virtual=8)
        batch = row["batch_per_dp"] * row["dp"]
        yield ParallelRun(
            "llama_3", f"405B, {row['gpus']:,} GPUs, {row['seq']:,} tokens", load("llama-3.1-405b"), layout, "llama-3", row["seq"], batch,
            {"tflops_per_device": row["tflops_per_gpu"]}, "MEGATRON", assumed=_LLAMA_3,
        )  # fmt: skip


def _megatron_core() -> Iterator[ParallelRun]:
    data = read("megatron_core_h100")
    for billions, heads, hidden, layers, tensor, pipeline, parallel, _, batch, tflops, *_ in data["rows"]:
        model = transformer(
            name="GPT", d_model=hidden, heads=heads, layers=layers, vocab=131072, d_ff=4 * hidden, act="gelu", gated=False, rotary=0,
            norm="layer", bias=True, tied=False,
        )  # fmt: skip
        layout = Layout(tensor=tensor, pipeline=pipeline, data=parallel)
        yield ParallelRun(
            "megatron_core_h100", f"{billions}B", model, layout, "dgx-h100", 4096, batch, {"tflops_per_device": tflops}, data["convention"],
            precision="mixed", assumed=f"{_ONE}; one stage a rank; gradients in 16 bits",
        )  # fmt: skip
