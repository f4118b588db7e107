"""What of a model's layer each rank has: arithmetic, parameters and kept activations, by how they divide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from flopkit.arithmetic import maximum, total
from flopkit.dtypes import nbytes
from flopkit.models import MLP, Attention, Experts, LatentAttention, Model
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.parts import Part
from flopkit.models.training import activations
from flopkit.models.training.finetuning import training_of
from flopkit.models.training.sharded import gathered_bytes
from flopkit.parallel.saving import AS_COMPUTED, Saving, kept_of, run_again
from flopkit.training.memory import Kept

__all__ = [
    "Divided",
    "Layer",
    "Shares",
    "Summed",
    "gathered",
    "kept_by",
    "layer_of",
    "params_divided",
    "shares",
    "summed_of",
]


class Divided(NamedTuple):
    """A quantity of a layer by how it divides: *whole* on each tensor-parallel rank; by *tokens*, where these ranks divide the sequence; by
    *features*, which they always divide; and what belongs to *experts*: of their kept tensors, those that come to them and go back."""

    whole: int = 0
    tokens: int = 0
    features: int = 0
    experts: int = 0

    def plus(self, **more: int) -> Divided:
        return self._replace(**{name: getattr(self, name) + value for name, value in more.items()})

    @property
    def total(self) -> int:
        return sum(self)


class Summed(NamedTuple):
    """What tensor-parallel ranks add up in a layer: *outputs* of branches forward, and backward the gradients of their *inputs*, which they gather first
    where they divide the sequence (SP). *outputs_apart*, *inputs_apart*: the same without branches of experts alone, whose tokens go to other ranks."""

    outputs: Any
    inputs: Any
    outputs_apart: Any
    inputs_apart: Any


class Layer(NamedTuple):
    """A kind of layer, for one sequence: how many there are, FLOPs of a forward pass (and those that a flash kernel computes again, of attention's
    core, and of products whose weights have gradients), parameters, bytes kept (and those that recompute drops, as parts of them), what tensor-parallel ranks
    add up, numbers of keys and values, numbers that come to experts, experts that a token chooses, bytes that a layer's backward pass makes again first (see
    `Saving`), whose FLOPs are among those that are computed again, experts of which a token chooses, and the weights of its matrices but for a router's."""

    layers: int
    flops: Divided
    again: int
    core: int
    params: Divided
    kept: Divided
    kept_core: int
    fused: Divided
    summed: Summed
    keys_values: int
    dispatched: int
    chosen: int
    made_again: Divided = Divided()
    experts: int = 0
    matrices: Divided = Divided()


@dataclass(frozen=True, eq=False)
class Shares:
    """Numbers of a model for one sequence of *seq* tokens, from which a step on any layout follows. *mtp*: its layer for multi-token prediction, with join and head,
    whose activations are among the *ends*."""

    model: Model
    seq: int
    kinds: tuple[Layer, ...]
    head_flops: int
    embedding: int
    head: int
    before: int
    after: int
    edge: int
    ends: int
    log_probs: int
    loss: int
    model_flops: int
    mtp: Layer | None = None

    @property
    def layers(self) -> int:
        return sum(kind.layers for kind in self.kinds)

    @property
    def places(self) -> int:
        """Layers that a pipeline divides, the one for multi-token prediction among them."""
        return self.layers + (self.mtp is not None)

    def divisible(self, pipeline: int, virtual: int) -> bool:
        """Whether so many stages can be made: equal ones, one fewer in the first and the last, or, without virtual stages, some with one layer more."""
        layers, chunks = self.places, pipeline * virtual
        if layers % chunks and (layers + 2) % chunks:
            return virtual == 1 and pipeline <= layers
        return chunks <= layers + (2 if self.mtp is None else 1)  # which is no stage by itself

    @property
    def tied(self) -> int:
        """1 where embedding and head share a table, else 0."""
        return int(bool(self.model.tied))

    @property
    def params(self) -> int:
        """All of them, a table that embedding and head share once."""
        of_ends = self.before + self.embedding + self.after + (0 if self.model.tied else self.head)
        return of_ends + sum(kind.layers * kind.params.total for kind in self.every)

    @property
    def every(self) -> tuple[Layer, ...]:
        """All kinds of layers; that for multi-token prediction is the last."""
        return self.kinds if self.mtp is None else (*self.kinds, self.mtp)


@lru_cache(maxsize=64)
def shares(
    model: Model, seq: int, kernel: str, dropout: bool, dtype: str = "bf16", saving: Saving = AS_COMPUTED
) -> Shares:
    """The `Shares` of *model*, whose activations are of *dtype*.

    Raises
    ------
    ValueError
        For a model with an encoder, images or several streams.
    """
    for field, what in (("encoder", "an encoder"), ("patches", "images"), ("streams", "several residual streams"), ("ends", "heads or towers behind its layers")):  # fmt: skip
        if getattr(model, field, None):
            raise ValueError(f"{model.name} has {what}: a step on several devices is known here for plain decoders; Model.train_step counts it on one")  # fmt: skip
    run = model._whole(seq, 1, dtype, None)
    training = training_of(model, "all")
    parts = model.parts(run)
    stacks = [each for each in parts if each.place == "layers"]
    kinds = tuple(
        layer_of(model, block, count, stack, run, kernel, dropout, saving)
        for (block, count), stack in zip(model.blocks, stacks, strict=True)
    )
    table = sum(each.cost.params for each in parts if each.role == "table" and each.split == "vocab")
    before = sum(each.cost.params for each in parts if each.place == "before") - table
    after = sum(each.cost.params for each in parts if each.place == "after")
    head = model.vocab * model.word_width
    ends, mtp = activations.of_ends(training, run, kernel, dropout), None
    if model.mtp is not None:
        [stack] = [each for each in parts if each.place == "mtp"]
        mtp = layer_of(model, model.mtp, 1, stack, run, kernel, dropout, saving)
        ends += mtp.kept.total - _kept(model, model.mtp, run, kernel, dropout, AS_COMPUTED)[0].total
    found = Shares(
        model, seq, kinds, sum(each.cost.flops for each in parts if each.place == "head"), table, head, before, after,
        activations.boundary(model, run), ends, nbytes(seq * model.vocab, "fp32"),
        activations.of_loss(model, run), model.train_step(seq=seq).model_flops, mtp,
    )  # fmt: skip
    if found.params != model.params:
        raise ValueError(
            f"{model.name} has parameters beside its embedding, layers, norm and head: how they are divided is not known here"
        )
    return found


