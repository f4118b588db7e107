"""What a rank sends in a collective: by the kind of collective, the size of the group, and the bytes of the whole tensor.

The bytes are those that a ring sends, which for these kinds is the least there is. No collective is traffic of memory: the network's card
reads and writes, and how often is the library's choice.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from flopkit.counter.calls import OpCall, numel, tensors
from flopkit.counter.work import FREE, Work, free

SPACES = ("c10d::", "_c10d_functional", "c10d_functional::", "symm_mem::", "_dtensor::")


class Exchange(NamedTuple):
    """One call of a collective, or its part: *payload* is the whole tensor in bytes (what is reduced, what comes out of a gather, what a
    rank holds before a scatter or an all-to-all), *sent* what this rank sends. *members* are the numbers that the ranks who take part have
    in the whole job; of a send, the sender and the receiver; None where nobody says."""

    collective: str
    ranks: int
    payload: int
    sent: int | Fraction
    members: range | tuple[int, ...] | None = None


# Operators by what they do, each with the argument that is the whole tensor: a place, or "out", what is returned.
_KINDS: dict[str, tuple[str, Any]] = {}
for _kind, _whole, _names in (
    ("all-reduce", 0, "all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_ allreduce_ allreduce_coalesced_ one_shot_all_reduce "
     "one_shot_all_reduce_out multimem_one_shot_all_reduce multimem_one_shot_all_reduce_out multimem_all_reduce_ two_shot_all_reduce_ "
     "two_shot_all_reduce_out"),
    ("all-reduce", 1, "one_shot_all_reduce_copy one_shot_all_reduce_copy_out"),
    ("all-gather", "out", "all_gather_into_tensor all_gather_into_tensor_out all_gather_into_tensor_coalesced _low_contention_all_gather "
     "multimem_all_gather_out"),
    ("all-gather", 0, "_allgather_base_ allgather_ allgather_coalesced_ allgather_into_tensor_coalesced_"),
    ("reduce-scatter", 0, "reduce_scatter_tensor reduce_scatter_tensor_out reduce_scatter_tensor_coalesced reduce_scatter_out "
     "_low_contention_reduce_scatter"),
    ("reduce-scatter", 1, "_reduce_scatter_base_ reduce_scatter_ reduce_scatter_tensor_coalesced_"),
    ("all-to-all", 0, "all_to_all_single shard_dim_alltoall nvshmem_all_to_all"),
    ("all-to-all", 1, "alltoall_base_ alltoall_"),
    ("broadcast", 0, "broadcast broadcast_ nvshmem_broadcast"),
    ("reduce", 0, "reduce_"),
    ("gather", 0, "gather_"),
    ("scatter", 1, "scatter_"),
    ("send", 0, "send isend"),
    ("receive", 0, "recv_ recv_any_source_ irecv"),
):  # fmt: skip
    _KINDS |= dict.fromkeys(_names.split(), (_kind, _whole))
# What moves nothing between ranks: waits, wrappers, handles, signals without data.
_STILL = frozenset(
    "wait_tensor _wrap_tensor_autograd barrier monitored_barrier_ check_for_nan mesh_get_process_group _rendezvous _barrier get_remote_tensors "
    "memset32_ stream_write_value32_ nccl_wait_signal nccl_wait_for_signal nvshmem_wait_for_signal".split()
)
UNSEEN = "{} sends bytes that are not in report.communication"


def formula_of(name: str) -> Callable[[OpCall], Work]:
    """The formula of an operator of torch.distributed, by its full name."""
    short = name.rpartition("::")[2]
    if short in _STILL:
        return lambda call: free()
    if short == "batch_p2p_ops":
        return _batched
    if short not in _KINDS:
        op = name.replace("::", ".")
        return lambda call: Work(FREE, note=UNSEEN.format(op))
    kind, whole = _KINDS[short]
    return lambda call: Work(FREE, exchanges=(_exchange(call, kind, whole),))


def _exchange(call: OpCall, kind: str, whole: Any) -> Exchange:
    source = call.out if whole == "out" else call.args[whole]
    ranks, payload = _ranks(call), _size(source)
    shares: list[Any] | None = None
    if kind in ("gather", "scatter"):  # only the root has the whole of it, and the others' parts are all alike
        part = _size(call.args[1 - whole])
        at_root = _place(call) == int(call["root_rank"])
        sent = (payload - part if at_root else 0) if kind == "scatter" else (0 if at_root else part)
        return Exchange(kind, ranks, payload or ranks * part, sent, _members(call))
    if (splits := call.get("input_split_sizes")) and len(splits) == ranks and sum(splits):
        shares = [Fraction(payload * int(n), sum(map(int, splits))) for n in splits]
    elif isinstance(source, (list, tuple)) and source and call.name in _LISTS:  # chunks of any size
        shares = [_size(chunk) for chunk in (source if kind == "all-to-all" else source[0])]
    members = _pair(call, call.get("dst")) if kind == "send" else _members(call)
    return Exchange(kind, ranks, payload, _sent(kind, ranks, payload, shares, lambda: _place(call)), members)


_LISTS = ("c10d::allgather_", "c10d::reduce_scatter_", "c10d::alltoall_")


def _sent(kind: str, ranks: int, payload: int, shares: list[Any] | None, place: Callable[[], int]) -> int | Fraction:
    """What a ring sends from one rank, of a payload in *ranks* equal chunks or in *shares*."""
    if kind == "receive" or ranks == 1:
        return 0
    if shares is not None and len(shares) == ranks:  # a rank keeps its own chunk, or never hands on the one after it
        return payload - shares[(place() + (kind == "all-gather")) % ranks]
    share = Fraction(ranks - 1, ranks) if ranks else 0
    factor = {"all-reduce": 2 * share, "all-gather": share, "reduce-scatter": share, "all-to-all": share}.get(kind, 1)
    sent = factor * payload
    return int(sent) if sent == int(sent) else sent


def _batched(call: OpCall) -> Work:
    """Sends and receives that are launched together."""
    ranks, found = _ranks(call), []
    for op, peer, tensor in zip(call["op_list"], call["peer_list"], call["tensors"], strict=True):
        size, sends = _size(tensor), "send" in op
        pair = _pair(call, peer) if sends else None
        found.append(Exchange("send" if sends else "receive", ranks, size, size if sends else 0, pair))
    return Work(FREE, exchanges=tuple(found))


def _size(value: Any) -> int:
    return sum(numel(each) * int(each.element_size()) for each in tensors(value))


def _group(call: OpCall) -> Any:
    from flopkit.counter.watch import internals

    given = next((call.named[name] for name in ("group_name", "process_group") if name in call.named), None)
    return None if given is None else internals.process_group(given)


def _ranks(call: OpCall) -> int:
    """How many ranks take part; 0 where nobody says."""
    if size := call.get("group_size"):
        return int(size)
    group = _group(call)
    return 0 if group is None else int(group.size())


def _members(call: OpCall) -> range | tuple[int, ...] | None:
    """The numbers of the group's ranks in the whole job; those of a mesh are evenly spaced."""
    import torch.distributed as dist

    group = _group(call)
    if group is None or not dist.is_initialized():
        return None
    found = dist.get_process_group_ranks(group)
    step = found[1] - found[0] if len(found) > 1 else 1
    spaced = range(found[0], found[-1] + 1, step) if step > 0 else range(0)
    return spaced if [*spaced] == found else tuple(found)


def _pair(call: OpCall, peer: Any) -> tuple[int, ...] | None:
    """This rank and *peer*, a place in the group, by their numbers in the whole job."""
    members = _members(call)
    return None if members is None or peer is None else (members[_place(call)], members[int(peer)])


def _place(call: OpCall) -> int:
    """This rank's place in the group."""
    return int(_group(call).rank())
