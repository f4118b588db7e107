"""What a call costs, worked out once for all calls that cost the same, and remembered from one count to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from flopkit.counter import by_torch, registry
from flopkit.counter.calls import OpCall, tensors
from flopkit.counter.formulas import rule_for
from flopkit.counter.ledger import Entry
from flopkit.counter.watch.autograd import current_node, graph_task
from flopkit.counter.watch.session import Session
from flopkit.counter.work import COUNTED, Work, unknown

_MANY_FLOATS = 200  # of an operator
MANY = 20_000  # shapes that are remembered from one count to the next


def rule_of(func: Any) -> Any:
    """How calls of *func*, which are not known yet, are counted."""
    rules = registry.RULES  # it is another one as soon as somebody registers a formula
    return rules.setdefault(func, rule_for(func))


def look_up(session: Session, rule: Any, func: Any, args: Any, kwargs: Any, out: Any, key: Any) -> Entry:
    """What a call costs: found among those that cost the same, or worked out."""
    if key is not None and rule.dynamic_shape:
        result = key_of(rule, (out,), None)
        key = None if result is None else (result, *key)
        known: Entry | None = rule.entries.get(key)
        if known is not None:
            return known
    work = _work_of(rule, func, args, kwargs, out)
    torch_flops = by_torch.flops_of(func, args, kwargs, out)
    if key is None:
        # Filed by what it came to, not by what it was made of: else each step could be a new line.
        shapes = (func, key_of(rule, args, kwargs))
        entry = Entry(rule.op, work, func, shapes, torch_flops)
        return session.entries.setdefault((shapes, repr(work), torch_flops), entry)
    entry = Entry(rule.op, work, func, (func, *key), torch_flops)
    # An operator that somebody else wrote may compute with complex numbers although it takes and returns none.
    entry.conjugates = getattr(func, "namespace", "") != "aten" or any(
        t.is_complex() for t in tensors((args, kwargs, out))
    )
    if rule.made_up and on_meta(args):
        entry.results = _recipe_of(out)
    if rule.floats_matter:
        # One entry for all floats that change nothing: else a float that is another one in each step would make a line in each.
        first: Entry = rule.entries.setdefault((key[:-1], "any float"), entry)
        if first is not entry and first.work == entry.work and first.results == entry.results:
            if len(rule.entries) > _MANY_FLOATS:
                return first
            entry = first
    rule.entries[key] = entry
    return entry


def _work_of(rule: Any, func: Any, args: Any, kwargs: Any, out: Any) -> Work:
    call = OpCall(func, args, kwargs, out, current_node() if graph_task() != -1 else None)
    try:
        work: Work = rule.formula(call)
    except Exception as error:  # a mistake of ours must not end the program of somebody else
        if registry.users_formula(func) is not None:
            raise
        why = " ".join(str(error).split())[:120]
        failed = f"{rule.op}: flopkit's formula failed ({type(error).__name__}: {why}); please report it"
        try:
            work = replace(unknown(call.bytes()), note=failed)
        except Exception:  # a size that nobody knows yet
            work = replace(unknown(), note=failed)
    return replace(work, dtype=call.dtype) if work.status == COUNTED and not work.dtype else work


# -- what calls have in common that cost the same ---------------------------------------------------------------------

_NUMBERS = frozenset({int, bool, float, complex})
_NAMELESS = frozenset({torch.ScriptObject, torch.Generator})  # packed weights come in a new wrapper at each call


def key_of(rule: Any, args: Any, kwargs: Any) -> Any:
    """What two calls have in common that cost the same; None where that cannot be said (a symbolic size, a sparse tensor)."""
    parts: list[Any] = [torch.get_default_dtype()]  # of what an integer becomes
    ids: list[int] = []
    try:
        _describe(args, parts, ids, rule.elementwise)
        if kwargs:
            parts += kwargs
            _describe(kwargs.values(), parts, ids, rule.elementwise)
        if len(set(ids)) != len(ids):  # a tensor that is given twice is read once
            first: dict[int, int] = {}
            parts += ("same", tuple([first.setdefault(each, place) for place, each in enumerate(ids)]))
        if rule.floats_matter:
            parts.append(_floats_in(args, kwargs))
        key = tuple(parts)
        hash(key)
    except (TypeError, RuntimeError):
        return None
    return key


def _describe(values: Any, parts: list[Any], ids: list[int], roughly: bool) -> None:
    """Put down shapes, number formats and scalars: of a float, and *roughly* of each number, only whether it is 0 (beta: nothing is added to
    the product) or 1 (alpha: nothing is multiplied)."""
    for value in values:
        kind = type(value)
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:  # what it stores does not show in its shape
                raise TypeError(value.layout)
            parts += (value.shape, value.stride(), value.dtype)
            ids.append(id(value))
        elif kind in _NUMBERS:
            known = (value == 0, value == 1) if roughly or kind is float or kind is complex else (value,)
            parts += (kind, *known)
        elif kind is list or kind is tuple or kind is dict:
            if value and type(next(iter(value))) in (int, bool):  # a stride, a shape, a mask of outputs
                parts.append((*value, *map(type, value)))  # to Python True, 1 and 1.0 are the same
                continue
            inner: list[Any] = [*value] if kind is dict else []
            _describe(value.values() if kind is dict else value, inner, ids, roughly)
            parts.append(tuple(inner))
        else:
            parts.append(kind if kind in _NAMELESS else value)


_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def _floats_in(args: Any, kwargs: Any) -> tuple[Any, ...]:
    """The floats among the arguments, of which `_describe` says little."""
    found: list[Any] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) is float or type(value) is complex:
            found.append(value)
        elif type(value) is list or type(value) is tuple:
            found += _floats_in(value, None)
    return tuple(found)


def on_meta(args: Any) -> bool:
    """Whether there are tensors, and none has numbers in it."""
    found = False
    for value in args:
        for each in value if type(value) is list or type(value) is tuple else (value,):
            if isinstance(each, torch.Tensor):
                if not each.is_meta or type(each) not in _PLAIN:
                    return False
                found = True
    return found


_META = torch.device("meta")


def _recipe_of(out: Any) -> Any:
    """How to make *out* again: shape, stride and number format of a strided meta tensor, of a tuple a list of these; None of anything else."""
    if isinstance(out, torch.Tensor):
        whole = type(out) is torch.Tensor and out.is_meta and out.layout is torch.strided and not out.is_quantized
        return (out.shape, out.stride(), out.dtype) if whole and out.storage_offset() == 0 else None
    if type(out) is tuple:
        parts = [None if part is None else _recipe_of(part) or False for part in out]
        return None if False in parts else parts
    return None


def made_up(recipe: Any) -> Any:
    if type(recipe) is list:
        return tuple([None if part is None else made_up(part) for part in recipe])
    shape, stride, dtype = recipe
    return torch.empty_strided(shape, stride, dtype=dtype, device=_META)
