"""What of a model is trained (everything, its last layers, its head, or adapters beside frozen weights), and the backward pass that this asks for.

A product that meets a trained weight owes the weight's gradient; one that stands behind anything trained owes its input's gradient.
Forward, each costs as much as either, so a part's backward pass is 0, 1 or 2 times its forward pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flopkit.arithmetic import exact_div, is_zero
from flopkit.conventions import total
from flopkit.cost import Cost
from flopkit.dtypes import DType, bits, nbytes
from flopkit.layers.pointwise import residual
from flopkit.layers.products import dense
from flopkit.models import walk
from flopkit.models.kept import FROM_INPUT, layer_order
from flopkit.models.parts import Part, Run, part
from flopkit.sizes import Size, number, short, size
from flopkit.training.memory import Kept, state_bytes

if TYPE_CHECKING:
    from flopkit.models.blocks import Block
    from flopkit.models.model import Model

__all__ = ["LoRA", "Training", "training_of"]

# Parts that read what their branch begins with; the others read what parts before them in the branch have made.
FIRST = frozenset(name for names in FROM_INPUT.values() for name in names)
ADAPTER = "_lora"  # how the name of an adapter ends


@dataclass(frozen=True, kw_only=True)
class LoRA:
    """Low-rank adapters: beside a frozen matrix of d_in × d_out stands the product of two trained ones, d_in × rank and rank × d_out.

    Parameters
    ----------
    rank : Size
        Columns of the first, rows of the second.
    targets : str or tuple[str, ...], optional
        The dense layers that get one, by the names that `Model.table` shows, in every layer of the model.
    base : DType, optional
        Number format in which the frozen weights are stored, such as ``"int4"`` (QLoRA). None: that of the step's precision.

    References
    ----------
    Hu et al. 2022, section 4.1: queries and values are the targets there. Dettmers et al. 2023 for 4-bit weights, all dense layers.

    Examples
    --------
    >>> import flopkit as fk
    >>> llama = fk.load("llama-3-8b")
    >>> adapters = fk.LoRA(rank=16)
    >>> llama.trained_params(adapters)
    6815744
    >>> step = llama.train_step(seq=2048, trained=adapters)
    >>> round(step.backward.flops / step.forward.flops, 3)  # the frozen weights have no gradient
    1.032
    """

    rank: Size
    targets: str | tuple[str, ...] = ("q_proj", "v_proj")
    base: DType | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", size("rank", self.rank))
        targets = (self.targets,) if isinstance(self.targets, str) else self.targets
        if not isinstance(targets, (tuple, list)) or not all(isinstance(each, str) for each in targets):
            raise TypeError(f"targets={short(targets)}: must be names of dense layers, such as ('q_proj', 'v_proj')")
        targets = tuple(targets)
        object.__setattr__(self, "targets", targets)
        if not targets:
            raise ValueError(
                "targets is empty: name the dense layers that get an adapter, such as ('q_proj', 'v_proj')"
            )
        if self.base is not None:
            bits(self.base)  # or an error that names it

    def beside(self, parts: list[Part], run: Run) -> list[Part]:
        """*parts* of a layer, each target followed by its adapter."""
        found: list[Part] = []
        for each in parts:
            found.append(each)
            if each.cost.name in self.targets and each.shape:
                d_in, d_out = each.shape
                tokens = exact_div(each.cost.macs_by_kind["products"], d_in * d_out)
                rank = self.rank
                low = dense(tokens=tokens, d_in=d_in, d_out=rank, dtype=run.dtype)
                high = dense(tokens=tokens, d_in=rank, d_out=d_out, dtype=run.dtype)
                joined = residual(elements=tokens * d_out, dtype=run.dtype)
                cost = replace(Cost.total("adapter", [low, high, joined]), parts=())
                made = part(each.cost.name + ADAPTER, cost, tokens, formula=f"2·tokens·{rank}·({d_in} + {d_out})")
                found.append(made._replace(shape=(d_in, d_out)))
        return found


@dataclass(frozen=True)
class Training:
    """What of *model* is trained: all of it, the weights of its *last* layers and what follows them, its head, or adapters."""

    model: Model
    all: bool = True
    last: Any = 0
    lora: LoRA | None = None

    @property
    def table(self) -> bool:
        """Whether the table of the embedding is trained: a tied head trains it, and with it every layer has a gradient to pass on."""
        return self.all or (self.lora is None and not is_zero(self.model.tied))

    def groups(self) -> list[list[tuple[Any, bool, bool]]]:
        """For each kind of layer: how many of them have a backward pass, whether the gradient of their input is wanted, and whether
        their weights are trained."""
        kinds = [layers for _, layers in self.model.blocks]
        if self.all:
            return [[(layers, True, True)] for layers in kinds]
        if self.lora is not None:
            trained, first = kinds, 0 if len(kinds) == 1 else layer_order(self.model, "trained=LoRA(…)")[0]
        else:
            order = layer_order(self.model, f"trained={self.last}") if self.last else ()
            ends = order[len(order) - self.last :]
            trained, first = [ends.count(kind) for kind in range(len(kinds))], ends[0] if ends else -1
        found: list[list[tuple[Any, bool, bool]]] = []
        for kind, (layers, count) in enumerate(zip(kinds, trained, strict=True)):
            begins = int(kind == first and not self.table)
            groups = [(begins, False, True), (count - begins, True, True)]
            found.append([*groups, (layers - count, True, False)] if self.table else groups)
        return found

    @property
    def reached(self) -> list[Any]:
        """How many layers of each kind have a backward pass."""
        return [total(count for count, *_ in groups) for groups in self.groups()]

    def trains(self, name: str) -> bool:
        """Whether the weights of a part outside of the layers are trained."""
        if self.all:
            return True
        if self.lora is not None:
            return False
        if name == "embedding":
            return self.table
        return name == "head" or name.startswith("transform") or (name == "norm" and self.last > 0)

    def params(self) -> Any:
        """How many numbers are trained."""
        model = self.model
        if self.all:
            return model.params
        parts = walked(model, Run(1, 1, 1, causal=model.causal), self.lora)
        groups = iter(self.groups())
        found: Any = 0
        for each in parts:
            if not each.layer:
                found = found + (each.cost.params if self.trains(each.cost.name) else 0)
                continue
            wanted = [inner for inner in each.inside if self.lora is None or _is_adapter(inner)]
            one = total(inner.cost.params for inner in wanted)
            found = found + total(count * one for count, _, trained in next(groups) if trained)
        return found

    def keeps(self, kept: Kept, trained: bool) -> bool:
        """Whether a layer whose weights are *trained*, or are not, keeps a tensor."""
        if not kept.weights_of:
            return True
        return trained and (self.lora is None or any(name in self.lora.targets for name in kept.weights_of))

    def narrow(self, block: Block, run: Run) -> list[Kept]:
        """What the adapters of a layer keep besides their inputs: the numbers between their two matrices."""
        if self.lora is None:
            return []
        adapters = [each for each in self.lora.beside(walk.layer(self.model, block, run), run) if _is_adapter(each)]
        numbers = total(exact_div(each.cost.macs_by_kind["products"], sum(each.shape)) for each in adapters)
        return [Kept("adapters, between their matrices", nbytes(numbers, run.dtype))]

    def state_bytes(self, precision: str, optimizer: str) -> tuple[Any, Any, Any]:
        """Bytes of all weights, frozen ones too, of the gradients and of the optimiser of those that are trained."""
        weight, gradient, states = state_bytes(precision, optimizer)
        trained = self.params()
        if self.lora is None:
            return weight * self.model.params, gradient * trained, states * trained
        frozen = weight * self.model.params if self.lora.base is None else nbytes(self.model.params, self.lora.base)
        return frozen + weight * trained, gradient * trained, states * trained

    def backward(self, parts: list[Part]) -> tuple[Cost, Cost]:
        """The backward pass of *parts*, and the scores that a flash kernel computes again in it."""
        macs: Counter[str] = Counter()
        again: list[Cost] = []
        groups = iter(self.groups())
        wanted = self.table
        for each in parts:
            if self.all or not each.layer:
                # an image needs no gradient
                factor = (wanted and each.cost.name != "patches") + self.trains(each.cost.name)
                _add(macs, each.cost.macs_by_kind, factor)
                if each.scores_again is not None:
                    again.append(each.scores_again)
                continue
            for count, before, trained in next(groups):
                if is_zero(count):
                    continue
                wanted = True
                for inner, reads, own, sides in self._walk(each.inside, before, trained):
                    if inner.core is not None:
                        found, more = _through_core(inner, sides)
                        _add(macs, found, count)
                        again += [cost * count for cost in more]
                    elif _is_adapter(inner):
                        _add(macs, _through_adapter(inner, reads), count)
                    else:
                        _add(macs, inner.cost.macs_by_kind, (reads + own) * count)
        return Cost("backward", macs_by_kind=dict(macs)), Cost.total("scores again", again)

    def _walk(
        self, inside: Iterable[Part], wanted: bool, trained: bool
    ) -> Iterator[tuple[Part, bool, bool, frozenset[str]]]:
        """Each part of a layer; whether the gradient of its input is wanted, and that of its weights; and of attention's core, those of
        which of queries, keys and values are. *wanted*: whether the gradient of the layer's own input is."""
        made = set("qkv") if wanted else set()  # what of this branch depends on anything trained
        for each in inside:
            name = each.cost.name
            own = trained and (self.lora is None or name.endswith(ADAPTER)) and not is_zero(each.cost.params)
            base = name.removesuffix(ADAPTER)
            yield each, wanted if base in FIRST else bool(made), own, frozenset(made & set("qkv"))
            if own:
                made |= set(base.split("_")[0]) if base.startswith(("q_", "k_", "v_", "kv_")) else {"other"}
            if made and name.endswith(("_sum", "attention_norm", "cross_norm", "mlp_norm", "post_norm")):
                wanted, made = True, made | set("qkv")


