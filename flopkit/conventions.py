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

__all__ = ["EXACT", "FVCORE", "KINDS", "TORCH", "VECTOR_KINDS", "Convention", "as_convention"]

KINDS: Mapping[str, str] = {
    "products": "matrix products and convolutions",
    "scores": "attention, the pairs that the mask lets through",
    "hidden": "attention, the pairs that the mask hides",
    "router": "the router of a mixture of experts",
    "head": "the product with the output vocabulary",
    "embedding": "the input embedding, were it a one-hot product instead of a look-up",
    "recompute": "work done again in the backward pass",
}
"""The kinds of multiply-adds."""

VECTOR_KINDS: Mapping[str, str] = {
    "elementwise": "activations, biases, sums, pooling, positions, losses",
    "norm": "normalisations",
    "softmax": "scale and softmax of attention, the pairs that the mask lets through",
    "hidden_softmax": "scale and softmax of attention, the pairs that the mask hides",
    "routing": "softmax and choice of a router",
}
"""The kinds of element-wise work."""

_COUNTS_AS = {"softmax": "scores", "hidden_softmax": "hidden", "routing": "router"}  # the share that vector work takes
_SHARED = ("scores", "hidden", "router", "head", "embedding", "recompute")


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

    Notes
    -----
    Element-wise work is no part of `Cost.flops` under any convention here: it has a number of its own, `Cost.vector_flops`.

    Examples
    --------
    >>> half = Convention("mine", "an example", scores=0.5, hidden=0.5)
    >>> half.share("hidden"), half.flops({"products": 10, "scores": 3, "hidden": 2})
    (0.5, 25)
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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.source, str):
            raise TypeError(
                f"name={self.name!r}, source={self.source!r}: must be text, for a number is printed with them"
            )
        if self.fma not in (1, 2) or type(self.fma) is not int:
            raise ValueError(f"fma={self.fma!r}: a multiply-add counts as 2 FLOPs or as 1")
        for kind in _SHARED:
            share = getattr(self, kind)
            if type(share) not in (bool, int, float) or share not in (0, 0.5, 1):
                raise ValueError(
                    f"{kind}={share!r}: a share is 1 (counts), 0 (does not count) or 0.5 (half of it counts)"
                )

    def share(self, kind: str) -> float:
        """The share of *kind*, one of `KINDS` or `VECTOR_KINDS`, that counts.

        >>> EXACT.share("hidden"), TORCH.share("hidden"), TORCH.share("hidden_softmax"), EXACT.share("norm")
        (0, 1, 1, 1)
        """
        if kind not in KINDS and kind not in VECTOR_KINDS:
            raise KeyError(f"kind={kind!r} is not a kind of work; known: {', '.join((*KINDS, *VECTOR_KINDS))}")
        share: float = getattr(self, _COUNTS_AS.get(kind, kind), 1)
        return share

    def flops(self, macs_by_kind: Mapping[str, Any]) -> Any:
        """FLOPs of multiply-adds by kind: ``fma · Σ share · macs``.

        >>> FVCORE.flops({"products": 10, "hidden": 5})
        15
        """
        return self._weighted(self.fma, macs_by_kind)

    def vector_flops(self, vector_by_kind: Mapping[str, Any]) -> Any:
        """Element-wise FLOPs by kind, those that count: ``Σ share · flops``, whatever a multiply-add is worth.

        >>> EXACT.vector_flops({"elementwise": 10, "hidden_softmax": 5})
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
