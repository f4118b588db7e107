"""Published training steps on many devices, each with its layout: what `flopkit.parallel.gap` needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from flopkit.models import Model, load, transformer
from flopkit.models.catalogue import the_model
from flopkit.parallel import Gap, Layout, cluster, gap
from flopkit.parallel.gaps import step_seconds_of
from flopkit.published.rows import read
from flopkit.published.training import gpt

__all__ = ["LeftOut", "ParallelRun", "parallel_runs", "runs_left_out"]


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
        Virtual stages of a rank, where they are not equal.
    expert_nodes : int or str, optional
        Nodes to which a token goes once, as in `flopkit.parallel.step`.
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
    expert_nodes: int | str | None = None
    assumed: str = ""

    @property
    def seconds(self) -> float:
        """Of the step, as it is printed or follows from the printed rate."""
        whole = self.model.train_step(seq=self.seq, batch=self.batch)
        card, formats = (
            cluster(self.cluster).device,
            self.dtype.values() if isinstance(self.dtype, Mapping) else [self.dtype],
        )
        peak = self.layout.ranks * max(float(card.peak(name)) for name in formats)
        tokens = self.seq * self.batch / self.layout.ranks
        return step_seconds_of(whole, peak, tokens, self.layout.ranks, self.convention, self.rate)

    def gap(self, **more: Any) -> Gap:
        """Its gap.

        Parameters
        ----------
        **more : Any
            Further arguments of `flopkit.parallel.gap`, such as *products* and *overlap*, or others in the place of the run's own, such as *cluster*.
        """
        asked: dict[str, Any] = {
            "cluster": self.cluster, "seq": self.seq, "batch": self.batch, "convention": self.convention, "dtype": self.dtype,
            "precision": self.precision, "uneven": self.uneven, "expert_nodes": self.expert_nodes, **self.rate,
        }  # fmt: skip
        return gap(self.model, self.layout, **(asked | more))


@dataclass(frozen=True)
class LeftOut:
    """Rows of a published table without a gap.

    Attributes
    ----------
    table : str
        The table's name.
    rows : str
        Which rows.
    count : int
        How many.
    why : str
        What of them is not printed, or contradicts itself.
    """

    table: str
    rows: str
    count: int
    why: str


_ONE = "micro-batches of one sequence"

_LLAMA_3 = (
    f"{_ONE}; eight virtual stages a rank; TFLOP/s that count half of the scores: by 6N, as the paper counts the whole run, the step of 131,072 tokens would be "
    "shorter than its arithmetic at the measured share of the peak and what it waits for"
)


@cache
def parallel_runs() -> tuple[ParallelRun, ...]:
    """The steps of papers, logs and READMEs: Narayanan 2021, Korthikanti 2022, BLOOM 2022, MegaScale 2024, Llama 3 2024, Megatron-Core 2024, Megatron-LM's Llama in
    FP8 2025, torchtitan.

    `runs_left_out` has the rows of these tables that are not among them.

    Examples
    --------
    >>> runs = parallel_runs()
    >>> len(runs), runs[0].run, runs[0].gap().below_bound
    (190, '22B', False)
    """
    bloom = (each for each in _bloom() if isinstance(each, ParallelRun))
    return (
        *_korthikanti(),
        *_megascale(),
        *_llama_3(),
        *_megatron_core(),
        *_narayanan(),
        *bloom,
        *_torchtitan(),
        *_megatron_lm(),
    )


@cache
def runs_left_out() -> tuple[LeftOut, ...]:
    """The rows of the same tables that have no gap, with the reason.

    Examples
    --------
    >>> [(each.count, each.why) for each in runs_left_out() if each.table == "narayanan_2021"]
    [(6, 'prints tensor times pipeline, not each')]
    """
    found = [
        LeftOut("narayanan_2021", "table 2, PTD", 6, "prints tensor times pipeline, not each"),
        LeftOut(
            "megascale",
            "table 3",
            9,
            "parallel block and window come in one after the other, and with them what MFU counts",
        ),
    ]
    lines: dict[str, list[int]] = {}
    for each in _bloom():
        if not isinstance(each, ParallelRun):
            line, why = each
            lines.setdefault(why, []).append(line)
    for why, those in lines.items():
        found.append(LeftOut("bloom", f"line{'s' * (len(those) > 1)} {', '.join(map(str, those))}", len(those), why))
    return tuple(found)


def _korthikanti() -> Iterator[ParallelRun]:
    data = read("korthikanti_2022")
    seq, table = data["seq"], "korthikanti_2022"
    stages = {"22B": (1, 1, 4), "175B": (8, 3, 1), "530B": (35, 3, 1), "1T": (64, 1, 1)}  # table 3
    again = {}
    for name, heads, hidden, layers, gpus, batch, seconds, *_ in data["runs"]:
        p, v, micro = stages[name]
        layout = Layout(tensor=8, pipeline=p, data=gpus // (8 * p), virtual=v, micro_batch=micro, recompute="selective")
        model = gpt(hidden, heads, layers, data["vocab"], seq)
        yield ParallelRun(table, name, model, layout, "dgx-a100", seq, batch, {"step_seconds": seconds})
        again[name] = model, replace(layout, sequence=False, recompute="full"), batch
    for name, (model, layout, batch) in again.items():
        rate = {"step_seconds": data["full_recompute"][name]}
        yield ParallelRun(
            table, f"{name}, full recompute", model, layout, "dgx-a100", seq, batch, rate, assumed=_NO_SEQUENCE
        )
    model, layout, _ = again["530B"]
    gpus, batch, seconds, _ = data["larger"]
    layout = replace(layout, data=gpus // 280)
    present = replace(layout, sequence=True, recompute="selective")
    yield ParallelRun(table, f"530B, {gpus:,} GPUs", model, present, "dgx-a100", seq, batch, {"step_seconds": seconds})
    yield ParallelRun(
        table, f"530B, {gpus:,} GPUs, full recompute", model, layout, "dgx-a100", seq, batch, {"mfu": data["larger_full_recompute"] / 100},
        data["convention"], assumed=f"{_NO_SEQUENCE}; the same batch as without",
    )  # fmt: skip


_NO_SEQUENCE = "no sequence parallelism"
_OWN = "no sliding window and no parallel block, which it had"


def _megascale() -> Iterator[ParallelRun]:
    data = read("megascale")
    seq, vocab = data["model"]["seq"], data["model"]["vocab"]

    def run(
        size: str, system: str, gpus: int, batch: int, rate: dict[str, float], convention: str, *assumed: str
    ) -> ParallelRun:
        shape = data["model"][size]
        layout = Layout(
            tensor=shape["tp"],
            pipeline=shape["pp"],
            virtual=shape["interleave"],
            data=gpus // (shape["tp"] * shape["pp"]),
        )
        model = gpt(shape["hidden"], shape["heads"], shape["layers"], vocab, seq)
        said = "; ".join((_ONE, *(() if system == "Megatron-LM" else (_OWN,)), *assumed))
        name = f"{system} {size}, {gpus:,} GPUs"
        return ParallelRun("megascale", name, model, layout, "dgx-a100", seq, batch, rate, convention, assumed=said)

    for table in data["table2"]:
        for gpus, seconds, *_ in table["rows"]:
            yield run("175B", table["system"], gpus, table["batch"], {"step_seconds": seconds}, "EXACT")
    figure = data["figure9"]["530B, batch = GPUs"]
    for system, convention, how in (
        ("Megatron-LM", "MEGATRON_2022", "MFU that counts all of the scores, as those of 175B do"),
        ("MegaScale", "MEGATRON", "MFU that counts half of the scores, as those of 175B do"),
    ):
        for gpus, percent in zip(figure["gpus"], figure[system], strict=True):
            yield run("530B", system, gpus, gpus, {"mfu": percent / 100}, convention, how)


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


def _megatron_lm() -> Iterator[ParallelRun]:
    data = read("megatron_lm_llama")
    for values in data["rows"]:
        row = dict(zip(data["columns"], values, strict=True))
        degrees = {"tensor": row["tp"], "pipeline": row["pp"], "context": row["cp"], "virtual": row["vp"]}
        layout = Layout(
            **degrees, data=row["gpus"] // (row["tp"] * row["pp"] * row["cp"]), micro_batch=row["micro_batch"]
        )
        yield ParallelRun(
            "megatron_lm_llama", f"{row['model']}, {row['gpus']:,} GPUs", the_model(row["model"]), layout, "dgx-h100", row["seq"], row["batch"],
            {"tokens_per_s_per_device": row["tokens_per_s"]}, dtype={"linear": "fp8", "rest": "bf16"}, precision="mixed",
        )  # fmt: skip


_FROM_HARDWARE = "the seconds follow from TFLOP/s that count the work done again"


def _narayanan() -> Iterator[ParallelRun]:
    data = read("narayanan_2021")
    seq = data["seq"]
    shapes = {billions: shape for billions, *shape in data["models"]} | {174.6: [96, 12288, 96]}

    def run(name: str, billions: float, layout: Layout, batch: int, tflops: float, *assumed: str) -> ParallelRun:
        heads, hidden, layers = shapes[billions]
        model = gpt(hidden, heads, layers, data["vocab"], seq)
        done = model.train_step(seq=seq, batch=batch, recompute="full").under(data["convention"]).hardware_flops
        rate = {"step_seconds": float(done) / (tflops * 1e12 * layout.ranks)}
        said = "; ".join((_FROM_HARDWARE, *assumed))
        return ParallelRun("narayanan_2021", name, model, layout, "dgx-a100", seq, batch, rate, assumed=said)

    asked: dict[str, Any] = {"sequence": False, "recompute": "full"}
    for billions, tensor, stages, gpus, batch, tflops in data["degrees"]:
        layout = Layout(tensor=tensor, pipeline=stages, data=gpus // (tensor * stages), zero=0, **asked)
        yield run(f"{billions:g}B, {gpus:,} GPUs", billions, layout, batch, tflops, _ONE, "one stage a rank")
    sharded = (each for each in data["runs"] if each[0] == "ZeRO-3")
    for (_, billions, batch, gpus, tflops, _), micro in zip(sharded, data["micro_batches"], strict=True):
        layout = Layout(data=gpus, zero=3, micro_batch=micro, **asked)
        yield run(f"ZeRO-3, {billions:g}B, {gpus:,} GPUs", billions, layout, batch, tflops)


def _bloom() -> Iterator[ParallelRun | tuple[int, str]]:
    """The rows of the log; of one that cannot be taken its line, and why."""
    data = read("bloom")
    before: set[tuple[Any, ...]] = set()
    for values in data["rows"]:
        row = dict(zip(data["columns"], values, strict=True))
        same = tuple(values[2:])
        slots = row["layers"] and row["layers"] + (2 if (row["layers"] + 2) % row["pp"] == 0 else 0)
        if row["layers"] is None:
            yield row["line"], "no number of layers is printed, and it was changed with the stages"
        elif row["seconds"] is None:
            yield row["line"], "no rate: out of memory, or left empty"
        elif same in before:
            yield row["line"], "a row of the log once more"
        elif row["tp"] * row["pp"] * row["dp"] != row["gpus"]:
            yield row["line"], "the degrees make more ranks than there were GPUs"
        elif slots % row["pp"]:
            yield row["line"], "stages of 7 layers and one of a single layer, which a layout cannot say"
        else:
            late = row["date"] >= "02-28"
            layout = Layout(
                tensor=row["tp"], pipeline=row["pp"], data=row["dp"], zero=row["zero"], micro_batch=row["micro_batch"], sequence=False, recompute="full",
            )  # fmt: skip
            yield ParallelRun(
                "bloom", f"line {row['line']}: {row['layers']} × {row['hidden']}, {row['gpus']} GPUs", gpt(row["hidden"], row["heads"], row["layers"], data["vocab"], data["seq"]),
                layout, "jean-zay", data["seq"], row["batch"], {"step_seconds": row["seconds"]}, precision="mixed-both-gradients" if late else "mixed",
                assumed="the second step of a run",
            )  # fmt: skip
        before.add(same)


_GRAND_TETON = "an H100 SXM; theirs has 2.4 TB/s and a limit of 500 W, and a peak that they do not know"


def _torchtitan() -> Iterator[ParallelRun]:
    data = read("torchtitan")
    for values in data["rows"]:
        row = dict(zip(data["columns"], values, strict=True))
        stages, selective, newer = row["pipeline"], row["recompute"] == "selective", row["page"].endswith("H200")
        layout = Layout(
            tensor=row["tensor"], context=row["context"], pipeline=stages, data=row["data"], virtual=row["stages"], micro_batch=row["micro_batch"],
            zero=2 if stages > 1 else 3, recompute="none" if selective else "full", regather="context",
        )  # fmt: skip
        assumed = [] if newer else [_GRAND_TETON]
        if selective:
            assumed.append("nothing is computed again: what selective checkpointing repeats is not printed")
        if stages > 1:
            assumed.append(
                "as many micro-batches as stages, and two virtual stages a rank when interleaved, the defaults of the time"
            )
        yield ParallelRun(
            "torchtitan", f"{row['page']}: {row['model']}, {row['gpus']} GPUs, {row['seq']:,} tokens, {row['run']}", the_model(row["model"]), layout,
            "dgx-h200" if newer else "dgx-h100", row["seq"], row["local_batch"] * row["data"], {"tokens_per_s_per_device": row["tokens_per_s"]},
            dtype={"linear": "fp8", "rest": "bf16"} if row["format"] == "fp8" else "bf16", assumed="; ".join(assumed),
        )  # fmt: skip
