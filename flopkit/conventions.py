"""What a number called FLOPs counts. A convention is a value: it is carried, printed and translated.

A `Cost` keeps its work by kind. A convention says which share of each kind counts, and what a multiply-add is worth, so
translating a cost is a weighted sum and nothing is recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pkgutil import get_data
from typing import Any, NamedTuple

from flopkit.arithmetic import (
    Number,
    divided as divided,
    reduced,
    total as total,
)  # flopkit.models takes them from here
from flopkit.names import find, hint

__all__ = [
    "CHINCHILLA", "CHINCHILLA_TABLE", "DEEPSEEK", "EXACT", "FVCORE", "KAPLAN", "KINDS", "LLM_FOUNDRY", "MAXTEXT", "MAXTEXT_2024", "MEGATRON",
    "MEGATRON_2021", "MEGATRON_2022", "NANOGPT", "PALM", "PRESETS", "SIX_N", "SIX_N_ACTIVE", "TORCH", "TORCHTITAN", "TORCHTITAN_2024",
    "VECTOR_KINDS", "VERL", "Convention", "Kind", "as_convention", "of_programs",
]  # fmt: skip


class Kind(NamedTuple):
    """A kind of work: the key under which a `Cost` keeps it, and what it is."""

    name: str
    text: str
    executed: bool = True  # whether programs do it: some conventions count work that none does
    of_model: bool = False  # whether whole models keep it, and single layers do not
    shares: tuple[float, ...] = (1, 0, 0.5)  # how much of it a convention may count; a single share is nobody's choice
    goes_with: str = ""  # the multiply-adds whose share it takes: of element-wise work, of an indexer

    def __str__(self) -> str:
        return self.text


def _by_name(*kinds: Kind) -> Mapping[str, Kind]:
    return {kind.name: kind for kind in kinds}


KINDS: Mapping[str, Kind] = _by_name(
    Kind("products", "matrix products and convolutions", shares=(1,)),
    Kind("scores", "attention, the pairs that the mask lets through"),
    Kind("hidden", "attention, the pairs that the mask hides"),
    Kind("index", "an indexer, the pairs that the mask lets through", goes_with="scores"),
    Kind("hidden_index", "an indexer, the pairs that the mask hides", goes_with="hidden"),
    Kind("router", "the router of a mixture of experts"),
    Kind("head", "the product with the output vocabulary"),
    Kind("embedding", "the input embedding, were it a one-hot product instead of a look-up", executed=False),
    Kind("recompute", "scores that a flash kernel computes again in its backward pass"),
    Kind("padding", "rows of experts that no token fills, under a capacity; less what it drops", shares=(0,)),
    Kind("tied", "the input embedding, were it a one-hot product, where the head has the same table", executed=False, of_model=True),
    Kind("vectors", "norms and biases, were each of their parameters a multiply-add a token", executed=False, of_model=True),
    Kind("positions", "learned positions, were each of their parameters a multiply-add a token", executed=False, of_model=True),
    Kind("idle", "experts that a token does not choose, had it gone through them", executed=False, of_model=True),
    Kind("unused", "parameters that no token uses, were each of them a multiply-add a token", executed=False, of_model=True),
    Kind("balance", "what is missing to a multiply-add a token for each parameter in use; below zero where there is more", executed=False, of_model=True),
    Kind("pairs", "all positions of the score matrix, were each of them one multiply-add", executed=False, of_model=True,
         shares=(1, 0, 0.5, 1.5)),
)  # fmt: skip
"""The kinds of multiply-adds, by name. Some are not executed, and some conventions count those, too."""

VECTOR_KINDS: Mapping[str, Kind] = _by_name(
    Kind("elementwise", "activations, biases, sums, pooling, positions, losses", shares=(1,)),
    Kind("norm", "normalisations", shares=(1,)),
    Kind("softmax", "scale and softmax of attention, the pairs that the mask lets through", goes_with="scores"),
    Kind("hidden_softmax", "scale and softmax of attention, the pairs that the mask hides", goes_with="hidden"),
    Kind("routing", "softmax and choice of a router", goes_with="router"),
)
"""The kinds of element-wise work, by name."""


@dataclass(frozen=True)
class Convention:
    """How multiply-adds become FLOPs.

        flops = fma · Σ share(kind) · macs(kind)

    Each share is 1 (that kind of work counts), 0 (it does not) or 0.5 (half of it does).

    Parameters
    ----------
    name : str
        What a printout calls it.
    source : str
        Whose convention it is, and where they say so.
    fma : int, optional
        FLOPs in one multiply-add, 2 or 1. Where it is 1, "FLOPs" are MACs.
    scores, hidden : float, optional
        The shares of query-key pairs that the mask lets through, and that it hides. ``1, 0`` counts the visible pairs,
        ``1, 1`` every position of the score matrix, ``0.5, 0.5`` half of them, whatever the mask. Their element-wise work
        (scale and softmax, in `Cost.vector_flops`) has the same shares.
    router, head, embedding, recompute : float, optional
        The shares of work of that kind.
    tied, vectors, positions, idle, unused, balance, pairs : float, optional
        The shares of what a whole model keeps beside its work, for conventions that count parameters or positions and not
        what is executed: see `KINDS`. For *pairs* the share may be 1.5, which is three FLOPs a position.
        With *balance* each parameter counts as one multiply-add a token, however many rows its product reads; products that
        multiply no parameter (the states of linear attention) do not count then, nor do an indexer's scores.
    outside_again : bool, optional
        Whether full recompute in a training step repeats embedding and head, too.

    Notes
    -----
    Element-wise work has a number of its own, `Cost.vector_flops`, and is no part of `Cost.flops`; CHINCHILLA, which counts a softmax,
    does so by its share of *pairs*.
    A convention that counts parameters (PALM, SIX_N, …) can be asked of a whole model, `flopkit.load`: there each part knows how
    many tokens go through it.

    Examples
    --------
    >>> half = Convention("mine", "an example", scores=0.5, hidden=0.5)
    >>> half.share("hidden")
    0.5
    >>> half.flops({"products": 10, "scores": 3, "hidden": 2})
    25
    """

    name: str
    source: str
    fma: int = 2
    scores: float = 1
    hidden: float = 0
    router: float = 1
    head: float = 1
    embedding: float = 0
    recompute: float = 1
    tied: float = 0
    vectors: float = 0
    positions: float = 0
    idle: float = 0
    unused: float = 0
    balance: float = 0
    pairs: float = 0
    outside_again: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.source, str):
            raise TypeError(
                f"name={self.name!r}, source={self.source!r}: must be text, for a number is printed with them"
            )
        if self.fma not in (1, 2) or type(self.fma) is not int:
            raise ValueError(f"fma={self.fma!r}: a multiply-add counts as 2 FLOPs or as 1")
        for name, kind in KINDS.items():
            share = self.share(name)
            if type(share) not in (bool, int, float) or share not in kind.shares:
                more = "".join(f", here {each} too" for each in kind.shares if each > 1)
                raise ValueError(
                    f"{name}={share!r}: a share is 1 (counts), 0 (does not count) or 0.5 (half of it counts){more}"
                )

    def share(self, kind: str) -> float:
        """The share of *kind*, one of `KINDS` or `VECTOR_KINDS`, that counts.

        >>> EXACT.share("hidden"), TORCH.share("hidden")
        (0, 1)
        >>> TORCH.share("hidden_softmax"), EXACT.share("norm")
        (1, 1)
        """
        known = KINDS.get(kind) or VECTOR_KINDS.get(kind)
        if known is None:
            raise _unknown(kind)
        if kind in ("index", "hidden_index") and self.balance:  # parameters count, and it has none
            return 0
        share: float = known.shares[0] if len(known.shares) == 1 else getattr(self, known.goes_with or kind)
        return share

    @property
    def of_models(self) -> bool:
        """Whether it counts what whole models keep and single layers do not.

        >>> SIX_N.of_models, EXACT.of_models
        (True, False)
        """
        return any(self.share(name) for name, kind in KINDS.items() if kind.of_model)

    def flops(self, macs_by_kind: Mapping[str, Number]) -> Number:
        """FLOPs of multiply-adds by kind: ``fma · Σ share · macs``.

        >>> FVCORE.flops({"products": 10, "hidden": 5})
        15
        """
        return self._weighted(self.fma, macs_by_kind)

    def vector_flops(self, vector_by_kind: Mapping[str, Number]) -> Number:
        """Element-wise FLOPs by kind, those that count: ``Σ share · flops``, whatever a multiply-add is worth.

        >>> work = {"elementwise": 10, "hidden_softmax": 5}
        >>> EXACT.vector_flops(work)
        10
        """
        return self._weighted(1, vector_by_kind)

    def _weighted(self, unit: int, amounts: Mapping[str, Number]) -> Number:
        """Σ unit · share · amount. Weights are taken twice and the sum is halved where one is odd, so ints stay exact."""
        twice = [(unit * self._twice[kind], amount) for kind, amount in amounts.items()]
        # equivalent: 2 -> 3 (the same value, by twice the sum)
        if all(weight % 2 == 0 for weight, _ in twice):
            return reduced(total(_times(weight // 2, amount) for weight, amount in twice if weight))
        return divided(total(_times(weight, amount) for weight, amount in twice if weight), 2)

    @cached_property
    def _twice(self) -> Mapping[str, int]:
        return _Twice((kind, int(2 * self.share(kind))) for kind in (*KINDS, *VECTOR_KINDS))

    def __str__(self) -> str:
        return self.name


class _Twice(dict[str, int]):
    """Twice the share of each kind."""

    def __missing__(self, kind: str) -> int:
        raise _unknown(kind)


def _unknown(kind: str) -> KeyError:
    return KeyError(f"kind={kind!r} is not a kind of work; {hint(kind, (*KINDS, *VECTOR_KINDS))}")


def as_convention(value: Any) -> Convention:
    """*value*, a convention or the name of one in `PRESETS`.

    >>> as_convention("torch") is TORCH
    True

    Raises
    ------
    ValueError
        For a name that is not known.
    TypeError
        For what is neither.
    """
    if isinstance(value, Convention):
        return value
    if isinstance(value, str):
        if value.lower() in ("mac", "macs"):
            such = ", ".join(name for name, each in PRESETS.items() if each.fma == 1)
            raise ValueError(
                f"convention={value!r}: MACs are a unit, and no convention; a multiply-add is one under {such}, and .macs is their number"
            )
        return PRESETS[find(value, PRESETS, "a convention", argument="convention")]
    raise TypeError(
        f"convention={value!r}: must be a flopkit.Convention or the name of one, e.g. fk.conventions.EXACT or 'TORCH'"
    )


def of_programs(convention: Convention | str) -> Convention:
    """As `as_convention`, of those by which a running program can be counted.

    >>> of_programs("TORCH") is TORCH
    True
    """
    convention = as_convention(convention)
    asks = [kind for kind in ("router", "head", "embedding") if convention.share(kind) != EXACT.share(kind)]
    if convention.of_models or asks:
        needs, which = f"asks for the {' and the '.join(asks)}", "which of its operators that is"
        if convention.of_models:
            needs, which = "counts a model's parameters for each token", "which those are"
        raise ValueError(
            f"{convention} {needs}, and a running program does not say {which}; "
            "use a model's formula, fk.load(name), under that convention"
        )
    return convention


def _times(weight: int, amount: Number) -> Number:
    return amount if weight == 1 else weight * amount


def _read() -> dict[str, Convention]:
    import tomllib

    text = (get_data("flopkit", "data/conventions.toml") or b"").decode()
    return {name: Convention(name, **entry) for name, entry in tomllib.loads(text).items()}


PRESETS: Mapping[str, Convention] = _read()
"""The conventions that have a name, by it."""

EXACT = PRESETS["EXACT"]
TORCH = PRESETS["TORCH"]
FVCORE = PRESETS["FVCORE"]
KAPLAN = PRESETS["KAPLAN"]
PALM = PRESETS["PALM"]
CHINCHILLA = PRESETS["CHINCHILLA"]
CHINCHILLA_TABLE = PRESETS["CHINCHILLA_TABLE"]
MEGATRON_2021 = PRESETS["MEGATRON_2021"]
MEGATRON_2022 = PRESETS["MEGATRON_2022"]
MEGATRON = PRESETS["MEGATRON"]
DEEPSEEK = PRESETS["DEEPSEEK"]
LLM_FOUNDRY = PRESETS["LLM_FOUNDRY"]
NANOGPT = PRESETS["NANOGPT"]
TORCHTITAN_2024 = PRESETS["TORCHTITAN_2024"]
TORCHTITAN = PRESETS["TORCHTITAN"]
MAXTEXT_2024 = PRESETS["MAXTEXT_2024"]
MAXTEXT = PRESETS["MAXTEXT"]
VERL = PRESETS["VERL"]
SIX_N = PRESETS["SIX_N"]
SIX_N_ACTIVE = PRESETS["SIX_N_ACTIVE"]
