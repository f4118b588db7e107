"""What a call costs, worked out once for all calls that cost the same, and remembered from one count to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flopkit.counter import by_torch, registry
from flopkit.counter.calls import Call
from flopkit.counter.ledger import Entry
from flopkit.counter.operators import explain
from flopkit.counter.watching.autograd import current_node, graph_task
from flopkit.counter.watching.signatures import on_meta, recipe_of, signature
from flopkit.counter.work import COUNTED, unknown

if TYPE_CHECKING:
    from flopkit.counter.watching.watcher import Watcher

__all__ = ["known_plans", "look_up", "plan_of", "unknown_entry"]

_MANY_FLOATS = 200  # of an operator
_MANY = 20_000  # shapes that are remembered from one count to the next
_known: tuple[object, dict[Any, Any]] = (None, {})


def known_plans() -> dict[Any, Any]:
    """What is known of operators and shapes from earlier counts, as long as no formula was registered since."""
    global _known
    if _known[0] is not registry.edition or sum(len(plan.entries) for plan in list(_known[1].values())) > _MANY:
        _known = (registry.edition, {})
    return _known[1]


def look_up(watcher: Watcher, plan: Any, func: Any, args: Any, kwargs: Any, out: Any, key: Any, floats: Any) -> Entry:
    """What a call costs: found among those that cost the same, or worked out."""
    if key is None:
        return _entry(watcher, plan, func, args, kwargs, out, None)
    if plan.by_result:
        key = (key, signature(out))
        entry: Entry | None = plan.exact.get((key, floats)) if floats else plan.entries.get(key)
        if entry is not None:
            return entry
    entry = _entry(watcher, plan, func, args, kwargs, out, key)
    if plan.fresh and on_meta(args):
        entry.results = recipe_of(out)
    if not floats:
        plan.entries[key] = entry
        return entry
    # One entry for all floats that change nothing: else a float that is another one in each step would make a line in each.
    first = plan.entries.setdefault((key, True), entry)
    if first.work == entry.work and first.results == entry.results:
        entry = first
    if len(plan.exact) > _MANY_FLOATS:
        plan.exact.clear()
    plan.exact[key, floats] = entry
    return entry


def _entry(watcher: Watcher, plan: Any, func: Any, args: Any, kwargs: Any, out: Any, key: Any) -> Entry:
    call = Call(func, args, kwargs, out, current_node() if graph_task() != -1 else None)
    try:
        work = plan.formula(call)
    except Exception as error:  # a mistake of ours must not end the program of somebody else
        if registry.theirs(func) is not None:
            raise
        failed = f"{plan.op}: flopkit's formula failed ({type(error).__name__}: {error}); please report it"
        work = replace(unknown(call.bytes()), note=failed)
    theirs = by_torch.flops_of(func, args, kwargs, out)
    if work.status == COUNTED and not work.dtype:
        work = replace(work, dtype=call.dtype)
    if key is not None:
        return Entry(plan.op, work, func, (func, *key), theirs)
    # Filed by what it came to, not by what it was made of: else each step could be a new line.
    shapes: Any
    try:
        shapes = (func, signature(args), signature(kwargs))
        hash(shapes)
    except (TypeError, RuntimeError):
        shapes = (func,)
    return watcher.entries.setdefault((shapes, repr(work), theirs), Entry(plan.op, work, func, shapes, theirs))


def unknown_entry(watcher: Watcher, plan: Any, func: Any, args: Any, kwargs: Any, out: Any) -> Entry:
    """Of a call that nobody explains: its bytes."""
    work = unknown(Call(func, args, kwargs, out).bytes())
    theirs = by_torch.flops_of(func, args, kwargs, out)
    return watcher.entries.setdefault((func, repr(work), theirs), Entry(plan.op, work, func, None, theirs))


def plan_of(watcher: Watcher, func: Any) -> Any:
    """How calls of *func* are counted; what is known of it, as long as no formula was registered since."""
    if watcher.registered is not registry.edition:
        watcher.plans = known_plans()
        watcher.entries.clear()
        watcher.registered = registry.edition
    plan = watcher.plans.get(func)
    if plan is None:
        plan = watcher.plans[func] = explain(func)
    return plan
