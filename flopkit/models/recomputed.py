"""What a training step computes again: whole layers, segments of them, or the core of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopkit.cost import Cost
from flopkit.models.kept import segments
from flopkit.models.parts import Part
from flopkit.sizes import choice, number
from flopkit.training.steps import POLICIES

if TYPE_CHECKING:
    from flopkit.models.trained import Training

__all__ = ["computed_again", "policy_name"]


def policy_name(recompute: str | int) -> str:
    """The name of a recompute policy, checked."""
    if isinstance(recompute, int):
        return f"every {number('recompute', recompute)}"
    choice("recompute", recompute, tuple(POLICIES))
    return recompute


def computed_again(layers: list[Part], recompute: str | int, early_stop: bool, training: Training) -> list[Cost]:
    """What a policy computes again of *layers*, the stacks of equal layers; those that have no backward pass are not computed again."""
    if recompute == "none":
        return []
    if training.all and recompute == "selective":
        return [each.core for each in layers if each.core is not None]
    if training.all and recompute == "full" and not early_stop:
        return [each.cost for each in layers]
    if recompute == "selective":
        cores = [[inner.core for inner in each.inside if inner.core is not None] for each in layers]
        return [core * times for each, times in zip(cores, training.reached, strict=True) for core in each]
    # layers of each kind, and those that end a checkpointed part
    times = stopped = [each.times for each in layers] if training.all else training.reached
    if isinstance(recompute, int):
        earlier = segments(training, recompute)[:-1]
        times = [sum(segment.count(kind) for segment in earlier) for kind in range(len(layers))]
        stopped = [sum(segment[-1] == kind for segment in earlier) for kind in range(len(layers))]
    found: list[Cost] = []
    for each, all_of_them, ends in zip(layers, times, stopped, strict=True):
        # the output of this product is not what any backward pass reads, only what the next layer begins with
        spared = early_stop and each.inside[-2].cost.name.endswith(("down_proj", "o_proj"))
        spared = spared and each.inside[-1].cost.name.endswith("_sum")
        whole = Cost.total("layer", [inner.cost for inner in each.inside])
        short = Cost.total("layer", [inner.cost for inner in each.inside[:-2]]) if spared else whole
        found += [whole * (all_of_them - ends), short * ends]
    return found
