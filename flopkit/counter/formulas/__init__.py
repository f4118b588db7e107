"""What every operator costs: which of the four kinds it is of, and the formula where it is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

from flopkit.counter import registry
from flopkit.counter.calls import OpCall, name_of
from flopkit.counter.formulas import memory, pointwise, products
from flopkit.counter.formulas.unknown import OPENED, reason_for
from flopkit.counter.ledger import Entry
from flopkit.counter.work import Work, free, unknown

__all__ = ["FLEX", "Rule", "rule_for"]

# The files that register formulas when they are imported.
ROOMS = tuple(
    import_module(f"{__name__}.{name}")
    for name in (
        "attention_kernels", "attention_layers", "convolutions", "elements", "images", "indexing", "linear_algebra", "losses_optimizers",
        "memory", "normalisations", "pointwise", "products", "quantised", "recurrent", "reductions", "sparse",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """How calls of one operator are counted.

    Parameters
    ----------
    op : str
        Its name in tables.
    formula : Callable[[OpCall], Work]
        What gives the `Work` of one call.
    constant : Entry, optional
        The entry itself, where every call costs the same (a view: nothing).
    opens : bool, optional
        Nobody knows it: its inside is looked at.
    composite : bool, optional
        It is defined by torch itself, by other operators.
    data_dependent : bool, optional
        Its cost depends on more than shapes and dtypes.
    dynamic_shape : bool, optional
        Its result's shape depends on the data.
    elementwise : bool, optional
        It is element-wise: the values of its scalars change nothing.
    whole : Rule, optional
        The rule where it is opened elsewhere, for tensors whose kind or device has a kernel of its own: nested ones, a
        GPU's.
    flexes : bool, optional
        It is FlexAttention, whose kernel only a compiler makes.
    attends : bool, optional
        It is attention as a whole, from which everything else follows.
    fresh : bool, optional
        What it returns is new, and follows from shapes, dtypes and arguments that are no tensors.
    valued : bool, optional
        A float among its arguments may change what it costs or returns (the p of a distance, the scale of a new size).
    entries : dict[Any, Entry], optional
        What was found for the shapes that were seen.
    exact : dict[Any, Entry], optional
        The same, where floats were among the arguments.
    special : bool, optional
        `attends`, `flexes` or `opens`: not just run and put down.
    """

    op: str
    formula: Callable[[OpCall], Work]
    constant: Entry | None = None
    opens: bool = False
    composite: bool = False
    data_dependent: bool = False
    dynamic_shape: bool = False
    elementwise: bool = False
    whole: Rule | None = None
    flexes: bool = False
    attends: bool = False
    fresh: bool = False
    valued: bool = False
    entries: dict[Any, Entry] = field(default_factory=dict)
    exact: dict[Any, Entry] = field(default_factory=dict)
    special: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "special", self.attends or self.flexes or self.opens)


def rule_for(func: Any) -> Rule:
    """The rule for *func*: the user's formula, ours, element-wise, free, or to be opened."""
    rule = _explain(func)
    if rule.constant is not None:
        return rule
    return replace(
        rule, fresh=not rule.dynamic_shape and _is_fresh(func), valued=not rule.elementwise and _is_valued(func)
    )


def _is_fresh(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.name.startswith("aten::") or schema.is_mutable:
        return False
    return bool(schema.returns) and all(str(r.type) == "Tensor" and r.alias_info is None for r in schema.returns)


def _is_valued(func: Any) -> bool:
    """Whether it takes floats. Not what changes tensors in place, such as an optimiser's step: its rate changes with each step, and nothing
    that is counted follows from it."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return False
    within = any(a.alias_info is not None and a.alias_info.is_write and not a.is_out for a in schema.arguments)
    return not within and any(
        kind in str(a.type)
        for a in schema.arguments
        for kind in ("float", "number")
        if a.name not in ("eps", "momentum")
    )


def _explain(func: Any) -> Rule:
    import torch

    from flopkit.counter.watch import internals

    name = name_of(func)
    op = name.replace("aten::", "").replace("::", ".")
    dynamic = getattr(torch.Tag, "dynamic_output_shape", None) in getattr(func, "tags", ())
    composite = name.startswith("aten::") and internals.has_kernel_for(func, "CompositeImplicitAutograd")
    # Composite: torch itself defines it by others, in C++.
    by_formula = partial(Rule, op, dynamic_shape=dynamic)
    by_inside = partial(Rule, op, _uncounted, opens=True)
    if (mine := registry.theirs(func)) is not None:
        return by_formula(mine)
    if (ours := registry.FORMULAS.get(name)) is not None:
        if name == "aten::linear" or not composite:
            return by_formula(ours, data_dependent=name in BY_VALUE)
        # Where gradients can be asked for, torch takes it apart before anybody sees it. In inference mode the counter does: the same rows.
        return by_inside(composite=True, whole=Rule(op, ours))
    if name in FLEX:
        return Rule(op, _uncounted, flexes=True)
    if name.startswith("prims::"):  # what torch writes decompositions in: on a real device each calls operators of aten
        return by_inside(composite=True)
    if not hasattr(func, "_schema"):  # a higher-order operator
        return by_inside()
    reason = "" if name in OPENED or memory.packs(name) else reason_for(name)
    if not reason and memory.is_view(func, name):
        # Of a composite one a copy, if a view cannot be had: reshape, to, contiguous.
        return by_inside(composite=True) if composite else Rule(op, _nothing, constant=Entry(op, free(), func))
    vector = pointwise.vector_formula(func, name)
    element = None if vector is None else by_formula(vector, elementwise=True)
    if element is not None and not composite:
        return element
    if element is None and reason:
        return by_formula(_uncounted)
    if (moved := memory.formula_of(func, name)) is not None:
        return by_inside(composite=True, whole=Rule(op, moved)) if composite else by_formula(moved)
    if name == "aten::matmul":
        element = Rule(op, products.nested_product)
    elif not internals.has_kernel_for(func, "CPU"):  # taken apart only where a device has no kernel of its own
        element = None
    defined = internals.can_decompose(func)  # also by Python, and by those who wrote it
    return by_inside(composite=defined, whole=element, attends=op == "scaled_dot_product_attention")


def _uncounted(call: OpCall) -> Work:
    return unknown(call.bytes())


def _nothing(call: OpCall) -> Work:
    return free()


FLEX = ("higher_order::flex_attention", "higher_order::flex_attention_backward")
BY_VALUE = frozenset(name for room in ROOMS for name in getattr(room, "BY_VALUE", ()))
