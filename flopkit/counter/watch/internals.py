"""What torch does not publish and the counter needs, under names of our own. (Those of autograd are in `autograd`.)"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils import _python_dispatch

_functorch = torch._C._functorch

# The stack of dispatch modes, of this thread.
dispatch_modes = _python_dispatch._get_current_dispatch_mode_stack
push_dispatch = torch._C._push_on_torch_dispatch_stack
pop_dispatch: Any = torch._C._pop_torch_dispatch_stack
how_many_dispatch = torch._C._len_torch_dispatch_stack
_CHOOSING = frozenset(("_CachingTorchDispatchMode", "_CachedTorchDispatchMode"))  # forward, and when it is recomputed


def leave(mode: Any) -> None:
    """Take a mode off the stack, as often as it is there. Others that were entered after it stay (another count, in another task)."""
    kept: list[Any] = []
    while any(other is mode for other in dispatch_modes()):
        if (top := pop_dispatch(None)) is not mode:
            kept.append(top)
    for other in reversed(kept):
        push_dispatch(other)


def is_selective_checkpoint_around() -> bool:
    """Whether a mode is at work that asks of each operator whether its result is kept."""
    return any(type(mode).__name__ in _CHOOSING for mode in dispatch_modes())


# No dispatch mode sees what runs inside. The public API only enters and leaves a mode of your own.
without_dispatch = torch._C._DisableTorchDispatch

# Below a dispatch mode torch leaves these keys out, so that what a kernel conjugates or negates inside stays as it was: it gives other
# numbers (`torch.linalg.pinv` of a complex matrix). Torch publishes no way to take them in again.
_LAZY = functools.reduce(
    operator.or_, [torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)) for key in ("Conjugate", "Negative", "ZeroTensor")]
)  # fmt: skip
_included, _excluded = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set
# Left out, too, is the key that keeps in mind which tensors are views and which have changed. In inference mode alone that is seen: there a
# mode meets composite operators, and what they call would do without (`linear` chooses another product for a weight that needs no gradient).
_VIEWS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)


def conjugating() -> Any:
    """Inside, kernels conjugate and negate as they do where no mode is at work."""
    return torch._C._ForceDispatchKeyGuard(_included(), _excluded() - _LAZY)


def composing() -> Any:
    """Inside, a composite operator calls others as it does where no mode is at work. (Any other operator would count each change twice.)"""
    return torch._C._ForceDispatchKeyGuard(_included(), _excluded() - (_LAZY | _VIEWS))


def as_if_unwatched(composite: bool) -> Any:
    """What an operator runs in for the same numbers as where no mode is at work."""
    return composing() if composite and torch.is_inference_mode_enabled() else conjugating()


# The public API takes an operator apart (`decompose`), and does not say whether that can be done. `torch.library.get_kernel`, younger than
# torch 2.6, finds the kernel that would run, also where the operator has none of its own.
can_decompose = torch._ops.OpOverload._can_decompose


def has_kernel_for(op: Any, key: str) -> bool:
    """Whether *op* has a kernel of its own under a dispatch key."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)


def is_composite(op: Any) -> bool:
    """Whether *op* calls others that keep views and changes in mind. (`chunk`, `narrow` and matmul's `out` do so themselves.)"""
    known = isinstance(op, torch._ops.OpOverload) and torch._C._dispatch_has_kernel(
        op.name()
    )  # not TorchScript's `prim`
    return known and has_kernel_for(op, "CompositeImplicitAutograd") and not has_kernel_for(op, "ADInplaceOrView")


def process_group(given: Any) -> Any:
    """The process group that an operator's argument stands for: its name, the group in a box, or itself. (The public API makes groups.)"""
    dist: Any = torch.distributed
    if isinstance(given, str):
        return dist.distributed_c10d._resolve_process_group(given)
    return given if isinstance(given, dist.ProcessGroup) else dist.ProcessGroup.unbox(given)


def in_compiled_backward() -> bool:
    """Whether compiled autograd is running the graph that it made of a backward pass. (Its public API only turns it on.)"""
    return getattr(sys.modules.get("torch._dynamo.compiled_autograd"), "in_compiled_autograd_region", False)


# The public API transforms (`torch.vmap`, `torch.func.grad`). It does not say of a tensor whether it is.
is_transformed = _functorch.is_functorch_wrapped_tensor


def is_mapped(tensor: Any) -> bool:
    """Whether `torch.vmap` maps over *tensor*, beneath whatever else transforms it."""
    while is_transformed(tensor):
        if _functorch.is_batchedtensor(tensor):
            return True
        tensor = _functorch.get_unwrapped(tensor)
    return False


def has_tangents() -> bool:
    """Whether this runs in a `forward_ad.dual_level`, which `torch.func.jvp` enters, too; the level itself is not published."""
    return forward_ad._current_level >= 0


@contextlib.contextmanager
def indexing_by_tensors() -> Iterator[None]:
    """Inside, ``x[i]`` with a tensor *i* works under `torch.vmap`. FlexAttention does the same for its functions, and publishes no part of it."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    with torch._C._EnableTorchFunction(), TransformGetItemToIndex():  # a function mode
        yield
