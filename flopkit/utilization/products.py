"""FLOPs by the number format of the products, where they have several: fp8 for the layers' weights, bf16 for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flopkit.cost import Cost
from flopkit.derivations import number_format
from flopkit.names import hint
from flopkit.sizes import short

__all__ = ["PRODUCTS", "by_product", "formats_of_products"]

PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "linear": ("products", "idle", "vectors", "positions", "padding", "unused", "balance"),
    "scores": ("scores", "hidden", "index", "hidden_index", "pairs", "recompute"),
    "router": ("router",),
    "head": ("head", "embedding", "tied"),
}
"""Products of a model by what they multiply, and the kinds of work of each: the layers' weights, attention's queries, keys and values,
the router's weights, the vocabulary."""


def formats_of_products(dtype: Mapping[str, Any]) -> dict[str, str]:
    """The format of each of `PRODUCTS`.

    >>> formats_of_products({"linear": "fp8", "rest": "bf16"})
    {'linear': 'fp8', 'scores': 'bf16', 'router': 'bf16', 'head': 'bf16'}
    """
    for name in dtype:
        if name not in (*PRODUCTS, "rest"):
            raise ValueError(f"dtype: {name!r} is no kind of product; {hint(str(name), (*PRODUCTS, 'rest'))}")
    for name in PRODUCTS:
        if name not in dtype and "rest" not in dtype:
            raise ValueError(
                f"dtype={short(dict(dtype))}: the format of {name!r} is missing; 'rest' gives it to all others"
            )
    return {name: number_format(dtype.get(name, dtype.get("rest"))) for name in PRODUCTS}


def by_product(work: Any, which: str, dtype: Mapping[str, Any]) -> dict[str, Any]:
    """FLOPs of a `Cost` or a training step by the number format of its products, as their convention counts them.

    Raises
    ------
    TypeError
        For work that does not say what it multiplies.

    Examples
    --------
    >>> import flopkit as fk
    >>> step = fk.load("llama-3-8b").train_step(seq=8192)
    >>> flops = by_product(step, "model_flops", {"linear": "fp8", "rest": "bf16"})
    >>> sum(flops.values()) == step.model_flops, round(flops["bf16"] / step.model_flops, 3)
    (True, 0.186)
    """
    formats = formats_of_products(dtype)
    executed = which == "hardware_flops"
    costs: Iterable[Cost]
    if isinstance(work, Cost):
        costs = [work]
    elif isinstance(getattr(work, "forward", None), Cost) and isinstance(getattr(work, "padding", None), Cost):
        costs = [work.forward, work.backward, *([work.recompute, work.padding] if executed else [])]
    else:
        raise TypeError(
            f"dtype={short(dict(dtype))}: {type(work).__name__} does not say which products it has; pass a Cost or a training step"
        )
    role = {kind: name for name, kinds in PRODUCTS.items() for kind in kinds}
    found: dict[str, Any] = {}
    for cost in costs:
        for kind, macs in cost.macs_by_kind.items():
            if isinstance(work, Cost) and kind == "recompute" and not executed:
                continue
            if not cost.convention.share(kind):
                continue
            chosen = formats[role[kind]]
            found[chosen] = found.get(chosen, 0) + cost.convention.flops({kind: macs})
    return found or {next(iter(formats.values())): 0}
