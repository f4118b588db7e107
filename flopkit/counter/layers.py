"""Which layers and functions were called, with which shapes: what counters go by that are made of hooks, or that trace."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["FUNCTIONS", "Layer", "function", "note"]

FUNCTIONS: dict[Any, str] = {
    F.linear: "linear",
    **dict.fromkeys(
        (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm), "matmul"
    ),
    torch.einsum: "einsum",
    F.multi_head_attention_forward: "multi_head_attention_forward",
    **dict.fromkeys((F.batch_norm, torch.batch_norm), "batch_norm"),
    **dict.fromkeys((F.layer_norm, torch.layer_norm), "layer_norm"),
    **dict.fromkeys((F.group_norm, torch.group_norm), "group_norm"),
    F.instance_norm: "instance_norm",
    F.adaptive_avg_pool2d: "adaptive_avg_pool2d",
    F.interpolate: "interpolate",
    F.grid_sample: "grid_sample",
}
_WITH_PARTS = (torch.nn.MultiheadAttention,)  # layers that are made of others, and count as one
_PLAIN = (int, bool, str, float, tuple, type(None))


class Layer:
    """A layer as a hook meets it: its path, its class, its settings, the shapes of its own parameters; no tensor and no module."""

    __slots__ = ("kind", "parameters", "path", "settings")

    def __init__(self, module: Any, path: str) -> None:
        self.path = path
        self.kind = type(module)
        self.settings = {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("_") and isinstance(value, _PLAIN)
        }
        self.parameters = {
            name: tuple(int(size) for size in parameter.shape)
            for name, parameter in module._parameters.items()
            if parameter is not None
        }


def note(here: Any, module: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Put down a call of *module*, if it is a layer: one that is made of no others."""
    if (module._modules and type(module) not in _WITH_PARTS) or here.task != -1:  # (in a backward pass: done again)
        return
    place = here.place
    with torch._C.DisableTorchFunction():
        if type(module) in _WITH_PARTS:
            shapes: tuple[Any, ...] = (tuple(_told(each) for each in (*args, *kwargs.values())), _told(out))
        else:
            shapes = (_shape(args[0]) if args else _shape(next(iter(kwargs.values()), None)), _shape(out))
        if place.layer is None:
            place.layer = Layer(module, place.path)
    key = (place.layer, *shapes)
    layers = here.ledger.layers
    layers[key] = layers.get(key, 0) + 1


def function(watcher: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Call *func*, and put the call down: its name, the class of the layer that calls it, what it was given, what came out."""
    out = func(*args, **kwargs)
    here = watcher.here
    if here.task == -1:
        with torch._C.DisableTorchFunction():
            module = here.place.module() if here.place.module is not None else None
            given = tuple([_told(each) for each in args]), tuple([(name, _told(each)) for name, each in kwargs.items()])
            key = (FUNCTIONS[func], type(module), given, _told(out))
        functions = here.ledger.functions
        functions[key] = functions.get(key, 0) + 1
    return out


def _told(value: Any) -> Any:
    """Of a tensor its shape, of plain settings their value, of tuples and lists each part, of the rest nothing."""
    if isinstance(value, torch.Tensor):
        return _sizes(value)
    if isinstance(value, (tuple, list)):
        return tuple([_told(each) for each in value])
    return value if isinstance(value, (int, bool, str, float)) else None


def _shape(value: Any) -> Any:
    """The shape of a tensor, or of the first one in a tuple; of packed sequences that of their data."""
    if isinstance(value, torch.Tensor):
        return _sizes(value)
    if isinstance(value, tuple) and value:
        return _shape(value[0])
    return None


def _sizes(tensor: torch.Tensor) -> Any:
    """The shape of a tensor; None of a strided nested one, which has no single shape."""
    return None if tensor.is_nested and tensor.layout is torch.strided else tensor.shape
