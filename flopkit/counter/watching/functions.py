"""The function mode: what torch takes apart, or does otherwise when it is watched, is seen before the dispatcher sees its pieces."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from flopkit.counter.beyond import complexes, fbgemm, flex, regions, spectra
from flopkit.counter.calls import name_of
from flopkit.counter.operators import FLEX
from flopkit.counter.watching import inside

__all__ = ["Functions"]

_ABOVE: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(regions.ATTENTION, regions.attention),
    **dict.fromkeys(complexes.CONVOLUTIONS, complexes.convolution),
    **dict.fromkeys(spectra.VALUES, spectra.values),
    **dict.fromkeys(fbgemm.PRODUCTS, fbgemm.product),
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
        if type(func) in _FUNCTIONS:
            return func(*args, **(kwargs or {}))
        if isinstance(func, torch._ops.HigherOrderOperator) and name_of(func) in FLEX and not self.watcher.closed:
            return flex.attention(self.watcher, func, args, kwargs or {})
        if isinstance(func, torch._ops.HigherOrderOperator) and inside.chooses(func, args):
            return inside.EAGER[name_of(func).split("::")[-1]](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


# torch.add, torch.Tensor.add, the getter of torch.Tensor.shape: what is called most, and is never attention by another name.
_FUNCTIONS = frozenset({types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodWrapperType})
