"""Element-wise operators in a row: how many of their bytes a compiler that fuses them would not move."""

from __future__ import annotations

from typing import Any

import torch

from flopkit.counter.calls import Call, extent, numel, tensors
from flopkit.counter.ledger import Entry, Ledger
from flopkit.counter.operators.normalisations import trains_batch_norm
from flopkit.counter.work import FREE

__all__ = ["ON_CHIP", "Chain", "ends_chain"]

ON_CHIP = 65_536  # numbers of a row that is kept on chip between being summed and being used again

LONGEST = 2_000  # tensors that are looked at together; a longer chain is settled on the way

_storage: Any = torch._C._storage_address  # type: ignore[attr-defined]
_weak_ref: Any = torch.UntypedStorage._weak_ref
_expired: Any = torch.UntypedStorage._expired
_free_weak_ref: Any = torch.UntypedStorage._free_weak_ref


class Chain:
    """Consecutive element-wise operators in one thread and phase.

    Run one by one, each reads its inputs and writes its output. Fused, the chain reads what came from outside, once, and writes
    what somebody still holds at its end: the next operator, autograd, or the caller. The difference goes to the ledger.

    Fills, casts, copies and masks belong to a chain as arithmetic does, and a view neither ends nor leaves it. A sum, softmax or
    normalisation takes the chain before it in; the chain goes on after it where it runs along the last dimension of rows that stay
    on chip (`ON_CHIP`), and ends there otherwise. A batch normalisation with running statistics is one more link. Anything else ends it.
    What a program holds on to in a variable counts as written, also if it is never used again: that only the program's author, or a
    compiler, can know.

    Memory is told apart by its storage: views and results that autograd saved (as tensors of its own) stand on the same.
    """

    __slots__ = ("apart", "ended", "held", "ledger", "limits", "made", "phase", "read")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.phase = ""
        self.apart = 0  # bytes, one by one
        self.ended = False
        self.read: dict[int, dict[int, int]] = {}  # what came from outside: bytes, by storage and place in it
        self.made: dict[int, dict[int, int]] = {}  # what was made inside
        self.held: dict[
            int, int
        ] = {}  # a weak handle of each storage, which keeps its number from being given out again
        self.limits: dict[int, int] = {}  # bytes of the storages of which more than one place was read or written

    def extend(self, phase: str, plan: Any, args: Any, kwargs: Any, out: Any, entry: Entry) -> None:
        """One more operator that can be merged. (What its shapes say is kept with *entry*: that is what would take time here.)"""
        if phase != self.phase or self.ended or len(self.held) > LONGEST:
            self.close()
            self.phase = phase
        if entry.extents is None:
            entry.extents = _looked_at(plan, entry, args, kwargs, out)
        places, reads, writes, ends = entry.extents
        held, made, read = self.held, self.made, self.read
        try:
            last = None
            for given, size, width in _given(args, kwargs, reads) if places is None else places:
                tensor = given if places is None else args[given]
                if tensor is last:
                    continue
                last = tensor
                name, start = _storage(tensor), tensor.storage_offset() * width
                where = made.get(name)
                if where is not None and (start in where or _within(where, start)):
                    continue
                if name not in held:
                    held[name] = _weak_ref(tensor.untyped_storage())
                where = read.get(name)
                if where is None:
                    read[name] = {start: size}
                elif where.get(start, 0) < size:
                    self._more(tensor, name)
                    where[start] = size
            one = type(out) is torch.Tensor
            for tensor, (size, width) in ((out, writes[0]),) if one else zip(_results(args, out), writes, strict=False):
                if not size:  # such as the statistics that nobody kept
                    continue
                name, start = _storage(tensor), tensor.storage_offset() * width
                if name not in held:
                    held[name] = _weak_ref(tensor.untyped_storage())
                where = made.get(name)
                if where is None:
                    made[name] = {start: size}
                elif where.get(start, 0) < size:
                    self._more(tensor, name)
                    where[start] = size
        except (RuntimeError, NotImplementedError):  # a tensor without a storage: sparse, or a wrapper
            self.close()
            return
        self.apart += entry.work.bytes
        # Not closed at once: what went into this operator is alive until it returns, and is not held for that.
        self.ended = ends

    def close(self) -> None:
        """Something else ran: settle what the chain would have saved."""
        self.ended = False
        if not self.held:
            return
        if self.made:
            held = self.held
            moved = sum([self._bytes(name, places) for name, places in self.read.items()])
            for name, places in self.made.items():
                if not _expired(held[name]):
                    moved += self._bytes(name, places)
            if self.apart > moved:
                self.ledger.merged_away[self.phase] = self.ledger.merged_away.get(self.phase, 0) + self.apart - moved
        for handle in self.held.values():
            _free_weak_ref(handle)
        self.apart = 0
        self.read.clear()
        self.made.clear()
        self.held.clear()
        self.limits.clear()

    def _more(self, tensor: Any, name: int) -> None:
        """Another place in a storage: both together are no more than all of it."""
        self.limits[name] = tensor.untyped_storage().nbytes()

    def _bytes(self, name: int, places: dict[int, int]) -> int:
        size, limit = sum(places.values()), self.limits.get(name)
        return size if limit is None or size < limit else limit


