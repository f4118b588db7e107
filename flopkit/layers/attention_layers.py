"""Whole attention layers, projections included, as trees of named parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypeAlias

from flopkit.arithmetic import Number, exact_div
from flopkit.cost import Cost
from flopkit.dtypes import DType, nbytes
from flopkit.layers.attentions import Mask, attention, visible_rows
from flopkit.layers.embeddings import rotary
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.products import dense, matmul
from flopkit.sizes import Flag, Size, checked, choice, divides, offence

__all__ = ["mla", "multi_head_attention"]

MlaPart: TypeAlias = Literal[
    "q_proj", "q_down", "q_norm", "q_up", "kv_down", "kv_norm", "rotary", "kv_up", "key_absorb", "attention", "value_up", "o_proj"
]  # fmt: skip


@checked
def multi_head_attention(
    *,
    batch: Size,
    q: Size,
    kv: Size,
    d_model: Size,
    heads: Size,
    head_dim: Size | None = None,
    kv_heads: Size | None = None,
    kv_new: Size | None = None,
    mask: Mask = "full",
    kernel: str = "flash",
    qkv_bias: Flag = False,
    out_bias: Flag = False,
    dtype: DType = "bf16",
) -> Cost:
    """A multi-head attention layer: the projections to queries, keys and values, the core, and the output projection.

    FLOPs: ``2·batch·d_model·head_dim·(2·heads·q + 2·kv_heads·kv_new)`` in the four dense layers, and those of
    `attention` in the core. Vector FLOPs: those of the parts.
    Bytes: the sum over the parts, each run by itself. Parameters: ``2·d_model·head_dim·(heads + kv_heads)`` and biases.
    Parts: ``q_proj``, ``k_proj``, ``v_proj``, ``attention``, ``o_proj``.

    Parameters
    ----------
    batch : Size
        Sequences.
    q, kv : Size
        Queries and keys of each sequence; kv includes the cache.
    d_model : Size
        Features of a token.
    heads : Size
        Query heads.
    head_dim : Size, optional
        Size of each head. None: d_model / heads.
    kv_heads : Size, optional
        Heads of K and V where fewer (GQA, MQA). None: as many as *heads*.
    kv_new : Size, optional
        Tokens of each sequence that get their keys and values here. None: *q*, as in self-attention with or without a
        cache; give *kv* for cross-attention.
    mask : Mask, optional
        Which query sees which key: ``"full"``, ``"causal"`` (aligned bottom-right) or ``fk.window(w)``.
    kernel : str, optional
        ``"flash"`` or ``"math"``: whether the scores move, as in `attention`.
    qkv_bias, out_bias : Flag, optional
        Whether the projections add a bias (or parameters that hold 1 or 0).
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, heads that do not divide d_model where head_dim is not given, kv_heads not dividing heads, kv_new
        above kv, an unknown mask or kernel.

    Notes
    -----
    Not counted: rotary embedding and norms of queries and keys (`rotary`, `rms_norm`), copies into the cache.

    References
    ----------
    Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 (GQA).

    Examples
    --------
    >>> layer = multi_head_attention(batch=1, q=8192, kv=8192, d_model=4096, heads=32, kv_heads=8, mask="causal")
    >>> layer.flops, layer.params  # Llama-3-8B
    (1237017690112, 41943040)
    """
    if head_dim is None:
        divides("heads", heads, "d_model", d_model)
        head_dim = exact_div(d_model, heads)
    kv_heads = heads if kv_heads is None else kv_heads
    kv_new = q if kv_new is None else kv_new
    _within("kv_new", kv_new, kv)

    def project(name: str, tokens: Number, d_in: Number, d_out: Number, bias: Number) -> Cost:
        cost = dense(tokens=batch * tokens, d_in=d_in, d_out=d_out, bias=bias, dtype=dtype)
        return cost.named(name)

    core = attention(
        batch=batch, q=q, kv=kv, heads=heads, head_dim=head_dim, kv_heads=kv_heads, mask=mask, kernel=kernel,
        dtype=dtype,
    )  # fmt: skip
    parts = [
        project("q_proj", q, d_model, heads * head_dim, qkv_bias),
        project("k_proj", kv_new, d_model, kv_heads * head_dim, qkv_bias),
        project("v_proj", kv_new, d_model, kv_heads * head_dim, qkv_bias),
        core,
        project("o_proj", q, heads * head_dim, d_model, out_bias),
    ]
    return Cost.total("multi_head_attention", parts)


@checked
def mla(
    *,
    batch: Size,
    q: Size,
    kv: Size,
    d_model: Size,
    heads: Size,
    q_lora: Size | None = None,
    kv_lora: Size,
    qk_nope: Size,
    qk_rope: Size,
    v_head_dim: Size,
    mask: Mask = "causal",
    kernel: str = "flash",
    form: str = "expanded",
    dtype: DType = "bf16",
) -> Cost:
    """Multi-head latent attention (DeepSeek-V2 and V3), the whole layer. The cache holds a latent and a rope key a token.

    Queries, of ``qk_nope + qk_rope`` features a head, come through a latent of *q_lora* (or directly). Each token is
    brought down to a latent of *kv_lora* and one rope key that all heads share. Then, in one of two forms that give the
    same output,

    - ``"expanded"``, for training and prefill: all *kv* latents are brought up to keys and values of every head
      (``2·batch·kv·kv_lora·heads·(qk_nope + v_head_dim)`` FLOPs) and attention runs with ``head_dim = qk_nope + qk_rope``;
    - ``"absorbed"``, for decode: the queries are brought into the latent space instead, attention runs there with one
      key-value head, ``head_dim = kv_lora + qk_rope`` and values of *kv_lora*, and its outputs are brought up
      (``2·batch·q·heads·kv_lora·(qk_nope + v_head_dim)`` FLOPs).

    Vector FLOPs: RMS norms of the latents, rotation of the rope features, the softmax. Bytes: the sum over the parts, each
    run by itself; in the absorbed core the latents are read once, for they are keys and values.
    Parameters, the same in both forms: the projections and the norms' weights.
    Parts: ``q_down``, ``q_norm``, ``q_up`` (or ``q_proj``), ``kv_down``, ``kv_norm``, ``rotary``, then ``kv_up`` and
    ``attention``, or ``key_absorb``, ``attention`` and ``value_up``, and ``o_proj``.

    Parameters
    ----------
    batch : Size
        Sequences.
    q, kv : Size
        New tokens and all tokens of each sequence, the cache included.
    d_model : Size
        Features of a token.
    heads : Size
        Query heads.
    q_lora : Size, optional
        Size of the latent of queries. None: queries come directly.
    kv_lora : Size
        Size of the latent of keys and values.
    qk_nope, qk_rope : Size
        Features of a query or key without and with rotary embedding (an even number).
    v_head_dim : Size
        Features of a value.
    mask : Mask, optional
        Which query sees which key: ``"full"``, ``"causal"`` (aligned bottom-right) or ``fk.window(w)``.
    kernel : str, optional
        ``"flash"`` or ``"math"``: whether the scores move, as in `attention`.
    form : str, optional
        ``"expanded"`` or ``"absorbed"``, see above.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, more queries than keys, an odd qk_rope, an unknown mask, kernel or form.

    Notes
    -----
    Not counted: copies that join the two halves of a key, a cache of expanded keys (which would save ``kv_up``).

    References
    ----------
    DeepSeek-AI 2024, DeepSeek-V2, section 2.1 and appendix C (the absorbed form: end of section 2.1.2).

    Examples
    --------
    >>> sizes = dict(d_model=7168, heads=128, q_lora=1536, kv_lora=512, qk_nope=128, qk_rope=64, v_head_dim=128)
    >>> mla(batch=1, q=4096, kv=4096, **sizes).params  # DeepSeek-V3
    187107328
    >>> decode = dict(batch=1, q=1, kv=4096, **sizes)
    >>> mla(**decode, form="expanded").flops // mla(**decode, form="absorbed").flops
    91
    """
    sizes = {"kv_lora": kv_lora, "qk_nope": qk_nope, "qk_rope": qk_rope, "v_head_dim": v_head_dim}
    parts = mla_parts(
        batch=batch, q=q, kv=kv, d_model=d_model, heads=heads, q_lora=q_lora, **sizes, mask=mask, kernel=kernel, form=form, dtype=dtype
    )  # fmt: skip
    return Cost.total("mla", parts.values())


def mla_parts(
    *, batch: Number, q: Number, kv: Number, d_model: Number, heads: Number, q_lora: Number | None, kv_lora: Number, qk_nope: Number,
    qk_rope: Number, v_head_dim: Number, mask: Mask, kernel: str = "flash", form: str, dtype: DType,
) -> dict[MlaPart, Cost]:  # fmt: skip
    """The parts of `mla`, in the order in which they run."""
    choice("form", form, ("expanded", "absorbed"))
    _within("q", q, kv)
    if wrong := offence(lambda qk_rope: qk_rope % 2 == 1, qk_rope):
        raise ValueError(f"qk_rope={wrong[0]}: features are turned in pairs, so pass an even number")
    tokens = batch * q
    common: dict[str, Any] = dict(dtype=dtype)

    def project(rows: Number, d_in: Number, d_out: Number) -> Cost:
        return dense(tokens=rows, d_in=d_in, d_out=d_out, **common)

    def per_head(d_in: Number, d_out: Number) -> Cost:
        cost = matmul(batch=heads, m=tokens, k=d_in, n=d_out, **common)
        return replace(cost, params_by_role={"weight": heads * d_in * d_out})

    queries = heads * (qk_nope + qk_rope)
    if q_lora is None:
        parts: dict[MlaPart, Cost] = {"q_proj": project(tokens, d_model, queries)}
    else:
        parts = {
            "q_down": project(tokens, d_model, q_lora),
            "q_norm": rms_norm(tokens=tokens, d=q_lora, **common),
            "q_up": project(tokens, q_lora, queries),
        }
    parts |= {
        "kv_down": project(tokens, d_model, kv_lora + qk_rope),
        "kv_norm": rms_norm(tokens=tokens, d=kv_lora, **common),
        "rotary": rotary(batch=batch, seq=q, heads=heads + 1, head_dim=qk_rope, **common),
    }
    where: dict[str, Any] = dict(batch=batch, q=q, kv=kv, heads=heads, mask=mask, kernel=kernel, **common)
    if form == "expanded":
        parts |= {
            "kv_up": project(batch * kv, kv_lora, heads * (qk_nope + v_head_dim)),
            "attention": attention(head_dim=qk_nope + qk_rope, v_head_dim=v_head_dim, **where),
        }
    else:
        core = attention(head_dim=kv_lora + qk_rope, v_head_dim=kv_lora, kv_heads=1, **where)
        values = nbytes(batch * visible_rows(q, kv, mask) * kv_lora, dtype)  # the values lie inside the keys
        parts |= {
            "key_absorb": per_head(qk_nope, kv_lora),
            "attention": replace(core, bytes=core.bytes - values),
            "value_up": per_head(kv_lora, v_head_dim),
        }
    parts["o_proj"] = project(tokens, heads * v_head_dim, d_model)
    return {key: cost.named(key) for key, cost in parts.items()}


def _within(name: str, value: Number, kv: Number) -> None:
    if wrong := offence(lambda value, kv: value > kv, value, kv):
        raise ValueError(f"{name}={wrong[0]} is more than kv={wrong[1]}: kv counts all keys, the new ones included")
