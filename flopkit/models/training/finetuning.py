"""Which parameters are trained (all, those of the last layers, the head, or adapters),
and the backward pass that requires.

A product that meets a trained weight owes the weight's gradient; one that stands behind
anything trained owes its input's gradient. Forward, each costs as much as either, so a
part's backward pass is 0, 1 or 2 times its forward pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flopkit.arithmetic import exact_div, is_zero, total
from flopkit.conventions import KINDS
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.models.checkpoints.weights import formats_of, weight_bytes
from flopkit.models.formats import role_of
from flopkit.models.stacks import passes
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.parts import Part, Run
from flopkit.models.stacks.stack import Stack
from flopkit.models.training.lora import TARGETS, LoRA, targetable
from flopkit.sizes import number, short
from flopkit.training.memory import Kept, state_bytes

__all__ = ["Group", "LastLayers", "Training", "adapted", "training_of"]


@dataclass(frozen=True)
class LastLayers:
    """The last layers of a model, and what follows them, are trained; all else is
    frozen.

    Parameters
    ----------
    layers : int
        How many layers.

    Examples
    --------
    >>> import flopkit as fk
    >>> llama = fk.load("llama-3-8b")
    >>> two = fk.models.LastLayers(2)
    >>> llama.trained_params(two) == 2 * llama.layer(seq=1).params + llama.trained_params("head") + llama.d_model
    True
    >>> step = llama.train_step(seq=2048, trained=two)
    >>> round(step.backward.flops / step.forward.flops, 3)
    0.252
    """

    layers: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", number("layers", self.layers))


class Group(NamedTuple):
    """Equal layers with the same backward pass: how many, whether their input's
    gradient is wanted, and whether their weights
    are trained."""

    layers: Any
    passed_on: bool
    trained: bool


@dataclass(frozen=True)
class Training:
    """What of *model* is trained: all of it, the weights of its *last* layers and what
    follows them, its head, or adapters."""

    model: Stack
    all: bool = True
    last: Any = 0
    lora: LoRA | None = None

    @property
    def table(self) -> bool:
        """Whether the embedding's table is trained: a tied head trains it, and then
        every layer has a gradient to pass on."""
        return self.all or (self.lora is None and not is_zero(self.model.tied))

    def groups(self) -> list[list[Group]]:
        """For each kind of layer, those that have a backward pass."""
        kinds = [layers for _, layers in self.model.blocks]
        if self.all:
            return [[Group(layers, True, True)] for layers in kinds]
        if self.lora is not None:
            trained, first = kinds, 0 if len(kinds) == 1 else self.model.layer_order("trained=LoRA(…)")[0]
        else:
            order = self.model.layer_order(f"trained={LastLayers(self.last)}") if self.last else ()
            ends = order[len(order) - self.last :]
            trained, first = [ends.count(kind) for kind in range(len(kinds))], ends[0] if ends else -1
        found: list[list[Group]] = []
        for kind, (layers, count) in enumerate(zip(kinds, trained, strict=True)):
            begins = int(kind == first and not self.table)
            groups = [Group(begins, False, True), Group(count - begins, True, True)]
            found.append([*groups, Group(layers - count, True, False)] if self.table else groups)
        return found

    @property
    def reached(self) -> list[Any]:
        """How many layers of each kind have a backward pass."""
        return [total(group.layers for group in groups) for groups in self.groups()]

    @property
    def head(self) -> bool:
        """Whether the head is trained."""
        return self.lora is None

    def trains(self, part: Part) -> bool:
        """Whether the weights of a part outside of the layers are trained."""
        if self.all:
            return True
        if part.role == "table":
            return self.table
        return self.head and (part.place == "head" or (part.place == "after" and self.last > 0))

    def params(self) -> Any:
        """How many numbers are trained."""
        if self.all:
            return passes.token(self.model).params
        parts = adapted(self.model, Run(1, 1, 1, causal=self.model.causal), self.lora)
        groups = iter(self.groups())
        found: Any = 0
        for each in parts:
            if each.place != "layers":
                found = found + (each.cost.params if self.trains(each) else 0)
                continue
            one = total(inner.cost.params for inner in each.inside if self.lora is None or inner.role == "adapter")
            found = found + total(group.layers * one for group in next(groups) if group.trained)
        return found

    def keeps(self, kept: Kept, trained: bool) -> bool:
        """Whether a layer whose weights are *trained*, or are not, keeps a tensor."""
        if not kept.weights_of:
            return True
        return trained and (self.lora is None or not set(self.lora.targets).isdisjoint(kept.weights_of))

    def narrow(self, block: Block, run: Run) -> list[Kept]:
        """What the adapters of a layer keep besides their inputs: the numbers between
        their two matrices."""
        if self.lora is None:
            return []
        inside = self.lora.beside(passes.layer(self.model, block, run), run)
        adapters = [each for each in inside if each.role == "adapter"]
        numbers = total(exact_div(each.cost.macs_by_kind["products"], sum(each.shape)) for each in adapters)
        return [Kept("adapters, between their matrices", nbytes(numbers, run.dtype))]

    def state_bytes(self, precision: str, optimizer: str) -> tuple[Any, Any, Any]:
        """Bytes of all weights, frozen ones too, of the gradients and of the optimiser
        of those that are trained."""
        weight, gradient, states = state_bytes(precision, optimizer)
        whole, trained = passes.token(self.model).params, self.params()
        if self.lora is None:
            return weight * whole, gradient * trained, states * trained
        base = self.lora.base
        frozen = weight * whole if base is None else weight_bytes(self.model, formats_of(self.model, base))
        return frozen + weight * trained, gradient * trained, states * trained

    def backward(self, parts: list[Part]) -> tuple[Cost, Cost]:
        """The backward pass of *parts*, and the scores that a flash kernel computes
        again in it."""
        macs: Counter[str] = Counter()
        again: list[Cost] = []
        groups = iter(self.groups())
        passed_on = self.table
        for each in parts:
            if self.all or each.place != "layers":
                owed = (passed_on and "pixels" not in each.reads) + self.trains(each)
                _add(macs, each.cost.macs_by_kind, owed)
                if self.all and owed == 1:
                    _add(macs, each.cost.macs_by_kind, 1, by_parameter=True)
                for inner in each.inside:
                    if inner.detached:
                        _add(macs, inner.cost.macs_by_kind, -owed * each.times)
                        _add(macs, inner.cost.macs_by_kind, owed * each.times, by_parameter=True)
                if each.scores_again is not None:
                    again.append(each.scores_again)
                continue
            for group in next(groups):
                if is_zero(group.layers):
                    continue
                passed_on = True
                for inner, live, own in self._followed(each.inside, group):
                    if inner.core is not None:
                        found, more = _through_core(inner, live)
                        _add(macs, found, group.layers)
                        again += [cost * group.layers for cost in more]
                    elif inner.role == "adapter":
                        _add(macs, _through_adapter(inner, bool(live)), group.layers)
                    elif inner.role == "core":  # without weights, it multiplies what flows with what flows
                        owed = len(live) if len(inner.reads) == 2 else 2 * bool(live)
                        _add(macs, inner.cost.macs_by_kind, owed * group.layers)
                    else:
                        owed = bool(live) + own
                        _add(macs, inner.cost.macs_by_kind, owed * group.layers)
        return Cost("backward", macs_by_kind=dict(macs)), Cost.total("scores again", again)

    def _followed(self, inside: Iterable[Part], group: Group) -> Iterator[tuple[Part, set[str], bool]]:
        """Each part of a layer, what of that which it reads depends on anything
        trained, and whether its own weights are trained."""
        live = {"stream", "start", "input"} if group.passed_on else set()
        for each in inside:
            if each.detached:
                yield each, set(), False
                continue
            own = group.trained and (self.lora is None or each.role == "adapter") and not is_zero(each.cost.params)
            read = live.intersection(each.reads)
            yield each, read, own
            if read or own:
                live.update(each.makes)


def _through_core(core: Part, live: set[str]) -> tuple[dict[str, Any], list[Cost]]:
    """The backward pass of attention's core for the gradients of what is *live*; and
    what a flash kernel, which makes all of
    them from scores that it computes again, executes besides."""
    if not live or core.scores_again is None:
        return {}, []
    scores = core.scores_again.macs_by_kind
    forward = core.cost.macs_by_kind
    values = {kind: forward[kind] - scores.get(kind, 0) for kind in forward if kind in scores and kind != "pairs"}
    # the gradients of queries, of keys, of values, and of the softmax's output, without which the first two cannot be
    first = len(live.intersection(core.reads[:2]))
    second = len(live.intersection(core.reads[2:])) + (first > 0)
    found = {kind: 2 * count for kind, count in forward.items()}
    spared: dict[str, Any] = {}
    for kind, count in values.items():
        spared[kind] = (2 - first) * scores[kind] + (2 - second) * count
        found[kind] = found[kind] - spared[kind]
    return found, [core.scores_again, Cost("spared", macs_by_kind=spared)]


def _through_adapter(each: Part, wanted: bool) -> dict[str, Any]:
    """Both gradients of the second matrix, that of the first and, where it is *wanted*,
    of the input."""
    d_in, d_out = each.shape
    forward = each.cost.macs_by_kind["products"]
    return {"products": 2 * forward - (0 if wanted else exact_div(forward * d_in, d_in + d_out))}


def adapted(model: Stack, run: Run, lora: LoRA | None) -> list[Part]:
    """The parts of a pass, with adapters beside their targets, each of which must be
    there."""
    parts = passes.through(model, run, lora=lora)
    dense = targetable(parts)
    products = dict.fromkeys(inner.matrix for inner in dense)
    if lora is not None and (missing := [name for name in lora.targets if name not in products]):
        roles = [role for role in TARGETS if any(role_of(inner) == role for inner in dense)]
        there = f"{', '.join(products)}; by role {' and '.join(roles)}"
        raise ValueError(
            f"targets={missing[0]!r}: {model.name} has no dense layer of this name in its layers; it has {there}"
        )
    return parts


_CHOICES = "'all', 'head', fk.models.LastLayers(…) or fk.LoRA(rank=…, targets=…)"


def _way_out(trained: Any) -> str:
    if isinstance(trained, int) and not isinstance(trained, bool) and trained > 0:
        return f"fk.models.LastLayers({trained}) for so many last layers"
    return _CHOICES


def training_of(model: Stack, trained: str | LastLayers | LoRA) -> Training:
    """What *trained* says, checked."""
    if not isinstance(trained, (str, LastLayers, LoRA)):
        raise TypeError(f"trained={short(trained)}: give {_way_out(trained)}")
    if trained == "all":
        return Training(model)
    if model.encoder is not None or model.mtp is not None or any(hasattr(end, "tower") for end in model.ends):
        raise ValueError(
            f"{model.name}: only trained='all' is known for encoder-decoders, two towers and multi-token prediction"
        )
    if model.shared and trained != "head":
        raise ValueError(
            f"{model.name}: its layers have the same parameters, so only trained='all' and 'head' are known"
        )
    if any(getattr(block.mixer, "shares", False) for block, _ in model.blocks):
        raise ValueError(f"{model.name}: only trained='all' is known where layers share weights")
    if isinstance(trained, LoRA):
        return Training(model, all=False, lora=trained.named(passes.through(model, passes.one(model))))
    if trained == "head":
        return Training(model, all=False)
    if isinstance(trained, LastLayers):
        layers = number("layers", model.layers)
        if trained.layers > layers:
            raise ValueError(f"trained={trained}: {model.name} has {layers} layers")
        return Training(model, all=False, last=trained.layers)
    raise ValueError(f"trained={short(trained)}: give {_CHOICES}")


def _add(macs: Counter[str], kinds: Mapping[str, Any], factor: Any, by_parameter: bool = False) -> None:
    """*by_parameter*: only for conventions that count six FLOPs a parameter, whatever a program does."""
    for kind, count in kinds.items():
        if by_parameter and KINDS[kind].executed:
            kind, count = "balance", count if kind in ("products", "router") else 0
        macs[kind] = macs[kind] + factor * count
