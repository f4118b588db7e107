"""A residual stream in several copies, which each branch reads and writes by weights of its own: hyper-connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import ACTIVATIONS, SOFTMAX_FLOPS, vector_work
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.parts import BranchName, Part, Run, dense_part, part
from flopkit.sizes import Size, check_fields

__all__ = ["HyperConnections"]

WEIGHTS = "weights of the streams"
_SIGMOID = ACTIVATIONS["sigmoid"].flops


@dataclass(frozen=True, kw_only=True)
class HyperConnections:
    """Hyper-connections on a manifold (mHC, DeepSeek-V4): the residual stream is *count*
    streams. Before a branch they are summed to its input, and behind it mixed, and its
    output is added to each, all by weights that a dense layer makes of the streams.

    FLOPs of a branch: ``2·tokens·count·d_model·(count² + 2·count)`` for the weights, and
    ``2·tokens·count²·d_model`` to mix the streams. After the last layer
    ``2·tokens·count²·d_model`` for the weights by which the streams become one.

    Parameters
    ----------
    count : Size
        Streams.
    iterations : Size
        Iterations of Sinkhorn and Knopp, which make each row and each column of the
        matrix that mixes sum to one. They are element by element.

    Notes
    -----
    Not counted: the copies that the embedding becomes. Summing the streams and adding
    the output to them are element by element, as in the published code.

    References
    ----------
    Xie et al. 2026 (mHC); DeepSeek-AI 2026, DeepSeek-V4, section 2.2.
    """

    count: Size
    iterations: Size

    def __post_init__(self) -> None:
        check_fields(self)

    reads = ("input",)  # what the norm before a branch reads

    def refuse(self, block: Block) -> None:
        """Layers that are not described with it."""
        if block.norms != "pre" or block.last is not None:
            raise ValueError("several streams: layers are described here only with norms='pre' and without last=")

    def begun(self, run: Run, d_model: Any) -> list[Part]:
        """What makes the streams of the embedding: copies, which do not count."""
        return []

    def before(self, name: BranchName, run: Run, d_model: Any) -> list[Part]:
        """What makes the weights of a branch, and its input."""
        n = self.count
        weights = (2 + n) * n
        # scale and base of each; of n to sum by and n to add by, sigmoids; of n·n to mix by, a softmax
        each = 2 * weights + 2 * n * _SIGMOID + n + (SOFTMAX_FLOPS + 1) * n * n
        # each iteration divides rows and columns by their sums, the first one columns alone, after the softmax
        each = each + (2 * self.iterations - 1) * (2 * n * n + n)
        found = self._made(f"{name}_streams", run, d_model, weights, 3, each)
        return [*found, self._summed(f"{name}_collapse", run, d_model)]

    def after(self, name: BranchName, run: Run, d_model: Any) -> list[Part]:
        """What mixes the streams, and the sum that closes the branch."""
        n, wide = self.count, self.count * d_model
        mixed = Cost(
            f"{name}_mix",
            macs_by_kind={"products": run.tokens * n * wide},
            bytes=nbytes(run.tokens * (2 * wide + n * n), run.dtype),
        )
        added = vector_work("added", 2 * run.tokens * wide, nbytes(run.tokens * (2 * wide + d_model + n), run.dtype))
        made: dict[str, Any] = {"makes": ("stream",), "split": "sequence"}
        formula = f"2·tokens·{n * n}·{d_model}"
        return [
            part(f"{name}_mix", mixed, run.tokens, role="core", reads=("stream", WEIGHTS), formula=formula, **made),
            part(f"{name}_sum", added, run.tokens, role="sum", reads=("stream", "output", WEIGHTS), **made),
        ]

    def entered(self, run: Run, d_model: Any) -> list[Part]:
        """What leads into a layer for multi-token prediction: a dense layer for the next
        token, one for each stream, and their sum."""
        rows = self.count * run.tokens
        found = [
            dense_part("join_token", run, d_model, d_model),
            dense_part("join_hidden", run, d_model, d_model, tokens=rows, formula=f"2·tokens·{self.count}·{d_model}·{d_model}"),
        ]  # fmt: skip
        moved = nbytes((2 * rows + run.tokens) * d_model, run.dtype)
        return [*found, part("join_sum", vector_work("join_sum", rows * d_model, moved), run.tokens)]

    def joined(self, run: Run, d_model: Any, **fields: Any) -> list[Part]:
        """What makes one stream of all, after the last layer."""
        each = self.count * (2 + _SIGMOID + 1)
        found = self._made("head_streams", run, d_model, self.count, 1, each)
        return [one._replace(**fields) for one in (*found, self._summed("head_collapse", run, d_model))]

    def _made(self, name: str, run: Run, d_model: Any, outputs: Any, scales: int, each: Any) -> list[Part]:
        """The norm of all streams together, the dense layer behind it, and what comes to *each* token."""
        wide = self.count * d_model
        norm = rms_norm(tokens=run.tokens, d=wide, weight=False, dtype=run.dtype)
        work = Cost(
            name,
            vector_by_kind={"elementwise": run.tokens * each},
            bytes=nbytes(2 * run.tokens * outputs + outputs + scales, run.dtype),
            params_by_role={"bias": outputs + scales},
        )
        made: dict[str, Any] = {"makes": (WEIGHTS,), "split": "sequence"}
        dense = dense_part(f"{name}_proj", run, wide, outputs, reads=("normed streams",), **made)
        return [
            part(f"{name}_norm", norm, run.tokens, role="norm", reads=("stream",), makes=("normed streams",), split="sequence"),
            dense._replace(shape=()),  # a parameter in fp32 and no dense layer, for formats and adapters
            part(f"{name}_act", work, run.tokens, reads=(WEIGHTS,), **made),
        ]  # fmt: skip

    def _summed(self, name: str, run: Run, d_model: Any) -> Part:
        wide = self.count * d_model
        moved = run.tokens * (wide + d_model + self.count)
        cost = vector_work(name, 2 * run.tokens * wide, nbytes(moved, run.dtype))
        return part(name, cost, run.tokens, reads=("stream", WEIGHTS), makes=("input",), split="sequence")
