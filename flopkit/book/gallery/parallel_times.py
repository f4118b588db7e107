"""The seconds of a step on a layout whose degrees a reader moves: what a rank exchanges, how long it takes, and which rank sets the pace."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from flopkit.arithmetic import maximum, where
from flopkit.book.gallery.parallel_ranks import SORTS, Asked, Degrees, by_policy
from flopkit.parallel import computing, plans, traffic
from flopkit.parallel.ranks import Rank
from flopkit.parallel.traffic import Sent

__all__ = ["MOST_IN_NODE", "exchanges", "near", "of_rank", "pace"]

MOST_IN_NODE = 8


def _largest(ranks: Any, most: Any) -> Any:
    """The largest divisor of *ranks* up to *most*, which is at most `MOST_IN_NODE`."""
    held = (where(k <= most, where(ranks % k == 0, k, 1), 1) for k in range(2, MOST_IN_NODE + 1))
    return reduce(maximum, held, 1)


def near(s: Any, degrees: Degrees) -> dict[str, Any]:
    """Set the ranks of each group that lie in a node: ``near_tensor`` and so on.

    Tensor-parallel ranks stand next to each other, then context, then data, then pipeline. Of ``"data"`` also those that have the same experts.
    """
    tensor, context, data = degrees.tensor, degrees.context, degrees.data
    groups = {
        "tensor": (tensor, 1), "context": (context, tensor), "data": (context * data, tensor), "expert": (degrees.expert, 1),
        "pipeline": (degrees.pipeline, tensor * context * data),
    }  # fmt: skip
    found: dict[str, Any] = {}
    for name, (size, inner) in groups.items():
        if isinstance(size, int) and size == 1:
            found[name] = 1
        else:
            setattr(s, f"near_{name}", _largest(size, MOST_IN_NODE / inner))
            found[name] = getattr(s, f"near_{name}")
    found["data"] = (found["data"], found["data"])
    if not (isinstance(degrees.expert, int) and degrees.expert == 1):
        s.alike_experts = 1 * traffic.groups(degrees)[1]
        s.near_experts = where(
            degrees.expert > 1, _largest(s.alike_experts, MOST_IN_NODE / degrees.expert), found["data"][0]
        )
        found["data"] = (found["data"][0], s.near_experts)
    return found


def exchanges(s: Any, found: traffic.Traffic, degrees: Degrees) -> traffic.Traffic:
    """The exchanges of a micro-batch by name: ``sum_seconds`` and ``sum_bytes`` of an all-reduce, ``gather_`` of keys and values, ``route_`` of experts,
    ``pass_`` of a pipeline. All layers have the same keys and values here, and one kind has experts at most."""

    def named(name: str, one: Sent) -> Sent:
        setattr(s, f"{name}_seconds", 1.0 * one.seconds)
        setattr(s, f"{name}_bytes", 1.0 * one.bytes)
        return Sent(getattr(s, f"{name}_seconds"), getattr(s, f"{name}_bytes"))

    between = Sent(*(where(degrees.pipeline > 1, each, 0) for each in found.pipeline))
    found = found._replace(tensor=named("sum", found.tensor), pipeline=named("pass", between))
    if found.context[0] is not traffic.NOTHING:
        found = found._replace(context=(named("gather", found.context[0]),) * len(found.context))
    routed = tuple(each if each is traffic.NOTHING else named("route", each) for each in found.expert)
    return found._replace(expert=routed)


def of_rank(s: Any, sort: str, numbers: Any, degrees: Degrees, rank: Rank, stages: Any, sent_of: Any, asked: Asked) -> None:  # fmt: skip
    """Set of a micro-batch on a rank of a sort, on so many of its virtual *stages*: ``one_first``, its seconds, the parts of these, ``arithmetic_first`` and so on, and of each axis
    ``bytes_tensor_first`` that are sent and ``wire_tensor_first``, the seconds of that."""
    products = computing.products_of(numbers, degrees, rank)
    again = by_policy(asked.recompute, degrees, lambda layout: computing.products_of(numbers, layout, rank).again)

    def on_rank(layout: Degrees) -> dict[str, Sent]:
        return traffic.on_rank(sent_of, numbers, layout, rank, stages)

    sent = on_rank(degrees)
    for axis in (
        "tensor",
        "context",
        "expert",
        "regathered",
    ):  # those that run again, or the more of them, under some policy
        if sent[axis] is not traffic.NOTHING:
            sent[axis] = Sent(
                *(by_policy(asked.recompute, degrees, lambda layout, axis=axis, at=at: on_rank(layout)[axis][at]) for at in range(2))
            )  # fmt: skip
    if asked.sends:
        for name in asked.axes:
            setattr(s, f"wire_{name}_{sort}", 1.0 * sent[name].seconds)
            more = (
                sent["regathered"].bytes if name == "tensor" else 0
            )  # beside arithmetic: no seconds of its own on the wire
            setattr(s, f"bytes_{name}_{sort}", 1.0 * (sent[name].bytes + more))
            sent[name] = Sent(getattr(s, f"wire_{name}_{sort}"), getattr(s, f"bytes_{name}_{sort}"))
    found = plans.micro_batch(products._replace(again=again), sent, asked.peak, asked.hides)
    setattr(s, f"one_{sort}", found.seconds)
    for name in asked.of_micro_batch:
        setattr(s, f"{name}_{sort}", found.parts[name])


def pace(s: Any, ranks: Mapping[str, tuple[Rank, Any]], virtual: Any, asked: Asked) -> Rank:
    """Set the seconds of the last rank to finish and their parts; give its layers, and whether it is the first and the last of the pipeline.

    A rank waits for the first virtual stages of those before it, which are equal but for that of the first rank (``one_opening``). Of several equal
    ranks the last one waits longest.
    """
    before: Any = 0
    finish: dict[str, Any] = {}
    for sort, (_, count) in ranks.items():
        one = getattr(s, f"one_{sort}")
        opened = s.one_opening if sort == "first" else one / virtual
        setattr(s, f"bubble_{sort}", before + (count - 1) * opened)
        finish[sort] = where(count > 0, s.micro_batches * one + getattr(s, f"bubble_{sort}"), -1)
        setattr(s, f"finish_{sort}", finish[sort])
        before = before + count * opened
    s.finish = reduce(maximum, (getattr(s, f"finish_{sort}") for sort in SORTS))

    def chosen(values: Mapping[str, Any]) -> Any:
        rest = values[SORTS[-1]]
        for sort in reversed(SORTS[:-1]):
            rest = where(getattr(s, f"finish_{sort}") >= s.finish, values[sort], rest)
        return rest

    def of_sorts(name: str) -> Any:
        return chosen({sort: getattr(s, f"{name}_{sort}") for sort in SORTS})

    s.pace_one, s.part_bubble = of_sorts("one"), of_sorts("bubble")
    for name in asked.of_micro_batch:
        setattr(s, f"part_{name}", s.micro_batches * of_sorts(name))
    if asked.sends:
        for name in asked.axes:
            setattr(s, f"wire_{name}", s.micro_batches * of_sorts(f"wire_{name}"))
            setattr(s, f"bytes_{name}", s.micro_batches * of_sorts(f"bytes_{name}"))
    s.pace_first = chosen({sort: rank.first for sort, (rank, _) in ranks.items()})
    s.pace_last = chosen({sort: rank.last for sort, (rank, _) in ranks.items()})
    kinds = []
    for i in range(len(ranks[SORTS[0]][0].kinds)):
        setattr(s, f"pace_layers_{i}", chosen({sort: rank.kinds[i] for sort, (rank, _) in ranks.items()}))
        kinds.append(getattr(s, f"pace_layers_{i}"))
    return Rank(tuple(kinds), s.pace_first, s.pace_last)
