"""What a training step recomputes: whole layers, segments of them, or the core of
attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.arithmetic import exact_div
from flopkit.cost import Cost
from flopkit.models.stacks.parts import Part
from flopkit.models.training.finetuning import Training
from flopkit.sizes import choice, number, short
from flopkit.training.steps import POLICIES

__all__ = ["Segments", "computed_again", "policy_name", "segments"]


@dataclass(frozen=True)
class Segments:
    """A recompute policy: a checkpoint around every so many layers, of which
    ``checkpoint_sequential`` computes each but the last again.

    Parameters
    ----------
    layers : int
        Layers of a segment. It divides those of the model.

    References
    ----------
    Chen et al. 2016, section 4.1.

    Examples
    --------
    >>> import flopkit as fk
    >>> llama = fk.load("llama-3-8b")
    >>> step = llama.train_step(seq=8192, recompute=fk.models.Segments(layers=4))
    >>> step.checkpointed.flops / llama.train_step(seq=8192, recompute="full").checkpointed.flops
    0.875
    """

    layers: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", number("layers", self.layers))


def policy_name(recompute: str | Segments) -> str:
    """The name of a recompute policy, checked."""
    if isinstance(recompute, Segments):
        return f"segments of {recompute.layers} layer{'s' if recompute.layers > 1 else ''}"
    if not isinstance(recompute, str):
        raise TypeError(f"recompute={short(recompute)}: give {_way_out(recompute)}")
    choice("recompute", recompute, tuple(POLICIES))
    return recompute


def _way_out(recompute: Any) -> str:
    if isinstance(recompute, int) and not isinstance(recompute, bool) and recompute > 0:
        return f"fk.models.Segments(layers={recompute}) for segments of so many layers"
    return "'none', 'selective', 'full', or fk.models.Segments(layers=…)"


def segments(training: Training, policy: Segments) -> list[tuple[int, ...]]:
    """The layers, each as a place in ``model.blocks``, cut as *policy* says.

    Raises
    ------
    ValueError
        Where they do not divide, the order of several kinds of layers is not known,
        there are two stacks, or some layers are frozen.
    """
    model, every = training.model, policy.layers
    if model.encoder is not None or any(hasattr(end, "tower") for end in model.ends):
        raise ValueError(f"recompute={policy}: segments of layers run through one stack; {model.name} has two")
    if not training.all and training.lora is None:
        raise ValueError(
            f"recompute={policy}: segments of layers of which only some are trained are not known here; give 'none', 'selective' or 'full'"
        )
    order = model.layer_order(f"recompute={policy}")
    layers = len(order)
    if layers % every:
        raise ValueError(
            f"recompute={policy}: must divide the {layers} layers of {model.name}, e.g. recompute=Segments(layers=1)"
        )
    return [tuple(order[i : i + every]) for i in range(0, layers, every)]


def computed_again(layers: list[Part], recompute: str | Segments, early_stop: bool, training: Training) -> list[Cost]:
    """What a policy computes again of *layers*, the stacks of equal layers; those that
    have no backward pass are not computed again."""
    if recompute == "none":
        return []
    if training.all and recompute == "full" and not early_stop:
        return [each.cost for each in layers]
    # layers of each kind, and those that end a checkpointed part
    times = stopped = [each.times for each in layers] if training.all else training.reached
    if recompute == "selective":
        cores = ((inner.core, n) for each, n in zip(layers, times, strict=True) for inner in each.inside)
        return [core * n for core, n in cores if core is not None]
    if isinstance(recompute, Segments):
        earlier = segments(training, recompute)[:-1]
        times = [sum(segment.count(kind) for segment in earlier) for kind in range(len(layers))]
        stopped = [sum(segment[-1] == kind for segment in earlier) for kind in range(len(layers))]
    found: list[Cost] = []
    for each, all_of_them, ends in zip(layers, times, stopped, strict=True):
        whole = Cost.total("layer", [inner.cost for inner in each.inside])
        short = _stopped(each.inside) if early_stop else whole
        found += [whole * (all_of_them - ends), short * ends]
    return found


def _stopped(inside: tuple[Part, ...]) -> Cost:
    """A layer as far as its backward pass reads it: an output that only the closing sum
    takes is left out."""
    *before, last, closing = inside
    costs = [each.cost for each in before]
    if closing.role != "sum" or not last.unread:
        costs += [last.cost, closing.cost]
    elif last.role == "adapter":  # its second matrix reads what the first one makes
        d_in, d_out = last.shape
        low = exact_div(last.cost.macs_by_kind["products"] * d_in, d_in + d_out)
        costs.append(Cost("low", macs_by_kind={"products": low}))
    return Cost.total("layer", costs)
