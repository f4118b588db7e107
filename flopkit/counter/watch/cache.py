"""What a call costs, worked out once for all calls that cost the same, and remembered from one count to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flopkit.counter import by_torch, registry
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas import rule_for
from flopkit.counter.ledger import Entry
from flopkit.counter.watch.autograd import current_node, graph_task
from flopkit.counter.watch.signatures import on_meta, recipe_of, signature
from flopkit.counter.work import COUNTED, Work, unknown

if TYPE_CHECKING:
    from flopkit.counter.watch.mode import Watcher

__all__ = ["cached_rule", "known_rules", "look_up", "unknown_entry"]

_MANY_FLOATS = 200  # of an operator
_MANY = 20_000  # shapes that are remembered from one count to the next
_known: tuple[object, dict[Any, Any]] = (None, {})


def known_rules() -> dict[Any, Any]:
    """What is known of operators and shapes from earlier counts, as long as no formula was registered since."""
    global _known
    if _known[0] is not registry.edition or sum(len(rule.entries) for rule in list(_known[1].values())) > _MANY:
        _known = (registry.edition, {})
    return _known[1]


def cached_rule(watcher: Watcher, func: Any) -> Any:
    """How calls of *func* are counted."""
    if watcher.registered is not registry.edition:
        watcher.rules = known_rules()
        watcher.entries.clear()
        watcher.registered = registry.edition
    rule = watcher.rules.get(func)
    if rule is None:
        rule = watcher.rules[func] = rule_for(func)
    return rule


def look_up(watcher: Watcher, rule: Any, func: Any, args: Any, kwargs: Any, out: Any, key: Any, floats: Any) -> Entry:
    """What a call costs: found among those that cost the same, or worked out."""
    if key is not None and rule.dynamic_shape:
        key = (key, signature(out))
        known: Entry | None = rule.exact.get((key, floats)) if floats else rule.entries.get(key)
        if known is not None:
            return known
    work = _work_of(rule, func, args, kwargs, out)
    theirs = by_torch.flops_of(func, args, kwargs, out)
    if key is None:
        # Filed by what it came to, not by what it was made of: else each step could be a new line.
        shapes: Any
        try:
            shapes = (func, signature(args), signature(kwargs))
            hash(shapes)
        except (TypeError, RuntimeError):
            shapes = (func,)
        return watcher.entries.setdefault((shapes, repr(work), theirs), Entry(rule.op, work, func, shapes, theirs))
    entry = Entry(rule.op, work, func, (func, *key), theirs)
    if rule.fresh and on_meta(args):
        entry.results = recipe_of(out)
    if not floats:
        rule.entries[key] = entry
        return entry
    # One entry for all floats that change nothing: else a float that is another one in each step would make a line in each.
    first: Entry = rule.entries.setdefault((key, True), entry)
    if first.work == entry.work and first.results == entry.results:
        entry = first
    if len(rule.exact) > _MANY_FLOATS:
        rule.exact.clear()
    rule.exact[key, floats] = entry
    return entry


def _work_of(rule: Any, func: Any, args: Any, kwargs: Any, out: Any) -> Work:
    call = OpCall(func, args, kwargs, out, current_node() if graph_task() != -1 else None)
    try:
        work: Work = rule.formula(call)
    except Exception as error:  # a mistake of ours must not end the program of somebody else
        if registry.theirs(func) is not None:
            raise
        failed = f"{rule.op}: flopkit's formula failed ({type(error).__name__}: {error}); please report it"
        work = replace(unknown(call.bytes()), note=failed)
    return replace(work, dtype=call.dtype) if work.status == COUNTED and not work.dtype else work


def unknown_entry(watcher: Watcher, rule: Any, func: Any, args: Any, kwargs: Any, out: Any) -> Entry:
    """Of a call that nobody explains: its bytes."""
    work = unknown(OpCall(func, args, kwargs, out).bytes())
    theirs = by_torch.flops_of(func, args, kwargs, out)
    return watcher.entries.setdefault((func, repr(work), theirs), Entry(rule.op, work, func, None, theirs))
