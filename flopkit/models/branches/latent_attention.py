"""Latent attention: keys and values are made of one latent a token, which the cache
holds in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flopkit.arithmetic import minimum
from flopkit.dtypes import nbytes
from flopkit.layers.attention_layers import MlaPart, mla_parts
from flopkit.layers.attentions import Mask, window
from flopkit.layers.embeddings import rotary
from flopkit.models.branches.mixers import CORE, OUT, kept_by_core
from flopkit.models.branches.sparse import Indexer
from flopkit.models.caches import Rows, seen_rows
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.matrices import Matrix
from flopkit.models.stacks.parts import Part, Run, packed, part, placed
from flopkit.sizes import Size, check_fields
from flopkit.training.memory import Kept

__all__ = ["LatentAttention"]


@dataclass(frozen=True, kw_only=True)
class LatentAttention(Branch):
    """Multi-head latent attention (DeepSeek-V2 and V3): the cache holds one latent and
    one rope key a token. See `flopkit.mla`.

    Parameters
    ----------
    heads : Size
        Query heads.
    q_lora : Size, optional
        Size of the latent of queries. None: queries come directly.
    kv_lora, qk_nope, qk_rope, v_head_dim : Size
        As in `flopkit.mla`.
    selected : Size, optional
        How many tokens a query sees at most, chosen by an indexer. None: all that its
        mask allows. Training and prefill count expanded heads here, too, qk_nope +
        qk_rope + v_head_dim multiply-adds a chosen pair and head; a kernel that works on
        the chosen latents, as FlashMLA's in prefill, takes 2·kv_lora + qk_rope.
    indexer : Indexer, optional
        What chooses them. None beside *selected*: the choice of an earlier layer serves
        this one, too.
    turned : bool, optional
        Whether the *qk_rope* features are turned by their position (not in Kimi
        Linear).
    """

    heads: Size
    q_lora: Size | None = None
    kv_lora: Size
    qk_nope: Size
    qk_rope: Size
    v_head_dim: Size
    selected: Size | None = None
    indexer: Indexer | None = None
    turned: bool = True
    window: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.indexer is not None and (self.selected is None or self.q_lora is None):
            raise ValueError(
                f"indexer={self.indexer}: give selected=, the tokens that it chooses, and q_lora=, of which it makes queries"
            )

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache for a sequence of *context* tokens."""
        found = {"latent": context * self.kv_lora, "rope": context * self.qk_rope}
        return found if self.indexer is None else found | {"index": self.indexer.held(context)}

    def mask(self, run: Run) -> Mask:
        """Which token sees which. A query sees as many of those that are chosen for it
        as of a window of that width."""
        if not run.causal:
            return "full"
        return "causal" if self.selected is None else window(self.selected)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        costs = mla_parts(
            batch=run.batch, q=run.q, kv=run.kv, d_model=d_model, heads=self.heads, q_lora=self.q_lora, kv_lora=self.kv_lora,
            qk_nope=self.qk_nope, qk_rope=self.qk_rope, v_head_dim=self.v_head_dim, mask=self.mask(run),
            form="absorbed" if run.decode else "expanded", dtype=run.dtype,
        )  # fmt: skip
        known = self._known(run, d_model)
        if run.documents is not None:
            costs["attention"] = packed(costs["attention"], run, self.mask(run))
            turned = {"heads": self.heads + 1, "head_dim": self.qk_rope, "dtype": run.dtype}
            costs["rotary"] = placed(rotary, run, self.qk_rope, **turned)
        if not self.turned:
            del costs["rotary"]
        found: list[Part] = []
        for key, cost in costs.items():
            if key == "attention" and self.indexer is not None:
                found += self.indexer.parts(run, d_model, self.q_lora)
            found.append(part(key, cost, run.tokens, **known[key]))
        return found

    def _known(self, run: Run, d_model: Any) -> dict[MlaPart, dict[str, Any]]:
        """What `flopkit.mla` does not say of its parts: shapes, what each reads and
        makes, and how it is divided."""
        heads, rope = self.heads, self.qk_rope
        queries, key, value = heads * (self.qk_nope + rope), self.qk_nope + rope, self.v_head_dim
        rows = run.kv if self.selected is None else minimum(run.kv, run.q * self.selected)  # of the latents, read
        latents = run.batch * rows
        core = CORE | {"cache": latents * (self.kv_lora + rope), "flash_dim": key}
        core["cached"] = (("latent", latents * self.kv_lora), ("rope", latents * rope))
        if run.decode:  # on the latents themselves
            key, value = self.kv_lora + rope, self.kv_lora
            core["reads"] = ("queries", "latent")

        def product(
            matrix: Matrix, d_in: Any, d_out: Any, reads: str, makes: str | tuple[str, ...], split: str
        ) -> dict[str, Any]:
            made = (makes,) if isinstance(makes, str) else makes
            flow = {"reads": (reads,), "makes": made, "split": split, "formula": f"2·tokens·{d_in}·{d_out}"}
            return {"role": "product", "matrix": matrix, "shape": (d_in, d_out)} | flow

        def absorbed(features: Any) -> dict[str, Any]:
            """How a checkpoint stores it: as rows of the matrix behind the latent."""
            return {"matrices": ((self.kv_lora, heads * features),)}

        def norm(what: str) -> dict[str, Any]:
            return {"role": "norm", "reads": (what,), "makes": (what,)}

        return {
            "q_proj": product("q_proj", d_model, queries, "input", "queries", "column"),
            "q_down": product("q_down", d_model, self.q_lora, "input", "latent of queries", "none"),
            "q_norm": norm("latent of queries"),
            "q_up": product("q_up", self.q_lora, queries, "latent of queries", "queries", "column"),
            "kv_down": product("kv_down", d_model, self.kv_lora + rope, "input", "latent", "none"),
            "kv_norm": norm("latent"),
            "rotary": {"role": "rotary", "split": "inner"},
            "kv_up": product("kv_up", self.kv_lora, heads * (self.qk_nope + self.v_head_dim), "latent", ("keys", "values"), "column"),
            "key_absorb": product("key_absorb", heads * self.qk_nope, self.kv_lora, "queries", "queries", "inner") | absorbed(self.qk_nope),
            "attention": core | {"formula": f"2·pairs·{heads}·({key} + {value})"},
            "value_up": product("value_up", heads * self.kv_lora, self.v_head_dim, "heads", "heads", "inner") | absorbed(self.v_head_dim),
            "o_proj": product("o_proj", heads * self.v_head_dim, d_model, "heads", "output", "row") | OUT,
        }  # fmt: skip

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        tokens, dtype = run.tokens, run.dtype
        found: list[Kept] = []
        if self.q_lora is not None:
            found.append(
                Kept("latent of queries, its norm's input", nbytes(tokens * self.q_lora, dtype), split="tokens")
            )
            found.append(
                Kept(
                    "latent of queries",
                    nbytes(tokens * self.q_lora, dtype),
                    weights_of=("q_up",),
                    split="tokens",
                    tensor="latent",
                )
            )
        norms = 1 if self.q_lora is None else 2
        found += [
            Kept("latent of keys and values, its norm's input", nbytes(tokens * self.kv_lora, dtype), split="tokens"),
            Kept(
                "latent of keys and values",
                nbytes(tokens * self.kv_lora, dtype),
                weights_of=("kv_up",),
                split="tokens",
                tensor="latent",
            ),
            Kept("statistics of these norms", nbytes(norms * tokens, "fp32"), split="tokens"),
        ]
        head_dim = self.qk_nope + self.qk_rope
        return [*found, *kept_by_core(run, run.kv, self.heads, self.heads, head_dim, self.v_head_dim, kernel, dropout)]
