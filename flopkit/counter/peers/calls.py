"""Calls of functions as a tool meets them that puts its own in their place: arguments by position or by name, shapes, products."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

__all__ = ["SHARED", "Asked", "Called", "asked", "both", "called", "estimate", "is_shape", "shared"]

SHARED = "modules that two parents share count for each of them, and that is not in this number"


class Called(NamedTuple):
    """Calls of one function with certain arguments: its name, how often, the class of the layer that calls it, what came out."""

    name: str
    times: int
    within: Any
    args: tuple[Any, ...]
    named: dict[str, Any]
    out: Any

    def given(self, place: int, key: str) -> Any:
        """An argument, however it was given; None where it was not."""
        return self.args[place] if place < len(self.args) else self.named.get(key)

    @property
    def x(self) -> Any:
        """The shape of the first argument."""
        return self.given(0, "input")


def called(source: Any) -> Iterator[Called]:
    """Every call in the forward passes of what *source* saw that comes to a function which a tool has put in torch's place."""
    for (name, within, (args, named), out, looked_up), times in source.ledger().functions.items():
        if looked_up or name == "multi_head_attention_forward":  # (it is not replaced, but what it calls is)
            yield Called(name, times, within, args, dict(named), out)


def is_shape(value: Any) -> bool:
    """Whether a remembered argument was a tensor."""
    import torch

    return isinstance(value, torch.Size)


def both(a: Any, b: Any) -> int:
    """Numbers in the result of an element-wise function of two, as tools have it: sizes compared from the left."""
    if not is_shape(a):
        return prod(b) if is_shape(b) else 1
    if not is_shape(b):
        return prod(a)
    longest = max(len(a), len(b))
    first, second = ((*sizes, *[1] * (longest - len(sizes))) for sizes in (a, b))
    return prod(map(max, first, second))


def estimate(equation: str, shapes: Any) -> float:
    """FLOPs that numpy prints of an einsum's best order: four digits."""
    import numpy as np

    operands = [np.broadcast_to(0.0, tuple(shape)) for shape in shapes]
    said = np.einsum_path(equation.replace(" ", ""), *operands, optimize="optimal")[1]
    (line,) = (line for line in said.splitlines() if "optimized flop" in line.lower())
    return float(line.rpartition(":")[2])


def shared(source: Any) -> bool:
    """Whether a root was called in which two modules have a child in common."""
    return any(of_two for _, _, of_two in source.ledger().roots)


class Asked(NamedTuple):
    """What ``multi_head_attention_forward`` asks of functions of its own.

    Parameters
    ----------
    projections : multiply-adds of its projections, the last one included.
    scores : numbers in the score matrices of all heads.
    head : the size of a head.
    weights : whether it computes the weights itself, as products and a softmax.
    mask : numbers in the mask that it adds to the products; None without one.
    """

    projections: int
    scores: int
    head: int
    weights: bool
    mask: int | None


def asked(call: Called) -> Asked:
    """The same of one call of it."""
    query, key, value = call.args[:3]
    width, heads = call.args[3], call.args[4]
    batch = query[1] if len(query) == 3 else 1
    length, out = query[0], call.given(11, "out_proj_weight")
    projections = width * (prod(query) + prod(key) + prod(value)) + length * batch * prod(out)
    weights = call.named.get("need_weights", True)
    extra = (call.given(7, "bias_k") is not None) + bool(call.given(9, "add_zero_attn"))
    scores = batch * heads * length * (key[0] + extra)
    mask, padding = call.named.get("attn_mask"), call.named.get("key_padding_mask")
    numbers = None
    if mask is not None:
        numbers = scores if padding is not None or len(mask) == 3 else scores // (batch * heads)
    elif padding is not None:
        numbers = batch * heads * (key[0] + extra)
    return Asked(projections, scores, width // heads, bool(weights), numbers)
