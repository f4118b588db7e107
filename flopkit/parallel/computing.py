"""What a rank computes of a micro-batch, and the parameters that it has.

Quantities are whole numbers over one denominator, so that of ints nothing is rounded before the last division. Degrees and numbers of layers may be
parameters of a figure: see `flopkit.arithmetic`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from flopkit.arithmetic import Number, where
from flopkit.parallel.ranks import Rank
from flopkit.parallel.shares import Divided

__all__ = ["Over", "Products", "exactly", "matrices_of", "numbers_on", "params_of", "products_of", "share"]


class Over(NamedTuple):
    """``number / among``."""

    number: Number
    among: Number

    def times(self, factor: Number) -> Number:
        """The product, of ints rounded once."""
        return self.number * factor / self.among


class Products(NamedTuple):
    """FLOPs of a micro-batch on a rank: forward and backward, and what is computed again, each over *among*."""

    once: Number
    again: Number
    among: Number

    @property
    def executed(self) -> Number:
        """All of them."""
        return (self.once + self.again) / self.among


def share(each: Divided, layout: Any, experts: Number) -> Number:
    """A rank's part of a quantity of a layer, times ``tensor · experts``; *experts* ranks divide what belongs to experts."""
    t = layout.tensor
    of_tokens = experts if layout.sequence else t * experts
    return each.whole * t * experts + each.tokens * of_tokens + each.features * experts + each.experts * t


def numbers_on(numbers: Any, rank: Rank) -> Iterator[tuple[Any, Number]]:
    """Kinds of layers and how many *rank* has of each; the last rank has the layer for multi-token prediction, where there is one."""
    yield from zip(numbers.kinds, rank.kinds, strict=True)
    if numbers.mtp is not None:
        yield numbers.mtp, int(rank.last)


def products_of(numbers: Any, layout: Any, rank: Rank) -> Products:
    """The FLOPs of a micro-batch on *rank*; a backward pass has twice those of the forward pass.

    Tensor-parallel ranks divide what belongs to experts, too: with the ranks of ``expert`` tokens go to experts, and those of a device stay as many.
    """
    t = layout.tensor
    once: Any = 0
    again: Any = 0
    for kind, count in zip(numbers.kinds, rank.kinds, strict=True):
        forward = share(kind.flops, layout, t)
        once += count * 3 * forward
        again += count * t * kind.again
        if layout.recompute == "selective":
            again += count * t * kind.core
        if layout.recompute == "full":
            again += count * forward
    once += rank.last * 3 * t * numbers.head_flops
    if numbers.mtp is not None:  # which no policy computes again
        once += rank.last * 3 * share(numbers.mtp.flops, layout, t)
        again += rank.last * t * numbers.mtp.again
    b = layout.micro_batch
    return Products(once * b, again * b, t * t * layout.context)


def params_of(numbers: Any, layout: Any, rank: Rank) -> tuple[Over, Over]:
    """Parameters of *rank*: without those of experts, and theirs. A table that embedding and head share is there once; multi-token prediction has an embedding of its
    own beside it, but with DualPipe, whose first rank has the last stage, too."""
    t = layout.tensor
    rest: Any = rank.first * (numbers.before * t + numbers.embedding) + rank.last * numbers.after * t
    rest += rank.last * numbers.head * (1 - numbers.tied * rank.first)
    experts: Any = 0
    if numbers.mtp is not None and layout.order != "dualpipe":  # tokens for multi-token prediction
        rest += rank.last * (1 - rank.first) * numbers.embedding
    for kind, count in numbers_on(numbers, rank):
        rest += count * (kind.params.whole * t + kind.params.features)
        experts += count * kind.params.experts
    return Over(rest, t), Over(experts, where(layout.expert > 1, layout.expert, t))


def matrices_of(numbers: Any, layout: Any, rank: Rank) -> Number:
    """Weights of the matrices of the layers of *rank*, of which FP8 training has copies."""
    by_experts = where(layout.expert > 1, layout.expert, layout.tensor)
    whole = sum(count * share(kind.matrices, layout, by_experts) for kind, count in numbers_on(numbers, rank))
    return exactly(whole, layout.tensor * by_experts)


def exactly(number: Number, among: Number) -> Number:
    """*number* / *among*, of ints as it is: an int or a fraction."""
    if isinstance(number, int) and isinstance(among, int):
        return Fraction(number, among) if number % among else number // among
    return number / among