@lru_cache(maxsize=64)
def gathered(model: Model, precision: str) -> Any:
    """Bytes of whole layers that a rank holds with ZeRO-3."""
    return gathered_bytes(training_of(model, "all"), precision)


def layer_of(
    model: Model,
    block: Block,
    count: Any,
    stack: Part,
    run: Any,
    kernel: str,
    dropout: bool,
    saving: Saving = AS_COMPUTED,
) -> Layer:
    """The numbers of a kind of layer, of which there are *count*; *stack*: its part of a pass. Sizes may be parameters of a figure."""
    flops = Divided()
    for each in stack.inside:
        flops = flops.plus(**{_kind(each): each.cost.flops})
    splits = [
        {each.split for each in stack.inside if each.branch == name}
        for name in dict.fromkeys(each.branch for each in stack.inside if each.branch)
    ]
    by_rows, by_experts = ([int(kind in each) for each in splits] for kind in ("row", "experts"))
    kept, core, fused, made_again = _kept(model, block, run, kernel, dropout, saving)
    mixer, mlp = block.mixer, block.mlp
    of_experts: tuple[Any, Any] = (mlp.experts, mlp.top_k) if isinstance(mlp, Experts) else (0, 0)
    return Layer(
        layers=count,
        flops=flops,
        again=sum(each.scores_again.flops for each in stack.inside if each.scores_again is not None)
        + run_again(stack.inside, saving),
        core=sum(each.core.flops for each in stack.inside if each.core is not None),
        params=params_divided(stack.inside),
        kept=kept,
        kept_core=core,
        fused=fused,
        summed=summed_of(block.norms, by_rows, by_experts),
        keys_values=sum(mixer.cached(run.q).values()) if mixer is not None else 0,
        dispatched=run.tokens * mlp.top_k * model.d_model if isinstance(mlp, Experts) else 0,
        chosen=of_experts[1],
        made_again=made_again,
        experts=of_experts[0],
        matrices=_matrices(stack.inside),
    )


def summed_of(norms: str, by_rows: Sequence[Any], by_experts: Sequence[Any]) -> Summed:
    """What is added up in a layer with *norms*. Of each branch, 1 or 0: *by_rows*, whether it ends in a product whose inputs are divided; *by_experts*,
    whether it has experts that are.

    Branches side by side add up what they make before ranks do, and the gradients of an input that they share.
    """
    beside, alike = norms in ("parallel", "parallel-two"), norms == "parallel"
    both = [maximum(rows, experts) for rows, experts in zip(by_rows, by_experts, strict=True)]

    def counted(flags: Sequence[Any], one: bool) -> Any:
        return reduce(maximum, flags, 0) if one else total(flags)

    return Summed(counted(both, beside), counted(both, alike), counted(by_rows, beside), counted(by_rows, alike))


def params_divided(parts: Iterable[Part]) -> Divided:
    """Parameters of the *parts* of a layer, by how they divide."""
    found = Divided()
    for each in parts:
        of_all = each.cost.params
        if _kind(each) == "experts":
            found = found.plus(experts=of_all)
        else:
            found = found.plus(features=each.divided, whole=of_all - each.divided)
    return found


def _matrices(parts: Iterable[Part]) -> Divided:
    """Weights that linear layers and experts multiply, by how they divide, without biases, the router and a head."""
    found = Divided()
    for each in parts:
        if each.role in ("product", "experts"):
            weights = each.cost.params_by_role.get("weight", 0)
            found = found.plus(**{_kind(each): weights})
    return found


def _kind(each: Part) -> str:
    if each.split == "none":
        return "whole"
    if each.split == "sequence":
        return "tokens"
    return "experts" if each.split == "experts" else "features"


def _kept(
    model: Model, block: Block, run: Any, kernel: str, dropout: bool, saving: Saving
) -> tuple[Divided, Any, Divided, Divided]:
    kept, again = kept_of(activations.of_layer(model, block, run, kernel, dropout), block, run, saving)
    found, core, fused = kept_by(kept)
    return found, core, fused, kept_by(again)[0]


def kept_by(kept: Iterable[Kept]) -> tuple[Divided, Any, Divided]:
    """Of what a layer or a branch keeps: bytes, those of attention's core, and those that can be computed again from the rest."""
    found, fused = Divided(), Divided()
    core: Any = 0
    for each in kept:
        found = found.plus(**{each.split: each.bytes})
        core += each.bytes if each.core else 0
        if each.remade:
            fused = fused.plus(**{each.split: each.bytes})
    return found, core, fused


def known(model: Model) -> bool:
    """Whether it is known how the tensors that its layers keep are divided."""
    return all(
        isinstance(block.mixer, (Attention, LatentAttention)) and isinstance(block.mlp, (MLP, Experts))
        for block, _ in model.blocks
    )
