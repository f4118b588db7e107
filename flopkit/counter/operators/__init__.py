"""What every operator costs: which of the four kinds it is of, and the formula where it is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from flopkit.counter import registry
from flopkit.counter.calls import Call, name_of
from flopkit.counter.ledger import Entry
from flopkit.counter.operators import movement, pointwise, products
from flopkit.counter.operators.unexplained import OPENED, UNEXPLAINED
from flopkit.counter.work import Work, free, unknown

__all__ = ["FLEX", "Plan", "explain"]

# The files that register formulas when they are imported.
ROOMS = tuple(
    import_module(f"{__name__}.{name}")
    for name in (
        "attention_kernels", "attention_layers", "bilinear", "cells", "convolutions", "distances", "grouped", "indexing", "losses",
        "movement", "normalisations", "optimizers", "packing", "pointwise", "pools", "products", "quantised", "quantised_elements",
        "recurrent", "reductions", "sampling", "solvers", "sparse", "transforms", "vision",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How calls of one operator are counted.

    Parameters
    ----------
    op : its name in tables.
    formula : gives the `Work` of one call.
    constant : the entry itself, where every call costs the same (a view: nothing).
    opens : nobody knows it: its inside is looked at.
    composite : torch itself defines it by other operators.
    by_value : the cost depends on more than shapes and dtypes.
    by_result : the result's shape depends on the data.
    chained : it is element-wise: the values of its scalars change nothing.
    merges : a compiler could merge it with its element-wise neighbours: ``"link"``; with those before it, and with those after it
        where a row stays on chip: ``"row"``. See `flopkit.counter.watching.chains`.
    nested : the plan for tensors that are nested, where that is another.
    flexes : it is FlexAttention, whose kernel only a compiler makes.
    attends : it is attention as a whole, from which everything else follows.
    fresh : what it returns is new, and follows from shapes, dtypes and arguments that are no tensors.
    entries : what was found for the shapes that were seen.
    special : `attends`, `flexes` or `opens`: not just run and put down.
    """

    op: str
    formula: Callable[[Call], Work]
    constant: Entry | None = None
    opens: bool = False
    composite: bool = False
    by_value: bool = False
    by_result: bool = False
    chained: bool = False
    merges: str = ""
    nested: Plan | None = None
    flexes: bool = False
    attends: bool = False
    fresh: bool = False
    entries: dict[Any, Entry] = field(default_factory=dict)
    special: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "special", self.attends or self.flexes or self.opens)


def explain(func: Any) -> Plan:
    """The plan for *func*: the user's formula, ours, element-wise, free, or to be opened."""
    plan = _explain(func)
    return replace(plan, fresh=plan.constant is None and not plan.by_result and _is_fresh(func))


def _is_fresh(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.name.startswith(("aten::", "prims::")) or schema.is_mutable:
        return False
    return bool(schema.returns) and all(str(r.type) == "Tensor" and r.alias_info is None for r in schema.returns)


def _explain(func: Any) -> Plan:
    import torch

    name = name_of(func)
    op = name.replace("aten::", "").replace("::", ".")
    dynamic = getattr(torch.Tag, "dynamic_output_shape", None) in getattr(func, "tags", ())
    mine = registry.theirs(func)
    if mine is not None:
        return Plan(op, mine, by_result=dynamic)
    if name in UNEXPLAINED and name not in OPENED:
        return Plan(op, lambda call: unknown(call.bytes()), by_result=dynamic)
    ours = registry.FORMULAS.get(name)
    if ours is not None:
        merges = "row" if name in ROWS else "link" if name in LINKS else ""
        return Plan(op, ours, by_result=dynamic, by_value=name in BY_VALUE, merges=merges)
    if name in FLEX:
        return Plan(op, lambda call: unknown(call.bytes()), flexes=True)
    if isinstance(func, torch._ops.OpOverload):
        if movement.is_view(func, name):
            return Plan(op, lambda call: free(), constant=Entry(op, free(), func))
        vector = pointwise.vector_formula(func, name)
        if vector is not None:
            return Plan(op, vector, by_result=dynamic, chained=True, merges="link")
        moved = movement.formula_of(func, name)
        if moved is not None:
            return Plan(op, moved, by_result=dynamic, merges="link" if movement.moves_elementwise(name) else "")
        return Plan(
            op,
            lambda call: unknown(call.bytes()),
            opens=True,
            composite=func._can_decompose(),
            nested=Plan(op, products.nested_product) if name == "aten::matmul" else None,
            attends=op == "scaled_dot_product_attention",
        )
    return Plan(op, lambda call: unknown(call.bytes()), opens=True)


FLEX = ("higher_order::flex_attention", "higher_order::flex_attention_backward")
BY_VALUE = frozenset(name for room in ROOMS for name in getattr(room, "BY_VALUE", ()))
ROWS = frozenset(name for room in ROOMS for name in getattr(room, "ROWS", ()))
LINKS = frozenset(name for room in ROOMS for name in getattr(room, "LINKS", ()))