def _is_adapter(each: Part) -> bool:
    return each.cost.name.endswith(ADAPTER)


def _through_core(core: Part, sides: frozenset[str]) -> tuple[dict[str, Any], list[Cost]]:
    """The backward pass of attention's core for the gradients of those *sides*; and what a flash kernel, which makes all of them from
    scores that it computes again, executes besides."""
    if not sides or core.scores_again is None:
        return {}, []
    scores = core.scores_again.macs_by_kind
    forward = core.cost.macs_by_kind
    values = {kind: forward[kind] - scores.get(kind, 0) for kind in forward if kind in scores and kind != "pairs"}
    # the gradients of queries, of keys, of values, and of the softmax's output, without which the first two cannot be
    first, second = ("q" in sides) + ("k" in sides), ("v" in sides) + bool(sides & {"q", "k"})
    found = {kind: 2 * count for kind, count in forward.items()}
    spared: dict[str, Any] = {}
    for kind, count in values.items():
        spared[kind] = (2 - first) * scores[kind] + (2 - second) * count
        found[kind] = found[kind] - spared[kind]
    return found, [core.scores_again, Cost("spared", macs_by_kind=spared)]


def _through_adapter(each: Part, wanted: bool) -> dict[str, Any]:
    """Both gradients of the second matrix, that of the first and, where it is *wanted*, of the input."""
    d_in, d_out = each.shape
    forward = each.cost.macs_by_kind["products"]
    return {"products": 2 * forward - (0 if wanted else exact_div(forward * d_in, d_in + d_out))}


