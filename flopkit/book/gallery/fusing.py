"""Figure of the chapter on few FLOPs and many bytes: the kernels of a layer, which the reader fuses boundary by boundary."""

from __future__ import annotations

from functools import reduce
from typing import Any

from flopkit.arithmetic import maximum, vega, where
from flopkit.book.gallery.rest import MODELS, sizes_of_layer
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps, switch
from flopkit.charts.readings import pick
from flopkit.layers.attentions import attention
from flopkit.layers.embeddings import rotary
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import activation, residual
from flopkit.layers.products import dense

__all__ = ["fused_kernels", "kernels_of_a_layer"]

OPERATORS = {
    "sum_before": "residual sum before",
    "norm": "norm",
    "qkv": "q, k, v",
    "rotary": "rotary",
    "attention": "attention",
    "o": "o",
    "sum": "residual sum",
    "mlp_norm": "norm of the MLP",
    "gate_up": "gate, up",
    "swiglu": "SwiGLU",
    "down": "down",
}
"""What the tokens pass in a layer, in order; the first belongs to the layer before."""
SUMS = {
    "by themselves": {"pair": 0, "before": 0},
    "with the norm after": {"pair": 1, "before": 0},
    "in the matmul before": {"pair": 0, "before": 1},
}
KINDS = {"matmul": theme.ORANGE, "other operator": theme.BLUE, "both in one kernel": theme.GREEN}
MATMUL, OTHER, BOTH = KINDS


def kernels_of_a_layer(
    s: Any, *, network: Any, tokens: Any, sums: Any, merged: Any, turned: Any, flash: Any, shared: Any, gated: Any
) -> None:
    """Bytes that each kernel of a layer of a Llama moves, in bf16, forward pass."""
    d, f = network.d, network.f
    queries, keys = network.heads * network.head_dim, network.kv_heads * network.head_dim
    s.stream, s.hidden = tokens * d, tokens * f
    add, norm = residual(elements=s.stream), rms_norm(tokens=tokens, d=d)
    pair = (add + norm).fused(not_read=s.stream)
    q, k = dense(tokens=tokens, d_in=d, d_out=queries), dense(tokens=tokens, d_in=d, d_out=keys)
    turn = rotary(batch=1, seq=tokens, heads=network.heads + network.kv_heads, head_dim=network.head_dim)
    size: dict[str, Any] = {"heads": network.heads, "kv_heads": network.kv_heads, "head_dim": network.head_dim}
    size |= {"batch": 1, "q": tokens, "kv": tokens, "mask": "causal"}
    o, down = dense(tokens=tokens, d_in=queries, d_out=d), dense(tokens=tokens, d_in=f, d_out=d)
    wide, act = dense(tokens=tokens, d_in=d, d_out=f), activation("swiglu", elements=s.hidden)
    once = (wide + wide).fused(not_read=s.stream)
    inside = (wide + wide + act).fused(not_written=2 * s.hidden, not_read=2 * s.hidden + s.stream)

    # the sum reads the residual stream, and the result of the matmul neither leaves the chip nor comes back
    epilogue = sums.before * (add.bytes - 2 * 2 * s.stream)
    apart = 1 - sums.pair - sums.before
    s.of_sum_before = apart * add.bytes
    s.of_sum = apart * add.bytes
    s.of_norm = where(sums.pair == 1, pair.bytes, norm.bytes)
    s.of_mlp_norm = 1 * s.of_norm
    three = q + k + k
    s.of_qkv = where(merged, three.fused(not_read=2 * s.stream).bytes, three.bytes)
    s.of_rotary = where(turned, 0, turn.bytes)
    s.of_attention = where(flash, attention(**size).bytes, attention(**size, kernel="math").bytes)
    s.of_o = o.bytes + epilogue
    s.of_down = down.bytes + epilogue
    s.of_gate_up = where(gated, inside.bytes, where(shared, once.bytes, 2 * wide.bytes))
    s.of_swiglu = where(gated, 0, act.bytes)
    s.bytes = sum(getattr(s, f"of_{name}") for name in OPERATORS)
    s.widest = 1.45 * reduce(
        maximum, [getattr(s, f"of_{name}") for name in OPERATORS]
    )  # of the axis, with room for a number
    others = ("sum_before", "sum", "norm", "mlp_norm", "rotary", "swiglu")
    s.others = sum(getattr(s, f"of_{name}") for name in others) / s.bytes
    s.kernels = (
        len(OPERATORS) + 2 + 1 + 2 - 2 * (sums.pair + sums.before) - 2 * merged - turned - 2 * flash - where(gated, 2, 1 * shared)
    )  # fmt: skip
    s.in_one = where(gated, "One kernel for gate, up and SwiGLU reads their input once.", "")


