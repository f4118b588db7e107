"""Looking inside: tensor subclasses that run by other operators, and operators whose kernel calls others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from flopkit.counter.calls import tensors
from flopkit.counter.watch.internals import can_decompose, composing, conjugating, has_kernel_for, is_composite

_OPAQUE = frozenset({"FakeTensor", "FunctionalTensor", "Parameter", "Tensor", "Buffer"})
_COMPOSITE = torch.DispatchKey.CompositeImplicitAutograd
_DEVICES = {"cpu": "CPU", "cuda": "CUDA", "mps": "MPS", "xpu": "XPU", "meta": "Meta", "hpu": "HPU", "xla": "XLA"}
_HIDDEN = ("Python", "PythonTLSSnapshot", "PreDispatch", "ADInplaceOrView", "PythonDispatcher")


def is_wrapper(kind: type) -> bool:
    """Whether tensors of this class carry out their operators by calling others on the tensors inside them.

    Jagged tensors, DTensors and quantised subclasses do; a plain tensor, a parameter and a fake tensor do not.
    """
    if kind.__name__ in _OPAQUE:
        return False
    handler = getattr(kind, "__torch_dispatch__", None)
    return handler is not None and handler is not torch._C._disabled_torch_dispatch_impl


def has_kernel(func: Any, args: Any) -> bool:
    """Whether an operator that torch defines by others has a kernel of its own for these tensors: nested ones, or those of a device."""
    first = next((value for value in args if isinstance(value, torch.Tensor)), None)
    if first is None:
        return False
    if first.is_nested or any(isinstance(value, torch.Tensor) and value.is_nested for value in args[1:2]):
        return True
    return has_kernel_for(func, _DEVICES.get(first.device.type, "PrivateUse1"))


def _within(guard: Callable[[], Any], kernel: Callable[..., Any]) -> Callable[..., Any]:
    """*kernel*, whose inside may conjugate and negate, or keep views in mind, as where no mode is at work."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with guard():
            return kernel(*args, **kwargs)

    return run


def inside_of(func: Any, args: Any, kwargs: Any) -> Callable[..., Any] | None:
    """What carries out *func* with the dispatcher watching what it calls; None where that cannot be.

    A composite operator is taken apart. A higher-order operator runs its eager implementation. Any other operator runs the kernel
    of its device, except on meta and fake tensors, whose kernels only make up shapes.
    """
    if isinstance(func, torch._ops.HigherOrderOperator):
        kernel: Any = getattr(func, "py_kernels", {}).get(torch.DispatchKey.CompositeExplicitAutograd)
        if getattr(kernel, "__module__", "") == "torch._higher_order_ops.base_hop":  # foreach_map
            kernel = _call
        kernel = {**EAGER, "strict_mode": _strict}.get(func.name(), kernel)
        return None if kernel is None else _within(conjugating, kernel)
    if not isinstance(func, torch._ops.OpOverload):
        return None
    found = list(tensors((args, kwargs)))
    # Nested tensors have no shape to take an operator apart by, but kernels of their own.
    if can_decompose(func) and not any(t.is_nested for t in found):
        if has_kernel_for(func, _COMPOSITE.name):
            # What torch runs; Python has another version of some.
            run: Callable[..., Any] = functools.partial(func._op_dk, _COMPOSITE)
        else:
            run = func.decompose
        if torch.is_inference_mode_enabled() and is_composite(func):
            return _within(composing, run)
        plain = func.namespace == "aten" and not any(t.is_complex() for t in found)
        return run if plain else _within(conjugating, run)
    if not found or any(t.device.type == "meta" or type(t).__name__ == "FakeTensor" for t in found):
        return None
    if any(
        isinstance(given, (bool, int, float)) and "Tensor" in str(argument.type)
        for argument, given in zip(func._schema.arguments, args, strict=False)
    ):  # x // 2: the number was to become a tensor on the way, which a second dispatch does not do
        return None
    keys = torch._C._dispatch_keys(found[0])
    for other in found[1:]:
        keys = keys | torch._C._dispatch_keys(other)
    keys = keys & torch._C._after_autograd_keyset
    for name in _HIDDEN:
        key = getattr(torch.DispatchKey, name, None)
        if key is not None:
            keys = keys.remove(key)
    best = keys.highestPriorityTypeId()
    if best.name == "???":  # a backend that Python has no name for (oneDNN's own layout)
        return None
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(func.name(), best.name):
        return None
    return _within(conjugating, functools.partial(func.redispatch, keys))


def can_follow(func: Any, args: Any) -> bool:
    """Whether *func* is control flow that can be followed now: its condition is a number, not a symbol.

    torch would trace every branch in order to differentiate one, and tracing is not what is to be counted.
    """
    if func.name() not in EAGER or not args:
        return False
    first = args[0] if func.name() == "cond" else args[2] if len(args) > 2 else ()
    asked = list(first) if isinstance(first, (list, tuple)) else [first]
    return all(type(a) in (bool, int, float) or (type(a) is torch.Tensor and a.device.type != "meta") for a in asked)


def _cond(predicate: Any, if_true: Any, if_false: Any, operands: Any = ()) -> Any:
    """The branch that is taken. (torch's own refuses to run under a mode.)"""
    return (if_true if predicate else if_false)(*operands)


def _while_loop(condition: Any, body: Any, carried: Any, additional: Any = ()) -> Any:
    """Every round that is made."""
    while condition(*carried, *additional):
        found = body(*carried, *additional)
        carried = tuple(found) if isinstance(found, (list, tuple)) else (found,)
    return carried


def _call(function: Any, *operands: Any, **options: Any) -> Any:
    """What most higher-order operators do. (torch's own kernels refuse to run under a mode, some of them.)"""
    return function(*operands)


def _strict(function: Any, operands: Any) -> Any:
    return function(*operands)


EAGER: dict[str, Callable[..., Any]] = {"cond": _cond, "while_loop": _while_loop}
