"""torch's own layers that are one call of one function: what the function is given follows from the layer, its input and its output.

Such a layer is called without the function mode, and so quicker: a model is largely made of them. What counters would see that put functions
of their own in torch's place is written out afterwards (`file`), and is the same as where the function mode looked on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from flopkit.counter.beyond.called import FUNCTIONS
from flopkit.counter.beyond.layers import Layer, meet
from flopkit.counter.beyond.shapes import one, told

__all__ = ["file", "kinds", "run"]

Given = tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]  # by position, by name

_pop: Any = torch._C._pop_torch_function_stack
_push: Any = torch._C._push_on_torch_function_stack
_SIZE = torch.Size


def run(here: Any, original: Callable[..., Any], module: Any, x: Any) -> Any:
    """Call *module*, whose class is one of `kinds`, by *original* with the tensor *x*, if the one function mode at work is ours."""
    mode = _pop()
    try:
        if getattr(mode, "watcher", None) is here.watcher and not (x.is_nested or x.is_complex()):
            out = original(module, x)
            place = here.place
            if type(out) is torch.Tensor:
                key = (place, x.shape, out.shape, here.ledger.foreign)
            else:
                with torch._C.DisableTorchFunction():
                    key = (place, x.shape, told(out), here.ledger.foreign)
            calls = here.ledger.plain_at
            times = calls.get(key)
            if times is None:
                calls[place, one(key[1]), one(key[2]), key[3]] = 1
                if place.layer is None:
                    meet(here, place, module)
            else:
                calls[key] = times + 1
            return out
    finally:
        _push(mode)
    return NotImplemented


def kinds() -> dict[type, Callable[[Any], bool]]:
    """The classes, and what must hold of a module besides; without those in which somebody has put a function in torch's place."""
    return {
        kind: suits
        for kind, (name, suits, _) in _KINDS.items()
        if FUNCTIONS.get(getattr(F, name)) == name
        and all(
            getattr(vars(base)[part], "__module__", "").startswith("torch.nn.modules.") for base, part in _parts(kind)
        )
    }


def _parts(kind: type) -> list[tuple[type, str]]:
    names = ("forward", "_conv_forward") if issubclass(kind, nn.modules.conv._ConvNd) else ("forward",)
    return [(next(base for base in kind.__mro__ if name in vars(base)), name) for name in names]


def file(calls: dict[Any, int], layers: dict[Any, int], functions: dict[Any, int]) -> None:
    """Add *calls* to those of layers and of functions."""
    for (place, given, out, foreign), times in calls.items():
        layer: Layer | None = place.layer
        if layer is None:  # of a thread that runs on it may be about to be made
            continue
        name, _, arguments = _KINDS[layer.kind]
        more, named = arguments(layer.settings, layer.parameters, given, out)
        for where, key in (
            (layers, (layer, given, out, 1)),
            (functions, (name, layer.within, foreign, (given, *more), named, out, True)),
        ):
            where[key] = where.get(key, 0) + times


def _linear(it: Any, own: Any, given: Any, out: Any) -> Given:
    return (_SIZE((out[-1], given[-1])), _SIZE(out[-1:]) if "bias" in own else None), ()


def _conv(it: Any, own: Any, given: Any, out: Any) -> Given:
    channels = -1 - len(it["kernel_size"])
    weight = _SIZE((out[channels], given[channels] // it["groups"], *it["kernel_size"]))
    bias = weight[:1] if "bias" in own else None
    return (weight, bias, it["stride"], it["padding"], it["dilation"], it["groups"]), ()


def _batch_norm(it: Any, own: Any, given: Any, out: Any) -> Given:
    each = given[1:2]
    weight, bias = (each if name in own else None for name in ("weight", "bias"))
    momentum = 0.0 if it["momentum"] is None else it["momentum"]
    named = (("weight", weight), ("bias", bias), ("training", False), ("momentum", momentum), ("eps", it["eps"]))
    return (each, each), named  # as the function itself hands it on to a mode


def _layer_norm(it: Any, own: Any, given: Any, out: Any) -> Given:
    return (it["normalized_shape"],), (("weight", own.get("weight")), ("bias", own.get("bias")), ("eps", it["eps"]))


def _in_place(it: Any, own: Any, given: Any, out: Any) -> Given:
    return (), (("inplace", it["inplace"]),)


def _approximate(it: Any, own: Any, given: Any, out: Any) -> Given:
    return (), (("approximate", it["approximate"]),)


def _is_leaf(module: Any) -> bool:
    return not module._modules


def _has_weight(module: Any) -> bool:
    """Not a replica's, nor one that is put together anew for each call: that is no parameter, and may have any shape."""
    return "weight" in module._parameters


def _pads_zeros(module: Any) -> bool:
    return module.padding_mode == "zeros" and _has_weight(module)


def _has_statistics(module: Any) -> bool:
    return (
        not module.training
        and _has_weight(module)
        and module._buffers.get("running_mean") is not None
        and module._buffers.get("running_var") is not None
    )


_KINDS: dict[type, tuple[str, Callable[[Any], bool], Callable[[Any, Any, Any, Any], Given]]] = {
    nn.Linear: ("linear", _has_weight, _linear),
    nn.LayerNorm: ("layer_norm", _has_weight, _layer_norm),
    nn.ReLU: ("relu", _is_leaf, _in_place),
    nn.SiLU: ("silu", _is_leaf, _in_place),
    nn.GELU: ("gelu", _is_leaf, _approximate),
    **{getattr(nn, f"Conv{n}d"): (f"conv{n}d", _pads_zeros, _conv) for n in (1, 2, 3)},
    **{getattr(nn, f"BatchNorm{n}d"): ("batch_norm", _has_statistics, _batch_norm) for n in (1, 2, 3)},
}
