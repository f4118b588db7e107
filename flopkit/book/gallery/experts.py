"""The figure of the chapter on mixtures of experts: how tokens spread over experts and devices, and what that costs."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import ceil_div, log2, maximum, minimum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.layers.experts import expert_load, moe
from flopkit.models import hf_config
from flopkit.rooflines import bound_by

__all__ = ["expert_loads", "layer_of_experts"]

BARS = 64  # each shows a 64th of the experts
PAIRS = (("h100-sxm", "bf16"), ("h100-sxm", "fp8"), ("h200", "bf16"), ("b200", "bf16"), ("a100-sxm-80gb", "bf16"))


def _sizes(name: str, width: str) -> dict[str, int]:
    config = hf_config(name)
    return {"d_model": config["hidden_size"], "d_ff": config[width]}


EXPERTS = {
    "DeepSeek-V3": _sizes("deepseek-v3", "moe_intermediate_size"),
    "Mixtral-8x7B": _sizes("mixtral-8x7b", "intermediate_size"),
    "Qwen3-30B-A3B": _sizes("qwen3-30b-a3b", "moe_intermediate_size"),
}


def layer_of_experts(
    s: Any, *, sizes: Any, experts: Any, top_k: Any, tokens: Any, skew: Any, ranks: Any, capacity: Any, device: Any
) -> None:
    """Experts spread over devices: work, bytes, and the least time of the busiest device."""
    s.chosen = minimum(top_k, experts)
    s.skewed = maximum(1, minimum(skew, experts / s.chosen))
    s.ranks_used = minimum(ranks, experts)
    layer = {"tokens": tokens, "experts": experts, "top_k": s.chosen}
    spread = {**layer, "skew": s.skewed, "ranks": s.ranks_used}
    free, padded = expert_load(**spread), expert_load(**spread, capacity=where(capacity > 0, capacity, 1))
    s.rank_imbalance = free.rank_imbalance
    s.dropped = where(capacity > 0, padded.dropped, 0)
    s.empty = where(capacity > 0, padded.empty, 0)
    s.limit = where(capacity > 0, padded.limit * experts / (tokens * s.chosen), 0)
    s.slowdown = where(capacity > 0, padded.slowdown, free.slowdown)
    cost = moe(**layer, d_model=sizes.d_model, d_ff=sizes.d_ff, dtype=device)
    s.per_expert = tokens * s.chosen / experts
    s.useful = cost.flops
    rows_more = where(
        capacity > 0, padded.slowdown, 1
    )  # how many times as many rows are computed, by all devices together
    one_row = 6 * sizes.d_model * sizes.d_ff  # FLOPs: three products of an expert
    s.flops = s.useful + tokens * s.chosen * one_row * (rows_more - 1)
    s.bytes = where(
        capacity > 0, moe(**layer, d_model=sizes.d_model, d_ff=sizes.d_ff, capacity=1, dtype=device).bytes, cost.bytes
    )
    # The busiest device: its rows, and the weights of its experts.
    number = device.bits / 8
    rows = tokens * s.chosen / s.ranks_used * s.slowdown
    weights = minimum(experts / s.ranks_used, where(capacity > 0, experts, rows)) * 3 * sizes.d_model * sizes.d_ff
    moved = (weights + 2 * rows * sizes.d_model) * number
    bound = bound_by(rows * one_row, moved, device.peak, device.bandwidth)
    s.seconds, s.bound = bound.seconds, bound.bound
    s.busy = tokens * s.chosen * one_row * (1 - s.dropped) / (s.ranks_used * device.peak * s.seconds)
    s.no_skew = where(experts <= s.chosen, "Each token chooses every expert.", "")


def one_share(r: Any, *, share: Any, experts: Any, capacity: Any, **_: Any) -> None:
    """A bar: a 64th of the experts, the busiest first, and the device that holds them. All in tokens of the average expert."""
    falling = r.skewed / experts  # share of the busiest expert; (i/E)^a with (1/E)^a = skew/E

    def first(part: Any) -> Any:
        """Share of the tokens that the busiest *part* of the experts get."""
        return falling ** (-log2(part) / log2(experts))

    def mean(before: Any, after: Any) -> Any:
        low = where(before > 0, first(maximum(before, 1e-9)), 0)
        return (first(after) - low) / (after - before)

    low, high = (ceil_div((share - 1) * experts + 1, BARS) - 1) / experts, ceil_div(share * experts, BARS) / experts
    held = ceil_div(share * r.ranks_used, BARS)
    r.until = share / BARS
    r.load = mean(low, high)
    # what its device computes: under a capacity, each expert to its limit
    offered = mean((held - 1) / r.ranks_used, held / r.ranks_used)
    r.on_device = where(capacity > 0, r.limit, offered)
    beyond = where(capacity > 0, r.load - r.limit, 0)  # what is less than a rounding error is neither dropped nor empty
    r.over = where(beyond > 1e-12, beyond, 0)
    r.vacant = where(beyond < -1e-12, -beyond, 0)
    r.kept = r.load - r.over


def expert_loads() -> Figure:
    """Tokens of each expert and device, by skew, and what an unequal load costs in time, or in tokens under a capacity."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "start:Q",
            title="experts, the busiest first",
            scale=alt.Scale(domain=[0, 1], nice=False),
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
        )
        title = "tokens, × average expert"
        kinds = {"kept": "tokens computed", "over": "tokens dropped", "vacant": "empty rows computed"}
        of_device = "mean expert of each device"
        shown = [kinds["kept"], of_device, kinds["over"], kinds["vacant"]]  # the last two under a capacity only
        tooltip = [
            alt.Tooltip("until:Q", title="of the experts, up to", format=".1%"),
            alt.Tooltip("load:Q", title="tokens, × average", format=".3f"),
            alt.Tooltip("on_device:Q", title="their device computes, × average", format=".3f"),
        ]
        bars = (
            s.rows.transform_calculate(start=f"datum.until - {1 / BARS}")
            .transform_fold(list(kinds), as_=["kind", "tokens"])
            .transform_filter("datum.tokens > 0")
            .transform_calculate(
                label=f"({kinds})[datum.kind]",
                low="datum.kind == 'kept' ? 0 : datum.kept",
                high="datum.kind == 'kept' ? datum.kept : datum.kept + datum.tokens",
            )
            .mark_rect()
            .encode(
                x=x, x2="until:Q",
                y=alt.Y("low:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(minExtent=26)), y2="high:Q",
                color=alt.Color(
                    "label:N", title=None,
                    scale=alt.Scale(
                        domain=alt.ExprRef(f"capacity == 'no limit' ? {shown[:2]} : {shown}"),
                        range=[theme.BLUE, theme.INK, theme.ORANGE, theme.AMBER],
                    ),
                    legend=alt.Legend(orient="bottom", columns=2, symbolType="square", labelFontSize=11),
                ),
                tooltip=tooltip,
            )
        )  # fmt: skip
        line = (
            s.rows.transform_calculate(start=f"datum.until - {0.5 / BARS}")
            .mark_line(strokeWidth=2, interpolate="step")
            .encode(x=x, y=alt.Y("on_device:Q", title=title), color=alt.datum(of_device))
        )
        fit = {"type": "fit", "contains": "padding", "resize": True}  # the legend grows and shrinks
        return alt.layer(bars, line).properties(autosize=fit)

    deepseek = {"sizes": "DeepSeek-V3", "experts": 256, "top_k": 8}
    mixtral = {"sizes": "Mixtral-8x7B", "experts": 8, "top_k": 2, "ranks": 8}
    return Figure(
        name="expert-loads",
        title="What an unequal load of the experts costs",
        alt="Bars for the experts, the busiest on the left: the tokens of each over those of the average expert, and a line for the mean "
        "of what each device computes. {experts} of {sizes}, of which a token chooses {top_k}, on {ranks} ({device}): the busiest device computes "
        "{slowdown} the rows of a balanced load. With the capacity {capacity}, {dropped} of the chosen places are dropped and {empty} of the computed "
        "rows are empty. If they are compute-bound, the experts take as many times as long; they are bound by {bound}.",
        model=layer_of_experts,
        controls=[
            choice("sizes", "Experts as in", EXPERTS),
            slider("experts", "Experts", steps(8, 256), value=256, unit="experts"),
            slider("top_k", "Chosen for each token", steps(1, 16), value=8, unit="experts"),
            slider("tokens", "Tokens", steps(64, 262144), value=32768, unit="tokens"),
            slider("skew", "Busiest / average expert", [1, 1.25, 1.5, 2, 3, 4, 6], value=4, unit="×", idle="no_skew"),
            slider("ranks", "Devices", steps(1, 64), value=8, unit="devices"),
            choice("capacity", "Capacity", {"no limit": 0, "1.0": 1, "1.25": 1.25, "1.5": 1.5, "2.0": 2}),
            device_choice(pairs=PAIRS),
        ],
        presets={
            "DeepSeek-V3, balanced": {**deepseek, "tokens": 32768, "skew": 1, "ranks": 8, "capacity": "no limit"},
            "DeepSeek-V3, busiest 4×": {**deepseek, "tokens": 32768, "skew": 4, "ranks": 8, "capacity": "no limit"},
            "The same, capacity 1.25": {**deepseek, "tokens": 32768, "skew": 4, "ranks": 8, "capacity": "1.25"},
            "The same on 64 devices": {**deepseek, "tokens": 32768, "skew": 4, "ranks": 64, "capacity": "no limit"},
            "Decoding, 128 sequences": {**deepseek, "tokens": 128, "skew": 1, "ranks": 8, "capacity": "no limit"},
            "Mixtral, busiest 2×": {**mixtral, "tokens": 8192, "skew": 2, "capacity": "no limit"},
        },
        readouts=[
            readout("flops", "FLOPs computed", "FLOPs"),
            readout("slowdown", "Rows of the busiest device", "×"),
            readout("dropped", "Dropped", "%"),
            readout("empty", "Empty rows", "%"),
            readout("seconds", "Busiest device, least time", "s"),
            readout("bound", "Limited by"),
        ],
        rows=along("share", list(range(1, BARS + 1)), one_share),
        chart=chart,
        table=[
            column("until", "Of the experts, up to", "%"),
            column("load", "Tokens, each", "×"),
            column("on_device", "Their device computes", "×"),
        ],
        caption="The load follows a formula: the busiest i of E experts together get the share (i/E)^a of the tokens, and a follows from the busiest expert. "
        "Neighbours share a device, so the busiest experts lie together, as they do in the worst case. A bar is the mean of a 64th of the experts, so the busiest expert itself stands higher. The line is the mean expert of each device, as computed. No token chooses an "
        "expert twice, so the skew is at most experts / chosen, and there are no more devices than experts. A capacity pads every expert to its limit. Bytes and "
        "times leave out sending tokens between devices, and shared experts; times also leave out the router. " + peaks_note(PAIRS),
        height=260,
    )  # fmt: skip
