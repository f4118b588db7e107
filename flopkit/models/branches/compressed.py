"""Attention to a window and to compressed tokens (DeepSeek-V4): what makes one row of many, and what chooses among such rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flopkit.arithmetic import ceil_div, exact_div, is_zero, minimum, where
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.attentions import SCALE_FLOPS, visible_rows, window
from flopkit.layers.embeddings import rotary
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import SOFTMAX_FLOPS
from flopkit.models.caches import Rows, moved_rows, seen_rows
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.matrices import Matrix
from flopkit.models.stacks.parts import Part, Run, pairs_of, part, placed, project
from flopkit.sizes import Count, Size, check_fields, divides
from flopkit.training.memory import Kept

__all__ = ["CompressedAttention", "CompressedIndexer", "Compressor"]

_OWN: tuple[Matrix, Matrix] = ("compress_kv", "compress_gate")
_INDEX: tuple[Matrix, Matrix] = ("index_compress_kv", "index_compress_gate")
ROTARY_FLOPS = 3  # a feature that is turned: two multiplications and an addition


@dataclass(frozen=True, kw_only=True)
class Compressor:
    """What makes one row of keys and values of each *rate* tokens: their rows, weighted
    feature by feature by a softmax over the tokens, are summed, normed and turned.

    FLOPs: ``2·tokens·d_model·2·series·head_dim`` in two dense layers, which make rows
    and weights; the rest is element by element. Tokens that fill no window yet wait in
    the cache.

    Parameters
    ----------
    rate : Size
        Tokens of a window, which become one row.
    series : Size, optional
        2: each token has two rows, one for its own window and one for the next, so that
        a row is made of two windows (compressed sparse attention); 1: of one (heavily
        compressed attention).

    References
    ----------
    DeepSeek-AI 2026, DeepSeek-V4, sections 2.3.1 and 2.3.2, eq. 9–12 and 20–23.
    """

    rate: Size
    series: Size = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def rows(self, tokens: Any) -> Any:
        """Rows that the first *tokens* become: those of full windows.

        >>> Compressor(rate=4).rows(11)
        2
        """
        return ceil_div(tokens - self.rate + 1, self.rate)

    def pairs(self, q: Any, kv: Any, most: Any = None) -> Any:
        """Pairs of a query, of the last *q* of *kv*, and a row that it sees: those of
        windows that end at its own place or before, *most* of them at most.

        >>> Compressor(rate=4).pairs(9, 9), Compressor(rate=4).pairs(9, 9, most=1)
        (8, 6)
        """
        return self._seen(kv, most) - self._seen(kv - q, most)

    def _seen(self, tokens: Any, most: Any) -> Any:
        early = tokens if most is None else minimum(tokens, self.rate * most)
        rows = self.rows(early)
        found = exact_div(self.rate * rows * (rows - 1), 2) + rows * (early - self.rate * rows + 1)
        return found if most is None else found + most * (tokens - early)

    def held(self, context: Any, head_dim: Any) -> Any:
        """Numbers in the cache after *context* tokens: the rows; row and weights of each
        token that waits; and of two series those of the last full window, for the next
        one."""
        return self.rows(context) * head_dim + self._waiting(context, head_dim)

    def _waiting(self, context: Any, head_dim: Any) -> Any:
        rows = self.rows(context)
        last = where(rows > 0, (self.series - 1) * self.rate * 2 * head_dim, 0)
        return (context - self.rate * rows) * 2 * self.series * head_dim + last

    def parts(
        self, run: Run, d_model: Any, head_dim: Any, turned: Any, index: bool = False, **fields: Any
    ) -> list[Part]:
        """Its parts. *turned*: features of a row that are turned by its position; *index*: whether an indexer reads the rows."""
        wide = self.series * head_dim
        kv, gate = _INDEX if index else _OWN
        read: dict[str, Any] = {"reads": ("input",), "makes": ("uncompressed",)} | fields
        return [
            project(kv, run, d_model, wide, **read),
            project(gate, run, d_model, wide, **read),
            self._pooled("index_compress" if index else "compress", run, head_dim, turned, **fields),
        ]

    def _pooled(self, name: str, run: Run, head_dim: Any, turned: Any, **fields: Any) -> Part:
        if run.documents is not None:
            raise ValueError(
                "lengths= beside compressed attention: documents whose windows begin anew are not known here; give seq="
            )
        before = run.kv - run.q
        rows, earlier = self.rows(run.kv), self.rows(before)
        made = run.batch * (rows - earlier)
        # each feature of a row is made of the tokens of one or two windows; nothing is before the very first one
        first = where(earlier > 0, 0, where(rows > 0, run.batch, 0))
        weighed = (made * self.series - first * (self.series - 1)) * self.rate * head_dim
        normed = rms_norm(tokens=1, d=head_dim, dtype=run.dtype)
        vectors = {kind: made * count for kind, count in normed.vector_by_kind.items()}
        own = weighed * (1 + SOFTMAX_FLOPS + 2) + made * turned * ROTARY_FLOPS  # bias; softmax; weigh and sum
        vectors["elementwise"] = vectors.get("elementwise", 0) + own
        position = self.rate * self.series * head_dim
        cost = Cost(
            name,
            vector_by_kind=vectors,
            bytes=nbytes(2 * weighed + made * head_dim + position + head_dim, run.dtype),
            params_by_role={"position": position, "norm": head_dim},
        )
        waits, waited = self._waiting(run.kv, head_dim), self._waiting(before, head_dim)
        moved = where(rows - earlier > 0, waits + waited, run.q * 2 * self.series * head_dim)
        flow: dict[str, Any] = {"reads": ("uncompressed",), "makes": ("keys", "values")} | fields
        return part(name, cost, run.tokens, cache=run.batch * moved, **flow)


@dataclass(frozen=True, kw_only=True)
class CompressedIndexer:
    """A lightning indexer over compressed rows (DeepSeek-V4): a narrow compressor makes
    its keys, a few heads score each that a query may see, and the query attends to the
    best of the rows.

    FLOPs: ``2·tokens·(q_lora·heads·head_dim + d_model·heads)`` in two dense layers,
    those of its compressor, and ``2·batch·pairs·heads·head_dim`` for the scores. ReLU
    and the weighted sum over the heads are element by element.

    Parameters
    ----------
    heads, head_dim : Size
        Its heads, and the features of each; one key serves all heads.
    selected : Size
        How many rows a query sees at most.

    Notes
    -----
    Not counted: the choice of the best (comparisons), the Hadamard transform of the
    published kernel, scales of fp8 and fp4. Its backward pass: the choice has no
    gradient; it learns by a loss of its own.

    References
    ----------
    DeepSeek-AI 2026, DeepSeek-V4, section 2.3.1, eq. 13–17.
    """

    heads: Size
    head_dim: Size
    selected: Size

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self, run: Run, d_model: Any, q_lora: Any, turned: Any, compressor: Compressor) -> list[Part]:
        """Its parts. *q_lora*: features of what its queries are made of; *compressor*:
        that of the layer, whose windows it shares."""
        heads, head_dim = self.heads, self.head_dim
        alone: dict[str, Any] = {"detached": True}
        found = compressor.parts(run, d_model, head_dim, turned, index=True, **alone)
        found.append(project("index_q", run, q_lora, heads * head_dim, reads=("latent of queries",), **alone))
        if not is_zero(turned):
            cost = placed(rotary, run, turned, heads=heads, head_dim=turned, dtype=run.dtype)
            found.append(part("index_rotary", cost, run.tokens, role="rotary", **alone))
        found.append(project("index_weights", run, d_model, heads, role="router", reads=("input",), **alone))
        rows = compressor.rows(run.kv)
        visible = run.batch * compressor.pairs(run.q, run.kv)
        hidden = run.batch * run.q * rows - visible
        each = heads * head_dim
        cost = Cost(
            "index_scores",
            macs_by_kind={"index": visible * each, "hidden_index": hidden * each},
            vector_by_kind={"elementwise": visible * heads * 3},
            bytes=nbytes(run.tokens * each + run.tokens * heads + run.batch * rows * head_dim, run.dtype),
        )
        return [*found, Part(cost, cache=run.batch * rows * head_dim, formula=f"2·pairs·{heads}·{head_dim}", **alone)]


@dataclass(frozen=True, kw_only=True)
class CompressedAttention(Branch):
    """Attention of many query heads over one row a token, which is key and value, in a
    window, and over compressed rows of all tokens before (DeepSeek-V4).

    FLOPs: ``2·batch·pairs·heads·2·head_dim`` for scores and values, where *pairs* are
    those of the window and those of the compressed rows; ``2·tokens·…`` in the dense
    layers: queries by a latent of *q_lora*, keys, and the output in *groups* of heads,
    each brought to *o_lora* features, and all of these to d_model.

    Parameters
    ----------
    heads, head_dim : Size
        Query heads, and features of a head, which are those of a row.
    q_lora : Size
        Size of the latent of queries.
    groups, o_lora : Size
        Groups of heads in the output's projection, and features of each.
    window : Size
        How many tokens a query sees uncompressed, itself included.
    rotary : Count, optional
        Features of a head that are turned by their position, and turned back in the
        output.
    compressor : Compressor, optional
        What makes the compressed rows. None: the window is all.
    indexer : CompressedIndexer, optional
        What chooses among them (compressed sparse attention). None: a query sees all
        that lie before it (heavily compressed attention).

    Notes
    -----
    Not counted: what `CompressedIndexer` leaves out.

    References
    ----------
    DeepSeek-AI 2026, DeepSeek-V4, section 2.3.
    """

    heads: Size
    head_dim: Size
    q_lora: Size
    groups: Size
    o_lora: Size
    window: Size
    rotary: Count = 0
    compressor: Compressor | None = None
    indexer: CompressedIndexer | None = None
    kv_heads: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        divides("groups", self.groups, "heads", self.heads)
        if self.indexer is not None and self.compressor is None:
            raise ValueError(f"indexer={self.indexer}: give compressor=, which makes the rows that it chooses from")

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache for a sequence of *context* tokens: the rows of the
        window, compressed rows, the indexer's, and what waits for full windows."""
        found = rows(context, self.window) * self.head_dim
        if self.compressor is not None:
            found = found + self.compressor.held(context, self.head_dim)
            if self.indexer is not None:
                found = found + self.compressor.held(context, self.indexer.head_dim)
        return {"rest": found}

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        if not run.causal:
            raise ValueError("causal=False beside compressed attention: it is known here only where text is causal")
        heads, head_dim, tokens = self.heads, self.head_dim, run.tokens
        inner = exact_div(heads * head_dim, self.groups)
        latent, queries, rows = ("latent of queries",), ("queries",), ("keys", "values")

        def norm(name: str, n: Any, d: Any, what: tuple[str, ...], weight: bool = True) -> Part:
            cost = rms_norm(tokens=n, d=d, weight=weight, dtype=run.dtype)
            divided: dict[str, Any] = {"split": "inner"} if what == queries else {}
            return part(name, cost, tokens, role="norm", reads=what, makes=what, **divided)

        found = [
            project("q_down", run, d_model, self.q_lora, reads=("input",), makes=latent),
            norm("q_norm", tokens, self.q_lora, latent),
            project("q_up", run, self.q_lora, heads * head_dim, reads=latent, makes=queries, split="column"),
            norm("q_head_norm", tokens * heads, head_dim, queries, weight=False),
            project("kv_proj", run, d_model, head_dim, reads=("input",), makes=rows),
            norm("kv_norm", tokens, head_dim, rows),
        ]
        found += self._turned("rotary", run, heads + 1)
        if self.compressor is not None:
            found += self.compressor.parts(run, d_model, head_dim, self.rotary)
            if self.indexer is not None:
                found += self.indexer.parts(run, d_model, self.q_lora, self.rotary, self.compressor)
        found.append(self._core(run))
        found += self._turned("rotary_back", run, heads)
        down: dict[str, Any] = {"reads": ("heads",), "makes": ("latent of heads",), "split": "inner"}
        out: dict[str, Any] = {"reads": ("latent of heads",), "makes": ("output",), "split": "row", "unread": True}
        wide = self.groups * self.o_lora
        return [
            *found,
            project("o_down", run, inner, wide, **down),
            project("o_proj", run, wide, d_model, **out),
        ]

    def _turned(self, name: str, run: Run, heads: Any) -> list[Part]:
        if is_zero(self.rotary):
            return []
        cost = placed(rotary, run, self.rotary, heads=heads, head_dim=self.rotary, dtype=run.dtype)
        return [part(name, cost, run.tokens, role="rotary", split="inner")]

    def _core(self, run: Run) -> Part:
        heads, head_dim, near = self.heads, self.head_dim, window(self.window)
        visible, positions = pairs_of(run, near)
        alone = run.documents is None
        rows = visible_rows(run.q, run.kv, near) if alone else run.kv
        kept = moved_rows(run.q, run.kv, near, self.window) if alone else minimum(run.kv, self.window)
        if self.compressor is not None:
            most = None if self.indexer is None else self.indexer.selected
            far = self.compressor.rows(run.kv)
            visible = visible + run.batch * self.compressor.pairs(run.q, run.kv, most)
            positions = positions + run.batch * run.q * far
            seen = far if most is None else minimum(far, run.q * most)
            rows, kept = rows + seen, kept + seen
        each, hidden = heads * 2 * head_dim, positions - visible
        work = heads * (SCALE_FLOPS + SOFTMAX_FLOPS)
        cost = Cost(
            "attention",
            macs_by_kind={"scores": visible * each, "hidden": hidden * each},
            vector_by_kind={"softmax": visible * work, "hidden_softmax": hidden * work},
            bytes=nbytes(2 * run.tokens * heads * head_dim + run.batch * rows * head_dim, run.dtype),
        )
        fields: dict[str, Any] = {"role": "core", "reads": ("queries", "keys", "values"), "makes": ("heads",)}
        fields |= {"split": "inner", "formula": f"2·pairs·{heads}·2·{head_dim}", "flash_dim": head_dim}
        return part(
            "attention", replace(cost, params_by_role={"bias": heads}), run.tokens, cache=run.batch * kept * head_dim, **fields
        )  # fmt: skip

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        raise ValueError(
            "what the backward pass of compressed attention keeps is not known here; train_step counts its FLOPs"
        )
