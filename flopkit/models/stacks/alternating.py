"""A residual stream in several copies of which the layers read one and predict the others, and a low-rank branch beside
attention: Gemma 3n's AltUp and LAuReL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import residual, vector_work
from flopkit.layers.products import dense
from flopkit.models.stacks.blocks import Block, Branch
from flopkit.models.stacks.parts import BranchName, Part, Run, added, again, dense_part, part, project
from flopkit.sizes import Flag, Size, check_fields, number
from flopkit.training.memory import Kept

__all__ = ["AlternatingUpdates", "LowRank"]


@dataclass(frozen=True, kw_only=True)
class AlternatingUpdates:
    """Alternating updates (AltUp, Gemma 3n): the residual stream is *count* streams, of which the branches read and write
    one. Before a layer each stream is predicted of all of them, behind its MLP each is corrected by what the layer changed,
    and the layer's own input is added to all but the first.

    FLOPs before and behind all layers together: ``2·2·tokens·(count − 1)·d_model²``. Of a layer:
    ``2·2·tokens·d_model·count`` for its router, which runs twice, ``2·tokens·(count³ + count²)`` for the coefficients, and
    ``2·tokens·count²·d_model`` to predict. Parameters: ``2·(count − 1)·d_model²``, and of a layer
    ``(count + 2)·d_model + count³ + count²``.

    Parameters
    ----------
    count : int
        Streams.
    scaled : Flag, optional
        Whether a learned vector multiplies what the gate of the layer's input reads. It is among the parameters anyway.

    References
    ----------
    Baykal et al. 2023, Alternating updates for efficient transformers; transformers' ``Gemma3nTextAltUp``.
    """

    count: int
    scaled: Flag = True

    def __post_init__(self) -> None:
        check_fields(self)
        number("count", self.count, minimum=2)

    reads = ("stream",)  # what the norm before a branch reads

    def refuse(self, block: Block) -> None:
        """Layers that are not described with it."""
        if block.norms != "both" or block.mlp is None:
            raise ValueError("alternating updates: layers are described here only with norms='both' and an MLP")

    def begun(self, run: Run, d_model: Any) -> list[Part]:
        """What makes the other streams of the embedding: a matrix each, and a factor to have the same magnitude."""
        made = dense_part("streams_proj", run, d_model, (self.count - 1) * d_model, place="before")
        return [made, self._as_large(run, d_model, "before")]

    def before(self, name: BranchName, run: Run, d_model: Any) -> list[Part]:
        """What predicts the streams, before a layer's first branch."""
        if name != "attention":
            return []
        n, wide = self.count, self.count * d_model
        mixed = Cost(
            "streams_predict",
            macs_by_kind={"products": run.tokens * n * wide},
            bytes=nbytes(run.tokens * (2 * wide + n * n), run.dtype),
        )
        made: dict[str, Any] = {"makes": ("coefficients",), "split": "sequence"}
        flow: dict[str, Any] = {"makes": ("stream",), "split": "sequence"}
        return [
            *self._routed("predict", run, d_model, own=True),
            dense_part("predict_coefs", run, n, n * n, reads=("modalities",), **made)._replace(shape=()),
            part("streams_predict", mixed, run.tokens, role="core", reads=("stream", "coefficients"), formula=f"2·tokens·{n * n}·{d_model}", **flow),
            part("streams_predict_sum", residual(elements=run.tokens * wide, dtype=run.dtype), run.tokens, reads=("stream",), **flow),
        ]  # fmt: skip

    def after(self, name: BranchName, run: Run, d_model: Any) -> list[Part]:
        """The sum that closes a branch; behind the MLP the correction of all streams, too."""
        n, wide = self.count, run.tokens * self.count * d_model
        if name == "last":  # it adds to all streams but the first
            more = residual(elements=run.tokens * (n - 1) * d_model, dtype=run.dtype)
            return [
                part(
                    "last_sum",
                    more,
                    run.tokens,
                    role="sum",
                    reads=("stream", "output"),
                    makes=("stream",),
                    split="sequence",
                )
            ]
        found = [added(f"{name}_sum", run, d_model)]
        if name != "mlp":
            return found
        scaled = self.scaled * run.tokens * d_model
        work = (
            run.tokens * (d_model + n) + 2 * wide + scaled
        )  # what changed, coefficients + 1, a product, a sum; the scale
        moved = nbytes(2 * wide + run.tokens * (2 * d_model + n), run.dtype)
        cost = Cost(
            "streams_correct", vector_by_kind={"elementwise": work}, bytes=moved, params_by_role={"norm": d_model}
        )
        made: dict[str, Any] = {"makes": ("coefficients",), "split": "sequence"}
        return [
            *found,
            *self._routed("correct", run, d_model, own=False),
            dense_part("correct_coefs", run, n, n, reads=("modalities",), **made)._replace(shape=()),
            part("streams_correct", cost, run.tokens, reads=("stream", "coefficients"), makes=("stream",), split="sequence"),
        ]  # fmt: skip

    def entered(self, run: Run, d_model: Any) -> list[Part]:
        """What leads into a layer for multi-token prediction, of which there is none."""
        raise ValueError("alternating updates beside a layer for multi-token prediction are not described here")

    def joined(self, run: Run, d_model: Any, **fields: Any) -> list[Part]:
        """What makes one stream of all, after the last layer: a matrix for each but the first, and their mean."""
        more = self.count - 1
        cost = dense(tokens=run.tokens, d_in=d_model, d_out=d_model, dtype=run.dtype) * more
        formula = f"2·tokens·{more}·{d_model}·{d_model}"
        back = part(
            "streams_back", cost, run.tokens, role="product", matrices=((d_model, d_model),) * more, formula=formula
        )
        mean = vector_work(
            "streams_mean",
            self.count * run.tokens * d_model,
            nbytes((self.count + 1) * run.tokens * d_model, run.dtype),
        )
        return [
            each._replace(**fields)
            for each in (back, self._as_large(run, d_model, ""), part("streams_mean", mean, run.tokens))
        ]

    def _as_large(self, run: Run, d_model: Any, place: Any) -> Part:
        """A square and an addition for each number, a root for each vector; all but the first are multiplied and divided."""
        numbers, more = run.tokens * self.count * d_model, run.tokens * (self.count - 1) * d_model
        cost = vector_work(
            "streams_magnitude", 2 * numbers + self.count * run.tokens + 2 * more, nbytes(numbers + more, run.dtype)
        )
        return part("streams_magnitude", cost, run.tokens, place=place)

    def _routed(self, name: str, run: Run, d_model: Any, own: bool) -> list[Part]:
        """The router: a norm, a dense layer to one number a stream, and tanh. *own*: whether its parameters count here, for
        it runs twice."""
        flow: dict[str, Any] = {"makes": ("modalities",), "split": "sequence"}
        norm = part(
            f"{name}_norm", rms_norm(tokens=run.tokens, d=d_model, dtype=run.dtype), run.tokens, role="norm",
            reads=("stream",), makes=("router input",), split="sequence",
        )  # fmt: skip
        routed = dense_part(f"{name}_router", run, d_model, self.count, reads=("router input",), **flow)._replace(
            shape=()
        )
        elements = run.tokens * self.count
        act = part(f"{name}_tanh", vector_work("tanh", elements, 2 * nbytes(elements, run.dtype)), run.tokens, reads=("modalities",), **flow)  # fmt: skip
        found = [norm, routed, act]
        return found if own else [each._replace(cost=again(each.cost), weights=0) for each in found]


