"""Sparse attention that chooses its tokens: the indexer of DeepSeek-V3.2, whose scores say which tokens a query sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.embeddings import rotary
from flopkit.layers.normalisations import layer_norm
from flopkit.models.stacks.parts import Part, Run, pairs_of, part, placed, project
from flopkit.sizes import Size, check_fields

__all__ = ["Indexer"]


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """A lightning indexer (DeepSeek-V3.2): a few narrow heads score every token that a
    query may see, and the query attends to the best of them.

    FLOPs: ``2·tokens·(q_lora·heads·head_dim + d_model·(head_dim + heads))`` in its
    three dense layers, and ``2·batch·pairs·heads·(head_dim + 1)`` for the scores: a dot
    product a head, ReLU, and the sum over the heads by weights that the query makes.
    *pairs* are all that the mask lets through: choosing is quadratic in the length,
    only what is chosen is not.

    Parameters
    ----------
    heads, head_dim : Size
        Its heads, and the features of each; one key serves all heads.
    rotary : Size
        Features of a head that are turned by their position.

    Notes
    -----
    Not counted: the choice of the best (comparisons), the Hadamard transform of the
    published kernel, fp8 scales. Its backward pass: it learns by a loss of its own,
    apart from the model's, and transformers runs it without gradients.

    References
    ----------
    DeepSeek-AI 2025, DeepSeek-V3.2-Exp, section 2.1, eq. 1; DeepSeek-V3.2,
    arXiv:2512.02556.
    """

    heads: Size
    head_dim: Size
    rotary: Size

    def __post_init__(self) -> None:
        check_fields(self)

    def held(self, context: Any) -> Any:
        """Numbers in the cache for a sequence of *context* tokens: a key each."""
        return context * self.head_dim

    def parts(self, run: Run, d_model: Any, q_lora: Any) -> list[Part]:
        """Its parts in the order in which they run. *q_lora*: features of what its
        queries are made of."""
        tokens, heads, head_dim = run.tokens, self.heads, self.head_dim
        alone: dict[str, Any] = {"detached": True}
        norm = layer_norm(tokens=tokens, d=head_dim, dtype=run.dtype)
        turned = placed(rotary, run, self.rotary, heads=heads + 1, head_dim=self.rotary, dtype=run.dtype)
        return [
            project("index_q", run, q_lora, heads * head_dim, reads=("latent of queries",), **alone),
            project("index_k", run, d_model, head_dim, reads=("input",), **alone),
            part("index_k_norm", norm, tokens, role="norm", **alone),
            part("index_rotary", turned, tokens, role="rotary", **alone),
            project("index_weights", run, d_model, heads, role="router", reads=("input",), **alone),
            self._scores(run),
        ]

    def _scores(self, run: Run) -> Part:
        visible, positions = pairs_of(run, "causal" if run.causal else "full")
        hidden = positions - visible
        each = self.heads * (self.head_dim + 1)
        moved = run.tokens * each + run.batch * run.kv * self.head_dim
        cost = Cost(
            "index_scores",
            macs_by_kind={"index": visible * each, "hidden_index": hidden * each},
            vector_by_kind={"elementwise": visible * self.heads},
            bytes=nbytes(moved, run.dtype),
        )
        formula = f"2·pairs·{self.heads}·({self.head_dim} + 1)"
        keys = run.batch * self.held(run.kv)
        return Part(cost, cache=keys, cached=(("index", keys),), formula=formula, detached=True)
