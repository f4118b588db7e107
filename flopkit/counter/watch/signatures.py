"""What two calls have in common that cost the same, and how to make up what an operator returns on meta."""

from __future__ import annotations

from typing import Any

import torch

from flopkit.counter.calls import tensors

__all__ = ["floats_in", "key_of", "made_up", "on_meta", "recipe_of", "signature"]

_SCALARS = frozenset({int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_STRIDED = torch.strided


def signature(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, torch.Tensor):
        if value.layout is not _STRIDED:  # what it stores does not show in its shape
            raise TypeError(value.layout)
        return (value.shape, value.stride(), value.dtype)
    if kind is float or kind is complex:
        return kind, value == 0, value == 1  # beta=0: nothing is added to the product; p=1: no power is taken
    if kind is torch.ScriptObject:  # packed weights come in a new wrapper at each call
        return kind
    if isinstance(value, (list, tuple)):
        if value and type(value[0]) in (int, bool):  # a stride, a shape, a mask of outputs
            return tuple(value)
        return tuple([signature(item) for item in value])
    if isinstance(value, dict):
        return tuple([(name, signature(item)) for name, item in value.items()]) if value else ()
    hash(value)
    return value


def _shapes(values: Any, parts: list[Any]) -> list[Any]:
    """The signature of an element-wise operator: of a scalar it matters what kind it is, and whether it is 1 (as a factor often is)."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout is not _STRIDED:
                raise TypeError(value.layout)
            parts += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, (int, float, complex)):
            parts += (type(value), value == 1)
        elif isinstance(value, (list, tuple)):
            parts.append(tuple(_shapes(value, [])))
        else:
            parts.append(value)
    return parts


def _same(args: Any) -> Any:
    """Which arguments are one and the same tensor, for that is read once; None where each is another."""
    if len(args) < 2:
        if not args or not isinstance(args[0], (list, tuple)):
            return None
    elif len(args) == 2 and not isinstance(args[0], (list, tuple)):
        return args[0] is args[1] or None
    names = []
    for value in args:
        if isinstance(value, torch.Tensor):
            names.append(id(value))
        elif value and type(value) in (list, tuple) and type(value[0]) is not int:
            names += [id(tensor) for tensor in tensors(value)]
    if len(set(names)) == len(names):
        return None
    first: dict[int, int] = {}
    return tuple([first.setdefault(name, scope) for scope, name in enumerate(names)])


def key_of(rule: Any, args: Any, kwargs: Any) -> Any:
    """What two calls have in common that cost the same; None where that cannot be call (a symbolic size, a sparse tensor)."""
    try:
        if rule.elementwise:  # the values of scalars do not change what an element-wise operator costs
            parts = _shapes(args, [_same(args)])
            return tuple(_shapes(kwargs.values(), [*parts, *kwargs])) if kwargs else tuple(parts)
        parts, names, nested = [], [], False
        for value in args:  # as `signature` does, in the time that a count has
            kind = type(value)
            if kind in _TENSORS:
                if value.layout is not _STRIDED:
                    return None
                parts.append((value.shape, value.stride(), value.dtype))
                names.append(id(value))
            elif kind in _SCALARS:
                parts.append(value)
            elif kind is list and value and type(value[0]) is int:
                parts.append(tuple(value))
            else:
                parts.append(signature(value))
                nested = True
        same = _same(args) if nested or len(set(names)) != len(names) else None
        return tuple(parts), signature(kwargs) if kwargs else None, same
    except (TypeError, RuntimeError):
        return None


def floats_in(args: Any, kwargs: Any) -> tuple[Any, ...]:
    """The floats among the arguments, which the key of a call leaves out."""
    found: list[Any] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) is float or type(value) is complex:
            found.append(value)
        elif type(value) is list or type(value) is tuple:
            found += floats_in(value, None)
    return tuple(found)


def on_meta(args: Any) -> bool:
    """Whether the first tensor has no numbers in it."""
    for value in args:
        if type(value) is list or type(value) is tuple:
            value = value[0] if value else None
        if isinstance(value, torch.Tensor):
            return value.is_meta and type(value) in (torch.Tensor, torch.nn.Parameter)
    return False


_META = torch.device("meta")


def recipe_of(out: Any) -> Any:
    """How to make up *out* again; None where it is more than one or several strided meta tensors."""
    if isinstance(out, torch.Tensor):
        whole = type(out) is torch.Tensor and out.is_meta and out.layout is torch.strided and not out.is_quantized
        return (out.shape, out.stride(), out.dtype) if whole and out.storage_offset() == 0 else None
    if type(out) is tuple:
        parts = [None if part is None else recipe_of(part) or False for part in out]
        return None if False in parts else parts
    return None


def made_up(recipe: Any) -> Any:
    if type(recipe) is list:
        return tuple([None if part is None else made_up(part) for part in recipe])
    shape, stride, dtype = recipe
    return torch.empty_strided(shape, stride, dtype=dtype, device=_META)
