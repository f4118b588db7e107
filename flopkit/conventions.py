"""What a number called FLOPs counts. A convention is a value: it is carried, printed and translated.

A `Cost` keeps its multiply-adds by kind. A convention says how many FLOPs one multiply-add of
each kind is worth, so translating a cost is a weighted sum and nothing is recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["EXACT", "FVCORE", "KINDS", "TORCH", "Convention"]

KINDS: Mapping[str, str] = {
    "products": "matrix products and convolutions",
    "scores": "attention, the pairs that the mask lets through",
    "hidden": "attention, the pairs that the mask hides",
    "router": "the router of a mixture of experts",
    "head": "the product with the output vocabulary",
    "embedding": "the input embedding, were it a one-hot product instead of a look-up",
    "recompute": "work done again in the backward pass",
}

Scores = Literal["visible", "full", "half"]


@dataclass(frozen=True)
class Convention:
    """How multiply-adds become FLOPs.

    Parameters
    ----------
    name : what a printout calls it.
    source : whose convention it is, and where they say so.
    fma : FLOPs in one multiply-add, 2 or 1. Where it is 1, "FLOPs" are MACs.
    scores : which query-key pairs count. ``"visible"``: those the mask lets through. ``"full"``: every
        position of the score matrix. ``"half"``: half of them, whatever the mask. Their element-wise work (scale and
        softmax, in `Cost.vector_flops`) counts for the same pairs.
    router, head, embedding, recompute : whether work of that kind counts.

    Not counted under any convention here: element-wise work, which has a number of its own
    (`Cost.vector_flops`).

    >>> Convention("mine", "an example", fma=1, scores="full").weight("hidden")
    1
    """

    name: str
    source: str
    fma: int = 2
    scores: Scores = "visible"
    router: bool = True
    head: bool = True
    embedding: bool = False
    recompute: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.source, str):
            raise TypeError(
                f"name={self.name!r}, source={self.source!r}: must be text, for a number is printed with them"
            )
        if self.fma not in (1, 2) or type(self.fma) is not int:
            raise ValueError(f"fma={self.fma!r}: a multiply-add counts as 2 FLOPs or as 1")
        if self.scores not in ("visible", "full", "half"):
            raise ValueError(f"scores={self.scores!r}: must be 'visible', 'full' or 'half'")
        if self.scores == "half" and self.fma == 1:
            raise ValueError("fma=1 with scores='half' has no whole-number weights: no published convention uses it")
        for name in ("router", "head", "embedding", "recompute"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name}={getattr(self, name)!r}: must be True or False")

    def weight(self, kind: str) -> int:
        """FLOPs that one multiply-add of *kind* is worth.

        >>> EXACT.weight("hidden"), TORCH.weight("hidden"), FVCORE.weight("products")
        (0, 2, 1)
        """
        if kind in ("scores", "hidden"):
            if self.scores == "half":
                return 1
            return self.fma if kind == "scores" or self.scores == "full" else 0
        if kind not in KINDS:
            raise KeyError(f"kind={kind!r} is not a kind of work; known: {', '.join(KINDS)}")
        return self.fma if getattr(self, kind, True) else 0

    def __str__(self) -> str:
        return self.name


EXACT = Convention(
    "EXACT",
    "flopkit: a multiply-add is two FLOPs; attention counts the pairs that its mask lets through",
)
TORCH = Convention(
    "TORCH",
    "torch.utils.flop_counter: a multiply-add is two FLOPs; attention counts every position of the score matrix",
    scores="full",
)
FVCORE = Convention(
    "FVCORE",
    "fvcore.nn.FlopCountAnalysis: a multiply-add is one FLOP; attention counts every position of the score matrix",
    fma=1,
    scores="full",
)
