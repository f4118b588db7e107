"""Whole attention layers, projections included, one operation at a time."""

from __future__ import annotations

from typing import Any

from flopkit.sizes import Flag, Whole, checked, choice, divides
from flopkit.tally.attentions import attended
from flopkit.tally.embeddings import turned
from flopkit.tally.ledger import Ledger, elementwise
from flopkit.tally.normalisations import rms_normed
from flopkit.tally.products import linear
from flopkit.tally.runs import run

__all__ = ["mla", "multi_head_attention"]


@checked
def multi_head_attention(
    *, batch: Whole, q: Whole, kv: Whole, d_model: Whole, heads: Whole, head_dim: Whole | None = None, kv_heads: Whole | None = None,
    kv_new: Whole | None = None, mask: Any = "full", qkv_bias: Flag = False, out_bias: Flag = False,
) -> Ledger:  # fmt: skip
    """Projections, core and output projection; keys and values of kv − kv_new tokens come from the cache.

    Where *kv_new* is *q* the new tokens are the queries' own; else they are another sequence's (cross-attention).

    >>> counted = multi_head_attention(batch=1, q=2, kv=3, d_model=8, heads=2)
    >>> counted.macs_by_kind
    {'products': 512, 'scores': 96}
    """
    head_dim = d_model // heads if head_dim is None else head_dim
    kv_heads = heads if kv_heads is None else kv_heads
    kv_new = q if kv_new is None else kv_new
    divides("kv_heads", kv_heads, "heads", heads)
    own, shared, old = kv_new == q, heads // kv_heads, kv - kv_new

    def algorithm(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, **more: Any) -> Any:
        outputs = []
        for i, tokens in enumerate(x):
            fresh = tokens if own else more["memory"][i]
            queries = linear(tokens, wq, more.get("bq"))
            keys = linear(fresh, wk, more.get("bk"))
            values = linear(fresh, wv, more.get("bv"))
            if old:
                keys, values = more["k_cache"][i] + keys, more["v_cache"][i] + values
            mixed = []
            for h in range(heads):
                part, kv_part = slice(h * head_dim, (h + 1) * head_dim), h // shared * head_dim
                kv_slice = slice(kv_part, kv_part + head_dim)
                own_keys, own_values = ([row[kv_slice] for row in rows] for rows in (keys, values))
                mixed.append(attended([row[part] for row in queries], own_keys, own_values, mask, head_dim**-0.5))
            outputs.append(linear(_joined(*mixed), wo, more.get("bo")))
        return outputs

    width, kv_width = heads * head_dim, kv_heads * head_dim
    shapes: dict[str, tuple[int, ...]] = {"x": (batch, q, d_model), "wq": (width, d_model)}
    shapes |= {"wk": (kv_width, d_model), "wv": (kv_width, d_model), "wo": (d_model, width)}
    shapes |= {} if own else {"memory": (batch, kv_new, d_model)}
    shapes |= {"k_cache": (batch, old, kv_width), "v_cache": (batch, old, kv_width)} if old else {}
    shapes |= {"bq": (width,), "bk": (kv_width,), "bv": (kv_width,)} if qkv_bias else {}
    shapes |= {"bo": (d_model,)} if out_bias else {}
    title = f"multi_head_attention({batch=}, {q=}, {kv=}, {d_model=}, {heads=}, {head_dim=}, {kv_heads=}, mask={mask})"
    return run(title, shapes, algorithm)


