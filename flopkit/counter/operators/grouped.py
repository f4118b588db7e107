"""Products of groups, such as a mixture's experts, and products of scaled eight- and four-bit numbers."""

from __future__ import annotations

from typing import Any

from flopkit.counter.calls import Call, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

__all__ = ["BY_VALUE", "grouped_macs"]

GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2")
BY_VALUE = frozenset(GROUPED)  # the last offset says how many rows are true


def _inner(a: Any) -> int:
    """The length of a row of *a*: where two four-bit numbers share a byte, twice what the shape says."""
    return int(a.shape[-1]) * (2 if "x2" in str(a.dtype) else 1)


def _true(offsets: Any, size: int) -> int:
    """Rows before the last offset, which are those that are computed; all of them where offsets have no numbers (meta)."""
    import torch

    if offsets is None or type(offsets) not in (torch.Tensor, torch.nn.Parameter) or offsets.device.type == "meta":
        return size
    if not offsets.numel() or (offsets.is_cuda and torch.cuda.is_current_stream_capturing()):
        return size
    return min(int(offsets[-1]), size)


def grouped_macs(a: Any, b: Any, offsets: Any = None) -> int:
    """Multiply-adds of products in groups, as `torch.nn.functional.grouped_mm` takes them.

    Rows in groups (2-D by 3-D), columns in groups (3-D by 2-D), an inner dimension in groups (2-D by 2-D), or one product for each
    group (3-D by 3-D): the same number whatever the sizes of the groups. What lies behind the last offset is not computed.

    >>> import torch
    >>> rows, experts = torch.ones(12, 16), torch.ones(3, 16, 8)
    >>> grouped_macs(rows, experts, torch.tensor([4, 5, 12])), grouped_macs(rows, experts, torch.tensor([4, 5, 8]))
    (1536, 1024)
    """
    inner, columns = _inner(a), int(b.shape[-1])
    if a.dim() == 2 and b.dim() == 2:
        return int(a.shape[0]) * columns * _true(offsets, inner)
    if a.dim() == 2:
        return _true(offsets, int(a.shape[0])) * inner * columns
    rows = int(a.shape[-2])
    if b.dim() == 2:
        return rows * inner * _true(offsets, columns)
    return int(a.shape[0]) * rows * inner * columns


@explains(*GROUPED)
def grouped(call: Call) -> Work:
    """Products in groups; a bias is one add a number."""
    macs = grouped_macs(call["self"], call["mat2"], call["offs"])
    vector = numel(call.outputs[0]) * (call["bias"] is not None)
    return counted(macs, call.bytes(), vector=vector)


@explains("aten::_scaled_mm", "aten::_scaled_mm_v2")
def scaled(call: Call) -> Work:
    """A product of eight- or four-bit numbers; the scale of each result and a bias are one FLOP a number."""
    a, results = call["self"], numel(call.outputs[0])
    rows = int(call.outputs[0].shape[0])
    # equivalent: 0 -> 1 (there is nothing then that it could be multiplied with)
    inner = numel(a) * (2 if "x2" in str(a.dtype) else 1) // rows if rows else 0
    return counted(results * inner, call.bytes(), vector=results * (1 + (call["bias"] is not None)))
