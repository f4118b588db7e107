"""Which layers were called, with which shapes: what counters made of hooks go by."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Layer", "note"]

_PLAIN = (int, bool, str, float, tuple, type(None))


class Layer:
    """A layer as a hook meets it: its class, its settings, the shapes of its own parameters. It holds no tensor and no module."""

    __slots__ = ("kind", "parameters", "settings")

    def __init__(self, module: Any) -> None:
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
    if module._modules or here.task != -1:  # (in a backward pass: done again)
        return
    place = here.place
    with torch._C.DisableTorchFunction():
        shapes = (_shape(args[0]) if args else _shape(next(iter(kwargs.values()), None)), _shape(out))
        if place.layer is None:
            place.layer = Layer(module)
    key = (place.layer, *shapes)
    layers = here.ledger.layers
    layers[key] = layers.get(key, 0) + 1


def _shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a tensor, or of the first one in a tuple; of packed sequences that of their data."""
    if isinstance(value, torch.Tensor):
        return value.shape
    if isinstance(value, tuple) and value:
        return _shape(value[0])
    return None