def walked(model: Model, run: Run, lora: LoRA | None, head_tokens: Any = None) -> list[Part]:
    """The parts of a pass, with adapters beside their targets."""
    if lora is None:
        return model.parts(run, head_tokens=head_tokens)
    parts = model.parts(run, head_tokens=head_tokens, lora=lora)
    named = {inner.cost.name for each in parts for inner in each.inside}
    if missing := [name for name in lora.targets if name + ADAPTER not in named]:
        dense_layers = dict.fromkeys(inner.cost.name for each in parts for inner in each.inside if inner.shape)
        there = ", ".join(name for name in dense_layers if not name.endswith(ADAPTER))
        raise ValueError(
            f"targets={missing[0]!r}: {model.name} has no dense layer of this name in its layers; it has {there}"
        )
    return parts


def training_of(model: Model, trained: str | int | LoRA) -> Training:
    """What *trained* says, checked."""
    if trained == "all":
        return Training(model)
    if model.encoder is not None or model.mtp is not None:
        raise ValueError(f"{model.name}: only trained='all' is known for encoder-decoders and multi-token prediction")
    if isinstance(trained, LoRA):
        return Training(model, all=False, lora=trained)
    if trained == "head":
        return Training(model, all=False)
    if isinstance(trained, int) and not isinstance(trained, bool):
        layers = number("layers", model.layers)
        if not 1 <= trained <= layers:
            raise ValueError(
                f"trained={trained}: the last layers that are trained, from 1 to the {layers} of {model.name}"
            )
        return Training(model, all=False, last=trained)
    raise ValueError(f"trained={trained!r}: give 'all', 'head', a number of last layers, or LoRA(rank=…, targets=…)")


def _add(macs: Counter[str], kinds: Mapping[str, Any], factor: Any) -> None:
    for kind, count in kinds.items():
        macs[kind] = macs[kind] + factor * count
