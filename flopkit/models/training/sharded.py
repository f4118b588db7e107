"""The groups in which a model's parameters are gathered where each of several devices
has a share of them."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from flopkit.arithmetic import reading, total, where
from flopkit.models.checkpoints.weights import formats_of
from flopkit.models.formats import part_bytes
from flopkit.models.stacks import passes
from flopkit.models.stacks.parts import Part
from flopkit.models.training.finetuning import Training, adapted
from flopkit.training.memory import PRECISIONS
from flopkit.training.sharding import Gathered, gathered

__all__ = ["gathered_bytes", "groups_of"]


def gathered_bytes(training: Training, precision: str, experts: Any = 1) -> Any:
    """Bytes of whole layers that a device holds beside its share, the most at once. *experts*: the part of a layer's experts that it gathers."""
    tied: Any = training.model.tied
    if reading(tied) == "plain":
        return gathered(*groups_of(training, precision, bool(tied), experts))
    return where(tied > 0, *(gathered(*groups_of(training, precision, either, experts)) for either in (True, False)))


def groups_of(
    training: Training, precision: str, tied: bool, experts: Any = 1
) -> tuple[list[Gathered], Gathered | None]:
    """The groups of a model in the order of the forward pass; and the one that is whole
    from the first to the last, where the head is *tied* to the embedding.

    A layer is a group, what stands before the layers is one, and what stands after them.
    Of more than three equal layers in a row there are three, which say the same; a number
    of layers that is a symbol is taken for three at least.

    Raises
    ------
    ValueError
        Where the groups are not known: of encoder-decoders, multi-token prediction, layers
        that share weights, several kinds of layers whose order is not known, and formats of
        some layers.
    """
    model = training.model
    wrong = {
        "an encoder": model.encoder is not None, "layers with the same parameters": model.shared,
        "multi-token prediction": model.mtp is not None,
        "layers that share weights": any(getattr(block.mixer, "shares", False) for block, _ in model.blocks),
    }  # fmt: skip
    if found := [what for what, there in wrong.items() if there]:
        raise ValueError(f"shards: {model.name} has {found[0]}; how it is divided into groups is not known here")
    sizes = _Sizes(training, precision, experts)
    parts = adapted(model, passes.one(model), training.lora)
    before = [each for each in parts if each.place == "before"]
    after = [each for each in parts if each.place not in ("before", "layers")]
    layers = _in_order(training, [each for each in parts if each.place == "layers"], sizes)
    first, last = sizes.ends(before, training.table), sizes.ends(after, True)
    if not tied:
        return [first, *layers, last], None
    table = sizes.ends([each for each in before if each.role == "table"], training.table).gradients
    held = Gathered(
        first.weights + last.weights,
        first.gradients + last.gradients,
        first.reduced + last.reduced,
        twice=table,
        late=first.gradients - table,
    )
    return layers, held


def _in_order(training: Training, stacks: list[Part], sizes: _Sizes) -> list[Gathered]:
    """The layers one after another, of more than three equal ones in a row three."""
    model, last = training.model, training.last
    every = training.all or training.lora is not None
    if len(stacks) == 1 and (every or not last):
        order = [(0, every)] * (3 if reading(stacks[0].times) != "plain" else stacks[0].times)
    else:
        kinds = model.layer_order("shards")
        order = [(kind, every or place >= len(kinds) - last) for place, kind in enumerate(kinds)]
    found: list[Gathered] = []
    for (kind, trained), row in groupby(order):
        layer = sizes.layer(stacks[kind], trained, trained or training.table)
        found += [layer] * min(len(list(row)), 3)
    return found


class _Sizes:
    """Bytes of groups."""

    def __init__(self, training: Training, precision: str, experts: Any) -> None:
        kind, self.experts = PRECISIONS[precision], experts
        self.training, self.weight, self.reduced = training, kind.cast or kind.weight, kind.gradient
        lora = training.lora
        self.formats = None if lora is None or lora.base is None else formats_of(training.model, lora.base)
        if self.formats is not None and self.formats.others:
            raise ValueError(f"shards: base={self.formats}: formats of some layers alone are not known here")

    def _group(self, parts: list[Part], trained: list[Part], reached: bool) -> Gathered:
        stored = total(self._of(each, self._stored(each)) for each in parts)
        numbers = total(self._of(each, each.cost.params) for each in trained)
        return Gathered(stored, self.weight * numbers, self.reduced * numbers, reached)

    def _of(self, each: Part, whole: Any) -> Any:
        return whole * self.experts if each.split == "experts" else whole

    def _stored(self, each: Part) -> Any:
        if self.formats is None or each.role == "adapter":
            return self.weight * each.cost.params
        return part_bytes(each, self.formats, whole=True)

    def layer(self, stack: Part, trained: bool, reached: bool) -> Gathered:
        """One layer of a *stack*."""
        adapters = self.training.lora is not None
        own = [each for each in stack.inside if trained and (each.role == "adapter" or not adapters)]
        return self._group(list(stack.inside), own, reached)

    def ends(self, parts: list[Part], reached: bool) -> Gathered:
        """What stands before the layers, or after them."""
        return self._group(parts, [each for each in parts if self.training.trains(each)], reached)
