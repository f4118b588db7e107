"""Arithmetic element by element: which operators do it, and how much of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.counter.calls import OpCall, numel, tensors
from flopkit.counter.formulas.recipes import RECIPES, Recipe, complex_flops
from flopkit.counter.work import Work, elementwise

__all__ = ["is_pointwise", "plain", "vector_formula"]

# Pointwise by torch's own tag, and yet no arithmetic is done: numbers are copied, chosen or filled in. See `movement`.
NO_ARITHMETIC = frozenset(
    "clone copy to where masked_fill positive conj_physical _conj_physical fill zero equal frexp_".split()
)

# Element by element, and not (or not in every overload) tagged as such.
UNTAGGED = frozenset(
    "add sub mul div rsub floor_divide remainder eq ne lt le gt ge __and__ __or__ __xor__ __iand__ __ior__ "
    "__lshift__ __rshift__ __ilshift__ __irshift__ bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift "
    "isnan isinf isposinf isneginf heaviside gcd lcm deg2rad rad2deg copysign abs threshold hardshrink softshrink "
    "linalg_cross dequantize quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic".split()
)  # fmt: skip


def plain(name: str) -> str:
    """The operator's name without namespace, ``_`` of the in-place form and ``_foreach_``.

    >>> plain("aten::_foreach_addcdiv_"), plain("aten::__and__")
    ('addcdiv', '__and__')
    """
    # equivalent: 1 -> 2 [1] (an operator's name has one pair of colons)
    short = name.rsplit("::", 1)[-1]
    if short.endswith("_functional"):
        short = short.removesuffix("_functional")
    if short.endswith("_") and not short.endswith("__"):
        short = short[:-1]
    return short.removeprefix("_foreach_")


def is_pointwise(func: Any, name: str) -> bool:
    """Whether the operator works element by element, by torch's own tag or by our lists."""
    import torch

    short = plain(name)
    if torch.Tag.pointwise in func.tags:
        return True
    if not name.startswith(("aten::", "quantized::")):  # somebody else's operator may have any name
        return False
    if short in RECIPES or short in UNTAGGED:
        return True
    if name.startswith("aten::_foreach_"):
        return short not in ("norm", "max", "powsum", "mm")
    if name.startswith("aten::") and hasattr(
        torch.ops.aten, short
    ):  # an overload without the tag: as the operator's others
        packet = getattr(torch.ops.aten, short)
        return any(torch.Tag.pointwise in getattr(packet, each).tags for each in packet.overloads())
    return False


def vector_formula(func: Any, name: str) -> Callable[[OpCall], Work] | None:
    """The formula of an element-wise operator; None where it is none."""
    short = plain(name)
    if short in NO_ARITHMETIC or not is_pointwise(func, name):
        return None
    return _formula(RECIPES.get(short, _ONE), short)


_ONE = Recipe(1, "one operation")


def _formula(recipe: Recipe, name: str) -> Callable[[OpCall], Work]:
    def work(call: OpCall) -> Work:
        results = _results(call)
        flops = recipe.of(call)
        if any(t.dtype.is_complex for t in tensors(call.args)):
            flops = complex_flops(name, call, flops)
        return elementwise(flops * sum(map(numel, results)), call.bytes())

    return work


def _results(call: OpCall) -> list[Any]:
    """The tensors that the elements are counted in: of the result or, where nothing is returned, what is changed in place."""
    if "_foreach_" in call.name:
        return list(tensors(call.out)) or list(tensors(call.args[0]))
    found = call.outputs or call.inputs
    return found[:1]
