"""Calls of functions as a tool meets them that puts its own in their place: arguments by position or by name, shapes, products."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, prod
from typing import Any, NamedTuple

__all__ = [
    "Asked",
    "Called",
    "Hooked",
    "asked",
    "both",
    "called",
    "estimate",
    "functions",
    "hooked",
    "is_shape",
    "scripted",
]


class Called(NamedTuple):
    """Calls of one function with certain arguments.

    Parameters
    ----------
    name, times : of the function; how often it was called.
    around : the classes of the modules around, as far as they belong to the model, the innermost last.
    ways : in how many ways the model comes to that one: more than one where parents share it.
    elsewhere : whether a thread called it that the program started.
    args, named, out : what was given by position and by name, and what came out: of tensors their shapes.
    looked_up : whether it was looked up by its name, so that what a tool has put there is called; or by which function of torch's own.
    """

    name: str
    times: int
    around: tuple[Any, ...]
    ways: int
    elsewhere: bool
    args: tuple[Any, ...]
    named: dict[str, Any]
    out: Any
    looked_up: bool | str

    def given(self, place: int, key: str) -> Any:
        """An argument, however it was given; None where it was not."""
        return self.args[place] if place < len(self.args) else self.named.get(key)

    @property
    def x(self) -> Any:
        """The shape of the first argument."""
        return self.given(0, "input")

    @property
    def within(self) -> Any:
        """The class of the innermost module around that belongs to the model."""
        return self.around[-1] if self.around else None


def functions(source: Any) -> Iterator[Called]:
    """Every call in the forward passes of what *source* saw."""
    for (name, around, elsewhere, args, named, out, looked_up), times in source.ledger().functions.items():
        yield Called(name, times, around.classes, around.ways, elsewhere, args, dict(named), out, looked_up)


def called(source: Any) -> Iterator[Called]:
    """Those that come to a function which a tool has put in torch's place."""
    for call in functions(source):
        if call.looked_up or call.name == "multi_head_attention_forward":  # (it is not replaced, but what it calls is)
            if call.name != "local_response_norm" and not call.name.startswith("lp_pool"):
                yield call
        if isinstance(call.looked_up, str) and call.looked_up == "upsample":
            yield call._replace(name="upsample")
        yield from _beneath(call)


def _beneath(call: Called) -> Iterator[Called]:
    """What a function of torch.nn.functional calls by name, whoever called it: that is looked up where tools put their own."""
    x, name = call.x, call.name

    def calls(function: str, given: Any, *more: Any) -> Called:
        return call._replace(name=function, args=(given, *more), named={}, looked_up=True)

    if name.startswith("lp_pool") and abs(call.given(1, "norm_type")) == inf:
        yield calls(f"max_pool{name[-2:]}", x)
    elif name.startswith("lp_pool"):
        yield calls(f"avg_pool{name[-2:]}", x)
        yield calls("relu", call.out)
        yield calls("mul", call.out, 1)
    elif name == "local_response_norm":
        longer = call.given(1, "size") - 1
        yield calls("mul", x, x)
        yield calls(f"avg_pool{2 if len(x) == 3 else 3}d", (x[0], x[1] + longer, *x[2:]))
        yield calls("mul", x, 1)
        yield calls("add", x, 1)
    elif name == "interpolate" and call.given(3, "mode") == "area":
        yield calls(f"adaptive_avg_pool{len(x) - 2}d", x)


class Hooked(NamedTuple):
    """Calls of one layer with certain shapes: what it was given first, what came out, how many arguments came by position, how often."""

    layer: Any
    given: Any
    out: Any
    placed: int
    times: int


def hooked(source: Any) -> Iterator[Hooked]:
    """Every call of a layer of the model, which a tool's hook meets. What belongs to no model has no hook, nor has a ScriptModule."""
    for (layer, given, out, placed), times in source.ledger().layers.items():
        if layer.registered and not _is_script(layer.kind):
            yield Hooked(layer, given, out, placed, times)


def scripted(source: Any) -> bool:
    """Whether the model is a ScriptModule, or has one below it, that most tools can hang no hook to."""
    return any(layer.registered and _is_script(layer.kind) for layer, *_ in source.ledger().layers)


def _is_script(kind: type) -> bool:
    import torch

    return issubclass(kind, torch.jit.ScriptModule)


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
