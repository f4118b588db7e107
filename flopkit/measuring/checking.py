"""Whether a result is right: compared with a reference, or with the function itself in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flopkit.measuring.arguments import tensors
from flopkit.peers.quietly import same_random_state

__all__ = ["TOLERANCE", "Checked", "check_result"]

# The error of a right result, as ‖result − reference‖ / ‖reference‖, by the format that it comes in.
TOLERANCE = {"torch.float64": 1e-10, "torch.float32": 1e-4, "torch.float16": 5e-3, "torch.bfloat16": 2e-2}
TF32 = 3e-3  # of fp32 where products may round their operands to tf32


class Checked(NamedTuple):
    """What a check found: the largest relative error and whether it is small enough, or why there was none."""

    error: float | None = None
    right: bool | None = None
    note: str = ""


def check_result(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], reference: Callable[..., Any] | None, tf32: bool = False
) -> Checked:  # fmt: skip
    """Compare what *fn* gives with *reference* of the same arguments, or with *fn* itself in float64 where it allows that."""
    import torch
    from torch.utils import _pytree

    def ran(function: Callable[..., Any], to: Any = None, seed: int = 0) -> list[Any]:
        def fresh(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            made = leaf.detach().clone()
            made = made.to(to) if to is not None and leaf.is_floating_point() else made
            return made.requires_grad_(leaf.requires_grad)

        with same_random_state():
            torch.manual_seed(seed)
            given, named = _pytree.tree_map(fresh, (args, dict(kwargs)))
            return [each.detach() for each in tensors(function(*given, **named))]

    found = ran(fn)
    if reference is not None:
        right = ran(reference)
    else:
        in_double = copy.deepcopy(fn).double() if isinstance(fn, torch.nn.Module) else fn
        try:
            right = ran(in_double, torch.float64)
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            return Checked(note=f"the result was not checked: in float64 the function raises {type(error).__name__}")
        same = all(a.dtype == b.dtype for a, b in zip(found, right, strict=False))
        if found and same and found[0].dtype != torch.float64:
            return Checked(note="the result was not checked: in float64 it comes in the same format")
    if not found:
        return Checked(note="the result was not checked: the function returns no tensor")
    checked = _compared(found, right, tf32)
    if not checked.right and reference is None and not _compared(found, ran(fn, seed=1), tf32).right:
        return Checked(note="the result was not checked: it depends on random numbers")
    return checked


def _compared(found: list[Any], right: list[Any], tf32: bool) -> Checked:
    if len(found) != len(right) or any(a.shape != b.shape for a, b in zip(found, right, strict=True)):
        return Checked(math.inf, False, "the result has another form than the check's")
    errors = [_error(a, b) for a, b in zip(found, right, strict=True)]
    return Checked(max(errors), all(error <= _tolerance(a, tf32) for error, a in zip(errors, found, strict=True)))


def _error(found: Any, right: Any) -> float:
    """The relative error by norms. NaN and infinity where *right* has the same are no error; anywhere else they are."""
    found, right = (t.to_dense() for t in (found, right.to(found.device)))
    found, right = (t.cdouble() if t.is_complex() else t.double() for t in (found, right))
    finite = right.isfinite()
    same = (found == right) | (found.isnan() & right.isnan())
    if not bool((same | finite).all()) or not bool(found[finite].isfinite().all()):
        return math.inf
    difference, size = (found - right)[finite].norm(), right[finite].norm()
    return float(difference / size) if size else float(difference)


def _tolerance(found: Any, tf32: bool) -> float:
    if tf32 and str(found.dtype) == "torch.float32":
        return TF32
    return TOLERANCE.get(str(found.dtype), 0.0 if not found.is_floating_point() else 1e-1)
