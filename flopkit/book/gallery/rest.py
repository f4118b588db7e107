"""Figure of the chapter on the rest: a layer's arithmetic, bytes and least time by kind of work, fused or not."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import maximum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.cost import Cost
from flopkit.layers.attentions import attention
from flopkit.layers.embeddings import rotary
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import activation, residual
from flopkit.layers.products import dense
from flopkit.models import load

__all__ = ["MODELS", "STEPS", "layer_shares", "layer_with_the_rest", "sizes_of_layer"]

MODELS = {"Llama-3-8B": "llama-3-8b", "Llama-3-70B": "llama-3-70b", "Llama-3.1-405B": "llama-3.1-405b"}
DEVICES = (
    ("h100-sxm", "bf16"),
    ("h200", "bf16"),
    ("b200", "bf16"),
    ("a100-sxm-80gb", "bf16"),
    ("mi300x", "bf16"),
    ("l4", "bf16"),
    ("rtx-4090", "bf16"),
)
KINDS = {
    "products": "matmuls with weights",
    "attention": "attention's matmuls",
    "softmax": "softmax",
    "norm": "norms",
    "activation": "SwiGLU",
    "sums": "residual sums",
    "rotary": "rotary positions",
}
COLOURS = [theme.ORANGE, theme.AMBER, theme.PURPLE, theme.BLUE, theme.GREEN, theme.SKY, theme.MUTED]
BARS = ("FLOPs", "bytes", "least time")
STEPS = {"norm": 36, "rotary": 20, "activation": 10}
"""Bytes per element of an operator's output where every step of it is a kernel of its own, in bf16; a residual sum is one step.

A norm: to fp32 (2 + 4), square (4 + 4), mean (4), scale (4 + 4), to bf16 (4 + 2), gain (2 + 2). Rotary: two products with cosines and
sines (4 + 4), halves exchanged (2 + 4), their sum (6). SwiGLU: silu (4), product (6).
"""
ROW_STEPS = 24
"""Bytes a norm's steps move for each row: its mean square in fp32, written once, and read and written on the way to the root."""
FUSION = {
    "one for each step": {"steps": 1, "pair": 0, "inside": 0},
    "one for each operator": {"steps": 0, "pair": 0, "inside": 0},
    "sums with their norms": {"steps": 0, "pair": 1, "inside": 0},
    "SwiGLU and rotary, too": {"steps": 0, "pair": 1, "inside": 1},
}
SCORES = {"on the chip (flash)": 0, "in memory (math)": 1}


def sizes_of_layer(name: str) -> dict[str, int]:
    net: Any = load(name)
    [(block, _)] = net.blocks
    mixer = block.mixer
    return {
        "d": net.d_model,
        "f": block.mlp.d_ff,
        "heads": mixer.heads,
        "kv_heads": mixer.kv_heads,
        "head_dim": mixer.head_dim,
    }


def _at_least(cost: Cost, device: Any) -> Any:
    """Seconds of one kernel: its FLOPs at the peak or its bytes at the full bandwidth, the longer of both."""
    return maximum(cost.flops / device.peak, cost.bytes / device.bandwidth)


def layer_with_the_rest(s: Any, *, network: Any, tokens: Any, fused: Any, scores: Any, device: Any) -> None:
    """One layer of a Llama on one sequence: vector and matrix FLOPs, bytes and least time of each kind of work, in bf16."""
    d, f = network.d, network.f
    s.queries = network.heads * network.head_dim
    s.keys = network.kv_heads * network.head_dim
    s.stream, s.hidden = tokens * d, tokens * f
    s.turned = tokens * (s.queries + s.keys)
    own = 1 - fused.steps

    # products
    small = [
        dense(tokens=tokens, d_in=a, d_out=b) for a, b in ((d, s.queries), (d, s.keys), (d, s.keys), (s.queries, d))
    ]
    gate, down = dense(tokens=tokens, d_in=d, d_out=f), dense(tokens=tokens, d_in=f, d_out=d)
    act = activation("swiglu", elements=s.hidden)
    in_one = (gate + gate + act).fused(not_written=2 * s.hidden, not_read=2 * s.hidden + s.stream)
    s.products_flops = sum(each.flops for each in small) + 2 * gate.flops + down.flops
    s.products_bytes = (
        sum(each.bytes for each in small) + down.bytes + where(fused.inside == 1, in_one.bytes, 2 * gate.bytes)
    )
    s.products_seconds = (
        sum(_at_least(each, device) for each in small)
        + _at_least(down, device)
        + where(fused.inside == 1, _at_least(in_one, device), 2 * _at_least(gate, device))
    )

    # attention: by a flash kernel one kernel; by a math kernel two products, and the softmax between them
    size: dict[str, Any] = {key: getattr(network, key) for key in ("heads", "kv_heads", "head_dim")}
    size |= {"batch": 1, "q": tokens, "kv": tokens, "mask": "causal"}
    flash, math = attention(**size), attention(**size, kernel="math")
    s.attention_flops = flash.flops
    s.softmax_flops = flash.vector_flops
    s.softmax_bytes = (
        scores * (math.bytes - flash.bytes) / 2
    )  # read and written once by the softmax, once by the products
    s.attention_bytes = flash.bytes + s.softmax_bytes
    half = maximum(flash.flops / 2 / device.peak, s.attention_bytes / 2 / device.bandwidth)
    s.attention_seconds = where(scores == 1, 2 * half, _at_least(flash, device))

    # the rest
    norm, add = rms_norm(tokens=tokens, d=d), residual(elements=s.stream)
    turn = rotary(batch=1, seq=tokens, heads=network.heads + network.kv_heads, head_dim=network.head_dim)
    pair = (add + norm).fused(not_read=s.stream)
    s.norm_flops, s.sums_flops = 2 * norm.vector_flops, 2 * add.vector_flops
    s.activation_flops, s.rotary_flops = act.vector_flops, turn.vector_flops
    s.sums_bytes = 2 * add.bytes
    in_steps = STEPS["norm"] * s.stream + ROW_STEPS * tokens + 2 * d
    s.norm_bytes = 2 * where(fused.pair == 1, pair.bytes - add.bytes, own * norm.bytes + fused.steps * in_steps)
    s.activation_bytes = where(fused.inside == 1, 0, own * act.bytes + fused.steps * STEPS["activation"] * s.hidden)
    tables = 2 * 2 * 2 * tokens * network.head_dim  # cosines and sines in bf16, for queries and for keys
    s.rotary_bytes = where(fused.inside == 1, 0, own * turn.bytes + fused.steps * (STEPS["rotary"] * s.turned + tables))
    for kind in ("softmax", "norm", "activation", "sums", "rotary"):
        setattr(s, f"{kind}_seconds", getattr(s, f"{kind}_bytes") / device.bandwidth)

    for what in ("flops", "bytes", "seconds"):
        setattr(s, what, sum(getattr(s, f"{kind}_{what}") for kind in KINDS))
        rest = sum(getattr(s, f"{kind}_{what}") for kind in list(KINDS)[2:])
        setattr(s, f"rest_{what}", rest / getattr(s, what))


