"""The parts of a layer in which tokens meet: self-attention with its heads and masks, latent attention, cross-attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flopkit.arithmetic import is_zero, minimum
from flopkit.cost import Cost
from flopkit.layers.attention_layers import mla
from flopkit.layers.attentions import Mask, attention, window
from flopkit.layers.embeddings import rotary
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import activation
from flopkit.models.parts import Part, Run, part, project
from flopkit.sizes import Count, Flag, Size, choice, divides, flag, size

__all__ = ["Attention", "LatentAttention"]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention of *heads* query heads over *kv_heads* heads of keys and values: MHA, GQA or MQA, whole or in a window.

    Parameters
    ----------
    heads, kv_heads, head_dim : Size
        Query heads, heads of keys and values, features of each.
    window : Size, optional
        How many tokens a query sees, itself included. None: all that its mask allows.
    rotary : Any, optional
        Features of a head that are turned by their position. None: all; 0: none.
    qkv_bias, out_bias : Flag, optional
        Whether the projections add a bias.
    qk_norm : str, optional
        ``""``; ``"head"``: an RMS norm of each head's queries and keys, with one weight for all heads; ``"whole"``: one over all
        heads together.
    sinks : Flag, optional
        Whether each head has a learned sink in its softmax.
    gate : Flag, optional
        Whether the queries' projection makes a gate of the same width, which multiplies the output of the heads.
    position_buckets : Count, optional
        Rows of a learned table of biases, one a head, that are added to the scores by distance (T5).
    position_keys : Flag, optional
        Whether a matrix makes keys of relative positions, as in Transformer-XL (Gopher, Chinchilla). Its parameters count; what it
        does does not: the product with the table of positions, once for all sequences, and the queries' products with these keys.
    cross : bool, optional
        Whether keys and values come from an encoder's output.
    """

    heads: Size
    kv_heads: Size
    head_dim: Size
    window: Size | None = None
    rotary: Any = None
    qkv_bias: Flag = False
    out_bias: Flag = False
    qk_norm: str = ""
    sinks: Flag = False
    gate: Flag = False
    position_buckets: Count = 0
    position_keys: Flag = False
    cross: bool = False

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads", "head_dim", "window"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, size(name, getattr(self, name)))
        turned = self.head_dim if self.rotary is None else self.rotary
        object.__setattr__(self, "rotary", size("rotary", turned, minimum=0))
        object.__setattr__(self, "position_buckets", size("position_buckets", self.position_buckets, minimum=0))
        for name in ("qkv_bias", "out_bias", "sinks", "gate", "position_keys"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        choice("qk_norm", self.qk_norm, ("", "head", "whole"))
        divides("kv_heads", self.kv_heads, "heads", self.heads)

    def mask(self, run: Run) -> Mask:
        """Which token sees which, in this layer."""
        if self.cross or not run.causal:
            return "full"
        return "causal" if self.window is None else window(self.window)

    def held(self, context: Any) -> Any:
        """Numbers in the cache for a sequence of *context* tokens: keys and values of those that are still seen."""
        rows = context if self.window is None else minimum(context, self.window)
        return rows * 2 * self.kv_heads * self.head_dim

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        heads, kv_heads, head_dim = self.heads, self.kv_heads, self.head_dim
        kv = run.memory if self.cross else run.kv
        # tokens that get keys and values here
        fresh = run.tokens if not self.cross else run.batch * run.memory if run.new_memory else 0
        found = [project("q_proj", run, d_model, (1 + self.gate) * heads * head_dim, self.qkv_bias)]
        found += [
            project(name, run, d_model, kv_heads * head_dim, self.qkv_bias, tokens=fresh)
            for name in ("k_proj", "v_proj")
            if not is_zero(fresh)
        ]
        found += self._normed(run, fresh)
        if not is_zero(self.rotary):
            turned = rotary(batch=run.batch, seq=run.q, heads=heads + kv_heads, head_dim=self.rotary, dtype=run.dtype)
            found.append(part("rotary", turned, run.tokens))
        mask = self.mask(run)
        core = attention(
            batch=run.batch, q=run.q, kv=kv, heads=heads, kv_heads=kv_heads, head_dim=head_dim, mask=mask, dtype=run.dtype
        )  # fmt: skip
        extra: dict[str, Any] = {}
        if not is_zero(self.sinks):
            extra["bias"] = self.sinks * heads
        if not is_zero(self.position_buckets):
            extra["position"] = self.position_buckets * heads
        if not is_zero(self.position_keys):
            extra["position"] = extra.get("position", 0) + self.position_keys * d_model * heads * head_dim
        if extra:
            core = replace(core, params_by_role=extra)
        seen = "pairs" if mask != "full" else "batch·q·kv"
        cache = run.batch * (kv * 2 * kv_heads * head_dim if self.cross else self.held(run.kv))
        found.append(
            part(
                "attention", core, run.tokens, cache=cache, formula=f"2·{seen}·{heads}·2·{head_dim}", flash_dim=head_dim
            )
        )
        if not is_zero(self.gate):
            gated = activation("sigmoid", elements=self.gate * run.tokens * heads * head_dim, dtype=run.dtype)
            found.append(part("gate", gated, run.tokens))
        return [*found, project("o_proj", run, heads * head_dim, d_model, self.out_bias)]

    def _normed(self, run: Run, fresh: Any) -> list[Part]:
        """The norms of queries and keys, where there are any."""
        if not self.qk_norm:
            return []
        found = []
        for name, tokens, heads in (("q_norm", run.tokens, self.heads), ("k_norm", fresh, self.kv_heads)):
            rows, d = (tokens * heads, self.head_dim) if self.qk_norm == "head" else (tokens, heads * self.head_dim)
            found.append(part(name, rms_norm(tokens=rows, d=d, dtype=run.dtype), tokens))
        return found


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2 and V3): the cache holds one latent and one rope key a token. See `flopkit.mla`.

    Parameters
    ----------
    heads : Size
        Query heads.
    q_lora : Size, optional
        Size of the latent of queries. None: queries come directly.
    kv_lora, qk_nope, qk_rope, v_head_dim : Size
        As in `flopkit.mla`.
    """

    heads: Size
    q_lora: Size | None = None
    kv_lora: Size
    qk_nope: Size
    qk_rope: Size
    v_head_dim: Size
    window: ClassVar[None] = None

    def __post_init__(self) -> None:
        for name in ("heads", "q_lora", "kv_lora", "qk_nope", "qk_rope", "v_head_dim"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, size(name, getattr(self, name)))

    def held(self, context: Any) -> Any:
        """Numbers in the cache for a sequence of *context* tokens."""
        return context * (self.kv_lora + self.qk_rope)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        form = "absorbed" if run.absorbed else "expanded"
        layer = mla(
            batch=run.batch, q=run.q, kv=run.kv, d_model=d_model, heads=self.heads, q_lora=self.q_lora, kv_lora=self.kv_lora,
            qk_nope=self.qk_nope, qk_rope=self.qk_rope, v_head_dim=self.v_head_dim, mask="causal" if run.causal else "full",
            form=form, dtype=run.dtype,
        )  # fmt: skip
        cache = run.batch * self.held(run.kv)
        return [
            part(
                each.name,
                each,
                run.tokens,
                cache=cache if each.name == "attention" else 0,
                formula=self._formula(each, d_model, form),
                flash_dim=self.qk_nope + self.qk_rope,
            )._replace(shape=self._widths(d_model).get(each.name, ()))
            for each in layer.parts
        ]

    def _widths(self, d_model: Any) -> dict[str, tuple[Any, Any]]:
        """Features in and out of each of its products."""
        queries, up = self.heads * (self.qk_nope + self.qk_rope), self.qk_nope + self.v_head_dim
        return {
            "q_proj": (d_model, queries), "q_down": (d_model, self.q_lora), "q_up": (self.q_lora, queries),
            "kv_down": (d_model, self.kv_lora + self.qk_rope), "kv_up": (self.kv_lora, self.heads * up),
            "key_absorb": (self.heads * self.qk_nope, self.kv_lora), "value_up": (self.heads * self.kv_lora, self.v_head_dim),
            "o_proj": (self.heads * self.v_head_dim, d_model),
        }  # fmt: skip

    def _formula(self, each: Cost, d_model: Any, form: str) -> str:
        widths = self._widths(d_model)
        if each.name == "attention":
            key, value = self.qk_nope + self.qk_rope, self.v_head_dim
            if form == "absorbed":
                key, value = self.kv_lora + self.qk_rope, self.kv_lora
            return f"2·pairs·{self.heads}·({key} + {value})"
        return "2·tokens·{}·{}".format(*widths[each.name]) if each.name in widths else ""
