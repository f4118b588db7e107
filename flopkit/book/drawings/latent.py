"""Latent attention (MLA) in its two forms, side by side."""

from __future__ import annotations

from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.layers.attention_layers import mla as layer
from flopkit.units import count, si, times

__all__ = ["mla"]


def mla(
    q: int = 1, kv: int = 4096, *, heads: int = 128, kv_lora: int = 512, qk_nope: int = 128, qk_rope: int = 64, v_head_dim: int = 128
) -> Drawing:  # fmt: skip
    """Latent attention expanded and absorbed: what is multiplied by what, and what that costs.

    Parameters
    ----------
    q, kv : int, optional
        New tokens and all tokens, the cache included.
    heads, kv_lora, qk_nope, qk_rope, v_head_dim : int, optional
        As in `flopkit.mla`; the sizes of DeepSeek-V3.

    Raises
    ------
    ValueError or TypeError
        For sizes that `flopkit.mla` refuses.

    Examples
    --------
    >>> mla(q=1, kv=4096).title
    'Expanding makes keys and values from 4,096 latents; absorbing changes 1 query instead'
    """
    sizes: dict[str, Any] = {
        "heads": heads,
        "kv_lora": kv_lora,
        "qk_nope": qk_nope,
        "qk_rope": qk_rope,
        "v_head_dim": v_head_dim,
    }
    expanded, absorbed = (
        {part.name: part for part in layer(batch=1, q=q, kv=kv, d_model=1, **sizes, form=form).parts}
        for form in ("expanded", "absorbed")
    )
    key, long = qk_nope + qk_rope, kv_lora + qk_rope
    left, right = (
        _sheet("expanded", heads, q, kv, key, kv_lora, qk_rope),
        _sheet("absorbed", heads, q, kv, key, kv_lora, qk_rope),
    )

    # Expanded: each latent goes up to keys and values of every head.
    left.arrow(270, 86, 270, 112)
    _product(
        left, 270, 112, f"{count(kv_lora)} → {heads} × ({qk_nope} + {v_head_dim})", expanded["kv_up"].flops, "expand"
    )
    left.arrow(270, 150, 270, 176)
    left.box(186, 176, 168, 56, "keys, values", f"{heads} × {count(kv)} × {key}", f"{heads} × {count(kv)} × {v_head_dim}",
             name="expanded", colour=GREEN, fill=0.1, dash=True, bold=True)  # fmt: skip
    left.arrow(90, 86, 90, 258)
    left.arrow(270, 232, 270, 258)
    _product(
        left,
        180,
        258,
        f"attention: 2·({key} + {v_head_dim}) per pair and head",
        expanded["attention"].flops,
        "attention",
        348,
    )
    left.arrow(180, 296, 180, 376)
    left.box(96, 376, 168, 38, "output", f"{heads} × {count(q)} × {v_head_dim}", name="output", colour=BLUE, bold=True)

    # Absorbed: the queries become as long as the latents, which are keys and values for all heads.
    right.arrow(90, 86, 90, 112)
    _product(right, 90, 112, f"{qk_nope} → {count(kv_lora)}, each head", absorbed["key_absorb"].flops, "absorb")
    right.arrow(90, 150, 90, 176)
    right.box(6, 176, 168, 38, "long queries", f"{heads} × {count(q)} × ({kv_lora} + {qk_rope})", name="long queries", colour=BLUE,
              dash=True, bold=True, fill=0.1)  # fmt: skip
    right.arrow(90, 214, 90, 258)
    right.arrow(270, 86, 270, 258, name="shared")
    right.lines(278, 150, "shared by", f"all {heads}", "heads", anchor="start", colour=MUTED)
    _product(
        right,
        180,
        258,
        f"attention: 2·({long} + {kv_lora}) per pair and head",
        absorbed["attention"].flops,
        "attention",
        348,
    )
    right.arrow(180, 296, 180, 316)
    _product(right, 180, 316, f"{count(kv_lora)} → {v_head_dim}, each head", absorbed["value_up"].flops, "bring up")
    right.arrow(180, 354, 180, 376)
    right.box(96, 376, 168, 38, "output", f"{heads} × {count(q)} × {v_head_dim}", name="output", colour=BLUE, bold=True)

    more = absorbed["attention"].flops / expanded["attention"].flops
    return Drawing(
        "mla",
        f"Expanding makes keys and values from {count(kv, 'latents')}; absorbing changes {count(q, 'queries') if q > 1 else '1 query'} instead",
        f"Expanded: {count(kv)} latents of {kv_lora} become keys of {key} and values of {v_head_dim} in {heads} heads, {si(expanded['kv_up'].flops, 'FLOPs')}, and attention "
        f"takes {si(expanded['attention'].flops, 'FLOPs')}. Absorbed: the queries become {long} long, {si(absorbed['key_absorb'].flops, 'FLOPs')}, attention on the latents "
        f"themselves takes {si(absorbed['attention'].flops, 'FLOPs')}, {times(more)} as much, and its outputs come back up, {si(absorbed['value_up'].flops, 'FLOPs')}.",
        [left, right],
    )


def _sheet(form: str, heads: int, q: int, kv: int, key: int, latent: int, rope: int) -> Canvas:
    """What both forms begin with: the queries and the cache."""
    canvas = Canvas(418)
    canvas.text(6, 10, form, anchor="start", bold=True, size=14)
    canvas.box(6, 30, 168, 56, "queries", f"{heads} × {count(q)} × {key}", name="queries", colour=BLUE, bold=True)
    canvas.box(186, 30, 168, 56, "cache", f"latents {count(kv)} × {latent}", f"rotary key {count(kv)} × {rope}",
               name="cache", colour=GREEN, fill=0.3, bold=True)  # fmt: skip
    return canvas


def _product(canvas: Canvas, x: float, y: float, words: str, flops: int, name: str, w: float = 168) -> None:
    canvas.box(x - w / 2, y, w, 38, words, si(flops, "FLOPs"), name=name, colour=ORANGE, fill=0.28, round=12)
