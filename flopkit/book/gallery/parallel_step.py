"""The figure of a training step on many devices: where its seconds go, and what a rank holds."""

from __future__ import annotations

from functools import cache
from typing import Any

from flopkit.arithmetic import maximum, total, where
from flopkit.book.gallery.parallel_layout import (
    MOST_IN_NODE,
    PARTS,
    POLICIES,
    cluster_fields,
    layout_of_a_step,
    model_fields,
)
from flopkit.book.gallery.step_bars import step_bars
from flopkit.charts import theme
from flopkit.charts.code import Code, Piece, unless, value
from flopkit.charts.figure import Figure
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.devices import device, memory_of
from flopkit.published import parallel_runs

__all__ = ["parallel_step"]

LLAMA_3 = "Llama-3.1-405B"
MODELS = {
    LLAMA_3: ("llama-3.1-405b", 8192),
    "Llama-3-70B": ("llama-3-70b", 8192),
    "Llama-3-8B": ("llama-3-8b", 8192),
    "GPT-3 175B": ("gpt-3-175b", 2048),
}
"""Names of models and tokens of a sequence, by what the reader sees."""

META = "H100, 50 GB/s each (Meta)"
CLUSTERS = {
    META: "llama-3",
    "H100, 12.5 GB/s each (A3 High)": "gcp-a3-high",
    "A100, 25 GB/s each (DGX)": "dgx-a100",
    "B300, 100 GB/s each (DGX)": "dgx-b300",
}
ZERO = {
    "0: nothing": {"stage": 0},
    "1: states of the optimiser": {"stage": 1},
    "2: gradients, too": {"stage": 2},
    "3: weights, too": {"stage": 3},
}
KEPT = {"no outputs of norms and activations": 1, "all that PyTorch keeps": 0}
OVERLAP = {
    "data and pipeline": {"tensor": 0, "pipeline": 1, "data": 1},
    "tensor, too": {"tensor": 1, "pipeline": 1, "data": 1},
    "nothing": {"tensor": 0, "pipeline": 0, "data": 0},
}
NAMES = {
    "arithmetic": "products at the peak",
    "recompute": "computed again",
    "tensor": "tensor-parallel",
    "pipeline": "pipeline sends",
    "bubble": "bubble",
    "data": "data-parallel",
}


@cache
def published() -> dict[int, tuple[float, int]]:
    """Seconds and sequences of Llama 3's published steps of short sequences, by the GPUs."""
    runs = [run for run in parallel_runs() if run.table == "llama_3" and run.layout.context == 1]
    return {run.layout.ranks: (run.seconds, run.batch) for run in runs}


def _step(s: Any, *, model: Any, cluster: Any, batch: Any, **degrees: Any) -> None:
    """A step, and the published one of as many devices and sequences, 0 where there is none."""
    layout_of_a_step(s, model=model, cluster=cluster, batch=batch, **degrees)
    s.published = total(
        where(s.devices == gpus, where(batch == sequences, seconds, 0), 0)
        for gpus, (seconds, sequences) in published().items()
    ) * (pick(model.name, {name: int(name == LLAMA_3) for name in MODELS}) * pick(cluster.name, {name: int(name == META) for name in CLUSTERS}))  # fmt: skip
    s.longest = maximum(s.seconds, s.published)
    s.most = maximum(s.memory, s.room)


def _row(r: Any, *, part: Any, **_: Any) -> None:
    """Seconds and share of a part of the step."""
    r.taken = pick(part, {NAMES[name]: getattr(r, f"part_{name}") for name in PARTS})
    r.share = r.taken / r.seconds


def _code() -> Code:
    models = {title: f'"{name}"' for title, (name, _) in MODELS.items()}
    lengths = {title: str(seq) for title, (_, seq) in MODELS.items()}
    stages = {title: str(fields["stage"]) for title, fields in ZERO.items()}
    hidden = {
        title: str(tuple(name for name in ("tensor", "pipeline", "data") if fields[name]))
        for title, fields in OVERLAP.items()
    }
    degrees: list[Piece] = []
    for name in ("tensor", "pipeline", "data", "virtual", "micro_batch"):
        degrees += [f"{name}=", value("data_ranks" if name == "data" else name), ", "]
    return Code((
        "import flopkit as fk\n\nlayout = fk.parallel.Layout(\n    ", *degrees, "zero=", value("zero", stages),
        unless("recompute", ["none"], [', recompute="', value("recompute", {each: each for each in POLICIES}), '"']), ",\n)\n",
        "step = fk.parallel.step(\n    ", value("model", models), ", layout, ", value("cluster", {title: f'"{name}"' for title, name in CLUSTERS.items()}),
        ", seq=", value("model", lengths), ", batch=", value("batch"),
        unless("fused", [list(KEPT)[1]], ", fused=True"),
        unless("overlap", [next(iter(OVERLAP))], [", overlap=", value("overlap", hidden)]), ",\n)\n",
        "print(step.seconds, step.mfu, step.parts, step.memory.peak, step.fits)\n",
    ))  # fmt: skip


