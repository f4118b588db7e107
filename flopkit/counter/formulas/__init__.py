"""What every operator costs: which of the four kinds it is of, and the formula where it is counted.

`rule_for` asks, in this order: has the user a formula, or have we? Is it a view, which costs nothing (`memory`)? Does it work element by
element (`elementwise`)? Is it on the list of those that nobody explains (`unknown`)? Does it copy or fill (`memory`)? Where all of that is
no, it is opened, and what runs inside counts. Our formulas stand by subject, many as rows of tables: `elementwise.RECIPES`, `reductions.SIMPLE`,
`linear_algebra.ALGORITHMS`, `products.FACTORS`, `losses_optimizers.LOSSES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

from flopkit.counter import registry
from flopkit.counter.calls import OpCall, name_of
from flopkit.counter.formulas import collectives, elementwise, memory
from flopkit.counter.formulas.unknown import OPENED, reason_for
from flopkit.counter.ledger import Entry
from flopkit.counter.work import Work, free, unknown

# The files that register formulas when they are imported.
_FILES = ("attention_kernels convolutions images linear_algebra losses_optimizers memory normalisations products "
          "quantised recurrent reductions")  # fmt: skip
MODULES = tuple(import_module(f"{__name__}.{name}") for name in _FILES.split())


@dataclass(frozen=True, slots=True)
class Rule:
    """How calls of one operator are counted: its name in tables, the formula that gives the `Work` of one call, and what is known of all calls."""

    op: str
    formula: Callable[[OpCall], Work]
    constant: Entry | None = None  # the entry itself, where every call costs the same (a view: nothing)
    opens: bool = False  # nobody knows it: its inside is looked at
    composite: bool = False  # it is defined by torch itself, by other operators
    data_dependent: bool = False  # its cost depends on more than shapes and dtypes
    dynamic_shape: bool = False  # its result's shape depends on the data
    elementwise: bool = False  # the values of its scalars change nothing
    own_kernel: Rule | None = None  # the rule for tensors that have a kernel of their own (nested ones, a GPU's)
    is_attention: bool = False  # scaled_dot_product_attention itself
    made_up: bool = False  # on meta its result can be made up: it is new, and follows from shapes, dtypes and scalars
    exchanges: bool = False  # it is one of torch.distributed
    floats_matter: bool = False  # to what it costs or returns (the p of a distance, the scale of a new size)
    entries: dict[Any, Entry] = field(default_factory=dict)  # what was found for the shapes that were seen


def rule_for(func: Any) -> Rule:
    """The rule for *func*: the user's formula, ours, element-wise, free, or to be opened."""
    from flopkit.counter.watch import internals

    rule = _explain(func)
    schema = getattr(func, "_schema", None)
    if rule.constant is not None or schema is None:
        return rule
    fresh = schema.name.startswith("aten::") and not schema.is_mutable and not rule.dynamic_shape
    new = schema.returns and all(str(r.type) == "Tensor" and r.alias_info is None for r in schema.returns)
    valued = registry.users_formula(func) is not None or (not rule.elementwise and _is_valued(schema))
    composite = rule.composite or internals.is_composite(func)
    return replace(rule, made_up=fresh and bool(new), floats_matter=valued, composite=composite)


def _is_valued(schema: Any) -> bool:
    """Whether it takes floats. Not what changes tensors in place, such as an optimiser's step: its rate changes with each step, and nothing
    that is counted follows from it."""
    if any(a.alias_info is not None and a.alias_info.is_write and not a.is_out for a in schema.arguments):
        return False
    kinds = [str(a.type) for a in schema.arguments if a.name not in ("eps", "momentum")]
    return any("float" in kind or "number" in kind for kind in kinds)


def _explain(func: Any) -> Rule:
    import torch

    from flopkit.counter.watch import internals

    name = name_of(func)
    op = name.replace("aten::", "").replace("::", ".")
    # Composite: torch itself defines it by others, in C++.
    composite = name.startswith("aten::") and internals.has_kernel_for(func, "CompositeImplicitAutograd")
    dynamic = torch.Tag.dynamic_output_shape in getattr(func, "tags", ()) or name == "aten::_pack_padded_sequence"
    by_formula = partial(Rule, op, dynamic_shape=dynamic)
    by_inside = partial(Rule, op, _uncounted, opens=True)
    if (mine := registry.users_formula(func)) is not None:
        return by_formula(mine)
    if (ours := registry.FORMULAS.get(name)) is not None:
        if name == "aten::linear" or not composite:
            return by_formula(ours, data_dependent=name in BY_VALUE)
        # Where gradients can be asked for, torch takes it apart before anybody sees it. In inference mode the counter does: the same rows.
        return by_inside(composite=True, own_kernel=Rule(op, ours))
    if name in FLEX:
        return Rule(op, _uncounted)  # met before, by `flopkit.counter.watch.flex`
    if name.startswith("prims::"):  # what torch writes decompositions in: on a real device each calls operators of aten
        return by_inside(composite=True)
    if not hasattr(func, "_schema"):  # a higher-order operator
        return by_inside()
    reason = "" if name in OPENED or memory.packs(name) else reason_for(name)
    if not reason and memory.is_view(func, name):
        if composite:  # a copy, where a view cannot be had: reshape, to, contiguous
            return by_inside(composite=True)
        return Rule(op, lambda call: free(), constant=Entry(op, free(), func))
    vector = elementwise.vector_formula(func, name)
    scalars = all(str(argument.type) != "int" for argument in func._schema.arguments)  # else a dimension, such as glu's
    if vector is not None and not composite:
        return by_formula(vector, elementwise=scalars)
    if vector is None and reason:
        return by_formula(_uncounted)
    if (moved := memory.formula_of(func, name)) is not None:
        exchanges = name.startswith(collectives.SPACES)  # a group's size is in no signature
        if composite:
            return by_inside(composite=True, own_kernel=Rule(op, moved))
        return by_formula(moved, data_dependent=exchanges, exchanges=exchanges)
    own_kernel = None
    if vector is not None and internals.has_kernel_for(func, "CPU"):  # only a device without one takes it apart
        own_kernel = by_formula(vector, elementwise=scalars)
    defined = internals.can_decompose(func)  # also by Python, and by those who wrote it
    return by_inside(composite=defined, own_kernel=own_kernel, is_attention=op == "scaled_dot_product_attention")


def _uncounted(call: OpCall) -> Work:
    return unknown(call.bytes())


FLEX = ("higher_order::flex_attention", "higher_order::flex_attention_backward")
BY_VALUE = frozenset(name for module in MODULES for name in getattr(module, "BY_VALUE", ()))
