"""The figure of a published step's gap: from the peak down to its MFU, part by part, as `flopkit.parallel.gap` divides it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from flopkit.arithmetic import where
from flopkit.charts import theme
from flopkit.charts.code import Code, value, when
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout
from flopkit.charts.readings import pick
from flopkit.parallel import all_reduce, cluster
from flopkit.parallel.gaps import Gap
from flopkit.published import ParallelRun, nccl_tests, parallel_runs
from flopkit.recordings import bridge_runs
from flopkit.units import percent

__all__ = ["where_a_step_goes"]

LLAMA_3 = "Llama 3 405B, 16,384 H100s"
BRIDGE = "megatron_bridge r26."
RUNS = {
    LLAMA_3: ("llama_3", "405B, 16,384 GPUs, 8,192 tokens"),
    "Llama 3 405B, 8,192 H100s": ("llama_3", "405B, 8,192 GPUs, 8,192 tokens"),
    "Llama 3 405B, 131,072 tokens": ("llama_3", "405B, 16,384 GPUs, 131,072 tokens"),
    "GPT 145.6B, 1,536 A100s": ("narayanan_2021", "145.6B, 1,536 GPUs"),
    "GPT 1T, 3,072 A100s": ("narayanan_2021", "1008B, 3,072 GPUs"),
    "BLOOM 176B, 384 A100s": ("bloom", "line 947: 70 × 14336, 384 GPUs"),
    "MT-NLG 530B, 2,240 A100s": ("korthikanti_2022", "530B, 2,240 GPUs"),
    "Megatron-LM 175B, 12,288 A100s": ("megascale", "Megatron-LM 175B, 12,288 GPUs"),
    "MegaScale 175B, 256 A100s": ("megascale", "MegaScale 175B, 256 GPUs"),
    "MegaScale 175B, 12,288 A100s": ("megascale", "MegaScale 175B, 12,288 GPUs"),
    "Megatron-Core 32B, 384 H100s": ("megatron_core_h100", "32B"),
    "Megatron-Core 462B, 6,144 H100s": ("megatron_core_h100", "462B"),
    "torchtitan 8B, 128 H100s, FSDP": ("torchtitan", "2024-12: llama-3.1-8b, 128 GPUs, 8,192 tokens, FSDP, compiled"),
    "torchtitan 405B, 512 H100s, fp8": (
        "torchtitan",
        "2024-12: llama-3.1-405b, 512 GPUs, 8,192 tokens, 3D, interleaved 1F1B",
    ),
    "Bridge Llama 3.1 405B, 1,024 H100s, fp8": (BRIDGE + "02", "llama-3.1-405b, 1024 × DGX-H100, fp8, tp8 pp8 cp2 vp8"),
    "Bridge Llama 3.1 405B, 256 GB200s, fp4": (
        BRIDGE + "04",
        "llama-3.1-405b, 256 × DGX-GB200, fp4, tp4 pp16 vp8, NVFP4",
    ),
    "Bridge DeepSeek-V3, 256 GB200s, fp8": (BRIDGE + "04", "deepseek-v3, 256 × DGX-GB200, fp8, pp4 vp4 ep64, MXFP8"),
    "Bridge Qwen3 235B, 256 H100s, fp8": (BRIDGE + "04", "qwen3-235b-a22b, 256 × DGX-H100, fp8, tp2 pp8 vp4 ep32"),
}
"""Tables and rows of `parallel_runs` and `bridge_runs`, by what the reader sees."""

MEASURED, PRINTED = "measured", "printed"
RATES = (MEASURED, PRINTED)
OVERLAP = {
    "gradients and sends": ("data", "pipeline"),
    "all exchange": ("tensor", "context", "expert", "pipeline", "data"),
    "nothing": (),
}
PEAK, REACHED, UNEXPLAINED = "peak", "MFU", "unexplained"
PARTS = {
    "slower formats": ("format",),
    "matmuls below peak": ("products",),
    "recompute": ("recompute",),
    "uneven stages": ("imbalance",),
    "memory": ("memory",),
    "bubble": ("bubble",),
    "TP exchange": ("tensor",),
    "CP and EP exchange": ("context", "expert"),
    "DP and PP exchange": ("data", "pipeline"),
    UNEXPLAINED: ("unexplained",),
}
"""Items of a gap, by the bar that has them."""

BARS = (PEAK, *PARTS, REACHED)
KINDS = {"model FLOPs": theme.BLUE, "extra compute": theme.SKY, "memory": theme.GREEN, "waiting": theme.AMBER, "exchange": theme.ORANGE, UNEXPLAINED: theme.MUTED}  # fmt: skip
KIND_OF = dict(zip(BARS, (0, 1, 1, 1, 1, 2, 3, 4, 4, 4, 5, 0), strict=True))


def of_bound(system: str, name: str, size: int) -> float:
    """The share of a ring's least time that nccl-tests reached with a tensor of *size* bytes."""
    [row] = [row for row in nccl_tests() if system in row.system and row.bytes == size]
    return float(all_reduce(bytes=size, ranks=row.ranks).on(name) / row.seconds)


