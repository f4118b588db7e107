"""Attention to blocks of keys that an indexer chooses: MiniMax-M3."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flopkit.arithmetic import ceil_div, exact_div, minimum
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.embeddings import rotary
from flopkit.layers.normalisations import rms_norm
from flopkit.models.branches.mixers import Attention
from flopkit.models.caches import Rows, seen_rows
from flopkit.models.stacks.parts import Part, Run, pairs_of, part, placed, project
from flopkit.sizes import Size
from flopkit.training.memory import Kept

__all__ = ["BlockSparseAttention"]


@dataclass(frozen=True, kw_only=True)
class BlockSparseAttention(Attention):
    """Attention in which a query sees the keys of a few blocks: its own, up to itself, and the best others before it, as an
    indexer's scores have it (MiniMax-M3).

    FLOPs beside those of `Attention`, whose pairs are those of the blocks: ``2·tokens·d_model·index_dim·(index_heads + 1)``
    in two dense layers, and ``2·batch·pairs·index_heads·index_dim`` for scores of all keys before a query: choosing is
    quadratic in the length. The best score of a block is a comparison a key and head.

    The other parameters are those of `Attention`.

    Parameters
    ----------
    index_heads, index_dim : Size
        Heads of the indexer, each of which chooses for as many heads of keys, and the features of each.
    block : Size
        Keys of a block.
    chosen : Size
        Blocks that a query sees at most, its own among them.

    References
    ----------
    transformers 5.23, ``MiniMaxM3VLIndexer``.

    Examples
    --------
    >>> sparse = BlockSparseAttention(heads=4, kv_heads=2, head_dim=16, index_heads=2, index_dim=8, block=4, chosen=2)
    >>> [sparse.seen(length + 1) - sparse.seen(length) for length in (0, 7, 8, 11)]  # keys that a query sees
    [1, 8, 5, 8]
    """

    index_heads: Size
    index_dim: Size
    block: Size
    chosen: Size

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache: keys, values, and the indexer's key of each token."""
        return super().cached(context, rows) | {"index": context * self.index_dim}

    def seen(self, tokens: Any) -> Any:
        """Pairs of a query and a key among the first *tokens* of a text."""
        width, others = self.block, self.chosen - 1
        whole = ceil_div(tokens - width + 1, width)  # blocks that are full, in every reading
        rest = tokens - whole * width
        own = whole * exact_div(width * (width + 1), 2) + exact_div(rest * (rest + 1), 2)
        few = minimum(whole, others)  # blocks with fewer before them than are chosen
        before = exact_div(few * (few - 1), 2) + others * (whole - few)
        return own + width * (width * before + rest * few)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        if not run.causal or run.documents is not None:
            raise ValueError(
                "blocks of keys that an indexer chooses are described here only for one causal text in each sequence"
            )
        found = super().parts(run, d_model)
        place = next(i for i, each in enumerate(found) if each.role == "core")
        found[place] = self._core(found[place], run)
        found[place:place] = self._indexer(run, d_model)
        return found

    def _core(self, core: Part, run: Run) -> Part:
        visible, positions = pairs_of(run, "causal")
        seen = run.batch * (self.seen(run.kv) - self.seen(run.kv - run.q))
        macs, vector = core.cost.macs_by_kind, core.cost.vector_by_kind

        def split(kinds: Any, name: str, rest: str) -> dict[str, Any]:
            each = exact_div(kinds[name], visible)
            return {name: each * seen, rest: each * (positions - seen)}

        rows = run.batch * (run.kv - minimum(run.kv, run.q * self.chosen * self.block)) * self.kv_heads
        unread = rows * 2 * self.head_dim
        cost = replace(
            core.cost, macs_by_kind=split(macs, "scores", "hidden"), vector_by_kind=split(vector, "softmax", "hidden_softmax"),
            bytes=core.cost.bytes - nbytes(unread, run.dtype),
        )  # fmt: skip
        flow: dict[str, Any] = {"role": "core", "reads": core.reads, "makes": core.makes, "split": core.split}
        return part(
            core.cost.name,
            cost,
            run.tokens,
            cache=core.cache - unread,
            cached=tuple((role, numbers - rows * self.head_dim) for role, numbers in core.cached),
            formula=core.formula,
            flash_dim=self.head_dim,
            **flow,
        )

    def _indexer(self, run: Run, d_model: Any) -> list[Part]:
        tokens, heads, dim = run.tokens, self.index_heads, self.index_dim
        keys = run.batch * run.kv * dim
        visible, positions = pairs_of(run, "causal")
        each = heads * dim
        width = minimum(self.rotary, dim)
        turned = placed(rotary, run, width, heads=heads + 1, head_dim=width, dtype=run.dtype)
        scores = Cost(
            "index_scores", macs_by_kind={"index": visible * each, "hidden_index": (positions - visible) * each},
            vector_by_kind={"elementwise": visible * heads}, bytes=nbytes(tokens * each + run.batch * run.kv * dim, run.dtype),
        )  # fmt: skip
        alone: dict[str, Any] = {"detached": True}
        return [
            project("index_q", run, d_model, each, reads=("input",), **alone),
            project("index_k", run, d_model, dim, reads=("input",), **alone),
            part("index_q_norm", rms_norm(tokens=tokens * heads, d=dim, dtype=run.dtype), tokens, role="norm", **alone),
            part("index_k_norm", rms_norm(tokens=tokens, d=dim, dtype=run.dtype), tokens, role="norm", **alone),
            part("index_rotary", turned, tokens, role="rotary", **alone),
            Part(scores, cache=keys, cached=(("index", keys),), formula=f"2·pairs·{heads}·{dim}", **alone),
        ]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        raise ValueError(
            "what the backward pass of attention to chosen blocks keeps is not known here; train_step counts its FLOPs"
        )
