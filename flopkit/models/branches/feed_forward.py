"""The parts of a layer in which each token is by itself: an MLP, or a mixture of
experts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flopkit.arithmetic import exact_div, is_zero, minimum
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.experts import expected_experts, moe
from flopkit.layers.pointwise import ACTIVATIONS, activation, vector_work
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.matrices import Matrix
from flopkit.models.stacks.parts import Part, Run, part, project
from flopkit.sizes import Count, Flag, Size, check_fields, choice, offence
from flopkit.training.memory import Kept

__all__ = ["MLP", "SHARED", "Experts"]

_OWN: tuple[Matrix, Matrix, Matrix] = ("gate_proj", "up_proj", "down_proj")
SHARED: tuple[Matrix, Matrix, Matrix] = ("shared_gate_proj", "shared_up_proj", "shared_down_proj")
_GATED = {
    "silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu",
    "swiglu_clamped": "swiglu_clamped", "swiglu_oai": "swiglu_oai",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MLP(Branch):
    """Two dense layers with an activation between them, or three where the third gates
    (SwiGLU and its like).

    Parameters
    ----------
    d_ff : Size
        Hidden features.
    act : str, optional
        The activation, as `flopkit.activation` calls it, or ``"xielu"`` where it is
        not gated: xIELU has two parameters (Huang and Schlag 2024; Apertus). Of a
        gated one that of the gate, or ``"swiglu_clamped"`` (DeepSeek-V4) and
        ``"swiglu_oai"`` (gpt-oss), which bound the gate and what it multiplies.
    gated : bool, optional
        Whether there is a third matrix, whose output the activated one multiplies.
    bias : Flag, optional
        Whether each dense layer adds a bias.
    down_bias : Flag, optional
        Whether the last one does, where that differs. None: as the others.
    cut : bool, optional
        Whether what the gate makes is brought to 0 below a cutoff, which is so many
        deviations from the mean of the token's features (Gemma 3n). All products are
        made nevertheless.
    """

    d_ff: Size
    act: str = "silu"
    gated: bool = True
    bias: Flag = False
    down_bias: Flag | None = None
    cut: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        choice("act", self.act, (*_GATED, "relu2") if self.gated else (*ACTIVATIONS, "xielu"))

    def parts(self, run: Run, d_model: Any, prefix: str = "", shared: bool = False) -> list[Part]:
        """Its parts; tables show *prefix* before them. *shared*: beside experts, for all tokens."""
        inward: dict[str, Any] = {"reads": ("input",), "makes": ("hidden",), "split": "column"}
        *into, last = SHARED if shared else _OWN
        prefix = "shared_" if shared else prefix
        found = [
            project(each, run, d_model, self.d_ff, self.bias, label=prefix + shown, **inward)
            for each, shown in [*zip(into, _OWN[:2], strict=True)][not self.gated :]
        ]
        kind = _GATED.get(self.act, self.act) if self.gated else self.act
        elements = run.tokens * self.d_ff
        if (
            self.cut
        ):  # a mean; of the deviation a difference, a square and a sum; the cutoff is taken off, and a compare
            work = vector_work("cut", 6 * elements + 5 * run.tokens, 2 * nbytes(elements, run.dtype))
            flow: dict[str, Any] = {"reads": ("hidden",), "makes": ("hidden",)}
            found.append(part(prefix + "cut", work, run.tokens, split="inner", **flow))
        middle = (
            _xielu(elements, run.dtype) if kind == "xielu" else activation(kind, elements=elements, dtype=run.dtype)
        )
        found.append(part(prefix + kind, middle, run.tokens, reads=("hidden",), makes=("hidden",), split="inner"))
        if self.gated and kind == "relu2":
            times = vector_work("product", elements, 3 * nbytes(elements, run.dtype))
            inside: dict[str, Any] = {"reads": ("hidden",), "makes": ("hidden",), "split": "inner"}
            found.append(part(prefix + "gate_product", times, run.tokens, **inside))
        last_bias = self.bias if self.down_bias is None else self.down_bias
        outward: dict[str, Any] = {"reads": ("hidden",), "makes": ("output",), "split": "row", "unread": True}
        return [*found, project(last, run, self.d_ff, d_model, last_bias, label=prefix + _OWN[2], **outward)]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool, shared: bool = False) -> list[Kept]:
        if self.cut:
            raise ValueError(
                "what the backward pass of a cutoff inside an MLP keeps is not known here; train_step counts its FLOPs"
            )
        prefix, down = ("shared, ", SHARED[2]) if shared else ("", _OWN[2])
        return _hidden(prefix, self.act, self.gated, run.tokens * self.d_ff, run.dtype, down)


def _xielu(elements: Any, dtype: Any) -> Cost:
    """x > 0: α·x² + β·x, else α·(exp(x) − 1 − x) + β·x: of the longer branch a compare,
    an exponential less 1, a subtraction, two multiplications and an addition."""
    work = vector_work("xielu", 6 * elements, 2 * nbytes(elements, dtype))
    return replace(work, params_by_role={"bias": 2})


def _hidden(prefix: str, act: str, gated: bool, numbers: Any, dtype: Any, down: Matrix) -> list[Kept]:
    """What an MLP keeps of its hidden features: ReLU's backward pass reads its output,
    that of other activations their input."""
    hidden, before = nbytes(numbers, dtype), nbytes(numbers if act != "relu" else 0, dtype)
    tensor: Any = "experts' hidden" if down in ("experts", SHARED[2]) else ""
    readers = (down,) if gated or act != "relu" else ()
    last = Kept(f"{prefix}down, input", hidden, weights_of=readers, remade=True)
    if not gated:
        return [Kept(f"{prefix}activation, input", before), last]
    return [
        Kept(f"{prefix}gate", before, tensor=tensor), Kept(f"{prefix}up", hidden, tensor=tensor), Kept(f"{prefix}activated gate", hidden, remade=True), last
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
    choice_bias : Flag, optional
        Whether a learned bias is added to the scores by which experts are chosen, and is
        among the parameters (ERNIE 4.5).
    shared_gate : Flag, optional
        Whether a dense layer with one output gates the shared MLP (Qwen1.5-MoE,
        Qwen3-Next).
    act : str, optional
        The activation of an expert and of the shared MLP, as in `MLP`.
    latent : Count, optional
        Features between two matrices for all experts, of which the one brings a token
        to the experts and the other brings their sum back (Nemotron-3). 0: experts read
        and make what the layer does.
    identity : Count, optional
        Experts beside the others that do nothing, for which the router has an output,
        too (LongCat-Flash). *top_k* is then how many of the others are computed on
        average.
    """

    experts: Size
    top_k: Size
    d_ff: Size
    shared_d_ff: Count = 0
    gated: bool = True
    bias: Flag = False
    choice_bias: Flag = False
    shared_gate: Flag = False
    act: str = "silu"
    latent: Count = 0
    identity: Count = 0

    def __post_init__(self) -> None:
        check_fields(self)
        choice("act", self.act, tuple(_GATED if self.gated else ACTIVATIONS))
        if wrong := offence(lambda top_k, experts: top_k > experts, self.top_k, self.experts):
            raise ValueError(f"top_k={wrong[0]} is more than experts={wrong[1]}: choose at most as many as there are")

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        tokens, experts, top_k, width = run.tokens, self.experts, self.top_k, self._width(d_model)
        sizes = {"tokens": tokens, "d_model": width, "d_ff": self.d_ff, "experts": experts, "top_k": top_k}
        both = moe(**sizes, gated=self.gated, dtype=run.dtype)
        computed = (
            both if run.capacity is None else moe(**sizes, gated=self.gated, dtype=run.dtype, capacity=run.capacity)
        )
        matrices = 2 + self.gated
        expert = matrices * width * self.d_ff
        biases = self.bias * ((matrices - 1) * self.d_ff + width)
        added = {} if is_zero(self.bias) else {"bias": experts * biases}
        of_router = (
            {}
            if is_zero(self.bias) and is_zero(self.choice_bias)
            else {"bias": (self.bias + self.choice_bias) * experts}
        )
        choices = experts + self.identity
        routed = (
            both if is_zero(self.identity) else moe(**sizes | {"experts": choices}, gated=self.gated, dtype=run.dtype)
        )
        router = replace(
            both, macs_by_kind={"router": tokens * d_model * choices}, vector_by_kind={"routing": routed.vector_by_kind["routing"]},
            bytes=0, params_by_role={"weight": d_model * choices} | of_router,
        )  # fmt: skip
        worked, hidden = both.macs_by_kind["products"], computed.macs_by_kind["products"]
        element = computed.vector_by_kind["elementwise"] + tokens * top_k * biases
        if self.act != "silu":
            kind, usual = (_GATED[self.act], "swiglu") if self.gated else (self.act, "silu")
            more = ACTIVATIONS[kind].flops - ACTIVATIONS[usual].flops
            element = element + more * exact_div(hidden, matrices * width)
        padding = {} if run.capacity is None else {"padding": hidden - worked}
        chosen = replace(
            computed, params_by_role={"weight": experts * expert} | added,
            macs_by_kind={"products": worked, "idle": tokens * (experts - top_k) * (expert + biases)} | padding,
            vector_by_kind={"elementwise": element},
        )  # fmt: skip
        reached = (
            expected_experts(experts=experts, top_k=top_k, tokens=tokens)
            if run.expected
            else minimum(experts, tokens * top_k)
        )
        stored = ((width, self.d_ff),) * (matrices - 1) + ((self.d_ff, width),)
        inner = is_zero(self.latent)
        found = [
            part("router", router, tokens, formula=f"2·tokens·{d_model}·{choices}", role="router", matrix="router", reads=("input",),
                 makes=("chances",), split="sequence", matrices=((d_model, choices),)),
            part("experts", chosen, tokens, weights=reached * (expert + biases), role="experts", matrix="experts", split="experts", matrices=stored,
                 reads=("input" if inner else "latent", "chances"), makes=("output" if inner else "latent output",),
                 formula=f"2·tokens·{top_k}·{matrices}·{width}·{self.d_ff}"),
        ]  # fmt: skip
        vectors = chosen.params_by_role.get("bias")
        if vectors is not None:  # those of idle experts are among "idle"
            kinds = dict(found[1].cost.macs_by_kind) | {"vectors": tokens * top_k * biases}
            found[1] = found[1]._replace(cost=replace(found[1].cost, macs_by_kind=kinds))
        if not inner:
            down: dict[str, Any] = {"reads": ("input",), "makes": ("latent",), "split": "sequence"}
            up: dict[str, Any] = {
                "reads": ("latent output",),
                "makes": ("output",),
                "split": "sequence",
                "unread": True,
            }
            found.insert(1, project("latent_down", run, d_model, width, **down))
            found.append(project("latent_up", run, width, d_model, **up))
        if not is_zero(self.shared_d_ff):
            found += self._shared.parts(run, d_model, shared=True)
            if not is_zero(self.shared_gate):  # it multiplies the shared MLP's output
                found[-1] = found[-1]._replace(unread=False)
                gate: dict[str, Any] = {"reads": ("input",), "makes": ("output",), "split": "sequence"}
                found.append(project("shared_gate", run, d_model, self.shared_gate, role="router", **gate))
        return found

    @property
    def _shared(self) -> MLP:
        return MLP(d_ff=self.shared_d_ff, gated=self.gated, act=self.act)

    def _width(self, d_model: Any) -> Any:
        """Features that an expert reads and makes."""
        return d_model if is_zero(self.latent) else self.latent

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """That of grouped products over the tokens in the order of their experts."""
        dtype, chosen, width = run.dtype, run.tokens * self.top_k, self._width(d_model)
        found = [
            Kept("router, probabilities", nbytes(run.tokens * (self.experts + self.identity), "fp32"), split="tokens"),
            Kept(
                "experts, inputs in their order",
                nbytes(chosen * width, dtype),
                weights_of=("experts",),
                split="experts",
            ),
            *_hidden("experts, ", self.act, self.gated, chosen * self.d_ff, dtype, "experts"),
            # each is multiplied by its probability
            Kept("experts, outputs", nbytes(chosen * width, dtype), split="experts", tensor="experts' outputs"),
            Kept("experts, probabilities of the chosen", nbytes(chosen, "fp32"), split="experts"),
        ]
        if not is_zero(self.latent):
            found.append(
                Kept("latent, sum of the experts", nbytes(run.tokens * width, dtype), weights_of=("latent_up",))
            )
        if not is_zero(self.shared_d_ff):
            found += self._shared.kept(run, d_model, kernel, dropout, shared=True)
            if not is_zero(self.shared_gate):
                gated = self.shared_gate * run.tokens * (1 + d_model)
                found.append(Kept("shared, gate and output", nbytes(gated, dtype)))
        return found