@dataclass(frozen=True, kw_only=True)
class LowRank(Branch):
    """A branch of two matrices with few features between them, a norm, and the sum with its own input (LAuReL, Gemma 3n).

    FLOPs: ``2·tokens·2·d_model·rank``. Parameters: ``2·d_model·rank + d_model``.

    Parameters
    ----------
    rank : Size
        Features between the two matrices.

    References
    ----------
    Menghani et al. 2024, LAuReL: learned augmented residual layer, section 2.

    Examples
    --------
    >>> sum(each.cost.params for each in LowRank(rank=64).parts(Run(1, 1, 1), 2048))
    264192
    """

    rank: Size

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        norm = rms_norm(tokens=run.tokens, d=d_model, dtype=run.dtype)
        flow: dict[str, Any] = {"makes": ("output",), "split": "sequence"}
        return [
            project("left_proj", run, d_model, self.rank, reads=("input",), makes=("narrow",), split="sequence"),
            project("right_proj", run, self.rank, d_model, reads=("narrow",), **flow),
            part("low_rank_norm", norm, run.tokens, role="norm", reads=("output",), **flow),
            part("low_rank_sum", residual(elements=run.tokens * d_model, dtype=run.dtype), run.tokens, reads=("input", "output"), **flow),
        ]  # fmt: skip

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        raise ValueError(
            "what the backward pass of a low-rank branch beside attention keeps is not known here; train_step counts its FLOPs"
        )
