"""The figure of data parallelism: how much of a step the exchange of gradients takes, by the tokens of a GPU."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import ceil_div, maximum, minimum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.parallel import all_gather, cluster, reduce_scatter

__all__ = ["exchange_of_gradients", "gradient_exchange"]

CLUSTERS = {
    "A100, 25 GB/s of network": "dgx-a100",
    "H100, 50 GB/s": "dgx-h100",
    "B300, 100 GB/s": "dgx-b300",
}
BYTES = {
    "gradients fp32, weights bf16": {"reduced": 4, "gathered": 2, "times": 1},
    "both bf16": {"reduced": 2, "gathered": 2, "times": 1},
    "both bf16, gathered twice (ZeRO-3)": {"reduced": 2, "gathered": 2, "times": 2},
    "both fp32": {"reduced": 4, "gathered": 4, "times": 1},
}
SIZES = {"1 billion": 1e9, "8 billion": 8e9, "32 billion": 32e9, "70 billion": 70e9, "405 billion": 405e9}
TOKENS = steps(256, 2**20)


def rates(name: str) -> dict[str, float]:
    place = cluster(name)
    return {"peak": float(place.device.peak("bf16")), "link": place.link, "network": place.network}


def over_nodes(payload: Any, ranks: Any, inside: Any, where_: Any, collective: Any) -> Any:
    """Least seconds of a gather or a reduce-scatter whose group has *inside* GPUs in a node."""
    within = where(inside > 1, collective(bytes=payload, ranks=inside).sent / where_.link, 0)
    nodes = ceil_div(ranks, inside)
    between = where(nodes > 1, collective(bytes=payload / inside, ranks=nodes).sent / where_.network, 0)
    return maximum(within, between)


def exchange_of_gradients(
    s: Any, *, tokens: Any, params: Any, ranks: Any, in_node: Any, where_: Any, moved: Any
) -> None:
    """Seconds of a step's arithmetic and of its exchange, for a model of which each GPU has all layers."""
    s.inside = minimum(in_node, ranks)
    reduced = over_nodes(params * moved.reduced, ranks, s.inside, where_, reduce_scatter)
    gathered = over_nodes(params * moved.gathered, ranks, s.inside, where_, all_gather)
    s.exchange = reduced + moved.times * gathered
    s.compute = 6 * params * tokens / where_.peak
    s.ratio = s.exchange / s.compute
    s.share = s.exchange / (s.exchange + s.compute)
    s.left = maximum(0, 1 - s.compute / s.exchange)
    s.even = tokens * s.ratio
    s.bound = where(s.exchange > s.compute, "the exchange", "compute")


def at_tokens(r: Any, *, each: Any, **_: Any) -> None:
    """The shares at another number of tokens: the exchange stays as long."""
    ratio = r.even / each
    r.after = ratio / (1 + ratio)
    r.beside = maximum(0, 1 - 1 / ratio)


def gradient_exchange() -> Figure:
    """Share of a data-parallel step that its exchange takes, one after the other and at best beside arithmetic."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = {"title": "tokens per GPU and micro-batch", **theme.log_scale(TOKENS[0], TOKENS[-1])}
        y = {"title": "share of the step", "scale": alt.Scale(domain=[0, 1], nice=False), "axis": alt.Axis(format="%", tickCount=5)}  # fmt: skip
        named = {
            "after": ("one after the other", theme.BLUE, [1, 0]),
            "beside": ("at best, beside all compute", theme.ORANGE, [6, 4]),
        }
        lines = theme.curves(
            s.rows, named, "taken", {"strokeWidth": 2.5}, x=alt.X("each:Q", **x), y=alt.Y("taken:Q", **y),
            tooltip=[alt.Tooltip("each:Q", title="tokens per GPU", format=","), alt.Tooltip("curve:N", title="exchange"), alt.Tooltip("taken:Q", title="share", format=".1%")],
        )  # fmt: skip
        dot = s.now("tokens", "share").mark_point(color=theme.BLUE).encode(
            x=alt.X("tokens:Q", **x), y=alt.Y("share:Q", **y), tooltip=[alt.Tooltip("share:Q", title="share", format=".1%")]
        )  # fmt: skip
        return alt.layer(lines, dot)

    start = {"params": "8 billion", "ranks": 64, "where_": "H100, 50 GB/s", "moved": "gradients fp32, weights bf16", "tokens": 8192}  # fmt: skip
    return Figure(
        name="gradient-exchange",
        title="What the exchange of gradients takes of a step",
        alt="Two falling curves over the tokens per GPU, in a step of one micro-batch: the share of a data-parallel step that its exchange takes, one after the other with compute, and what is left of it at "
        "best beside compute, which is nothing from {even} on. {params} parameters on {ranks}, {in_node} of them in a node ({where_}; {moved}), {tokens} each: the exchange takes {exchange}, compute at the peak {compute}.",
        model=exchange_of_gradients,
        controls=[
            slider("tokens", "Tokens per GPU", TOKENS, value=8192, unit="tokens"),
            choice("params", "Parameters", SIZES, value="8 billion"),
            slider("ranks", "GPUs", steps(8, 16384), value=64, unit="GPUs"),
            slider("in_node", "Of these, in a node", [1, 2, 4, 8], value=8, unit="GPUs"),
            choice("where_", "GPU and its network", {shown: rates(name) for shown, name in CLUSTERS.items()}, value="H100, 50 GB/s"),
            choice("moved", "Numbers", BYTES),
        ],
        presets={
            "8B, 64 H100": {**start, "in_node": 8},
            "405B, the same tokens": {**start, "params": "405 billion", "in_node": 8},
            "One GPU a node": {**start, "in_node": 1},
            "B300, one GPU a node": {**start, "in_node": 1, "where_": "B300, 100 GB/s"},
            "Gradients in bf16": {**start, "in_node": 8, "moved": "both bf16"},
            "The same, ZeRO-3": {**start, "in_node": 8, "moved": "both bf16, gathered twice (ZeRO-3)"},
        },
        readouts=[
            readout("exchange", "Exchange", "s"),
            readout("compute", "Compute at the peak", "s"),
            readout("share", "Share, one after the other", "%"),
            readout("left", "Share left at best", "%"),
            readout("even", "As long as compute at", "tokens"),
            readout("bound", "Longer"),
        ],
        rows=along("each", steps(TOKENS[0], TOKENS[-1], per_octave=2), at_tokens),
        chart=chart,
        table=[
            column("each", "Tokens per GPU", "tokens"),
            column("after", "One after the other", "%"),
            column("beside", "Left at best", "%"),
        ],
        caption="A step of one micro-batch; each GPU has all layers of the model. Compute is 6 FLOPs per parameter and token at the dense bf16 peak, without attention's scores. Links and cards run at the rates that their makers print, without latency, so the times are bounds. "
        "At best means that all compute hides the exchange, as it can with ZeRO-3; gradients alone hide behind the backward pass, two thirds of it. Of several micro-batches only the last one's hides them. Memory is not checked: 405 billion parameters do not fit one GPU.",
        height=280,
    )  # fmt: skip
