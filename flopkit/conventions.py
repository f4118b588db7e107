"""What a number called FLOPs counts. A convention is a value: it is carried, printed and translated.

A `Cost` keeps its work by kind. A convention says which share of each kind counts, and what a multiply-add is worth, so
translating a cost is a weighted sum and nothing is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flopkit.arithmetic import is_zero
from flopkit.names import find

__all__ = [
    "CHINCHILLA", "CHINCHILLA_TABLE", "DEEPSEEK", "EXACT", "FVCORE", "KAPLAN", "KINDS", "LLM_FOUNDRY", "MAXTEXT", "MAXTEXT_2024", "MEGATRON", "MEGATRON_2021", "MEGATRON_2022", "NANOGPT", "PALM", "SIX_N", "SIX_N_ACTIVE", "TORCH", "TORCHTITAN", "TORCHTITAN_2024", "VECTOR_KINDS", "VERL",
    "Convention", "as_convention", "of_programs",
]  # fmt: skip

KINDS: Mapping[str, str] = {
    "products": "matrix products and convolutions",
    "scores": "attention, the pairs that the mask lets through",
    "hidden": "attention, the pairs that the mask hides",
    "router": "the router of a mixture of experts",
    "head": "the product with the output vocabulary",
    "embedding": "the input embedding, were it a one-hot product instead of a look-up",
    "recompute": "scores that a flash kernel computes again in its backward pass",
    "padding": "rows of experts that no token fills, under a capacity; less what it drops",
    "tied": "the input embedding, were it a one-hot product, where the head has the same table",
    "vectors": "norms and biases, were each of their parameters a multiply-add a token",
    "positions": "learned positions, were each of their parameters a multiply-add a token",
    "idle": "experts that a token does not choose, had it gone through them",
    "pairs": "attention, all positions of the score matrix, were each of them one multiply-add",
}
"""The kinds of multiply-adds. Those from "tied" on, and "embedding", are not executed: some conventions count them all the same."""

VECTOR_KINDS: Mapping[str, str] = {
    "elementwise": "activations, biases, sums, pooling, positions, losses",
    "norm": "normalisations",
    "softmax": "scale and softmax of attention, the pairs that the mask lets through",
    "hidden_softmax": "scale and softmax of attention, the pairs that the mask hides",
    "routing": "softmax and choice of a router",
}
"""The kinds of element-wise work."""

_COUNTS_AS = {"softmax": "scores", "hidden_softmax": "hidden", "routing": "router"}  # the share that vector work takes
_SHARED = tuple(kind for kind in KINDS if kind != "products")  # those of which a convention counts a share
_OF_A_MODEL = (
    "tied",
    "vectors",
    "positions",
    "idle",
    "pairs",
)  # kinds that whole models keep, and single layers do not


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
    router, head, embedding, recompute, padding : float, optional
        The shares of work of that kind. No convention here counts *padding*: `Step.hardware_flops` adds it.
    tied, vectors, positions, idle, pairs : float, optional
        The shares of what a whole model keeps beside its work, for conventions that count parameters or positions and not
        what is executed: see `KINDS`. For *pairs* the share may be 1.5, which is three FLOPs a position.

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
    padding: float = 0
    tied: float = 0
    vectors: float = 0
    positions: float = 0
    idle: float = 0
    pairs: float = 0
    outside_again: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.source, str):
            raise TypeError(
                f"name={self.name!r}, source={self.source!r}: must be text, for a number is printed with them"
            )
        if self.fma not in (1, 2) or type(self.fma) is not int:
            raise ValueError(f"fma={self.fma!r}: a multiply-add counts as 2 FLOPs or as 1")
        for kind in _SHARED:
            share = getattr(self, kind)
            if kind == "pairs" and share == 1.5:
                continue
            if type(share) not in (bool, int, float) or share not in (0, 0.5, 1):
                raise ValueError(
                    f"{kind}={share!r}: a share is 1 (counts), 0 (does not count) or 0.5 (half of it counts)"
                )

    def share(self, kind: str) -> float:
        """The share of *kind*, one of `KINDS` or `VECTOR_KINDS`, that counts.

        >>> EXACT.share("hidden"), TORCH.share("hidden")
        (0, 1)
        >>> TORCH.share("hidden_softmax"), EXACT.share("norm")
        (1, 1)
        """
        if kind not in KINDS and kind not in VECTOR_KINDS:
            raise KeyError(f"kind={kind!r} is not a kind of work; known: {', '.join((*KINDS, *VECTOR_KINDS))}")
        share: float = getattr(self, _COUNTS_AS.get(kind, kind), 1)
        return share

    @property
    def of_models(self) -> bool:
        """Whether it counts what whole models keep and single layers do not.

        >>> SIX_N.of_models, EXACT.of_models
        (True, False)
        """
        return any(getattr(self, kind) for kind in _OF_A_MODEL)

    def flops(self, macs_by_kind: Mapping[str, Any]) -> Any:
        """FLOPs of multiply-adds by kind: ``fma · Σ share · macs``.

        >>> FVCORE.flops({"products": 10, "hidden": 5})
        15
        """
        return self._weighted(self.fma, macs_by_kind)

    def vector_flops(self, vector_by_kind: Mapping[str, Any]) -> Any:
        """Element-wise FLOPs by kind, those that count: ``Σ share · flops``, whatever a multiply-add is worth.

        >>> work = {"elementwise": 10, "hidden_softmax": 5}
        >>> EXACT.vector_flops(work)
        10
        """
        return self._weighted(1, vector_by_kind)

    def _weighted(self, unit: int, amounts: Mapping[str, Any]) -> Any:
        """Σ unit · share · amount. Weights are taken twice and the sum is halved where one is odd, so ints stay exact."""
        twice = [(int(2 * unit * self.share(kind)), amount) for kind, amount in amounts.items()]
        # equivalent: 2 -> 3 (the same value, by twice the sum)
        if all(weight % 2 == 0 for weight, _ in twice):
            return _settled(total(_times(weight // 2, amount) for weight, amount in twice if weight))
        return divided(total(_times(weight, amount) for weight, amount in twice if weight), 2)

    def __str__(self) -> str:
        return self.name


def as_convention(value: Any) -> Convention:
    """*value*, a convention or the name of one that stands in this module.

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
        known = {name: each for name, each in globals().items() if isinstance(each, Convention)}
        return known[find(value, known, "a convention", argument="convention")]
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


