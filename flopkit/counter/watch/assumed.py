"""Attention on meta, where no kernel runs: which one is assumed, and how it is put before a checkpoint that chooses what to keep."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from flopkit.counter.watch.autograd import graph_task
from flopkit.counter.watch.internals import transformation, unwrapped
from flopkit.counter.watch.modes import is_selective_checkpoint_around

__all__ = ["assumed", "chosen", "is_chosen"]

_aten = torch.ops.aten
_calls: weakref.WeakKeyDictionary[Any, dict[Any, set[bool]]] = (
    weakref.WeakKeyDictionary()
)  # by watcher and call: was one around?


def assumed(func: Any, query: Any) -> str:
    """The kernel that is assumed where none runs; "" where all is as it runs."""
    query = unwrapped(query)
    if query.device.type != "meta" and type(query).__name__ != "FakeTensor":
        return ""
    cuda: Any = torch.backends.cuda
    allowed = (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.cudnn_sdp_enabled())
    if "attention_math" in str(func) or not any(allowed):
        return "math"
    return "flash (assumed: nothing runs on meta)"


def is_chosen(watcher: Any, call: Any) -> bool:
    """Whether a checkpoint that chooses is around *call* (its place and shape); or always was until now, when another one, which was inside
    of it, makes the call again by itself, and has to save what was saved then."""
    around = is_selective_checkpoint_around()
    was = _calls.setdefault(watcher, {}).setdefault(call, set())
    if around or graph_task() == -1:
        was.add(around)
    return around or was == {True}


def chosen(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
           scale: float | None = None, enable_gqa: bool = False) -> Callable[..., Any] | None:  # fmt: skip
    """The kernel that would run on a GPU, under a checkpoint that chooses which results to keep; None where none fits.

    Such a checkpoint (`torch.utils.checkpoint.create_selective_checkpoint_contexts`) goes by the names of operators. On meta it would be
    asked for the products that torch makes of attention there, and never for the kernel, which has a shape on meta, too.
    """
    if transformation() is not None:
        return None
    three = (query, key, value)
    if any(t.device.type != "meta" or t.dim() != 4 or t.is_nested or t.shape[0] != query.shape[0] for t in three):
        return None
    if not enable_gqa and not query.shape[1] == key.shape[1] == value.shape[1]:
        return None
    if attn_mask is None and query.shape[3] == value.shape[3]:
        return functools.partial(_flash, *three, dropout_p, is_causal, scale)
    if enable_gqa:  # only the flash kernel shares heads
        return None
    return functools.partial(_efficient, *three, attn_mask, dropout_p, is_causal, scale)


def _flash(query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Any:
    return _aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]


def _efficient(
    query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:
    if mask is not None:
        mask = mask.to(query.dtype).expand(*query.shape[:3], key.shape[2])
    return _aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, True, dropout_p, is_causal, scale=scale
    )[0]
