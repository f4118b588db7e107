"""Low-rank adapters beside frozen weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from flopkit.arithmetic import exact_div
from flopkit.cost import Cost
from flopkit.layers.pointwise import residual
from flopkit.layers.products import dense
from flopkit.models.formats import Formats, Weights, by_role, role_of
from flopkit.models.stacks.parts import Part, Run, part
from flopkit.models.storage import stored
from flopkit.sizes import Size, short, size

__all__ = ["TARGETS", "LoRA"]

TARGETS = ("attention", "mlp")  # the roles of dense layers


def targetable(parts: list[Part]) -> list[Part]:
    """The dense layers inside of layers, each of which can get an adapter."""
    return [inner for each in parts for inner in each.inside if inner.matrix and inner.shape]


@dataclass(frozen=True, kw_only=True)
class LoRA:
    """Low-rank adapters: beside a frozen matrix of d_in × d_out stands the product of
    two trained ones, d_in × rank and rank × d_out.

    Parameters
    ----------
    rank : Size
        Columns of the first, rows of the second.
    targets : str or tuple[str, ...], optional
        The dense layers that get one, by the words of `flopkit.models.MATRICES`, in every
        layer of the model; or by what they are for: ``"attention"``, ``"mlp"``, of which
        each dense layer gets one.
    base : Weights, optional
        Format in which the frozen weights are stored, as `Model.prefill` takes it, such
        as ``"nf4"`` (QLoRA: embedding, head and norms stay bf16). None: that of the
        step's precision.

    Notes
    -----
    Where a program has queries, keys and values in one product (GPT-2, Phi-3), or gate and
    input of an MLP, they are products of their own here, with an adapter each.

    References
    ----------
    Hu et al. 2022, section 4.1: queries and values are the targets there. Dettmers et
    al. 2023 for 4-bit weights, all dense layers.

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

    The frozen weights of QLoRA, without the adapters:

    >>> memory = llama.train_memory(seq=512, trained=fk.LoRA(rank=16, base="nf4"))
    >>> memory.weights - 2 * llama.trained_params(adapters)
    5702295552
    >>> llama.trained_params(fk.LoRA(rank=16, targets=("attention", "mlp")))  # all dense layers, as QLoRA has them
    41943040
    """

    rank: Size
    targets: str | tuple[str, ...] = ("q_proj", "v_proj")
    base: Weights | None = None

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
        if isinstance(self.base, Mapping):
            object.__setattr__(self, "base", by_role(self.base))
        elif self.base is not None and not isinstance(self.base, Formats):
            stored(self.base, "base")  # or an error that names it

    def named(self, parts: list[Part]) -> LoRA:
        """The same with the dense layers among *parts*, those of a pass, in the place of
        roles."""
        inside = targetable(parts)
        there = [inner.matrix for inner in inside]
        found: list[str] = []
        for target in self.targets:
            of_role = [inner.matrix for inner in inside if role_of(inner) == target]
            found += [target] if target in there or target not in TARGETS or not of_role else of_role
        return replace(self, targets=tuple(dict.fromkeys(found)))

    def beside(self, parts: list[Part], run: Run) -> list[Part]:
        """*parts* of a layer, each target followed by its adapter."""
        found: list[Part] = []
        for each in parts:
            found.append(each)
            if each.matrix in self.targets and each.shape:
                d_in, d_out = each.shape
                tokens = exact_div(each.cost.macs_by_kind["products"], d_in * d_out)
                low = dense(tokens=tokens, d_in=d_in, d_out=self.rank, dtype=run.dtype)
                high = dense(tokens=tokens, d_in=self.rank, d_out=d_out, dtype=run.dtype)
                joined = residual(elements=tokens * d_out, dtype=run.dtype)
                cost = replace(Cost.total("adapter", [low, high, joined]), parts=())
                formula = f"2·tokens·{self.rank}·({d_in} + {d_out})"
                made = part(f"{each.cost.name}_lora", cost, tokens, formula=formula, role="adapter", shape=each.shape)
                found.append(made._replace(reads=each.reads, makes=each.makes, split=each.split, unread=each.unread))
        return found
