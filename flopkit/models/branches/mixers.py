"""The parts of a layer in which tokens meet: self-attention with its heads and masks,
and cross-attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flopkit.arithmetic import is_zero, total
from flopkit.dtypes import nbytes
from flopkit.layers.attentions import Mask, around, attention, chunks, window
from flopkit.layers.embeddings import rotary
from flopkit.layers.normalisations import layer_norm, rms_norm
from flopkit.layers.pointwise import activation
from flopkit.models.caches import Rows, moved_rows, seen_rows
from flopkit.models.stacks.blocks import MASK, Branch
from flopkit.models.stacks.matrices import Matrix
from flopkit.models.stacks.parts import Part, Run, packed, part, placed, project
from flopkit.sizes import Count, Flag, Size, check_fields, choice, divides, size
from flopkit.training.memory import Kept

__all__ = ["CORE", "OUT", "Attention", "kept_by_core"]

_KEYS_VALUES: tuple[Matrix, ...] = ("k_proj", "v_proj")

# What attention's core reads and makes, however its queries, keys and values came about.
CORE: dict[str, Any] = {"role": "core", "reads": ("queries", "keys", "values"), "makes": ("heads",), "split": "inner"}
OUT: dict[str, Any] = {"reads": ("heads",), "makes": ("output",), "split": "row", "unread": True}


@dataclass(frozen=True, kw_only=True)
class Attention(Branch):
    """Attention of *heads* query heads over *kv_heads* heads of keys and values: MHA,
    GQA or MQA, whole or in a window.

    Parameters
    ----------
    heads, kv_heads, head_dim : Size
        Query heads, heads of keys and values, features of each.
    window : Size, optional
        How many tokens a query sees, itself included. None: all that its mask allows.
    chunk : Size, optional
        Tokens of a chunk, inside which a query sees those before it (Llama 4). None:
        the sequence is not divided.
    reach : Count, optional
        How many tokens a query sees on either side of itself, where those after it are
        not hidden (ModernBERT's local layers). None: all.
    v_head_dim : Size, optional
        Features of a head of values (MiMo-V2). None: as many.
    rotary : Any, optional
        Features of a head that are turned by their position. None: all; 0: none.
    qkv_bias, out_bias : Flag, optional
        Whether the projections add a bias.
    k_bias : bool, optional
        Whether the keys' does, too, where *qkv_bias* is set (not in Whisper).
    qk_norm : str, optional
        ``""``; ``"head"``: an RMS norm of each head's queries and keys, with one weight
        for all heads; ``"whole"``: one over all heads together; ``"plain"``: one of
        each head without weights (Llama 4); ``"layer"``: a layer norm of each head, with
        one weight and one bias for all (Phi, Persimmon); ``"heads"``: one of each head
        with a weight of its own and no bias (Command R+, StableLM 2 12B).
    sinks : Flag, optional
        Whether each head has a learned sink in its softmax.
    gate : Flag, optional
        Whether the queries' projection makes a gate of the same width, which multiplies
        the output of the heads.
    position_buckets : Count, optional
        Rows of a learned table of biases, one a head, that are added to the scores by
        distance (T5).
    position_keys : Flag, optional
        Whether a matrix makes keys of relative positions, as in Transformer-XL (Gopher,
        Chinchilla). Its parameters count; what it does does not: the product with the
        table of positions, once for all sequences, and the queries' products with these
        keys.
    cross : bool, optional
        Whether keys and values come from an encoder's output.
    values : str, optional
        ``"own"``: by a projection; ``"keys"``: the keys before their norm are the
        values, too (Gemma 4).
    v_norm : bool, optional
        Whether a norm without weights follows the values (Gemma 4).
    reused : bool, optional
        Whether keys and values, and the cache, are those of an earlier layer (Gemma 3n
        and 4).
    """

    heads: Size
    kv_heads: Size
    head_dim: Size
    window: Size | None = None
    chunk: Size | None = None
    reach: Count | None = None
    v_head_dim: Size | None = None
    rotary: Any = None
    qkv_bias: Flag = False
    out_bias: Flag = False
    k_bias: bool = True
    qk_norm: str = ""
    sinks: Flag = False
    gate: Flag = False
    position_buckets: Count = 0
    position_keys: Flag = False
    cross: bool = False
    values: str = "own"
    v_norm: bool = False
    reused: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        choice("values", self.values, ("own", "keys"))
        turned = self.head_dim if self.rotary is None else self.rotary
        object.__setattr__(self, "rotary", size("rotary", turned, minimum=0))
        choice("qk_norm", self.qk_norm, ("", "head", "whole", "plain", "layer", "heads"))
        widths = {"window": self.window, "chunk": self.chunk, "reach": self.reach}
        said = [f"{name}={width}" for name, width in widths.items() if width is not None]
        if len(said) > 1:
            raise ValueError(f"{' beside '.join(said)}: give one of them")
        divides("kv_heads", self.kv_heads, "heads", self.heads)

    def mask(self, run: Run) -> Mask:
        """Which token sees which, in this layer."""
        if self.cross:
            return "full"
        if not run.causal:
            return "full" if self.reach is None else around(self.reach)
        if self.chunk is not None:
            return chunks(self.chunk)
        before = self.window if self.reach is None else self.reach + 1
        return "causal" if before is None else window(before)

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache for a sequence of *context* tokens: keys and values of
        those that are still seen, at most a window or a chunk of them."""
        return {} if self.reused else dict(self._of(rows(context, self._most)))

    @property
    def _most(self) -> Any:
        """How many tokens the cache keeps at most; None: all, as of an encoder's output."""
        widest = (self.window, self.chunk, None if self.reach is None else self.reach + 1)
        return None if self.cross else next((each for each in widest if each is not None), None)

    def _of(self, tokens: Any) -> tuple[tuple[str, Any], ...]:
        """Keys and values of so many tokens."""
        heads = tokens * self.kv_heads
        return ("keys", heads * self.head_dim), ("values", heads * self.of_values)

    @property
    def of_values(self) -> Any:
        """Features of a head of values."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    def handed_on(self, run: Run) -> Any:
        """Bytes of the biases of scores that one layer makes from its table for all
        others (T5)."""
        return 0 if is_zero(self.position_buckets) else nbytes(self.heads * run.q * run.kv, run.dtype)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        heads, kv_heads, head_dim, v_head_dim = self.heads, self.kv_heads, self.head_dim, self.of_values
        kv = run.encoded if self.cross else run.kv
        # tokens that get keys and values here
        fresh = run.tokens if not self.cross else run.batch * run.encoded if run.encodes else 0
        fresh = 0 if self.reused else fresh
        source = ("encoded",) if self.cross else ("input",)
        gate = () if is_zero(self.gate) else ("gate",)
        made: dict[str, Any] = {"reads": ("input",), "makes": ("queries", *gate), "split": "column"}
        found = [project("q_proj", run, d_model, heads * (head_dim + self.gate * v_head_dim), self.qkv_bias, **made)]
        both = _KEYS_VALUES if self.values == "own" else _KEYS_VALUES[:1]
        for matrix, what, wide in zip(both, ("keys", "values"), (head_dim, v_head_dim), strict=False):
            if not is_zero(fresh):
                makes = (what,) if self.values == "own" else ("keys", "values")
                made = {"tokens": fresh if self.cross else None, "reads": source, "makes": makes, "split": "column"}
                bias = self.qkv_bias if self.k_bias or what == "values" else 0
                found.append(project(matrix, run, d_model, kv_heads * wide, bias, **made))
        found += self._normed(run, fresh)
        if not is_zero(self.rotary):
            turned_heads = heads if self.reused else heads + kv_heads
            turned = placed(rotary, run, self.rotary, heads=turned_heads, head_dim=self.rotary, dtype=run.dtype)
            found.append(part("rotary", turned, run.tokens, role="rotary", split="inner"))
        mask = self.mask(run)
        core = attention(
            batch=run.batch, q=run.q, kv=kv, heads=heads, kv_heads=kv_heads, head_dim=head_dim, v_head_dim=v_head_dim,
            mask=mask, dtype=run.dtype,
        )  # fmt: skip
        core = packed(core, run, mask)
        extra: dict[str, Any] = {}
        if not is_zero(self.sinks):
            extra["bias"] = self.sinks * heads
        if not is_zero(self.position_buckets):
            extra["position"] = self.position_buckets * heads
        if not is_zero(self.position_keys):
            extra["position"] = extra.get("position", 0) + self.position_keys * d_model * heads * head_dim
        if extra:
            core = replace(core, params_by_role=extra)
        seen = "batch·q·kv" if mask == "full" and run.documents is None else "pairs"
        moves = run.causal and not self.cross and run.documents is None
        cached = self._of(run.batch * (moved_rows(run.q, kv, mask, self._most) if moves else seen_rows(kv, self._most)))
        cache = total(numbers for _, numbers in cached)
        formula = f"2·{seen}·{heads}·" + (
            f"2·{head_dim}" if self.v_head_dim is None else f"({head_dim} + {v_head_dim})"
        )
        there = CORE | ({"reads": ("queries",)} if self.reused else {})  # keys and values are there already
        found.append(
            part(
                "attention", core, run.tokens, cache=cache, cached=cached, formula=formula, flash_dim=head_dim, **there
            )
        )
        if gate:
            gated = activation("sigmoid", elements=self.gate * run.tokens * heads * v_head_dim, dtype=run.dtype)
            gates: dict[str, Any] = {"reads": ("gate", "heads"), "makes": ("heads",), "split": "inner"}
            found.append(part("gate", gated, run.tokens, **gates))
        return [*found, project("o_proj", run, heads * v_head_dim, d_model, self.out_bias, **OUT)]

    def _normed(self, run: Run, fresh: Any) -> list[Part]:
        """The norms of queries and keys, where there are any."""
        found: list[Part] = []
        of_each = self.qk_norm != "whole"
        rows = (
            (("q_norm", "queries", run.tokens, self.heads), ("k_norm", "keys", fresh, self.kv_heads))
            if self.qk_norm
            else ()
        )
        for name, what, tokens, heads in rows:
            if is_zero(tokens):
                continue
            n, d = (tokens * heads, self.head_dim) if of_each else (tokens, heads * self.head_dim)
            if self.qk_norm == "heads":
                cost = layer_norm(tokens=tokens, d=d, bias=False, dtype=run.dtype) * heads
            elif self.qk_norm == "layer":
                cost = layer_norm(tokens=n, d=d, dtype=run.dtype)
            else:
                cost = rms_norm(tokens=n, d=d, weight=self.qk_norm != "plain", dtype=run.dtype)
            split = "inner" if self.qk_norm in ("whole", "heads") else "shared"
            of_all = run.tokens if self.cross else None
            found.append(
                part(name, cost, tokens, tokens=of_all, role="norm", reads=(what,), makes=(what,), split=split)
            )
        if self.v_norm and not is_zero(fresh):
            plain = rms_norm(tokens=fresh * self.kv_heads, d=self.of_values, weight=False, dtype=run.dtype)
            found.append(part("v_norm", plain, fresh, role="norm", reads=("values",), makes=("values",), split="inner"))
        return found

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        if self.reused or self.v_norm or self.values != "own":
            raise ValueError(
                "what the backward pass of values made of keys, normed or shared with another layer keeps is not known here"
            )
        if kernel == "flash" and not is_zero(self.position_buckets):
            raise ValueError(
                "kernel='flash': what such a kernel keeps of learned biases that are added to the scores (T5) is not known here; give kernel='math'"
            )
        kv = run.encoded if self.cross else run.kv
        tokens, seen = run.tokens, run.batch * kv
        queries, keys = tokens * self.heads, seen * self.kv_heads
        found: list[Kept] = []
        if self.qk_norm:
            found.append(Kept("norms of queries and keys, inputs", nbytes((queries + keys) * self.head_dim, run.dtype)))
            rows = tokens + seen if self.qk_norm == "whole" else queries + keys
            rows = 2 * rows if self.qk_norm in ("layer", "heads") else rows  # a mean, too
            found.append(Kept("norms of queries and keys, statistics", nbytes(rows, "fp32")))
        found += kept_by_core(run, kv, self.heads, self.kv_heads, self.head_dim, self.of_values, kernel, dropout)
        if not is_zero(self.gate):
            found.append(Kept("gate and gated output", nbytes(self.gate * 2 * queries * self.of_values, run.dtype)))
        return found


def kept_by_core(
    run: Run, kv: Any, heads: Any, kv_heads: Any, head_dim: Any, v_head_dim: Any, kernel: str, dropout: bool
) -> list[Kept]:
    """What the core of attention keeps, its operands and its output among them."""
    tokens, seen, dtype = run.tokens, run.batch * kv, run.dtype
    found = [
        Kept("queries", nbytes(tokens * heads * head_dim, dtype), tensor="queries"),
        Kept("keys", nbytes(seen * kv_heads * head_dim, dtype), tensor="keys"),
        Kept("values", nbytes(seen * kv_heads * v_head_dim, dtype), tensor="values"),
    ]
    if kernel == "flash":
        found.append(Kept("log-sums of the scores", nbytes(tokens * heads, "fp32"), core=True))
    else:
        pairs = run.batch * heads * run.q * kv
        found.append(Kept("softmax of the scores", nbytes(pairs, dtype), core=True))
        if dropout:
            found.append(Kept("scores, dropout mask", MASK * pairs, core=True))
            found.append(Kept("scores after dropout", nbytes(pairs, dtype), core=True))
    return [*found, Kept("output of the heads", nbytes(tokens * heads * v_head_dim, dtype), tensor="heads")]