def _given(args: Any, kwargs: Any, reads: Any) -> Any:
    """The tensors that are read, and their sizes, where some are in lists or have names."""
    return [(tensor, *sizes) for tensor, sizes in zip(tensors((args, kwargs)), reads, strict=False) if sizes[0]]


def _within(places: dict[int, int], start: int) -> bool:
    return any(first <= start < first + size for first, size in places.items())


def _results(args: Any, out: Any) -> Any:
    """The tensors that were written: returned or, where nothing is returned, the first argument's."""
    if type(out) is tuple and out and type(out[0]) is torch.Tensor:  # a norm's: quick, for there are many
        return [value for value in out if isinstance(value, torch.Tensor)]
    found = list(tensors(out))
    return found or list(tensors(args[0]))


def _looked_at(plan: Any, entry: Entry, args: Any, kwargs: Any, out: Any) -> Any:
    """What a chain asks of a call, by its shapes: which arguments are tensors (None where some are in lists or have names), bytes that are
    read of each (0: it is only written, or only its shape asked for) and of a number, the same of the results, whether the chain ends."""
    call = Call(entry.func, args, kwargs, out)
    _, only = call.changed()
    results = _results(args, out)
    filled = entry.work.status == FREE and entry.work.bytes <= sum(map(extent, results))
    flat = not kwargs and not any(isinstance(value, (list, tuple)) for value in args)
    reads = [(0 if filled or id(t) in only else extent(t), t.element_size()) for t in tensors((args, kwargs))]
    places = None
    if flat:
        where = [place for place, value in enumerate(args) if isinstance(value, torch.Tensor)]
        places = [(place, *sizes) for place, sizes in zip(where, reads, strict=True) if sizes[0]]
    return places, reads, [(extent(t), t.element_size()) for t in results], plan.merges == "row" and ends_chain(call)


def ends_chain(call: Call) -> bool:
    """Whether nothing after this row operator can be merged with it: it does not run along the last dimension, or rows are too long."""
    source = next(tensors(call.args), None)
    if source is None or source.dim() == 0:
        return True
    shape = call.get("normalized_shape")
    name = call.func._schema.name
    if name.endswith(("_backward", "_forward", "_loss")) or "group_norm" in name:
        return True
    if "batch_norm" in name:  # with running statistics each number is scaled and shifted, and nothing is summed
        return trains_batch_norm(call)
    if shape is not None:
        dims = set(range(source.dim() - len(shape), source.dim()))
    else:
        dim = call.get("dim", call.get("dims"))
        if dim is None or isinstance(dim, str):
            return True
        dims = {int(d) % source.dim() for d in (dim if isinstance(dim, (list, tuple)) else [dim])}
    if not dims or dims != set(range(source.dim() - len(dims), source.dim())):
        return True
    row = 1
    for place in dims:
        row *= int(source.shape[place])
    return row > ON_CHIP or numel(source) == row
