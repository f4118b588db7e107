"""A norm inside a branch, before its last dense layer: BitNet's sub-norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.dtypes import nbytes
from flopkit.layers.normalisations import rms_norm
from flopkit.models.branches.wrapped import Wrapped
from flopkit.models.stacks.parts import Part, Run, part
from flopkit.training.memory import Kept

__all__ = ["SubNorm"]


@dataclass(frozen=True, kw_only=True)
class SubNorm(Wrapped):
    """A branch with an RMS norm before its last dense layer, over all that this layer reads (sub-norm: BitNet b1.58).

    Parameters
    ----------
    branch : Any
        Attention or an MLP.

    References
    ----------
    Wang et al. 2022, Foundation transformers, section 2.1; Ma et al. 2025, BitNet b1.58 2B4T, section 2.

    Examples
    --------
    >>> from flopkit.models import MLP
    >>> plain = MLP(d_ff=64)
    >>> [sum(each.cost.params for each in one.parts(Run(1, 1, 1), 16)) for one in (plain, SubNorm(branch=plain))]
    [3072, 3136]
    """

    @property
    def window(self) -> Any:
        """The window of the branch."""
        return getattr(self.branch, "window", None)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        *before, last = self.branch.parts(run, d_model)
        norm = rms_norm(tokens=run.tokens, d=last.shape[0], dtype=run.dtype)
        flow: dict[str, Any] = {"reads": last.reads, "makes": last.reads, "split": "inner"}
        return [*before, part("sub_norm", norm, run.tokens, role="norm", **flow), last]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        last = self.branch.parts(run, d_model)[-1]
        there = self.branch.kept(run, d_model, kernel, dropout)
        read = [each._replace(weights_of=()) if last.matrix in each.weights_of else each for each in there]
        made = nbytes(run.tokens * last.shape[0], run.dtype)
        return [
            *read,  # the norm's input is among it
            Kept("sub-norm, statistics", nbytes(run.tokens, "fp32")),
            Kept("sub-norm, output", made, weights_of=(last.matrix,)),
        ]