def total(values: Iterable[Any]) -> Any:
    """The sum of *values*; a zero adds nothing, so that a formula stays as short as it can be.

    >>> total([0, 3, 4])
    7
    """
    found: Any = 0
    for value in values:
        found = value if is_zero(found) else found + value
    return found


def divided(value: Any, among: int) -> Any:
    """*value* / *among*, an int where it is one, and exact where a double would round.

    >>> divided(6, 2), divided(5, 2)
    (3, 2.5)
    """
    if isinstance(value, int):
        quotient, rest = divmod(value, among)
        return value / among if rest and abs(value) < 2**53 else quotient if not rest else Fraction(value, among)
    return _settled(value / among)


def _settled(value: Any) -> Any:
    """An int again, where halves of odd counts have added up."""
    return int(value) if isinstance(value, Fraction) and value.denominator == 1 else value


def _times(weight: int, amount: Any) -> Any:
    return amount if weight == 1 else weight * amount


EXACT = Convention(
    "EXACT",
    "flopkit: a multiply-add is two FLOPs; attention counts the pairs that its mask lets through",
)
TORCH = Convention(
    "TORCH",
    "torch.utils.flop_counter: a multiply-add is two FLOPs; attention counts every position of the score matrix",
    hidden=1,
)
FVCORE = Convention(
    "FVCORE",
    "fvcore.nn.FlopCountAnalysis: a multiply-add is one FLOP; attention counts every position of the score matrix",
    fma=1,
    hidden=1,
)

