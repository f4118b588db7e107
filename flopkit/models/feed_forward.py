"""The parts of a layer in which each token is by itself: an MLP, or a mixture of
experts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flopkit.arithmetic import is_zero, minimum
from flopkit.dtypes import nbytes
from flopkit.layers.experts import moe
from flopkit.layers.pointwise import ACTIVATIONS, activation
from flopkit.models.blocks import Branch
from flopkit.models.parts import Part, Run, part, project
from flopkit.sizes import Count, Flag, Size, check_fields, choice, offence
from flopkit.training.memory import Kept

__all__ = ["MLP", "Experts"]

_GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu", "relu": "reglu"}


@dataclass(frozen=True, kw_only=True)
class MLP(Branch):
    """Two dense layers with an activation between them, or three where the third gates
    (SwiGLU and its like).

    Parameters
    ----------
    d_ff : Size
        Hidden features.
    act : str, optional
        The activation, as `flopkit.activation` calls it.
    gated : bool, optional
        Whether there is a third matrix, whose output the activated one multiplies.
    bias : Flag, optional
        Whether each dense layer adds a bias.
    down_bias : Flag, optional
        Whether the last one does, where that differs. None: as the others.
    """

    d_ff: Size
    act: str = "silu"
    gated: bool = True
    bias: Flag = False
    down_bias: Flag | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        choice("act", self.act, tuple(_GATED if self.gated else ACTIVATIONS))

    def parts(self, run: Run, d_model: Any, prefix: str = "") -> list[Part]:
        inward: dict[str, Any] = {"reads": ("input",), "makes": ("hidden",), "split": "column"}
        names = ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        found = [project(prefix + name, run, d_model, self.d_ff, self.bias, **inward) for name in names]
        kind = _GATED[self.act] if self.gated else self.act
        middle = activation(kind, elements=run.tokens * self.d_ff, dtype=run.dtype)
        found.append(part(prefix + kind, middle, run.tokens, reads=("hidden",), makes=("hidden",), split="inner"))
        last_bias = self.bias if self.down_bias is None else self.down_bias
        outward: dict[str, Any] = {"reads": ("hidden",), "makes": ("output",), "split": "row", "unread": True}
        return [*found, project(prefix + "down_proj", run, self.d_ff, d_model, last_bias, **outward)]

    def kept(
        self, run: Run, d_model: Any, kernel: str, dropout: bool, prefix: str = "", down: str = "down_proj"
    ) -> list[Kept]:
        return _hidden(prefix, self.act, self.gated, run.tokens * self.d_ff, run.dtype, down)


def _hidden(prefix: str, act: str, gated: bool, numbers: Any, dtype: Any, down: str) -> list[Kept]:
    """What an MLP keeps of its hidden features: ReLU's backward pass reads its output,
    that of other activations their input."""
    hidden, before = nbytes(numbers, dtype), nbytes(numbers if act != "relu" else 0, dtype)
    readers = (down,) if gated or act != "relu" else ()
    last = Kept(f"{prefix}down, input", hidden, weights_of=readers)
    if not gated:
        return [Kept(f"{prefix}activation, input", before), last]
    return [
        Kept(f"{prefix}gate", before), Kept(f"{prefix}up", hidden), Kept(f"{prefix}activated gate", hidden), last
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Experts(Branch):
    """A mixture of experts: a router, *top_k* of *experts* MLPs for each token, and one
    that all tokens share.

    Parameters
    ----------
    experts, top_k : Size
        Experts to choose from, and chosen for each token.
    d_ff : Size
        Hidden features of each expert.
    shared_d_ff : Count, optional
        Hidden features of the shared MLP (of several shared experts together). 0: there
        is none.
    gated : bool, optional
        Whether an expert has a third matrix, as in `MLP`.
    bias : Flag, optional
        Whether router and experts add biases (gpt-oss).
    shared_gate : Flag, optional
        Whether a dense layer with one output gates the shared MLP (Qwen1.5-MoE,
        Qwen3-Next).
    """

    experts: Size
    top_k: Size
    d_ff: Size
    shared_d_ff: Count = 0
    gated: bool = True
    bias: Flag = False
    shared_gate: Flag = False

    def __post_init__(self) -> None:
        check_fields(self)
        if wrong := offence(lambda top_k, experts: top_k > experts, self.top_k, self.experts):
            raise ValueError(f"top_k={wrong[0]} is more than experts={wrong[1]}: choose at most as many as there are")

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        tokens, experts, top_k = run.tokens, self.experts, self.top_k
        sizes = {"tokens": tokens, "d_model": d_model, "d_ff": self.d_ff, "experts": experts, "top_k": top_k}
        both = moe(**sizes, gated=self.gated, dtype=run.dtype)
        computed = (
            both if run.capacity is None else moe(**sizes, gated=self.gated, dtype=run.dtype, capacity=run.capacity)
        )
        matrices = 2 + self.gated
        expert = matrices * d_model * self.d_ff
        biases = self.bias * ((matrices - 1) * self.d_ff + d_model)
        added = {} if is_zero(self.bias) else {"bias": experts * biases}
        router = replace(
            both, macs_by_kind={"router": both.macs_by_kind["router"]}, vector_by_kind={"routing": both.vector_by_kind["routing"]},
            bytes=0, params_by_role={"weight": d_model * experts} | ({} if is_zero(self.bias) else {"bias": self.bias * experts}),
        )  # fmt: skip
        worked = both.macs_by_kind["products"]
        padding = {} if run.capacity is None else {"padding": computed.macs_by_kind["products"] - worked}
        chosen = replace(
            computed, params_by_role={"weight": experts * expert} | added,
            macs_by_kind={"products": worked, "idle": tokens * (experts - top_k) * (expert + biases)} | padding,
            vector_by_kind={"elementwise": computed.vector_by_kind["elementwise"] + tokens * top_k * biases},
        )  # fmt: skip
        reached = minimum(experts, tokens * top_k)
        stored = ((d_model, self.d_ff),) * (matrices - 1) + ((self.d_ff, d_model),)
        found = [
            part("router", router, tokens, formula=f"2·tokens·{d_model}·{experts}", role="product", reads=("input",),
                 makes=("chances",), split="sequence", matrices=((d_model, experts),)),
            part("experts", chosen, tokens, weights=reached * (expert + biases), role="experts", reads=("input", "chances"),
                 makes=("output",), split="experts", formula=f"2·tokens·{top_k}·{matrices}·{d_model}·{self.d_ff}", matrices=stored),
        ]  # fmt: skip
        vectors = chosen.params_by_role.get("bias")
        if vectors is not None:  # those of idle experts are among "idle"
            kinds = dict(found[1].cost.macs_by_kind) | {"vectors": tokens * top_k * biases}
            found[1] = found[1]._replace(cost=replace(found[1].cost, macs_by_kind=kinds))
        if not is_zero(self.shared_d_ff):
            found += self._shared.parts(run, d_model, "shared_")
            if not is_zero(self.shared_gate):  # it multiplies the shared MLP's output
                found[-1] = found[-1]._replace(unread=False)
                gate: dict[str, Any] = {"reads": ("input",), "makes": ("output",), "split": "sequence"}
                found.append(project("shared_gate", run, d_model, self.shared_gate, **gate))
        return found

    @property
    def _shared(self) -> MLP:
        return MLP(d_ff=self.shared_d_ff, gated=self.gated)

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """That of grouped products over the tokens in the order of their experts."""
        dtype, chosen = run.dtype, run.tokens * self.top_k
        found = [
            Kept("router, probabilities", nbytes(run.tokens * self.experts, "fp32")),
            Kept("experts, inputs in their order", nbytes(chosen * d_model, dtype), weights_of=("experts",)),
            *_hidden("experts, ", "silu", self.gated, chosen * self.d_ff, dtype, "experts"),
            Kept("experts, outputs", nbytes(chosen * d_model, dtype)),  # each is multiplied by its probability
            Kept("experts, probabilities of the chosen", nbytes(chosen, "fp32")),
        ]
        if not is_zero(self.shared_d_ff):
            found += self._shared.kept(run, d_model, kernel, dropout, "shared, ", "shared_down_proj")
            if not is_zero(self.shared_gate):
                gated = self.shared_gate * run.tokens * (1 + d_model)
                found.append(Kept("shared, gate and output", nbytes(gated, dtype)))
        return found
