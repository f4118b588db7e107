"""How many pairs a FlexAttention block mask lets through, and how many a kernel computes that skips whole blocks."""

from __future__ import annotations

from inspect import getclosurevars, isfunction
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from flopkit.counter.formulas.attentions import MANY_BLOCKS, UNSEEN_BLOCKS
from flopkit.counter.watch.internals import indexing_by_tensors, without_dispatch

# equivalent: 1 -> 2 | 28 -> 29 (how much is looked at, or at a time)
LIMIT = 1 << 28  # pairs in partial blocks that are looked at one by one, at most
# equivalent: 1 -> 2 | 21 -> 22 (how much is looked at, or at a time)
_CHUNK = 1 << 21  # of them at a time
_EVERYTHING = 1 << 30  # the block size that says: no block mask

# What was found, by a mask's first tensor. The function is kept, so that its name is not given to another.
_seen: Any = WeakTensorKeyDictionary()


class Pairs(NamedTuple):
    """Visible pairs, and those in blocks that are not skipped, of all sequences and heads; None where nothing is hidden."""

    visible: int | None
    computed: int | None
    note: str = ""


def pairs_of(block_mask: tuple[Any, ...], buffers: tuple[Any, ...], batch: int, heads: int, q: int, kv: int) -> Pairs:
    """What the block mask of a call says: a tuple as the operator gets it, and what its function has captured."""
    inner: list[Any] = [part for part in block_mask if part is None or isinstance(part, torch.Tensor)]
    # equivalent: 0 -> 1 (counts and places are made together, on one device)
    counts, mask_mod = inner[0], block_mask[-1]
    rows, columns = (int(size) for size in block_mask[-3:-1])
    if rows >= _EVERYTHING and columns >= _EVERYTHING:
        return Pairs(None, None)
    if counts.device.type == "meta" or type(counts) is not torch.Tensor:
        return Pairs(None, None, UNSEEN_BLOCKS)
    named = getclosurevars(mask_mod) if isfunction(mask_mod) else None
    captured = (*named.nonlocals.values(), *named.globals.values()) if named else ()
    tracked = [t for t in (counts, *buffers, *captured) if isinstance(t, torch.Tensor)]
    versions = [-1 if t.is_inference() else t._version for t in tracked]  # an inference tensor does not say: look again
    known, key = _seen.setdefault(counts, {}), (*versions, id(mask_mod), q, kv)
    if key not in known or -1 in versions:
        # Below the modes: looking is not part of the program.
        with torch.no_grad(), without_dispatch():
            known[key] = _look(inner, mask_mod, buffers, rows, columns, q, kv), mask_mod
    (visible, computed, note), _ = known[key]
    times = (batch // max(int(counts.shape[0]), 1)) * (heads // max(int(counts.shape[1]), 1))
    return Pairs(visible * times, computed * times, note)


def _look(inner: list[Any], mask_mod: Any, buffers: tuple[Any, ...], *sizes: int) -> tuple[int, int, str]:
    """Pairs that are visible, and those in blocks that are not skipped; a note where the first could not be told from the second."""
    full, partial = _blocks(inner[2], inner[3]), _blocks(inner[0], inner[1])
    whole, asked = _area(full, *sizes), _area(partial, *sizes)
    if asked > LIMIT:
        return whole + asked, whole + asked, MANY_BLOCKS
    return whole + _ask(mask_mod, buffers, partial, *sizes), whole + asked, ""


def _blocks(counts: Any, indices: Any) -> Any:
    """(sequence, head, block of queries, block of keys) of each block that is listed."""
    if counts is None or indices is None:
        return None
    listed = torch.arange(indices.shape[-1], device=indices.device) < counts.unsqueeze(-1)
    b, h, i, slot = listed.nonzero(as_tuple=True)
    return torch.stack([b, h, i, indices[b, h, i, slot].long()], dim=1)


def _area(blocks: Any, rows: int, columns: int, q: int, kv: int) -> int:
    """Pairs in these blocks, those cut off at the ends."""
    if blocks is None:
        return 0
    high = (q - blocks[:, 2] * rows).clamp(0, rows)
    wide = (kv - blocks[:, 3] * columns).clamp(0, columns)
    return int((high * wide).sum())


def _ask(mask_mod: Any, buffers: tuple[Any, ...], blocks: Any, rows: int, columns: int, q: int, kv: int) -> int:
    """Pairs of these blocks that the function lets through, asked of each pair as FlexAttention does."""
    if blocks is None or not len(blocks):
        return 0
    asked = torch.vmap(mask_mod, in_dims=(0, 0, 0, 0, *(None,) * len(buffers)))
    down, along = (torch.arange(size, device=blocks.device) for size in (rows, columns))
    # equivalent: _CHUNK // columns -> _CHUNK * columns | 1 -> 2 (how much is looked at, or at a time)
    rows_at_once = max(_CHUNK // columns, 1)
    total = 0
    # One row of queries of one block at a time is a line; many lines are asked at once.
    lines = len(blocks) * rows
    for start in range(0, lines, rows_at_once):
        line = torch.arange(start, min(start + rows_at_once, lines), device=blocks.device)
        block = blocks[line // rows]
        i = (block[:, 2] * rows + down[line % rows]).unsqueeze(1)
        j = block[:, 3].unsqueeze(1) * columns + along
        above, left = ((i < q) & (j < kv)).nonzero(as_tuple=True)
        if len(above):
            with indexing_by_tensors():
                seen = asked(block[above, 0], block[above, 1], i.expand_as(j)[above, left], j[above, left], *buffers)
            total += int(seen.sum())
    return total
