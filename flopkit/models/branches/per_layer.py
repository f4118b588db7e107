"""What Gemma 4 adds to a layer: an input of its own from a second table, and an MLP beside a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flopkit.dtypes import nbytes
from flopkit.layers.embeddings import embedding
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import activation, residual, vector_work
from flopkit.models.branches.feed_forward import MLP, Experts
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.parts import Part, Run, dense_part, part, project
from flopkit.sizes import Size, check_fields
from flopkit.training.memory import Kept

__all__ = ["DenseAndExperts", "LayerGate", "LayerInputs"]


def _not_known(what: str) -> ValueError:
    return ValueError(f"what the backward pass of {what} keeps is not known here; train_step counts its FLOPs")


@dataclass(frozen=True, kw_only=True)
class LayerInputs:
    """An input for each layer, made before all of them: a second embedding, and a
    projection of the first one (per-layer embeddings, Gemma 3n and 4).

    FLOPs: ``2·tokens·d_model·layers·dim``. Parameters: ``vocab·layers·dim`` in the
    table, ``d_model·layers·dim`` in the projection, and a norm's *dim*.

    Parameters
    ----------
    dim : Size
        Features that a layer gets.
    layers : Size
        Layers that get them.
    vocab : Size
        Rows of the table.
    """

    dim: Size
    layers: Size
    vocab: Size

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        """The table, the projection and its norm, and their sum."""
        tokens, wide = run.tokens, self.layers * self.dim
        table = embedding(tokens=tokens, vocab=self.vocab, d_model=wide, dtype=run.dtype)
        table = replace(table, macs_by_kind={"embedding": tokens * self.vocab * wide})
        norm = rms_norm(tokens=tokens * self.layers, d=self.dim, dtype=run.dtype)
        added = residual(elements=tokens * wide, dtype=run.dtype)
        at: dict[str, Any] = {"place": "before"}
        return [
            part(
                "layer_embedding",
                table,
                tokens,
                weights=tokens * wide,
                role="table",
                split="vocab",
                matrices=((wide, 1),),
                **at,
            ),
            dense_part("layer_inputs_proj", run, d_model, wide, **at),
            part("layer_inputs_norm", norm, tokens, role="norm", **at),
            part("layer_inputs_sum", added, tokens, **at),
        ]


@dataclass(frozen=True, kw_only=True)
class LayerGate(Branch):
    """The branch that brings a layer's own input in: a dense layer to its width, an
    activation, a product with it, and a dense layer back.

    Parameters
    ----------
    dim : Size
        Features of the layer's input.
    act : str, optional
        The activation, as `flopkit.activation` calls it.
    """

    dim: Size
    act: str = "gelu_tanh"

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        gate: dict[str, Any] = {"reads": ("input",), "makes": ("hidden",), "split": "sequence"}
        inner = activation(self.act, elements=run.tokens * self.dim, dtype=run.dtype)
        times = vector_work("product", run.tokens * self.dim, 3 * nbytes(run.tokens * self.dim, run.dtype))
        within: dict[str, Any] = {"reads": ("hidden",), "makes": ("hidden",), "split": "sequence"}
        out: dict[str, Any] = {"reads": ("hidden",), "makes": ("output",), "split": "sequence"}
        return [
            project("layer_gate", run, d_model, self.dim, **gate),
            part("layer_gate_act", inner, run.tokens, **within),
            part("layer_gate_product", times, run.tokens, **within),
            project("layer_out", run, self.dim, d_model, **out),
        ]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        raise _not_known("inputs for each layer")


@dataclass(frozen=True, kw_only=True)
class DenseAndExperts(Branch):
    """An MLP and a mixture of experts side by side, each between norms of its own
    (Gemma 4).

    Parameters
    ----------
    dense : MLP
        It reads the branch's input.
    experts : Experts
        Router and experts read the residual stream, each through a norm; the weights of
        the chosen experts have a learned factor for each expert.
    """

    dense: MLP
    experts: Experts

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        def norm(name: str, reads: str, makes: str) -> Part:
            cost = rms_norm(tokens=run.tokens, d=d_model, dtype=run.dtype)
            return part(name, cost, run.tokens, role="norm", split="sequence", reads=(reads,), makes=(makes,))

        *dense, down = self.dense.parts(run, d_model)
        router, chosen = self.experts.parts(run, d_model)
        roles = dict(router.cost.params_by_role) | {"bias": self.experts.experts}
        kinds = dict(router.cost.macs_by_kind) | {"vectors": run.tokens * self.experts.experts}
        added = residual(elements=run.tokens * d_model, dtype=run.dtype)
        return [
            *dense,
            down._replace(makes=("dense",), unread=False),
            norm("dense_norm", "dense", "dense"),
            norm("router_norm", "stream", "router input"),
            router._replace(
                cost=replace(router.cost, params_by_role=roles, macs_by_kind=kinds), weights=router.weights + self.experts.experts,
                reads=("router input",),
            ),
            norm("experts_norm", "stream", "experts' input"),
            chosen._replace(reads=("experts' input", "chances"), makes=("chosen",)),
            norm("experts_out_norm", "chosen", "chosen"),
            part("dense_and_experts", added, run.tokens, reads=("dense", "chosen"), makes=("output",), split="sequence"),
        ]  # fmt: skip

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        raise _not_known("an MLP beside experts")
