"""The figure of pairs: which query is compared with which key, and what that costs."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import ceil_div, maximum, minimum, vega, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.conventions import TORCH
from flopkit.dtypes import nbytes
from flopkit.layers.attentions import attention, visible_pairs, visible_rows, window

__all__ = ["attention_pairs", "pairs_and_bytes"]

ALL = 1024  # more query heads than any model has: one key-value head serves them all
SHARING = {
    "one per query head (MHA)": 1,
    "one for 2 query heads (GQA)": 2,
    "one for 4 query heads (GQA)": 4,
    "one for 8 query heads (GQA)": 8,
    "one for all (MQA)": ALL,
}
MHA, _, FOUR, EIGHT, MQA = SHARING
# qk and v are the features of a query or key and of a value; apart is 0 where the value lies inside the key.
HEADS: dict[str, dict[str, int]] = {
    "64": {"qk": 64, "v": 64, "apart": 1},
    "80": {"qk": 80, "v": 80, "apart": 1},
    "128": {"qk": 128, "v": 128, "apart": 1},
    "192, values 128": {"qk": 192, "v": 128, "apart": 1},
    "256": {"qk": 256, "v": 256, "apart": 1},
    "576, of it 512 the value": {"qk": 576, "v": 512, "apart": 0},
}
MASKS = ("full", "causal", "window")
NO_WINDOW = "Only the mask “window” has a width."
UNEVEN = "{heads} query heads cannot be split like this: {sharing}. Choose another number of heads, or another sharing."
STRIPS = 240  # of the drawing
THINNEST = 0.03  # of the drawing's height: a single query among thousands is drawn no thinner


def band(mask: Any, span: Any, kv: Any) -> Any:
    """The causal mask and the window in one: without a window every key up to the query's own is near enough."""
    return window(where(mask == "window", span, kv))


def shared(s: Any, heads: Any, sharing: Any) -> Any:
    """The number of key-value heads; ``s.uneven`` says where there can be no such number, ``s.alone`` where there is no choice."""
    kv_heads = ceil_div(heads, sharing)
    s.alone = where(heads == 1, "One query head has one key-value head.", "")
    s.uneven = where((heads == 1) | (sharing == ALL) | (kv_heads * sharing == heads), "", UNEVEN)
    return kv_heads


def pairs_and_bytes(
    s: Any, *, tokens: Any, cached: Any, mask: Any, span: Any, heads: Any, sharing: Any, head: Any
) -> None:
    """The attention core of one layer and one sequence: *tokens* new tokens that meet *cached* ones and themselves."""
    s.kv = cached + tokens
    s.no_window = where(mask == "window", "", NO_WINDOW)
    s.single = where(s.kv == 1, "One token sees itself under every mask.", "")
    s.kv_heads = shared(s, heads, sharing)
    near = band(mask, span, s.kv)
    sizes: dict[str, Any] = {"batch": 1, "q": tokens, "kv": s.kv, "heads": heads, "kv_heads": s.kv_heads}
    sizes |= {"head_dim": head.qk, "v_head_dim": head.v}
    full, masked = attention(**sizes), attention(**sizes, mask=near)
    s.pairs = where(mask == "full", visible_pairs(tokens, s.kv, "full"), visible_pairs(tokens, s.kv, near))
    s.hidden = tokens * s.kv - s.pairs
    s.share = s.pairs / (tokens * s.kv)
    s.flops = where(mask == "full", full.flops, masked.flops)
    s.torch = full.under(TORCH).flops
    rows = where(mask == "full", s.kv, visible_rows(tokens, s.kv, near))
    inside = (1 - head.apart) * nbytes(s.kv_heads * rows * head.v, "bf16")
    s.flash = where(mask == "full", full.bytes, masked.bytes) - inside
    s.math = s.flash + attention(**sizes, kernel="math").bytes - full.bytes
    s.intensity = s.flops / s.flash
    s.cache = nbytes(s.kv_heads * (head.qk + head.apart * head.v), "bf16")