# Those of papers and training frameworks. A flash kernel's recompute is in none of them.
KAPLAN = Convention(
    "KAPLAN",
    "Kaplan et al. 2020, arXiv:2001.08361, table 1: 2N + 2·layers·context·d_attn a token forward, N without embeddings and head; "
    "one of attention's two products at all positions, which is as much as both at half of them",
    scores=0.5, hidden=0.5, head=0, recompute=0,
)  # fmt: skip
PALM = Convention(
    "PALM",
    "Chowdhery et al. 2022, arXiv:2204.02311, appendix B: 6N + 12·layers·heads·head_dim·length a token, all parameters in N; "
    "the paper has no experts, and here N leaves out those that a token does not use",
    hidden=1, embedding=1, vectors=1, positions=1, recompute=0,
)  # fmt: skip
CHINCHILLA = Convention(
    "CHINCHILLA",
    "Hoffmann et al. 2022, arXiv:2203.15556, appendix F: layers, the embedding as a product, the head, and three FLOPs a score for the "
    "softmax; every position of the score matrix",
    hidden=1, embedding=1, tied=1, pairs=1.5, recompute=0,
)  # fmt: skip
CHINCHILLA_TABLE = Convention(
    "CHINCHILLA_TABLE",
    "Hoffmann et al. 2022, arXiv:2203.15556, the count that reproduces table A4: layers and softmax, neither embedding nor head",
    hidden=1, head=0, pairs=1.5, recompute=0,
)  # fmt: skip
MEGATRON_2021 = Convention(
    "MEGATRON_2021",
    "Narayanan et al. 2021, arXiv:2104.04473, equation 3: layers and head, every position of the score matrix; the paper prints FLOPs with full recompute",
    hidden=1, router=0, recompute=0,
)  # fmt: skip
MEGATRON_2022 = Convention(
    "MEGATRON_2022",
    "Korthikanti et al. 2022, arXiv:2205.05198, appendix A: layers and head, every position of the score matrix",
    hidden=1, router=0, recompute=0,
)  # fmt: skip
MEGATRON = Convention(
    "MEGATRON",
    "Megatron-LM, num_floating_point_operations (2026): half of the scores whatever the mask, no router",
    scores=0.5, hidden=0.5, router=0, recompute=0,
)  # fmt: skip
DEEPSEEK = Convention(
    "DEEPSEEK",
    "DeepSeek-AI 2025, arXiv:2505.09343, fitted to the rows of V2 and V3 in table 2: half of the scores, no router, as MEGATRON",
    scores=0.5, hidden=0.5, router=0, recompute=0,
)  # fmt: skip
LLM_FOUNDRY = Convention(
    "LLM_FOUNDRY",
    "MosaicML llm-foundry, scripts/train/benchmarking: 6N + 12·layers·d_model·length a token, where d_model is heads·head_dim; all "
    "parameters in N, learned positions and idle experts, too",
    hidden=1, embedding=1, vectors=1, positions=1, idle=1, recompute=0, outside_again=True,
)  # fmt: skip
NANOGPT = Convention(
    "NANOGPT",
    "nanoGPT, model.py, estimate_mfu: 6N + 12·layers·heads·head_dim·length a token, N without learned positions",
    hidden=1, embedding=1, vectors=1, recompute=0,
)  # fmt: skip
TORCHTITAN_2024 = Convention(
    "TORCHTITAN_2024",
    "torchtitan before pull request 280: 6N + 12·layers·heads·head_dim·length a token, embedding in N",
    hidden=1, embedding=1, vectors=1, positions=1, recompute=0,
)  # fmt: skip
TORCHTITAN = Convention(
    "TORCHTITAN",
    "torchtitan since pull request 280 (for tied models since 3225, May 2026): N leaves out an input embedding that is not tied; layers with a sliding window count as full attention here",
    hidden=1, vectors=1, positions=1, recompute=0,
)  # fmt: skip
MAXTEXT_2024 = Convention(
    "MAXTEXT_2024",
    "MaxText before pull request 1988 (July 2025): layers, router and head, every position of the score matrix",
    hidden=1, recompute=0,
)  # fmt: skip
MAXTEXT = Convention(
    "MAXTEXT",
    "MaxText since pull request 1988 (July 2025): layers, router and head, half of the scores",
    scores=0.5, hidden=0.5, recompute=0,
)  # fmt: skip
VERL = Convention(
    "VERL",
    "verl, FlopsCounter (since pull request 4959): half of the scores, router, and embedding and head as products",
    scores=0.5, hidden=0.5, embedding=1, tied=1, recompute=0,
)  # fmt: skip
SIX_N = Convention(
    "SIX_N",
    "the rule of Kaplan et al. 2020, arXiv:2001.08361, here with all parameters in N: 2N a token forward, 6N with the backward pass",
    scores=0, embedding=1, vectors=1, positions=1, idle=1, recompute=0,
)  # fmt: skip
SIX_N_ACTIVE = Convention(
    "SIX_N_ACTIVE",
    "the same with N the parameters that are active for a token: experts that it does not choose are left out",
    scores=0, embedding=1, vectors=1, positions=1, recompute=0,
)  # fmt: skip
