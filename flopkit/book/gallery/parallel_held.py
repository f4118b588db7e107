"""The memory of a layout whose degrees a reader moves: what each sort of rank holds, and which holds most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from flopkit.arithmetic import maximum, minimum, total, where
from flopkit.book.gallery.parallel_ranks import SORTS, Asked, Degrees, by_policy
from flopkit.parallel import computing, holding
from flopkit.parallel.pipelines import in_stages
from flopkit.parallel.ranks import Rank

__all__ = ["memory"]

STATES = ("weights", "gradients", "optimizer")


def memory(s: Any, numbers: Any, degrees: Degrees, ranks: Mapping[str, tuple[Rank, Any]], opening: Rank, asked: Asked) -> None:  # fmt: skip
    """Set bytes of the fullest rank at its peak: ``memory``, and its parts ``held_weights`` and so on. Of a sort the first rank holds most micro-batches. ``whole_less`` and
    ``whole_all``: what it is without outputs of norms and activations, and with them, where a reader chooses."""
    alike = degrees.data * degrees.context
    s.gathered = 1.0 * where(degrees.zero >= 3, where(alike > 1, asked.gathered / degrees.tensor, 0), 0)
    ways = ("all",) if asked.fused is None else ("less", "all")
    places: dict[str, Any] = {"first": 0, "more": 1, "less": 1 + s.count_more, "last": degrees.pipeline - 1}
    for sort, place in places.items():
        rank = ranks[sort][0]
        params = computing.params_of(numbers, degrees, rank)
        for name, value in zip(STATES, holding.states_of(params, degrees, asked.state), strict=True):
            setattr(s, f"{name}_{sort}", 1.0 * value)
        stages = in_stages(degrees.pipeline, s.micro_batches, degrees.virtual, place)
        setattr(s, f"flight_{sort}", stages)
        held = _in_flight(s, sort, degrees, rank, opening)
        setattr(
            s, f"ends_{sort}", 1.0 * (holding.ends_of(numbers, degrees, rank) + holding.loss_of(numbers, degrees, rank))
        )
        for way in ways:
            _kept(s, sort, numbers, degrees, rank, held, asked.recompute, way)
        every = getattr(s, f"all_{sort}")
        activations = where(asked.fused > 0, getattr(s, f"less_{sort}"), every) if "less" in ways else every
        setattr(s, f"activations_{sort}", activations)
    for what in (*ways, "activations"):
        for sort, (_, count) in ranks.items():
            every = total(getattr(s, f"{name}_{sort}") for name in (*STATES, what)) + s.gathered
            setattr(s, f"whole_{what}_{sort}", where(count > 0, every, 0))
        setattr(s, f"whole_{what}", reduce(maximum, (getattr(s, f"whole_{what}_{sort}") for sort in SORTS)))
    s.memory = 1 * s.whole_activations
    for name in (*STATES, "activations"):
        held = getattr(s, f"{name}_{SORTS[-1]}")
        for sort in reversed(SORTS[:-1]):
            held = where(getattr(s, f"whole_activations_{sort}") >= s.memory, getattr(s, f"{name}_{sort}"), held)
        setattr(s, f"held_{name}", held)
    s.held_gathered = 1 * s.gathered


def _in_flight(s: Any, sort: str, degrees: Degrees, rank: Rank, opening: Rank) -> list[tuple[Any, ...]]:
    """Layers of each kind whose activations a rank holds at once. The moments at which it holds most differ in how many of its only unequal stage there are,
    as `flopkit.parallel.pipelines.of_each_stage` has them: of the first rank's first stage, and of the last rank's last, which is no larger than others."""
    p, v, m, stages = degrees.pipeline, degrees.virtual, s.micro_batches, getattr(s, f"flight_{sort}")
    if sort == "first":
        unequal, least, most = opening.kinds, 2 * p - 1, 2 * p
        counts = [minimum(least, m)] if len(unequal) == 1 else [minimum(least, m), minimum(most, m)]
    elif sort == "last":
        fewer, whole = where(s.each_layers == 1, 1, 0), maximum(total(rank.kinds), 1)  # its layers are of one kind
        unequal = tuple(((whole + fewer) / v - fewer) / whole * layers for layers in rank.kinds)
        counts = [where(m > p, 0, 1)]
    else:
        return [tuple(stages / v * layers for layers in rank.kinds)]
    others = [(layers - one) / maximum(v - 1, 1) for layers, one in zip(rank.kinds, unequal, strict=True)]
    found = []
    for i, count in enumerate(counts):
        setattr(s, f"unequal_{sort}_{i}", where(v > 1, count, stages))
        own = getattr(s, f"unequal_{sort}_{i}")
        found.append(tuple(own * one + (stages - own) * other for one, other in zip(unequal, others, strict=True)))
    return found


def _kept(
    s: Any,
    sort: str,
    numbers: Any,
    degrees: Degrees,
    rank: Rank,
    held: Sequence[Sequence[Any]],
    recompute: Any,
    way: str,
) -> None:
    """Set the bytes of activations of a rank, ``less_`` without what can be computed again from the rest, or ``all_``."""

    def kept(at: int) -> Any:
        def ask(layout: Degrees) -> Any:
            return 1.0 * holding.activations_of(numbers, layout, rank, held, way == "less")[at]

        return by_policy(recompute, degrees, ask)

    setattr(s, f"{way}_{sort}", kept(0) + maximum(getattr(s, f"ends_{sort}"), kept(1)))
