"""Disentangled attention: scores of words with positions beside those of words with words (DeBERTa)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flopkit.arithmetic import exact_div, minimum
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.convolutions import conv1d
from flopkit.layers.normalisations import layer_norm
from flopkit.layers.pointwise import activation
from flopkit.layers.products import matmul
from flopkit.models.branches.mixers import Attention
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.matrices import Matrix
from flopkit.models.stacks.parts import Part, Run, again, part, project
from flopkit.sizes import Flag, Size, check_fields, divides
from flopkit.training.memory import Kept

__all__ = ["Convolution", "DisentangledAttention"]

_OF_POSITIONS: tuple[Matrix, Matrix] = ("position_keys_proj", "position_queries_proj")


@dataclass(frozen=True, kw_only=True)
class DisentangledAttention(Attention):
    """Attention whose scores add two products with embeddings of relative positions: of
    each query with the keys of positions, and of each key with their queries.

    With rows = 2·*span* positions, FLOPs beyond those of `Attention`: of each
    projection of the positions ``2·rows·d_model·heads·head_dim``, once for all
    sequences; of each of the two products ``2·batch·heads·tokens·rows·head_dim``.
    Vector FLOPs: an addition a pair for each of the two. Not counted: scales, the choice
    of each pair's position, its bucket.

    The other parameters are those of `Attention`.

    Parameters
    ----------
    span : Size
        Distances to either side that have embeddings of their own.
    clipped : bool, optional
        Whether no more of them are used than the sequence is long (DeBERTa; version 2
        projects all of them).
    table : bool, optional
        Whether this layer has the table of positions, which all layers read: the first
        one has it.
    table_norm : Flag, optional
        Whether a layer norm goes over this table.
    to_positions, from_positions : bool, optional
        Whether queries meet the keys of positions ("c2p"), and keys their queries
        ("p2c").
    shared : bool, optional
        Whether positions go through the projections of the words. Then both are made.
    position_key_bias : Flag, optional
        Whether the projection of the positions' keys adds a bias.

    References
    ----------
    He et al. 2021, *DeBERTa*, section 3.1; what is executed is that of transformers.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> sizes = {"heads": 12, "kv_heads": 12, "head_dim": 64, "rotary": 0}
    >>> plain = Attention(**sizes)
    >>> words, both = (sum(each.cost.flops for each in a.parts(Run(1, 128, 128, causal=False), 768))
    ...                for a in (plain, DisentangledAttention(**sizes, span=256, shared=True)))
    >>> both - words == 2 * (2 * 512 * 768 * 768) + 2 * (2 * 12 * 128 * 512 * 64)
    True
    """

    span: Size
    clipped: bool = False
    table: bool = False
    table_norm: Flag = False
    to_positions: bool = True
    from_positions: bool = True
    shared: bool = False
    position_key_bias: Flag = True

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        found = super().parts(run, d_model)
        core = next(place for place, each in enumerate(found) if each.role == "core")
        found[core:core] = self._positions(run, d_model)
        return found

    def _positions(self, run: Run, d_model: Any) -> list[Part]:
        if run.documents is not None:
            raise ValueError(
                "lengths= beside disentangled attention: documents of unequal lengths are not known here; give seq="
            )
        rows = 2 * (minimum(run.kv, self.span) if self.clipped else self.span)
        wide, dtype = self.heads * self.head_dim, run.dtype
        found: list[Part] = []
        if self.table:
            whole = 2 * self.span
            table = Cost(
                "position_table", bytes=nbytes(rows * d_model, dtype), params_by_role={"position": whole * d_model}
            )
            found.append(part("position_table", table, run.tokens, weights=rows * d_model, makes=("positions",)))
            if self.table_norm:
                norm = layer_norm(tokens=whole, d=d_model, dtype=dtype)
                fields: dict[str, Any] = {"role": "norm", "reads": ("positions",), "makes": ("positions",)}
                found.append(part("position_norm", norm, run.tokens, **fields))
        sides = (
            ("keys", self.to_positions, "queries", self.position_key_bias),
            ("queries", self.from_positions, "keys", True),
        )
        for matrix, (what, met, _, bias) in zip(_OF_POSITIONS, sides, strict=True):
            if met or self.shared:
                made: dict[str, Any] = {
                    "tokens": rows,
                    "reads": ("positions",),
                    "makes": (f"position {what}",),
                    "split": "column",
                }
                made["formula"] = f"2·{rows}·{d_model}·{wide}"
                found.append(project(matrix, run, d_model, wide, bias, **made))
                if self.shared:
                    found[-1] = found[-1]._replace(cost=again(found[-1].cost), weights=0)
        for what, met, words, _ in sides:
            if met:
                scores = matmul(m=run.q, k=self.head_dim, n=rows, batch=run.batch * self.heads, dtype=dtype)
                added = {"elementwise": run.batch * self.heads * run.q * run.kv}
                cost = replace(scores, name=f"{words}·position_{what}", vector_by_kind=added)
                reads = (words, f"position {what}")
                formula = f"2·tokens·{self.heads}·{rows}·{self.head_dim}"
                flow: dict[str, Any] = {"reads": reads, "makes": ("scores",), "split": "inner"}
                found.append(part(cost.name, cost, run.tokens, formula=formula, role="core", **flow))
        return found

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        raise ValueError(
            "what the backward pass of disentangled attention keeps is not known here; train_step counts its FLOPs"
        )


@dataclass(frozen=True, kw_only=True)
class Convolution(Branch):
    """A convolution over the tokens with a bias, and an activation (DeBERTa-v2-XL, beside
    its first layer).

    FLOPs: ``2·tokens·d_model²·kernel/groups``.

    Parameters
    ----------
    kernel : Size
        Taps; there is padding, so that as many tokens come out.
    groups : Size, optional
        Groups of features.
    act : str, optional
        The activation, as `flopkit.activation` calls it.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> sum(each.cost.flops for each in Convolution(kernel=3).parts(Run(2, 8, 8), 16)) == 2 * 16 * 16 * 16 * 3
    True
    """

    kernel: Size
    groups: Size = 1
    act: str = "tanh"

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        divides("groups", self.groups, "d_model", d_model)
        sizes = {"c_in": d_model, "c_out": d_model, "kernel": self.kernel, "groups": self.groups, "bias": True}
        cost = conv1d(batch=run.batch, l_out=run.q, l_in=run.q, **sizes, dtype=run.dtype)
        act = activation(self.act, elements=run.tokens * d_model, dtype=run.dtype)
        formula = f"2·tokens·{d_model}·{exact_div(d_model, self.groups)}·{self.kernel}"
        flow: dict[str, Any] = {"reads": ("input",), "makes": ("output",)}
        return [
            part("conv", cost, run.tokens, formula=formula, role="convolution", **flow),
            part("conv_act", act, run.tokens, reads=("output",), makes=("output",)),
        ]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        raise ValueError(
            "what the backward pass of a convolution beside a layer keeps is not known here; train_step counts its FLOPs"
        )