def attention_pairs() -> Figure:
    """Which query is compared with which key, and what these pairs cost in FLOPs and bytes."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        tokens, span, mask = (alt.param(name=name) for name in ("tokens", "span", "mask"))
        top = minimum(1 - tokens / s.kv, 1 - THINNEST)
        x = alt.X("left:Q", title="keys, first to last →", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(values=[]))
        x2 = alt.X2("right:Q")
        y = alt.Y(
            "down:Q",
            title="↓ queries, first to last",
            scale=alt.Scale(domain=[0, 1], reverse=True, nice=False),
            axis=alt.Axis(values=[]),
        )

        def told(what: str) -> list[Any]:
            return [
                alt.Tooltip("pairs:Q", title=what, format=","),
                alt.Tooltip("share:Q", title="of all", format=".3~%"),
            ]

        place = s.kv - tokens + alt.expr.floor(minimum(alt.datum.part * tokens, tokens - 1))
        strips = alt.Chart(alt.Data(values=[{"part": i / STRIPS} for i in range(STRIPS + 1)]))
        seen = (
            strips.transform_calculate(
                down=vega(top + (1 - top) * alt.datum.part),
                left=vega(where(mask == "window", maximum(place + 1 - span, 0), 0) / s.kv),
                right=vega(where(mask == "full", s.kv, place + 1) / s.kv),
            )
            .transform_calculate(pairs=vega(s.pairs), share=vega(s.share))
            .mark_area(color=theme.BLUE, orient="horizontal", interpolate="step-before")
            .encode(x=x, x2=x2, y=y, tooltip=told("pairs that count"))
        )
        asked = (
            s.now(left=0, right=1, down=top, bottom=1, pairs=s.hidden, share=1 - s.share)
            .mark_rect(color=theme.GRID, opacity=0.7)
            .encode(x=x, x2=x2, y=y, y2=alt.Y2("bottom:Q"), tooltip=told("pairs hidden"))
        )
        whole = (
            s.now(left=0, right=1, down=0, bottom=1)
            .mark_rect(fill=None, stroke=theme.MUTED, strokeDash=[3, 3])
            .encode(x=x, x2=x2, y=y, y2=alt.Y2("bottom:Q"))
        )
        line = {"color": theme.PAPER, "strokeWidth": 1}
        cells = alt.Chart(alt.Data(values=[{"i": i} for i in range(1, 32)]))
        few = cells.transform_filter(f"datum.i < {vega(s.kv)} && {vega(s.kv)} <= 32")
        columns = few.transform_calculate(left=vega(alt.datum.i / s.kv), down=vega(top), bottom="1")
        lines = [
            columns.mark_rule(**line).encode(x=x, y=y, y2=alt.Y2("bottom:Q")),
            few.transform_filter(f"datum.i < {vega(tokens)}")
            .transform_calculate(left="0", right="1", down=vega(top + (1 - top) * alt.datum.i / tokens))
            .mark_rule(**line)
            .encode(x=x, x2=x2, y=y),
        ]
        earlier = theme.words(
            s.now(left=0.97, down=top * 0.2, label=where(top > 0.3, "these queries came before", "")),
            {"color": theme.MUTED, "align": "right"},
            x=x,
            y=y,
            text="label:N",
        )
        before = (
            s.now(left=0, right=where(mask == "full", 0, top), down=0, bottom=where(mask == "full", 0, top))
            .mark_rule(color=theme.MUTED, strokeDash=[3, 3])
            .encode(x=x, x2=x2, y=y, y2=alt.Y2("bottom:Q"))
        )
        tall = (1 - top) * where(mask == "full", 0, 1)
        hidden = theme.words(
            s.now(left=0.97, down=top + (1 - top) * 0.185, label=where(tall > 0.5, "hidden by the mask", "")),
            {"color": theme.INK, "align": "right"},
            theme.GRID,
            x=x,
            y=y,
            text="label:N",
        )
        return alt.layer(asked, seen, *lines, whole, before, *earlier, *hidden)

    # Sizes as in each model's published config.json.
    llama = {"cached": 0, "mask": "causal", "heads": 32, "sharing": FOUR, "head": "128"}
    deepseek = {"tokens": 4096, "cached": 0, "mask": "causal", "heads": 128}
    return Figure(
        name="attention-pairs",
        title="Which query is compared with which key?",
        alt="Queries run downwards, keys to the right; the pairs that count are filled. A full mask fills a rectangle, the causal mask what lies "
        "on the diagonal and left of it, a window a band along the diagonal; a decode step is one full row at the bottom. "
        "Here: mask {mask}, {tokens} new and {cached} in the cache, {pairs} that count and {hidden} hidden.",
        model=pairs_and_bytes,
        controls=[
            slider("tokens", "New tokens", steps(1, 131072), value=8, unit="tokens"),
            slider("cached", "Tokens in the cache", [0, *steps(1, 131072)], value=0, unit="tokens"),
            choice("mask", "Mask", MASKS, value="causal", idle="single"),
            slider("span", "Width of the window", steps(1, 131072), value=4, unit="tokens", idle="no_window"),
            slider("heads", "Query heads", steps(1, 128), value=32),
            choice("sharing", "Key-value heads", SHARING, value=FOUR, idle="alone"),
            choice("head", "Head dimension", HEADS, value="128"),
        ],
        presets={
            "8 tokens, to see the cells": {**llama, "tokens": 8},
            "Llama-3-8B, prefill": {**llama, "tokens": 8192},
            "Llama-3-8B, decode step": {**llama, "tokens": 1, "cached": 8191},
            "Llama-3-8B, last quarter of a prompt": {**llama, "tokens": 2048, "cached": 6144},
            "Llama-3-70B, prefill": {**llama, "tokens": 8192, "heads": 64, "sharing": EIGHT},
            "Mistral-7B, prefill in its window": {**llama, "tokens": 16384, "mask": "window", "span": 4096},
            "DeepSeek-V3, prefill (expanded)": {**deepseek, "sharing": MHA, "head": "192, values 128"},
            "DeepSeek-V3, decode step (absorbed)": {
                **deepseek,
                "tokens": 1,
                "cached": 4095,
                "sharing": MQA,
                "head": "576, of it 512 the value",
            },
            "GPT-2": {**llama, "tokens": 1024, "heads": 12, "sharing": MHA, "head": "64"},
        },
        readouts=[
            readout("pairs", "Pairs that count", "pairs"),
            readout("hidden", "Pairs hidden", "pairs"),
            readout("flops", "Core, these pairs", "FLOPs"),
            readout("torch", "Core, as torch counts", "FLOPs"),
            readout("flash", "Bytes, at least (flash)", "B"),
            readout("math", "Bytes, math kernel", "B"),
            readout("intensity", "Intensity, at most", "FLOP/B"),
            readout("cache", "Keys and values per token", "B"),
        ],
        rows=along("mask"),
        chart=chart,
        table=[
            column("mask", "Mask"),
            column("pairs", "Pairs that count", "pairs"),
            column("hidden", "Pairs hidden", "pairs"),
            column("flops", "Core, these pairs", "FLOPs"),
            column("flash", "Bytes, at least", "B"),
            column("intensity", "Intensity, at most", "FLOP/B"),
        ],
        caption="One layer, one sequence, bf16; pairs are those of one head. The pairs that count are those of EXACT; torch's count is TORCH. Bytes are "
        "the least that must move. “Keys and values per token” are those that the core reads; if they are expanded from latents, the KV cache holds only the latents.",
        refused="uneven",
    )