@checked
def mla(
    *, batch: Whole, q: Whole, kv: Whole, d_model: Whole, heads: Whole, q_lora: Whole | None = None, kv_lora: Whole, qk_nope: Whole,
    qk_rope: Whole, v_head_dim: Whole, mask: Any = "causal", form: str = "expanded",
) -> Ledger:  # fmt: skip
    """Multi-head latent attention; latents and rope keys of kv − q tokens come from the cache.

    >>> sizes = dict(batch=1, q=2, kv=2, d_model=6, heads=2, kv_lora=3, qk_nope=2, qk_rope=2, v_head_dim=2)
    >>> one, other = mla(**sizes), mla(**sizes, form="absorbed")
    >>> [round(x, 12) for row in one.output[0] for x in row] == [round(x, 12) for row in other.output[0] for x in row]
    True
    """
    choice("form", form, ("expanded", "absorbed"))
    old, scale = kv - q, (qk_nope + qk_rope) ** -0.5

    def algorithm(x: Any, kv_down: Any, kv_norm: Any, key_up: Any, value_up: Any, out: Any, **more: Any) -> Any:
        outputs = []
        for i, tokens in enumerate(x):
            latents, rope_keys = _down(tokens, kv_down, kv_norm, kv_lora, old)
            if old:
                latents, rope_keys = more["latents"][i] + latents, more["rope_keys"][i] + rope_keys
            queries = _queries(tokens, more)
            mixed = []
            for h in range(heads):
                start = h * (qk_nope + qk_rope)
                nope = [row[start : start + qk_nope] for row in queries]
                with elementwise():
                    rope = [
                        turned(row[start + qk_nope : start + qk_nope + qk_rope], old + p)
                        for p, row in enumerate(queries)
                    ]
                if form == "expanded":
                    keys = _joined(linear(latents, key_up[h]), rope_keys)
                    head = attended(_joined(nope, rope), keys, linear(latents, value_up[h]), mask, scale)
                else:
                    absorbed = linear(nope, list(zip(*key_up[h], strict=True)))
                    head = attended(_joined(absorbed, rope), _joined(latents, rope_keys), latents, mask, scale)
                    head = linear(head, value_up[h])
                mixed.append(head)
            outputs.append(linear(_joined(*mixed), out))
        return outputs

    width = heads * (qk_nope + qk_rope)
    shapes: dict[str, tuple[int, ...]] = {"x": (batch, q, d_model), "kv_down": (kv_lora + qk_rope, d_model)}
    shapes |= {"kv_norm": (kv_lora,), "key_up": (heads, qk_nope, kv_lora), "value_up": (heads, v_head_dim, kv_lora)}
    shapes |= {"out": (d_model, heads * v_head_dim)}
    if q_lora is None:
        shapes |= {"q_proj": (width, d_model)}
    else:
        shapes |= {"q_down": (q_lora, d_model), "q_norm": (q_lora,), "q_up": (width, q_lora)}
    shapes |= {"latents": (batch, old, kv_lora), "rope_keys": (batch, old, qk_rope)} if old else {}
    title = (
        f"mla({batch=}, {q=}, {kv=}, {d_model=}, {heads=}, {q_lora=}, {kv_lora=}, {qk_nope=}, {qk_rope=}, "
        f"{v_head_dim=}, mask={mask}, {form=})"
    )
    return run(title, shapes, algorithm)


def _queries(tokens: Any, weights: dict[str, Any]) -> Any:
    if "q_proj" in weights:
        return linear(tokens, weights["q_proj"])
    down = linear(tokens, weights["q_down"])
    with elementwise("norm"):
        normed = [rms_normed(row, weights["q_norm"]) for row in down]
    return linear(normed, weights["q_up"])


def _down(tokens: Any, kv_down: Any, kv_norm: Any, kv_lora: int, first: int) -> tuple[Any, Any]:
    """The normed latents of *tokens*, and their rope keys turned to positions from *first* on."""
    rows = linear(tokens, kv_down)
    with elementwise("norm"):
        latents = [rms_normed(row[:kv_lora], kv_norm) for row in rows]
    with elementwise():
        rope_keys = [turned(row[kv_lora:], first + p) for p, row in enumerate(rows)]
    return latents, rope_keys


def _joined(*blocks: Any) -> Any:
    """Side by side, row by row."""
    return [[value for row in rows for value in row] for rows in zip(*blocks, strict=True)]