def _chart(s: Any) -> Any:
    return step_bars(
        s, NAMES, [theme.BLUE, theme.PURPLE, theme.ORANGE, theme.AMBER, theme.SKY, theme.GREEN], published=True
    )


def parallel_step() -> Figure:
    """Where a step of a layout goes, and whether a rank fits its device, beside Llama 3's published step."""
    shown = {gpus: f"{seconds:.2f} s" for gpus, (seconds, _) in published().items()}
    runs = " and ".join(f"{seconds} on {gpus:,} GPUs" for gpus, seconds in shown.items())
    llama = {
        "model": LLAMA_3,
        "cluster": META,
        "tensor": 8,
        "pipeline": 16,
        "virtual": 8,
        "batch": 2048,
        "micro_batch": 1,
    }
    plain = {"zero": "1: states of the optimiser", "recompute": "none", "overlap": "data and pipeline"}
    limits = ", ".join(f"{memory_of(device(each)) / 1e9:.1f} GB of {title}" for title, each in (("an H100", "h100-sxm"), ("an A100", "a100-sxm-80gb")))  # fmt: skip
    return Figure(
        name="parallel-step",
        title="Where a step on many devices goes, and what a rank holds",
        alt="Stacked bars. One has the seconds of a training step: products, what is computed again, tensor-parallel sums, messages between stages, the "
        "bubble, gradients and weights. Beside it stands Llama 3's published step where there is one of as many devices and sequences. The other bar has "
        "the memory of the fullest rank, with the device's limit. {model} on {devices} of {cluster}, {tensor}, {pipeline} with {virtual} each, {data_ranks}: at "
        "least {seconds}, {mfu} MFU, {memory}. It fits: {fits}.",
        model=_step,
        controls=[
            choice("model", "Model", {title: model_fields(*asked) for title, asked in MODELS.items()}),
            choice("cluster", f"Nodes of {MOST_IN_NODE}", {title: cluster_fields(name) for title, name in CLUSTERS.items()}),
            slider("tensor", "Tensor-parallel (TP)", steps(1, MOST_IN_NODE), value=8, unit="ranks"),
            slider("pipeline", "Pipeline (PP)", steps(1, 64), value=16, unit="ranks"),
            slider("virtual", "Virtual stages (V)", steps(1, 16), value=8, unit="virtual stages"),
            slider("data_ranks", "Data-parallel (DP)", steps(1, 1024), value=128, unit="ranks"),
            slider("batch", "Batch", steps(1, 8192), value=2048, unit="sequences"),
            slider("micro_batch", "Micro-batch", steps(1, 8), value=1, unit="sequences"),
            choice("zero", "ZeRO divides", ZERO, value="1: states of the optimiser", idle="no_zero"),
            choice("recompute", "Recompute", list(POLICIES)),
            choice("fused", "A layer keeps", KEPT, idle="no_fused"),
            choice("overlap", "Overlapped with compute", OVERLAP, idle="no_overlap"),
        ],
        presets={
            "Llama 3, 16,384 GPUs": llama | {"data_ranks": 128} | plain,
            "Llama 3, 8,192 GPUs": llama | {"data_ranks": 64} | plain,
            "The same without a pipeline": llama | {"pipeline": 1, "virtual": 1, "data_ranks": 2048, **plain, "zero": "3: weights, too"},
            "Llama-3-70B, 512 GPUs": llama | {"model": "Llama-3-70B", "pipeline": 4, "virtual": 4, "data_ranks": 16, "batch": 512} | plain,
            "Llama-3-8B, FSDP on 64": llama | {"model": "Llama-3-8B", "tensor": 1, "pipeline": 1, "virtual": 1, "data_ranks": 64, "batch": 128, **plain, "zero": "3: weights, too"},
        },
        readouts=[
            readout("seconds", "A step, at least", "s"),
            readout("mfu", "MFU, at most", "%"),
            readout("devices", "Devices", "devices"),
            readout("micro_batches", "Micro-batches of a rank"),
            readout("memory", "Fullest rank", "B"),
            readout("used", "Of the device's memory", "%"),
            readout("fits", "Fits"),
        ],
        rows=along("part", list(NAMES.values()), _row),
        chart=_chart,
        table=[column("part", "Part"), column("taken", "Seconds", "s"), column("share", "Of the step", "%")],
        refused="refused",
        code=_code(),
        caption="A bound, as fk.parallel.step has it: products at the peak in bf16, links and network cards at their full rate, no latency, nobody late. "
        "Sequences have 8,192 tokens, those of GPT-3 2,048. The parts are those of the rank that finishes last; what runs beside products is none. "
        f"Published: Llama 3 (arXiv:2407.21783, table 4), model FLOPs, half of the scores counted, at the printed TFLOP/s: {runs}. The paper does not print V; 8 is read out of "
        "its two rates. Memory: bf16 weights, fp32 gradients and Adam, activations with the gradients of the loss, no work space. Outputs of norms and activations can be computed "
        f"again from what is kept, here in no time. Usable are {limits}.",
        height=300,
    )  # fmt: skip
