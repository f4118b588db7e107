"""The figure of data parallelism: how much of a step the exchange of gradients takes, by the tokens of a GPU.

Each tensor hides only behind its own pass: weights behind the forward pass, which needs them; gradients, and weights that are gathered
again, behind the backward pass. `flopkit.parallel.step` is looser, because a schedule could send gradients beside the next step's forward pass.
"""

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
    "ZeRO-1 or 2, fp32": {"forward": 2, "backward": 0, "reduced": 4},
    "ZeRO-3, bf16": {"forward": 2, "backward": 2, "reduced": 2},
    "ZeRO-3, fp32": {"forward": 2, "backward": 2, "reduced": 4},
    "DDP, bf16": {"forward": 0, "backward": 2, "reduced": 2},
    "DDP, fp32": {"forward": 0, "backward": 4, "reduced": 4},
}
"""Bytes per parameter that are gathered in the forward pass and in the backward pass, and that are reduced, in the backward pass."""
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
    gathered = over_nodes(params * moved.backward, ranks, s.inside, where_, all_gather)
    s.ahead = over_nodes(params * moved.forward, ranks, s.inside, where_, all_gather)
    s.behind = gathered + reduced
    s.exchange = s.ahead + s.behind
    s.compute = 6 * params * tokens / where_.peak
    s.share = s.exchange / (s.exchange + s.compute)
    s.forward = tokens * s.ahead / (s.compute / 3)
    s.backward = tokens * s.behind / (2 * s.compute / 3)
    s.hidden = maximum(s.forward, s.backward)
    s.left = left_of(s.forward / tokens, s.backward / tokens)
    waits = where(s.backward > tokens, "the backward pass", "nothing")
    s.late = where(s.forward > tokens, where(s.backward > tokens, "both passes", "the forward pass"), waits)


def left_of(forward: Any, backward: Any) -> Any:
    """Share of the step that is left of the exchange, from exchange over arithmetic in either pass; a third of the FLOPs are the forward pass."""
    left = maximum(0, forward - 1) / 3 + 2 * maximum(0, backward - 1) / 3
    return left / (1 + left)


def at_tokens(r: Any, *, each: Any, **_: Any) -> None:
    """The shares at another number of tokens: the exchange stays as long."""
    ratio = (r.forward + 2 * r.backward) / 3 / each
    r.after = ratio / (1 + ratio)
    r.beside = left_of(r.forward / each, r.backward / each)


def gradient_exchange() -> Figure:
    """Share of a data-parallel step that its exchange takes, one after the other and at best beside arithmetic."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = {"title": "tokens per GPU and micro-batch", **theme.log_scale(TOKENS[0], TOKENS[-1])}
        y = {"title": "share of the step", "scale": alt.Scale(domain=[0, 1], nice=False), "axis": alt.Axis(format="%", tickCount=5)}  # fmt: skip
        named = {
            "after": ("one after the other", theme.BLUE, [1, 0]),
            "beside": ("left at best", theme.ORANGE, [6, 4]),
        }
        lines = theme.curves(
            s.rows, named, "taken", {"strokeWidth": 2.5}, x=alt.X("each:Q", **x), y=alt.Y("taken:Q", **y),
            tooltip=[alt.Tooltip("each:Q", title="tokens per GPU", format=","), alt.Tooltip("curve:N", title="exchange"), alt.Tooltip("taken:Q", title="share", format=".1%")],
        )  # fmt: skip
        dot = s.now("tokens", "share").mark_point(color=theme.BLUE).encode(
            x=alt.X("tokens:Q", **x), y=alt.Y("share:Q", **y), tooltip=[alt.Tooltip("share:Q", title="share", format=".1%")]
        )  # fmt: skip
        hidden = (
            s.now("hidden")
            .mark_rule(color=theme.MUTED, strokeDash=[2, 3])
            .encode(
                x=alt.X("hidden:Q", **x),
                tooltip=[alt.Tooltip("hidden:Q", title="all hidden from, tokens", format=",.0f")],
            )
        )
        return alt.layer(hidden, lines, dot)

    start = {"params": "8 billion", "ranks": 64, "where_": "H100, 50 GB/s", "moved": "ZeRO-1 or 2, fp32", "tokens": 8192}  # fmt: skip
    return Figure(
        name="gradient-exchange",
        title="What the exchange of gradients takes of a step",
        alt="Two falling curves over the tokens per GPU, in a step of one micro-batch: the share of a data-parallel step that its exchange takes, one after the other with compute, and what is left of it at "
        "best, each tensor beside its own pass, which is nothing from {hidden} on, at a dotted line. {params} parameters on {ranks}, {in_node} of them in a node ({where_}; {moved}), {tokens} each: the exchange takes {exchange}, compute at the peak {compute}.",
        model=exchange_of_gradients,
        controls=[
            slider("tokens", "Tokens per GPU", TOKENS, value=8192, unit="tokens"),
            choice("params", "Parameters", SIZES, value="8 billion"),
            slider("ranks", "GPUs", steps(8, 16384), value=64, unit="GPUs"),
            slider("in_node", "Of these, in a node", [1, 2, 4, 8], value=8, unit="GPUs"),
            choice("where_", "GPU and its network", {shown: rates(name) for shown, name in CLUSTERS.items()}, value="H100, 50 GB/s"),
            choice("moved", "Method, gradients in", BYTES),
        ],
        presets={
            "8B, 64 H100": {**start, "in_node": 8},
            "405B, the same tokens": {**start, "params": "405 billion", "in_node": 8},
            "One GPU a node": {**start, "in_node": 1},
            "B300, one GPU a node": {**start, "in_node": 1, "where_": "B300, 100 GB/s"},
            "DDP, fp32 gradients": {**start, "in_node": 8, "moved": "DDP, fp32"},
            "ZeRO-3, fp32 gradients": {**start, "in_node": 8, "moved": "ZeRO-3, fp32"},
        },
        readouts=[
            readout("exchange", "Exchange", "s"),
            readout("compute", "Compute at the peak", "s"),
            readout("share", "Share, one after the other", "%"),
            readout("left", "Share left at best", "%"),
            readout("hidden", "All hidden from", "tokens"),
            readout("late", "Exchange delays"),
        ],
        rows=along("each", steps(TOKENS[0], TOKENS[-1], per_octave=4), at_tokens),
        chart=chart,
        table=[
            column("each", "Tokens per GPU", "tokens"),
            column("after", "One after the other", "%"),
            column("beside", "Left at best", "%"),
        ],
        caption="A step of one micro-batch; each GPU has all layers of the model. Compute is 6 FLOPs per parameter and token at the dense bf16 peak, without attention's scores; a third of it is the forward pass. "
        "Links and cards run at the rates that their makers print, without latency, so the times are bounds. At best, weights travel beside the forward pass; gradients, and the weights that ZeRO-3 gathers again, beside the backward pass: all are hidden right of the dotted line. "
        "Memory is not checked: 405 billion parameters do not fit one GPU.",
        height=280,
    )  # fmt: skip
