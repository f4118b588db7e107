"""What a walk over a model's layers takes along, and what it brings back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flopkit.arithmetic import exact_div
from flopkit.conventions import total
from flopkit.cost import Cost
from flopkit.layers.attentions import SCALE_FLOPS
from flopkit.layers.pointwise import SOFTMAX_FLOPS, residual
from flopkit.layers.products import dense

__all__ = ["Part", "Run", "part"]


@dataclass(frozen=True)
class Run:
    """What goes through the model: *batch* sequences of *q* new tokens, which see *kv* tokens, themselves included.

    Parameters
    ----------
    batch, q, kv : Any
        Sequences, new tokens of each, and tokens that each can see, those in the cache too. In training, kv is q.
    causal : bool, optional
        Whether a token sees only those before it (and itself).
    absorbed : bool, optional
        Whether latent attention runs on the latents themselves, as in decode.
    memory : Any, optional
        Tokens of the encoder's output that cross-attention sees; None where there is none.
    new_memory : bool, optional
        Whether keys and values of that output are made here (in decode they lie in the cache).
    dtype : Any, optional
        Number format of weights and activations.
    capacity : Any, optional
        The capacity factor of experts, as in `flopkit.moe`.
    """

    batch: Any
    q: Any
    kv: Any
    causal: bool = True
    absorbed: bool = False
    memory: Any = None
    new_memory: bool = True
    dtype: Any = "bf16"
    capacity: Any = None

    @property
    def tokens(self) -> Any:
        """New tokens of all sequences."""
        return self.batch * self.q

    @property
    def encoded(self) -> Run:
        """What goes through the encoder whose output is the memory."""
        return Run(self.batch, self.memory, self.memory, causal=False, dtype=self.dtype)


class Part(NamedTuple):
    """A named piece of a layer: its cost, and what a program that keeps activations on the chip has to move for it."""

    cost: Cost
    weights: Any = 0  # numbers of weights that are read
    cache: Any = 0  # numbers of the cache that are moved: keys and values are read or written, states are both
    formula: str = ""  # its FLOPs in words of the sizes
    core: Cost | None = None  # attention's scores and values, which selective recompute computes again
    scores_again: Cost | None = None  # what a flash kernel computes again in its backward pass
    layer: bool = False  # whether it is a stack of layers, which full recompute computes again
    inside: tuple[Any, ...] = ()  # of equal layers: the parts of one of them,
    times: Any = 1  # and how many layers there are
    shape: tuple[Any, ...] = ()  # of a dense layer: its features in and out


def part(
    name: str, cost: Cost, tokens: Any, *, weights: Any = None, cache: Any = 0, formula: str = "", flash_dim: Any = 0
) -> Part:
    """A part under *name*, with the kinds of work that conventions ask for which count parameters or pairs.

    A convention such as 6N takes each parameter for a multiply-add a token. Matrices do that work anyway; for the rest, norms, biases
    and positions, their number times *tokens* is kept under kinds of their own, which EXACT does not count. Of attention, scores of
    *flash_dim* features each are what a flash kernel computes again.
    """
    roles = cost.params_by_role
    kinds = dict(cost.macs_by_kind)
    if roles:
        kinds["vectors"] = tokens * total(roles[role] for role in ("norm", "bias") if role in roles)
    if "position" in roles:
        kinds["positions"] = tokens * roles["position"]
    weights = cost.params if weights is None else weights
    if "scores" not in kinds:
        return Part(replace(cost, name=name, macs_by_kind=kinds), weights, cache, formula)
    each = SCALE_FLOPS + SOFTMAX_FLOPS
    counted = (("scores", "softmax"), ("hidden", "hidden_softmax"))
    pairs = {kind: exact_div(cost.vector_by_kind[vector], each) for kind, vector in counted if kind in kinds}
    kinds["pairs"] = total(pairs.values())
    again = Cost("scores again", macs_by_kind={kind: n * flash_dim for kind, n in pairs.items()} | {"pairs": 0})
    core = Cost("core", macs_by_kind={kind: n for kind, n in kinds.items() if kind in ("scores", "hidden", "pairs")})
    return Part(replace(cost, name=name, macs_by_kind=kinds), weights, cache, formula, core, again)


def project(name: str, run: Run, d_in: Any, d_out: Any, bias: Any = 0, *, tokens: Any = None) -> Part:
    """A dense layer of a block, on each new token or on *tokens*."""
    rows = run.tokens if tokens is None else tokens
    cost = dense(tokens=rows, d_in=d_in, d_out=d_out, bias=bias, dtype=run.dtype)
    return part(name, cost, rows, formula=f"2·tokens·{d_in}·{d_out}")._replace(shape=(d_in, d_out))


def added(name: str, run: Run, d_model: Any) -> Part:
    """The sum that closes a residual branch."""
    return part(name, residual(elements=run.tokens * d_model, dtype=run.dtype), run.tokens)
