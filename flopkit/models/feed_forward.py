"""The parts of a layer in which each token is by itself: an MLP, or a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flopkit.arithmetic import is_zero, minimum
from flopkit.layers.experts import moe
from flopkit.layers.pointwise import ACTIVATIONS, activation
from flopkit.models.parts import Part, Run, part, project
from flopkit.sizes import Count, Flag, Size, choice, flag, offence, size

__all__ = ["MLP", "Experts"]

_GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu", "relu": "reglu"}


@dataclass(frozen=True, kw_only=True)
class MLP:
    """Two dense layers with an activation between them, or three where the third gates (SwiGLU and its like).

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
    """

    d_ff: Size
    act: str = "silu"
    gated: bool = True
    bias: Flag = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "d_ff", size("d_ff", self.d_ff))
        object.__setattr__(self, "bias", flag("bias", self.bias))
        choice("act", self.act, tuple(_GATED if self.gated else ACTIVATIONS))

    def parts(self, run: Run, d_model: Any, prefix: str = "") -> list[Part]:
        inward = ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        found = [project(prefix + name, run, d_model, self.d_ff, self.bias) for name in inward]
        kind = _GATED[self.act] if self.gated else self.act
        middle = activation(kind, elements=run.tokens * self.d_ff, dtype=run.dtype)
        found.append(part(prefix + kind, middle, run.tokens))
        return [*found, project(prefix + "down_proj", run, self.d_ff, d_model, self.bias)]


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of experts: a router, *top_k* of *experts* MLPs for each token, and one that all tokens share.

    Parameters
    ----------
    experts, top_k : Size
        Experts to choose from, and chosen for each token.
    d_ff : Size
        Hidden features of each expert.
    shared_d_ff : Count, optional
        Hidden features of the shared MLP (of several shared experts together). 0: there is none.
    gated : bool, optional
        Whether an expert has a third matrix, as in `MLP`.
    bias : Flag, optional
        Whether router and experts add biases (gpt-oss).
    shared_gate : Flag, optional
        Whether a dense layer with one output gates the shared MLP (Qwen1.5-MoE, Qwen3-Next).
    """

    experts: Size
    top_k: Size
    d_ff: Size
    shared_d_ff: Count = 0
    gated: bool = True
    bias: Flag = False
    shared_gate: Flag = False

    def __post_init__(self) -> None:
        for name in ("experts", "top_k", "d_ff"):
            object.__setattr__(self, name, size(name, getattr(self, name)))
        object.__setattr__(self, "shared_d_ff", size("shared_d_ff", self.shared_d_ff, minimum=0))
        for name in ("bias", "shared_gate"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
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
        found = [
            part("router", router, tokens, formula=f"2·tokens·{d_model}·{experts}"),
            part("experts", chosen, tokens, weights=reached * (expert + biases),
                 formula=f"2·tokens·{top_k}·{matrices}·{d_model}·{self.d_ff}"),
        ]  # fmt: skip
        vectors = chosen.params_by_role.get("bias")
        if vectors is not None:  # those of idle experts are among "idle"
            kinds = dict(found[1].cost.macs_by_kind) | {"vectors": tokens * top_k * biases}
            found[1] = found[1]._replace(cost=replace(found[1].cost, macs_by_kind=kinds))
        if not is_zero(self.shared_d_ff):
            found += MLP(d_ff=self.shared_d_ff, gated=self.gated).parts(run, d_model, "shared_")
            if not is_zero(self.shared_gate):
                found.append(project("shared_gate", run, d_model, self.shared_gate))
        return found
