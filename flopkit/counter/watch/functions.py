"""The function mode: what torch takes apart, or does otherwise when it is watched, is seen before the dispatcher sees its pieces."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from flopkit.counter.beyond import complexes, flex, regions, spectra
from flopkit.counter.calls import OpCall, name_of
from flopkit.counter.formulas import FLEX
from flopkit.counter.watch import decompose
from flopkit.counter.watch.changes import catch_up, waiting
from flopkit.counter.work import unknown

__all__ = ["Functions"]


def _unexplained(watcher: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Run what nobody explains, and what shows the dispatcher a part of its work or none: it is a row of `uncounted`."""
    here = watcher.here
    if here.busy:
        return func(*args, **kwargs)
    here.busy += 1
    try:
        out = func(*args, **kwargs)
    finally:
        here.busy -= 1
    with torch.DisableTorchFunction():
        watcher.unseen(func.__name__, unknown(OpCall(func, args, kwargs, out).bytes()))
    return out


# torch's first products with packed weights: a library is called with no operator around it.
_FBGEMM = [getattr(torch, name) for name in dir(torch) if name.startswith("fbgemm_linear_") and "weight" in name]
_ABOVE: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(regions.ATTENTION, regions.attention),
    **dict.fromkeys(complexes.CONVOLUTIONS, complexes.convolution),
    **dict.fromkeys(spectra.VALUES, spectra.values),
    **dict.fromkeys(_FBGEMM, _unexplained),
}


class Functions(TorchFunctionMode):
    """Sees attention, and what else torch takes apart or does otherwise when it is watched, before the dispatcher does."""

    def __init__(self, watcher: Any) -> None:
        super().__init__()
        self.watcher = watcher

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        above = _ABOVE.get(func)
        if above is not None and not self.watcher.closed:
            return above(self.watcher, func, args, kwargs or {})
        if type(func) in _FUNCTIONS and not (types and waiting):
            return func(*args, **(kwargs or {}))
        catch_up()  # this mode is not asked about what Python calls in there
        if not isinstance(func, torch._ops.HigherOrderOperator):
            return func(*args, **(kwargs or {}))
        if name_of(func) in FLEX and not self.watcher.closed:
            return flex.attention(self.watcher, func, args, kwargs or {})
        if decompose.chooses(func, args):
            return decompose.EAGER[name_of(func).split("::")[-1]](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


# torch.add, torch.Tensor.add, the getter of torch.Tensor.shape: what is called most, and is never attention by another name.
_FUNCTIONS = frozenset({types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodWrapperType})