def one_bar(r: Any, *, bar: Any, **_: Any) -> None:
    """A bar: the share of each kind of work in the layer's arithmetic, bytes or least time."""
    names = dict(zip(BARS, ("flops", "bytes", "seconds"), strict=True))
    for kind in KINDS:
        setattr(
            r,
            kind,
            pick(bar, {title: getattr(r, f"{kind}_{name}") / getattr(r, name) for title, name in names.items()}),
        )


def layer_shares() -> Figure:
    """A layer of a Llama: what does its FLOPs, what moves its bytes, and what takes its least time, fused or not."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        shares = {
            "title": "share of the layer",
            "axis": alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1], domain=False),
            "scale": alt.Scale(domain=[0, 1], nice=False),
        }
        y = alt.Y("bar:N", title=None, sort=list(BARS))
        folded = s.rows.transform_fold(list(KINDS), as_=["kind", "part"]).transform_calculate(
            label=f"({KINDS})[datum.kind]", place=f"indexof({list(KINDS)}, datum.kind)"
        )
        bars = folded.mark_bar().encode(
            y=y,
            x=alt.X("part:Q", **shares),
            color=alt.Color(
                "label:N",
                title=None,
                scale=alt.Scale(domain=list(KINDS.values()), range=COLOURS),
                legend=alt.Legend(columns=2, columnPadding=8, symbolSize=70, labelFontSize=11, symbolType="square"),
            ),
            order=alt.Order("place:Q"),
            tooltip=[
                alt.Tooltip("bar:N", title="of the layer's"),
                alt.Tooltip("label:N", title="work"),
                alt.Tooltip("part:Q", title="share", format=".2%"),
            ],
        )
        numbers = folded.mark_text(color=theme.PAPER, fontWeight=600).encode(
            y=y,
            x=alt.X("part:Q", stack="zero", bandPosition=0.5, **shares),
            detail="label:N",
            order=alt.Order("place:Q"),
            text=alt.condition("datum.part > 0.08", alt.Text("part:Q", format=".0%"), alt.value("")),
        )
        return alt.layer(bars, numbers)

    return Figure(
        name="layer-shares",
        title="A layer's FLOPs, bytes and least time, by kind of work",
        alt="Three stacked bars for one layer of {network} that reads {tokens}: its FLOPs, its bytes and its least time on {device}, each split "
        "by kind of work; the data table has every share. Kernels: {fused}; scores {scores}. Everything but the matmuls does {rest_flops} of the "
        "FLOPs, moves {rest_bytes} of the bytes and takes {rest_seconds} of the least time.",
        model=layer_with_the_rest,
        controls=[
            choice("network", "Model", {title: sizes_of_layer(name) for title, name in MODELS.items()}),
            slider("tokens", "Sequence", steps(1, 131072), value=8192, unit="tokens"),
            choice("fused", "Kernels", FUSION, value="one for each operator"),
            choice("scores", "Attention's scores", SCORES),
            device_choice(pairs=DEVICES),
        ],
        readouts=[
            readout("rest_flops", "All but matmuls, of the FLOPs", "%"),
            readout("rest_bytes", "of the bytes", "%"),
            readout("rest_seconds", "of the least time", "%"),
            readout("flops", "FLOPs of the layer", "FLOPs"),
            readout("bytes", "Bytes", "B"),
            readout("seconds", "Least time", "s"),
        ],
        rows=along("bar", list(BARS), one_bar),
        chart=chart,
        table=[
            column("bar", "Share of"),
            *(column(kind, label[0].upper() + label[1:], "%") for kind, label in KINDS.items()),
        ],
        caption="One sequence, forward pass, in bf16; shares above 8 % stand in the bars. A norm in separate steps moves fp32. The last two settings of the kernels add to those before: each residual sum with the norm after it in one kernel; then SwiGLU and the rotary turn inside the kernels of the matmuls. "
        "Every kernel reads its tensors from memory and writes its results there, and finds nothing in a cache. The least time is the sum over "
        "kernels; it leaves out their start, microseconds each, and the time of vector FLOPs, which is long for the softmax inside a flash kernel. "
        + peaks_note(DEVICES),
        height=150,
    )