def one_kernel(r: Any, *, operator: Any, sums: Any, turned: Any, gated: Any, **_: Any) -> None:
    """A bar: the bytes of the kernel that runs an operator, nothing where it is a part of its neighbour's."""
    titles = {title: name for name, title in OPERATORS.items()}
    r.moved = pick(operator, {title: getattr(r, f"of_{name}") for title, name in titles.items()})
    alone = {name: MATMUL if name in ("qkv", "attention", "o", "gate_up", "down") else OTHER for name in OPERATORS}
    mixed = {"qkv": turned, "gate_up": gated, "o": sums.before == 1, "down": sums.before == 1}
    r.kind = pick(
        operator,
        {
            title: where(mixed[name], BOTH, alone[name]) if name in mixed else alone[name]
            for title, name in titles.items()
        },
    )


def fused_kernels() -> Figure:
    """The tokens of a layer pass eleven operators: the bytes of each kernel, fused as the reader chooses."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        room = {"expr": f"({vega(s.widest)}) / 1e6"}
        y = alt.Y("operator:N", title=None, sort=list(OPERATORS.values()), axis=alt.Axis(minExtent=122, labelLimit=0))
        x = {
            "title": "MB moved",
            "axis": alt.Axis(format=",~r", tickCount=4, labelBound=True),
            "scale": alt.Scale(domainMin=0, domainMax=room, nice=False),
        }
        rows = s.rows.transform_calculate(
            megabytes="datum.moved / 1e6",
            label="datum.moved == 0 ? 'fused' : datum.moved < 1e11 ? format(datum.moved / 1e6, ',.0f') : format(datum.moved / 1e9, ',.0f') + ' GB'",
        )
        at = alt.X("megabytes:Q", **x)
        bars = rows.mark_bar(height=14).encode(
            y=y,
            x=at,
            color=alt.Color(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values())),
                legend=alt.Legend(symbolType="square", orient="bottom", columns=2, columnPadding=8),
            ),
            tooltip=[
                alt.Tooltip("operator:N", title="operator"),
                alt.Tooltip("kind:N", title="kernel"),
                alt.Tooltip("megabytes:Q", title="MB", format=",.1f"),
            ],
        )
        words = theme.words(rows, {"align": "left", "dx": 5}, y=y, x=at, text="label:N")
        return alt.layer(bars, *words)

    apart = {"sums": "by themselves", "merged": False, "turned": False, "flash": False, "shared": False, "gated": False}
    return Figure(
        name="fused-kernels",
        title="Fuse the kernels of a layer, boundary by boundary",
        alt="Bars, one for each operator of a layer of {network} in the order in which {tokens} pass them: the megabytes that its kernel "
        "moves, or the word fused where it is a part of its neighbour's kernel. Residual sums {sums}; q, k and v in one matmul: {merged}; "
        "rotary in it: {turned}; scores on the chip: {flash}; gate and up in one matmul: {shared}; SwiGLU in it: {gated}. "
        "{kernels} kernels move {bytes}, {others} of it by operators other than matmuls.",
        model=kernels_of_a_layer,
        controls=[
            choice("network", "Model", {title: sizes_of_layer(name) for title, name in MODELS.items()}),
            slider("tokens", "Sequence", steps(512, 131072), value=8192, unit="tokens"),
            switch("flash", "Scores on the chip (flash)", value=True),
            choice("sums", "Residual sums", SUMS),
            switch("gated", "SwiGLU in gate, up"),
            switch("turned", "Rotary in q, k, v"),
            switch("merged", "q, k, v in one matmul"),
            switch("shared", "gate, up in one matmul", idle="in_one"),
        ],
        presets={
            "Only attention fused": {**apart, "flash": True},
            "Nothing fused": apart,
            "A fusing compiler": {**apart, "flash": True, "sums": "with the norm after"},
            "Everything": {
                "flash": True,
                "sums": "in the matmul before",
                "gated": True,
                "turned": True,
                "merged": True,
                "shared": True,
            },
        },
        readouts=[
            readout("bytes", "Bytes of the layer", "B"),
            readout("kernels", "Kernels"),
            readout("others", "All but matmuls, of the bytes", "%"),
        ],
        rows=along("operator", list(OPERATORS.values()), one_kernel),
        chart=chart,
        table=[column("operator", "Operator"), column("kind", "Kernel"), column("moved", "Bytes", "B")],
        caption="One sequence, forward pass, in bf16. A kernel reads its tensors and weights from memory, writes its results there, and finds nothing in "
        "a cache. The first sum belongs to the layer before. Scores in memory make attention three kernels. In training, the results of "
        "gate and up are written as well.",
        height=300,
    )
