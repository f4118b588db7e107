"""What a call of `scaled_dot_product_attention` says of itself: sizes, mask, and which kernel is meant on meta."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from flopkit.counter.formulas.attentions import Shape, in_common, shape_of
from flopkit.counter.watch.autograd import graph_task
from flopkit.counter.watch.decompose import is_wrapper
from flopkit.counter.watch.internals import has_tangents, is_mapped, is_selective_checkpoint_around, is_transformed
from flopkit.counter.watch.session import Session


# equivalent: 0.0 -> 1.0 (dropout is an operator of its own)
def read(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
         *rest: Any, **others: Any) -> Shape | None:  # fmt: skip
    """What the arguments of attention say; None where the operators inside speak for themselves: under `torch.vmap` and with forward-mode
    gradients, where they are others, of nested tensors, and of those that run them by others yet (DTensors), where the kernel is met."""
    three = (query, key, value)
    if not all(isinstance(t, torch.Tensor) and not is_wrapper(type(t)) for t in three):
        return None
    if any(t.is_nested or t.dim() < 2 or is_mapped(t) for t in three) or has_tangents():
        return None
    last = False
    if type(attn_mask).__name__ == "CausalBias":  # a mask that says what it is
        is_causal, last, attn_mask = True, attn_mask.variant.name == "LOWER_RIGHT", None
    return shape_of(query, key, value, causal=is_causal, bottom_right=last, mask=attn_mask, common=in_common(*three))


# -- on meta, where no kernel runs ----------------------------------------------------------------------------------

_aten = torch.ops.aten


def assumed(query: Any) -> str:
    """The kernel that is assumed where none runs; "" where all is as it runs."""
    if query.device.type != "meta" and type(query).__name__ != "FakeTensor":
        return ""
    cuda: Any = torch.backends.cuda
    if not (cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled() or cuda.cudnn_sdp_enabled()):
        return "math"
    return "flash (assumed: nothing runs on meta)"


def is_chosen(session: Session, call: Any) -> bool:
    """Whether a checkpoint that chooses is around *call* (its scope and shape); or was at each call so far: a plain
    checkpoint inside of it that makes the call again has to save what was saved then."""
    around = is_selective_checkpoint_around()
    was = session.chosen.setdefault(call, set())
    if around or graph_task() == -1:
        was.add(around)
    return around or was == {True}


def chosen(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
           scale: float | None = None, enable_gqa: bool = False) -> Callable[..., Any] | None:  # fmt: skip
    """The kernel that would run on a GPU, under a checkpoint that chooses which results to keep; None where none fits.

    Such a checkpoint (`torch.utils.checkpoint.create_selective_checkpoint_contexts`) goes by the names of operators. On meta it would be
    asked for the products that torch makes of attention there, and never for the kernel, which has a shape on meta, too.
    """
    three = (query, key, value)
    if any(
        is_transformed(t) or t.device.type != "meta" or t.dim() != 4 or t.is_nested or t.shape[0] != query.shape[0]
        for t in three
    ):
        return None
    if not enable_gqa and not query.shape[1] == key.shape[1] == value.shape[1]:
        return None
    if attn_mask is None and query.shape[3] == value.shape[3]:
        kernel: Any = _aten._scaled_dot_product_flash_attention
        return functools.partial(_first, kernel, *three, dropout_p, is_causal, scale=scale)
    if enable_gqa:  # only the flash kernel shares heads
        return None
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:3], key.shape[2])
    kernel = _aten._scaled_dot_product_efficient_attention
    return functools.partial(_first, kernel, *three, attn_mask, True, dropout_p, is_causal, scale=scale)


def _first(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    return kernel(*args, **kwargs)[0]
