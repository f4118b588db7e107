"""What is kept of a tensor and of other arguments: shapes and plain settings, nothing that holds memory."""

from __future__ import annotations

from typing import Any

import torch

from flopkit.counter.told import Listed

__all__ = ["SIMPLE", "TENSORS", "one", "shape_of", "told"]

TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
SIMPLE = frozenset({int, bool, str, float, type(None)})


def told(value: Any) -> Any:
    """Of a tensor its shape, of plain settings their value, of tuples and lists each part, of the rest nothing."""
    if type(value) in SIMPLE:
        return value
    if isinstance(value, torch.Tensor):
        return sizes(value)
    if isinstance(value, (tuple, list)):
        parts = [told(each) for each in value]
        return Listed(parts) if isinstance(value, list) else tuple(parts)
    return value if isinstance(value, (int, str, float)) else None


def shape_of(value: Any) -> Any:
    """The shape of a tensor, of the first one in a tuple or list, of the last one in a dict; of packed sequences that of their data."""
    if isinstance(value, torch.Tensor):
        return sizes(value)
    if isinstance(value, (tuple, list)) and value:
        return shape_of(value[0])
    return shape_of([*value.values()][-1]) if isinstance(value, dict) and value else None


def sizes(tensor: torch.Tensor) -> Any:
    """The shape of a tensor; None of a strided nested one, which has no single shape."""
    return None if tensor.is_nested and tensor.layout is torch.strided else one(tensor.shape)


_known: dict[Any, Any] = {}


def one(value: Any) -> Any:
    """One shape, or tuple of classes, for all that are equal, so that few are kept: Python looks through what is kept now and then, and
    that takes time."""
    if len(_known) > 10_000:
        _known.clear()
    return _known.setdefault(value, value)