@cache
def measured() -> dict[str, float]:
    """Shares of the printed rates, rounded to per cent: of the links in a node of 8 H100s, of the network between two nodes of A100s."""
    links, network = of_bound("1 node, 8 ×", "aws-p5", 2**28), of_bound("p4de", "aws-p4d", 2**30)
    return {"link_efficiency": round(links, 2), "network_efficiency": round(network, 2)}


@cache
def published() -> dict[str, ParallelRun]:
    """The runs, by what the reader sees."""
    known = {(run.table, run.run): run for run in (*parallel_runs(), *bridge_runs())}
    return {shown: known[row] for shown, row in RUNS.items()}


def gap_of(shown: str, rates: str, overlap: str) -> Gap:
    """What `flopkit.parallel.gap` says of a run."""
    run = published()[shown]
    place = cluster(run.cluster)
    if rates == PRINTED:
        return run.gap(products=1, overlap=OVERLAP[overlap])
    return run.gap(cluster=place.replace(**measured()), overlap=OVERLAP[overlap])


@cache
def gaps() -> tuple[Gap, ...]:
    """All settings, in the order in which the figure numbers them."""
    return tuple(gap_of(shown, rates, overlap) for shown in RUNS for rates in RATES for overlap in OVERLAP)


def _points(found: Gap, part: str) -> float:
    return round(sum(found[name].points for name in PARTS[part]) / 100, 5)


def _gap(s: Any, *, run: Any, rates: Any, overlap: Any) -> None:
    """The parts of a run's gap, as shares of its step, one below the other."""
    s.number = (run.at * len(RATES) + rates) * len(OVERLAP) + overlap
    s.bar_0, s.end_0 = 1.0, 0.0
    above: Any = 1
    for i, part in enumerate(PARTS, 1):
        setattr(s, f"bar_{i}", pick(s.number, {k: _points(found, part) for k, found in enumerate(gaps())}))
        setattr(s, f"end_{i}", above - getattr(s, f"bar_{i}"))
        above = getattr(s, f"end_{i}")
    last = len(PARTS)
    s.mfu = above
    setattr(s, f"bar_{last + 1}", s.mfu)
    setattr(s, f"end_{last + 1}", 0.0)
    s.unexplained = getattr(s, f"bar_{last}")
    s.known = 1 - s.mfu - s.unexplained
    s.largest = pick(s.number, {k: _largest(found) for k, found in enumerate(gaps())})
    s.possible = where(s.unexplained < 0, "no: the parts exceed the step", "yes")
    s.seconds = run.seconds + 0
    s.layout = pick(run.name, {shown: str(each.layout) for shown, each in published().items()})


def _largest(found: Gap) -> str:
    return max(list(PARTS)[:-1], key=lambda part: _points(found, part))


def _bar(r: Any, *, part: Any, **_: Any) -> None:
    """Where a bar lies."""
    r.share = pick(part, {name: getattr(r, f"bar_{i}") for i, name in enumerate(BARS)})
    r.end = pick(part, {name: getattr(r, f"end_{i}") for i, name in enumerate(BARS)})


def _code() -> Code:
    rows = {shown: f"({json.dumps(table)}, {json.dumps(row, ensure_ascii=False)})" for shown, (table, row) in RUNS.items()}  # fmt: skip
    hidden = {shown: str(axes) for shown, axes in OVERLAP.items()}
    shares = ", ".join(f"{name}={share:g}" for name, share in measured().items())
    return Code((
        "import flopkit as fk\n\nruns = (*fk.published.parallel_runs(), *fk.recordings.bridge_runs())\n[run] = [run for run in runs if (run.table, run.run) == ",
        value("run", rows), "]\n",
        when("rates", [MEASURED], [f"place = fk.parallel.cluster(run.cluster).replace({shares})\ngap = run.gap(cluster=place, overlap=", value("overlap", hidden), ")\n"],
             ["gap = run.gap(products=1, overlap=", value("overlap", hidden), ")\n"]),
        "print(gap)\nprint(gap.table())\n",
    ))  # fmt: skip


