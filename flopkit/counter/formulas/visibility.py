"""Which pairs of queries and keys a mask lets through, where the program says it in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from flopkit.macs import seen

__all__ = ["band_pairs", "lengths_from", "values_of", "visible_rows"]


def band_pairs(q: int, kv: int, left: int | None = None, right: int | None = None, offset: int = 0) -> int:
    """Pairs (i, j) of *q* queries and *kv* keys with ``i + offset - left <= j <= i + offset + right``; None: no bound.

    An *offset* of 0 aligns the first query with the first key (top-left), ``kv - q`` the last with the last (bottom-right).

    >>> band_pairs(3, 5, right=0), band_pairs(3, 5, right=0, offset=2), band_pairs(3, 3, left=1, right=0)
    (6, 12, 5)
    """
    upper = q * kv if right is None else _below(q, kv, offset + right)
    lower = 0 if left is None else _below(q, kv, offset - left - 1)
    return max(upper - lower, 0)


def _below(q: int, kv: int, diagonal: int) -> int:
    """Pairs with ``j - i <= diagonal``, less those whose keys lie beyond the last."""
    return int(seen(q, q + diagonal) - seen(q, q + diagonal - kv))


def visible_rows(q: int, kv: int, left: int | None, right: int | None, offset: int) -> int:
    """Keys that at least one of *q* queries sees under the same band.

    >>> visible_rows(1, 8192, left=1023, right=0, offset=8191)
    1024
    """
    if q <= 0:
        return 0
    first = 0 if left is None else max(offset - left, 0)
    last = kv - 1 if right is None else min(q - 1 + offset + right, kv - 1)
    return max(last - first + 1, 0)


def values_of(tensor: Any) -> list[int] | None:
    """The whole numbers in *tensor*; None where it has none (meta and fake tensors, tensors under a transformation)."""
    import torch

    from flopkit.counter.watch.internals import is_transformed, without_dispatch

    if tensor is None or tensor.device.type == "meta" or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if is_transformed(tensor):
        return None
    with without_dispatch():
        found = tensor.detach().tolist()
    return [int(number) for number in found]


def lengths_from(offsets: Any, total: int, longest: int | None) -> tuple[Sequence[int], bool]:
    """Lengths of sequences that lie one behind the other, of their cumulative *offsets*, and whether they are known.

    Where the numbers cannot be read (meta, fake tensors), the sequences are taken to be as unequal as their total and the longest
    allow, which counts too much rather than too little; where the longest is not said either, to be of one length.
    """
    found = values_of(offsets)
    if found is not None:
        return [b - a for a, b in pairwise(found)], True
    batch = max(int(offsets.shape[0]) - 1, 0)
    if batch == 0:
        return [], True
    if longest and batch * int(longest) >= total:
        whole, rest = divmod(total, int(longest))
        return ([int(longest)] * whole + [rest] + [0] * batch)[:batch], batch * int(longest) == total
    each, rest = divmod(total, batch)
    return [each + (place < rest) for place in range(batch)], batch == 1
