"""What torch does not publish and the counter cannot do without, under names of our own.

Four more files of this room name such things, each of one kind: `autograd`, `modes`, `scripts` (TorchScript), and `compiler`. No file outside
of the room does. What an operator says of itself (its schema) is no secret.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import forward_ad

__all__ = [
    "COMPILED_CALL", "HigherOrderOperator", "OpOverload", "PACKAGES", "can_decompose", "forward_mode", "has_kernel_for", "indexing_by_tensors",
    "is_transformed", "longest_sequence", "mapped_over", "ragged_dimension", "storage_of", "transforming", "unwrapped", "without_dispatch",
]  # fmt: skip

_functorch = torch._C._functorch

# Operators: the classes of what a dispatch mode is called with, which have no public name.
OpOverload = torch._ops.OpOverload
HigherOrderOperator = torch._ops.HigherOrderOperator
can_decompose = OpOverload._can_decompose  # whether torch defines it by others, which `decompose()` takes for granted

# No mode is told of what runs inside: the public way out of a mode is to leave it.
without_dispatch = torch._C._DisableTorchDispatch

# Named and not imported: to import them is to load the compiler.
PACKAGES = "torch._inductor.package.package"  # where the models are loaded that AOTInductor compiled
COMPILED_CALL = "_dynamo/eval_frame.py"  # what a compiled function is called through


def has_kernel_for(op: Any, key: str) -> bool:
    """Whether *op* has a kernel of its own under a dispatch key: what is public (`torch.library`) only registers them."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)


# Transformations (`torch.vmap`, `torch.func.grad`): torch publishes how to ask for one, not whether one is at work. (`torch.func.debug_unwrap`
# is younger than torch 2.6, and says nothing of sizes.)
is_transformed = _functorch.is_functorch_wrapped_tensor


def unwrapped(tensor: Any) -> Any:
    """The tensor beneath all transformations."""
    while is_transformed(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def transforming() -> bool:
    """Whether a transformation is at work in this thread."""
    return _functorch.peek_interpreter_stack() is not None


def forward_mode() -> bool:
    """Whether tangents may come along: inside of `torch.autograd.forward_ad.dual_level`, of `torch.func.jvp` and what is made of it."""
    return forward_ad._current_level >= 0


def mapped_over(tensor: Any) -> dict[int, int]:
    """The levels of `torch.vmap` that *tensor* is mapped over, and the size of each."""
    found = {}
    while is_transformed(tensor):
        level, inner = _functorch.maybe_get_level(tensor), _functorch.get_unwrapped(tensor)
        if _functorch.is_batchedtensor(tensor):
            found[level] = int(inner.shape[_functorch.maybe_get_bdim(tensor)])
        tensor = inner
    return found


@contextlib.contextmanager
def indexing_by_tensors() -> Iterator[None]:
    """Under `torch.vmap`, ``x[i]`` with a tensor *i* works inside, as it does in FlexAttention's functions."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    with torch._C._EnableTorchFunction(), TransformGetItemToIndex():  # a function mode
        yield


# Tensors.


def storage_of(tensor: Any) -> int:
    """Which storage *tensor* lies in: `data_ptr` is 0 for all that are on meta."""
    return int(tensor.untyped_storage()._cdata)


def ragged_dimension(tensor: Any) -> int | None:
    """Along which dimension the parts of a jagged tensor differ; None for other tensors. Its shape says it by a symbol."""
    return getattr(tensor, "_ragged_idx", None)


def longest_sequence(tensor: Any) -> int | None:
    """The greatest length in a jagged tensor, if that was said when it was made; to ask its offsets needs their values."""
    return getattr(tensor, "_maybe_max_seqlen", None)
