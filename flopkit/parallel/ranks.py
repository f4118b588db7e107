"""Ranks of a pipeline: which layers each of them has, and degrees by which a model cannot be divided."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from flopkit.arithmetic import Number
from flopkit.parallel.layouts import Layout
from flopkit.parallel.pipelines import Pipeline, of_each_stage, pipeline as the_pipeline
from flopkit.parallel.shares import Shares, known

__all__ = ["Rank", "check", "in_flight", "of_layout", "stages"]


class Rank(NamedTuple):
    """A pipeline's rank: how many layers of each kind it has, whether it has the embedding and the head, and the layers of each of its virtual stages, where
    it has several."""

    kinds: tuple[int, ...]
    first: bool
    last: bool
    virtual: tuple[tuple[int, ...], ...] = ()

    @property
    def opening(self) -> Rank:
        """Its first virtual stage alone, through which each micro-batch comes first and goes back last."""
        return Rank(self.virtual[0], self.first, False) if self.virtual else self


def of_layout(layout: Layout, micro_batches: int) -> Pipeline:
    """The pipeline of a layout, a backward pass being twice as long as a forward pass."""
    return _pipeline(layout.pipeline, micro_batches, layout.virtual, layout.order)


def in_flight(layout: Layout, micro_batches: int, rank: Rank, place: int) -> tuple[tuple[Number, ...], ...]:
    """Layers of each kind whose activations the rank at a *place* of the pipeline holds at once. Where its virtual stages are not equal there are several
    answers, for several moments."""
    if len(set(rank.virtual)) > 1 and layout.order == "interleaved":
        moments = _moments(layout.pipeline, micro_batches, layout.virtual, place)
        return tuple(
            dict.fromkeys(
                tuple(
                    sum(n * own for n, own in zip(held, kind, strict=True)) for kind in zip(*rank.virtual, strict=True)
                )
                for held in moments
            )
        )
    held = of_layout(layout, micro_batches).in_flight(place)
    return (tuple(held * layers for layers in rank.kinds),)


_moments = lru_cache(maxsize=4096)(of_each_stage)


@lru_cache(maxsize=256)
def _pipeline(stages: int, micro_batches: int, virtual: int, schedule: str) -> Pipeline:
    return the_pipeline(stages=stages, micro_batches=micro_batches, virtual=virtual, schedule=schedule)


def check(numbers: Shares, layout: Layout, micro_batches: int) -> None:
    """Refuse degrees that a model cannot be divided by."""
    if layout.expert > 1 and layout.tensor > 1 and not layout.sequence:
        raise ValueError(
            f"expert={layout.expert} with tensor={layout.tensor} and sequence=False: each of the tensor-parallel ranks would send the same tokens to experts; give sequence=True, as Megatron-LM asks for"
        )
    _check_model(numbers, layout.tensor, layout.expert)
    if numbers.mtp is not None and (layout.tensor > 1 or (layout.zero == 3 and layout.data * layout.context > 1)):
        degree = f"tensor={layout.tensor}" if layout.tensor > 1 else "zero=3"
        way = "tensor=1" if layout.tensor > 1 else "zero=2"
        raise ValueError(
            f"{degree}: how ranks divide the layer for multi-token prediction of {numbers.model.name} is not known here; give {way}, or the model without it"
        )
    if numbers.seq % layout.context:
        raise ValueError(f"context={layout.context}: must divide the {numbers.seq} tokens of a sequence")
    if layout.pipeline > 1 or layout.order == "dualpipe":
        of_layout(layout, micro_batches)


@lru_cache(maxsize=256)
def _check_model(numbers: Shares, t: int, expert: int) -> None:
    model = numbers.model
    if (t > 1 or expert > 1) and not known(model):
        raise ValueError(
            f"tensor={t}: what it divides is known here for attention, latent attention, MLPs and experts; give {model.name} tensor=1 and expert=1"
        )
    for block, _ in model.blocks:
        heads = getattr(block.mixer, "heads", None)
        kv_heads = getattr(block.mixer, "kv_heads", None)
        if heads is not None and heads % t:
            raise ValueError(f"tensor={t}: must divide the {heads} heads of {model.name}")
        if kv_heads is not None and kv_heads % t:
            raise ValueError(
                f"tensor={t}: must divide the {kv_heads} key-value heads of {model.name}; above them keys and values would be computed several times"
            )
        experts = getattr(block.mlp, "experts", None)
        if experts is not None and experts % expert:
            raise ValueError(f"expert={expert}: must divide the {experts} experts of {model.name}")
    if expert > 1 and not any(kind.dispatched for kind in numbers.kinds):
        raise ValueError(f"expert={expert}: {model.name} has no experts; give expert=1")


@lru_cache(maxsize=256)
def stages(numbers: Shares, pipeline: int, virtual: int) -> tuple[Rank, ...]:
    """The layers of each rank of a pipeline, in turn, and of each of its virtual stages: equal parts, the first and the last part one fewer where that
    fits, or parts that differ by one. Multi-token prediction takes the place of a layer in the last part.

    Raises
    ------
    ValueError
        For more stages than layers, and virtual stages that cannot be made equal.
    """
    if pipeline == 1:
        return (Rank(tuple(kind.layers for kind in numbers.kinds), True, True),)
    order, layers, chunks = numbers.model.layer_order(f"pipeline={pipeline}"), numbers.places, pipeline * virtual
    if not numbers.divisible(pipeline, virtual):
        raise ValueError(
            f"pipeline={pipeline}, virtual={virtual}: {layers} layers (with embedding and head {layers + 2}) cannot be divided into {chunks} stages"
        )
    if layers % chunks == 0:
        sizes = [layers // chunks] * chunks
    elif (layers + 2) % chunks == 0:
        sizes = [(layers + 2) // chunks] * chunks
        sizes[0] -= 1
        sizes[-1] -= 1
    else:
        base, more = divmod(layers, chunks)
        sizes = [base + (1 <= i <= more if more < chunks - 1 else i < more) for i in range(chunks)]
    sizes[-1] -= numbers.places - numbers.layers
    ends = list(accumulate(sizes, initial=0))
    every = [tuple(order[start:end].count(kind) for kind in range(len(numbers.kinds))) for start, end in pairwise(ends)]
    found = []
    for i in range(pipeline):
        own = tuple(every[i::pipeline])
        kinds = tuple(sum(each) for each in zip(*own, strict=True))
        found.append(Rank(kinds, i == 0, i == pipeline - 1, own if virtual > 1 else ()))
    return tuple(found)
