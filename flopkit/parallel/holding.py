"""What a rank holds: weights, gradients and states of the optimiser, and what the forward pass keeps of micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from flopkit.arithmetic import Number, ceil_div, maximum, reduced, where
from flopkit.models.training import activations
from flopkit.parallel.computing import Over, exactly, share
from flopkit.parallel.ranks import Rank
from flopkit.parallel.shares import Divided
from flopkit.parallel.traffic import groups

__all__ = ["activations_of", "ends_of", "loss_of", "states_of"]


def states_of(params: tuple[Over, Over], layout: Any, sizes: tuple[int, int, int]) -> tuple[Number, Number, Number]:
    """Bytes of weights, gradients and the optimiser's states of a stage. *sizes*: of a parameter."""
    (rest, by_rest), (experts, by_experts) = params
    alike, alike_experts = groups(layout)
    found = []
    for size, stage in zip(sizes, (3, 2, 1), strict=True):
        among = by_rest * where(layout.zero >= stage, alike, 1)
        among_experts = by_experts * where(layout.zero >= stage, alike_experts, 1)
        number = rest if _nothing(experts) else rest * among_experts + experts * among
        whole = among if _nothing(experts) else among * among_experts
        found.append(ceil_div(size * number, whole))
    weights, gradients, optimizer = found
    return weights, gradients, optimizer


def _nothing(number: Any) -> bool:
    return isinstance(number, int) and number == 0


def activations_of(
    numbers: Any, layout: Any, rank: Rank, in_flight: Sequence[Sequence[Number]], fused: bool, moved: int = 2
) -> tuple[Number, Number]:
    """Bytes of the layers when the backward pass begins, of all micro-batches in flight, and of what comes back while a layer is computed again.

    *in_flight*: how many layers of each kind there are at once, at several moments, of which the fullest counts. *fused*: without the outputs of norms and activations, which are computed again from what is kept. *moved*: bytes of a number of keys and values.
    """
    t, b = layout.tensor, layout.micro_batch
    # what goes to experts comes from a part of the tokens, where tensor-parallel ranks divide these
    by_experts = where(layout.expert > 1, t, 1)
    there_are = [i for i, count in enumerate(rank.kinds) if not _nothing(count)]
    each, core, again_here = [], [], []
    for kind in (numbers.kinds[i] for i in there_are):
        kept = share(kind.kept, layout, by_experts)
        kept -= share(kind.fused, layout, by_experts) if fused else 0
        if layout.regather != "all" and layout.sequence:  # inputs of branches, whole
            kept += kind.fused.tokens * (t - 1) * by_experts
        if layout.regather == "none":
            kept += moved * kind.keys_values * (layout.context - 1) * by_experts
        again_here.append(share(kind.made_again, layout, by_experts) * b if kind.made_again != Divided() else 0)
        each.append(kept * b)
        core.append(kind.kept_core * by_experts * b)
    if numbers.mtp is not None:
        again_here.append(rank.last * share(numbers.mtp.made_again, layout, by_experts) * b)
    if not there_are:
        return 0, exactly(reduce(maximum, again_here, 0), t * by_experts * layout.context)
    edge = numbers.edge * b * by_experts * (1 if layout.sequence else t)
    among = t * by_experts * layout.context
    found = [
        activations.under_policy(layout.recompute, [moment[i] for i in there_are], each, core, edge)
        for moment in in_flight
    ]
    longest = reduce(maximum, again_here)
    there = reduce(maximum, (exactly(held, among) for held, _ in found))
    return reduced(there), exactly(found[0][1] + longest, among)


def ends_of(numbers: Any, layout: Any, rank: Rank, fused: bool = False) -> Number:
    """Bytes that the last norm, the head, the loss and multi-token prediction keep of a micro-batch: what belongs to tokens, and the vocabulary's part of the loss."""
    t = layout.tensor
    of_tokens = (numbers.ends - numbers.log_probs) * (1 if layout.sequence else t)
    if layout.regather != "all" and layout.sequence:
        of_tokens += numbers.edge * (t - 1)  # the head's input is as wide as a layer's
    if numbers.mtp is not None and fused:
        of_tokens -= numbers.mtp.fused.total
    return exactly(rank.last * layout.micro_batch * (of_tokens + numbers.log_probs), t * layout.context)


def loss_of(numbers: Any, layout: Any, rank: Rank) -> Number:
    """Bytes of the gradients inside the loss of a micro-batch, whose logits tensor-parallel ranks divide by words."""
    return exactly(rank.last * layout.micro_batch * numbers.loss, layout.tensor * layout.context)
