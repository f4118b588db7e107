"""A transformer's layer whose weights several layers share, each with adapters of its own, before Mamba-2 (Zamba2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from flopkit.arithmetic import is_zero
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import residual
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.branches.recurrences import StateSpace
from flopkit.models.caches import Rows, merged, seen_rows
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.matrices import Matrix
from flopkit.models.stacks.parts import Part, Run, again, part, project
from flopkit.sizes import Count, Size, check_fields
from flopkit.training.memory import Kept

__all__ = ["SharedBlock"]

_ADAPTERS: Mapping[str, tuple[Matrix, Matrix]] = {
    "q_adapter": ("q_adapter_down", "q_adapter_up"), "k_adapter": ("k_adapter_down", "k_adapter_up"),
    "v_adapter": ("v_adapter_down", "v_adapter_up"), "mlp_adapter": ("mlp_adapter_down", "mlp_adapter_up"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SharedBlock(Branch):
    """Attention and an MLP, whose weights some layers share, and behind them a matrix, a sum and Mamba-2 (Zamba2).

    Attention reads the layer's input beside the embedding, both under one norm; the MLP reads its output under another; no residual sum is
    between them. Mamba-2 reads the sum of the layer's input and of what the matrix makes, under the layer's norm, which the tables list first.

    Parameters
    ----------
    attention : Attention
        Its queries, keys and values are made of twice the model's width.
    mlp : MLP
        What follows it.
    mamba : StateSpace
        The mixer of all other layers, too.
    rank : Size
        Features between the two matrices of an adapter, which are the layer's own.
    adapters : Count, optional
        How many of queries, keys and values have an adapter: 0 or 3. The MLP's first matrix has one in any case.
    first : bool, optional
        Whether the shared weights count here. Else they are those of an earlier layer.
    """

    attention: Attention
    mlp: MLP
    mamba: StateSpace
    rank: Size
    adapters: Count = 0
    first: bool = True
    window: ClassVar[None] = None
    shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the caches of attention and of Mamba-2."""
        return merged(each.cached(context, rows) for each in (self.attention, self.mamba))

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        wide, head = 2 * d_model, self.attention.heads * self.attention.head_dim
        attention = self.attention.parts(run, wide)
        attention[-1] = project(
            "o_proj", run, head, d_model, self.attention.out_bias, reads=("heads",), makes=("attended",), split="row"
        )
        shared = [
            self._normed("wide_norm", run, wide), *attention, self._normed("attended_norm", run, d_model),
            *(each._replace(unread=False) for each in self.mlp.parts(run, d_model)),
        ]  # fmt: skip
        if not self.first:
            shared = [each._replace(cost=again(each.cost)) for each in shared]
        own: list[Part] = []
        for name in ("q_adapter", "k_adapter", "v_adapter") if not is_zero(self.adapters) else ():
            own += self._adapter(name, run, wide, head)
        own += self._adapter("mlp_adapter", run, d_model, 2 * self.mlp.d_ff)
        joined = residual(elements=run.tokens * d_model, dtype=run.dtype)
        return [
            *shared, *own, project("linear", run, d_model, d_model, reads=("output",), makes=("input",), split="none"),
            part("shared_sum", joined, run.tokens, role="sum", reads=("input",), makes=("input",), split="sequence"),
            *self.mamba.parts(run, d_model),
        ]  # fmt: skip

    @staticmethod
    def _normed(name: str, run: Run, width: Any) -> Part:
        fields: dict[str, Any] = {"role": "norm", "reads": ("input",), "makes": ("input",), "split": "sequence"}
        return part(name, rms_norm(tokens=run.tokens, d=width, dtype=run.dtype), run.tokens, **fields)

    def _adapter(self, name: str, run: Run, d_in: Any, d_out: Any) -> list[Part]:
        down, up = _ADAPTERS[name]
        added = residual(elements=run.tokens * d_out, dtype=run.dtype)
        return [
            project(down, run, d_in, self.rank, reads=("input",), makes=(name,), split="none"),
            project(up, run, self.rank, d_out, reads=(name,), makes=(name,), split="column"),
            part(f"{name}_sum", added, run.tokens, reads=(name,), makes=(name,), split="inner"),
        ]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """Not known."""
        raise ValueError(
            "what a block that layers share (Zamba2) keeps for its backward pass is not known here, so neither is the memory of training"
        )