def _chart(s: Any) -> Any:
    alt = need("altair")
    axis = alt.Axis(minExtent=112, ticks=False, domain=False, labelOverlap=False)
    y = alt.Y("part:N", title=None, sort=list(BARS), scale=alt.Scale(domain=list(BARS)), axis=axis)
    scale = alt.Scale(domain=[0, 1.24], nice=False)
    across = {
        "title": "share of the peak",
        "scale": scale,
        "axis": alt.Axis(format="%", values=[0, 0.2, 0.4, 0.6, 0.8, 1]),
    }
    kinds = {part: list(KINDS)[place] for part, place in KIND_OF.items()}
    rows = s.rows.transform_calculate(
        kind=f"({json.dumps(kinds)})[datum.part]", begin="datum.end + datum.share",
        label="abs(datum.share) < 0.0005 ? '' : format(100 * datum.share, datum.share < 1 ? '.1f' : '.0f') + ' %'", to="max(datum.end, datum.end + datum.share)",
    )  # fmt: skip
    bars = rows.mark_bar(height={"band": 0.68}).encode(
        y=y, x=alt.X("begin:Q", **across), x2="end:Q",
        color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values())), legend=alt.Legend(symbolType="square", columns=2, orient="bottom", labelLimit=0)),
        tooltip=[alt.Tooltip("part:N", title="part"), alt.Tooltip("share:Q", title="of the step", format=".1%")],
    )  # fmt: skip
    ends = theme.words(rows, {"align": "left", "dx": 5, "fontWeight": 600}, y=y, x=alt.X("to:Q", **across), text="label:N")  # fmt: skip
    return alt.layer(bars, *ends)


def where_a_step_goes() -> Figure:
    """From the peak down to the MFU of a published step: what its layout, its links and its memory take, and what stays unexplained."""
    runs = {shown: {"at": i, "seconds": round(run.seconds, 4)} for i, (shown, run) in enumerate(published().items())}
    links, network = (percent(share) for share in measured().values())
    start = {"rates": MEASURED, "overlap": next(iter(OVERLAP))}
    return Figure(
        name="where-a-step-goes",
        title="From the peak to the MFU of a published step",
        alt="Bars in a waterfall, from the peak down to the MFU of {run}. Each bar takes what one part costs: slower formats, matmuls below their peak, recompute, uneven "
        "stages, memory traffic, the bubble, and each kind of exchange. With {rates} rates, overlapped {overlap}, these parts explain {known} of the step, and the largest is {largest}; "
        "{unexplained} are unexplained, and the MFU is {mfu}.",
        model=_gap,
        controls=[
            choice("run", "Published run", runs),
            choice("rates", "Rates", {shown: i for i, shown in enumerate(RATES)}),
            choice("overlap", "Overlapped with compute", {shown: i for i, shown in enumerate(OVERLAP)}),
        ],
        presets={
            "Llama 3": {"run": LLAMA_3, **start},
            "Llama 3, printed rates": {"run": LLAMA_3, **start, "rates": PRINTED},
            "32B, nothing overlapped": {"run": "Megatron-Core 32B, 384 H100s", "rates": PRINTED, "overlap": "nothing"},
            "BLOOM": {"run": "BLOOM 176B, 384 A100s", **start},
            "MegaScale": {"run": "MegaScale 175B, 12,288 A100s", **start},
            "Qwen3, experts on H100s": {"run": "Bridge Qwen3 235B, 256 H100s, fp8", **start},
        },
        readouts=[
            readout("mfu", "MFU", "%"),
            readout("known", "Explained", "%"),
            readout("unexplained", "Unexplained", "%"),
            readout("largest", "Largest known part"),
            readout("possible", "Can it be so?"),
            readout("seconds", "A step", "s"),
            readout("layout", "Layout"),
        ],
        rows=along("part", BARS, _bar),
        chart=_chart,
        table=[column("part", "Part"), column("share", "Of the step", "%"), column("end", "Left below it", "%")],
        code=_code(),
        caption="Each bar is an item of fk.parallel.gap, by a formula or at a measured rate. One number is fitted: the virtual stages of Llama 3, to the MFU of two of its runs. The MFU counts model FLOPs under EXACT over the peak of the fastest format. "
        f"Measured: the best matmul that somebody timed on the device, and {links} of the printed rate of the links and {network} of the network's, which nccl-tests reached on 8 H100s and 16 A100s. "
        "Memory: operators without matmuls run by themselves, and the optimiser's states are read and written, at full bandwidth. Not counted: latency, launches, stragglers, data loading, uneven loads of experts. "
        "Runs: Llama 3, table 4; Narayanan 2021; Korthikanti 2022; MegaScale 2024; BigScience's log; the READMEs of Megatron-Core, torchtitan and Megatron-Bridge. "
        "fk.published.parallel_runs() says of each what is not printed and what we assumed.",
        height=350,
    )  # fmt: skip
