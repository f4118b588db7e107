"""FlexAttention: attention whose mask and scores are functions, counted as attention and not as what stands in for its kernel.

Compiled, it is one kernel that skips whole blocks; uncompiled, torch makes the whole score matrix by products. So under
``attention="auto"`` the kernel is ``"flex"`` where the program calls it through `torch.compile` (or on fake tensors), and ``"math"``
where it does not. Model FLOPs are the same: TORCH counts every position, EXACT the pairs that ``mask_mod`` lets through. What the flex
kernel executes is whole blocks: those that the block mask lists.

Not counted: the arithmetic inside of ``score_mod`` and ``mask_mod``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from flopkit.counter import by_torch
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas.attentions import Shape, backward_work, forward_work, shape_of, wanted
from flopkit.counter.formulas.block_masks import pairs_of
from flopkit.counter.ledger import Entry
from flopkit.counter.watch.autograd import current_node, next_number
from flopkit.counter.watch.modules import Scope
from flopkit.counter.watch.state import busy


@dataclass
class _Ran:
    """A call of FlexAttention, for its backward pass to find."""

    kernel: str
    outer: Scope

    def takes(self, *operator: Any) -> bool:
        """Whatever else runs in the backward pass counts by itself."""
        return False


def attention(state: Any, func: Any, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Have *run* carry out *func*, one of the two operators, and enter what it is."""
    session = state.session
    first = next_number()
    with busy([state]):  # torch traces `score_mod` in order to differentiate it: that is not the program
        out = run(*args, **kwargs)
    phase, scope = state.phase_and_scope()
    region = scope.region
    outer = scope if region is None else region.outer
    backward = func.name().endswith("_backward")
    with torch.DisableTorchFunction():
        shape = _shape(args, out, backward)
    if backward:
        kernel = region.kernel if isinstance(region, _Ran) else "flex"
    else:
        kernel = _kernel(args[0])
    if session.attention != "auto":
        kernel = session.attention
    if backward:
        work = backward_work(shape, kernel, wanted(OpCall(func, args, kwargs, out, current_node())))
    else:
        work = forward_work(shape, kernel)
        state.timeline.mark(first, outer.of_region(_Ran(kernel, outer)))
        state.timeline.mark(next_number(), state.scope)
    key = (func, tuple([(t.shape, t.stride(), t.dtype) for t in args[:3]]))
    torch_flops = by_torch.flops_of(func, args, kwargs, out)
    entry = session.entries.setdefault((key, repr(work)), Entry(func.name(), work, func, key, torch_flops))
    state.calculations += 1
    state.ledger.add(entry, outer.where(phase))
    return out


def _shape(args: Any, out: Any, backward: bool) -> Shape:
    query, key, value = args[:3]
    mask, buffers = (args[9], args[13:14]) if backward else (args[4], args[8:9])
    shape = shape_of(query, key, value)
    dtype = query.dtype if backward else out[0].dtype
    if any(t.dtype != dtype for t in args[:3]):  # autocast casts each tensor by itself
        new, parts = int(dtype.itemsize), zip(args[:3], (shape.q_bytes, shape.k_bytes, shape.v_bytes), strict=True)
        q_bytes, k_bytes, v_bytes = (size // int(t.element_size()) * new for t, size in parts)
        shape = replace(shape, q_bytes=q_bytes, k_bytes=k_bytes, v_bytes=v_bytes, o_bytes=shape.outputs * new, width=new,
                        dtype=str(dtype).removeprefix("torch."))  # fmt: skip
    batch, heads, q = (int(size) for size in query.shape[:3])
    pairs = pairs_of(mask, tuple(buffers[0]) if buffers else (), batch, heads, q, int(key.shape[2]))
    if pairs.visible is None:
        return replace(shape, note=pairs.note)
    return replace(shape, visible=pairs.visible, computed=pairs.computed, hides=True, note=pairs.note)


def _kernel(query: Any) -> str:
    """What runs in the program, seen from the stack: a compiled call, or the products that stand in for it."""
    if query.device.type == "meta" or type(query).__name__ == "FakeTensor":
        return "flex (assumed: nothing runs on meta)"
    frame: Any = sys._getframe(1)
    called = False
    while frame is not None:
        code = frame.f_code
        name = code.co_filename.replace("\\", "/")
        if code.co_name == "flex_attention" and name.endswith("nn/attention/flex_attention.py"):
            called = True
        elif called and name.endswith("_dynamo/eval_frame.py") and "Disable" not in code.co_qualname:
            return "flex"
        frame = frame.f_back
    return "math" if called else "flex"
