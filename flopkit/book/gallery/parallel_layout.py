"""A training step on a layout, for `parallel_step`: `flopkit.parallel` with degrees that a reader moves.

What a rank computes, sends and holds are the functions that `flopkit.parallel.step` calls. Here is only what it does with whole numbers and lists:
which layers a rank has, which rank sets the pace, and which layouts there are. Ranks of a pipeline are of four sorts, in this order: the first, those
with a layer more, those without, the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from types import SimpleNamespace
from typing import Any, NamedTuple

from flopkit.arithmetic import maximum, total, where
from flopkit.charts.readings import pick
from flopkit.devices import memory_of
from flopkit.models.catalogue import load
from flopkit.parallel import computing, holding, plans, traffic
from flopkit.parallel.clusters import cluster as the_cluster
from flopkit.parallel.computing import Over
from flopkit.parallel.pipelines import in_stages
from flopkit.parallel.ranks import Rank
from flopkit.parallel.shares import Divided, Layer, gathered, shares
from flopkit.parallel.traffic import Formats, Sent
from flopkit.training.memory import state_bytes

__all__ = ["MOST_IN_NODE", "PARTS", "POLICIES", "cluster_fields", "layout_of_a_step", "model_fields"]

PRECISION = "mixed-fp32-gradients"
POLICIES = ("none", "selective", "full")
PARTS = ("arithmetic", "recompute", "tensor", "pipeline", "bubble", "data")
STATES = ("weights", "gradients", "optimizer")
SORTS = ("first", "more", "less", "last")
MOST_IN_NODE = 8
_NUMBERS = ("head_flops", "embedding", "head", "before", "after", "edge", "ends", "log_probs", "model_flops", "tied")
_DIVIDED = ("flops", "params", "kept", "fused")
_OF_LAYER = ("again", "core", "kept_core", "sums", "inputs")


@cache
def model_fields(name: str, seq: int) -> dict[str, Any]:
    """Numbers of a model whose layers are all alike and have no experts, for one sequence."""
    found = shares(load(name), seq, "flash", False)
    (kind,) = found.kinds
    fields = {each: getattr(found, each) for each in _NUMBERS} | {each: getattr(kind, each) for each in _OF_LAYER}
    fields |= {f"{each}_{part}": value for each in _DIVIDED for part, value in getattr(kind, each)._asdict().items()}
    heads = {f"{each}_heads": getattr(found.model.blocks[0][0].mixer, where_) for each, where_ in (("query", "heads"), ("key", "kv_heads"))}  # fmt: skip
    return fields | heads | {"layers": found.layers, "gathered": gathered(found.model, PRECISION), "seq": seq}


def cluster_fields(name: str) -> dict[str, float]:
    """Rates of a cluster with nodes of eight devices, each at its full."""
    place = the_cluster(name)
    if place.per_node != MOST_IN_NODE:
        raise ValueError(f"{name}: nodes of {place.per_node}; the figure is made for {MOST_IN_NODE}")
    peak = float(place.device.peak("bf16"))
    return {"link": place.link, "network": place.network, "peak": peak, "room": memory_of(place.device)}


class Degrees(NamedTuple):
    """A layout as the functions of `flopkit.parallel` read it."""

    tensor: Any
    pipeline: Any
    data: Any
    zero: Any
    virtual: Any
    micro_batch: Any
    recompute: str = "none"
    context: int = 1
    expert: int = 1
    sequence: bool = True
    order: str = "1f1b"
    regather: str = "all"


def _numbers_of(model: Any) -> Any:
    divided: dict[str, Any] = {
        each: Divided(**{part: getattr(model, f"{each}_{part}") for part in Divided._fields if part != "experts"})
        for each in _DIVIDED
    }
    alone = {each: getattr(model, each) for each in _OF_LAYER}
    kind = Layer(layers=model.layers, **divided, **alone, keys_values=0, dispatched=0, chosen=0)
    return SimpleNamespace(kinds=(kind,), **{each: getattr(model, each) for each in _NUMBERS})


def _in_node(ranks: Any, inner: Any) -> Any:
    """Ranks of a group in a node: the largest divisor for which there is room, where *inner* ranks of other groups lie between two."""
    held = (where(k * inner <= MOST_IN_NODE, where(ranks % k == 0, k, 1), 1) for k in range(2, MOST_IN_NODE + 1))
    return reduce(maximum, held, 1)


def layout_of_a_step(
    s: Any, *, model: Any, cluster: Any, tensor: Any, pipeline: Any, virtual: Any, data_ranks: Any, batch: Any, micro_batch: Any, zero: Any, recompute: Any,
    fused: Any, overlap: Any,
) -> None:  # fmt: skip
    """Set seconds, their parts, MFU and memory of a rank, as `flopkit.parallel.step` has them; ``refused`` says why there is no such layout."""
    numbers, data = _numbers_of(model), data_ranks
    degrees = Degrees(tensor, pipeline, data, zero.stage, virtual, micro_batch)
    hides = {"tensor": overlap.tensor, "pipeline": overlap.pipeline, "context": 0, "expert": 0}
    s.devices = tensor * pipeline * data
    s.micro_batches = batch / (data * micro_batch)
    _refuse(s, model, tensor, pipeline, virtual, data, micro_batch)
    ranks = _ranks(s, model.layers, pipeline, virtual)

    place = SimpleNamespace(
        link=cluster.link,
        network=cluster.network,
        link_efficiency=1,
        network_efficiency=1,
        link_latency=0,
        network_latency=0,
    )
    s.near_data, s.near_pipeline = _in_node(data, tensor), _in_node(pipeline, tensor * data)
    inside = {"tensor": tensor, "pipeline": s.near_pipeline, "data": s.near_data}
    weight, gradient, optimizer = state_bytes(PRECISION, "adam")
    formats = Formats(2, 4, gradient, weight)
    exchanges = traffic.of_micro_batch(numbers, degrees, place, inside, formats)
    s.sum_seconds, s.sum_bytes = exchanges.tensor
    s.pass_seconds, s.pass_bytes = (where(pipeline > 1, each, 0) for each in exchanges.pipeline)
    exchanges = exchanges._replace(tensor=Sent(s.sum_seconds, s.sum_bytes), pipeline=Sent(s.pass_seconds, s.pass_bytes))
    for sort, (rank, _) in ranks.items():
        _one(s, sort, numbers, degrees, rank, exchanges, recompute, cluster.peak, hides)
    pace = _pace(s, ranks, virtual)

    params = computing.params_of(numbers, degrees, Rank(pace["layers"], pace["first"], pace["last"]))[0]
    sent = traffic.of_data((params, Over(0, 1)), degrees, s.micro_batches, place, s.near_data, formats)
    s.data_seconds = 1 * sent.seconds
    s.part_data = plans.hidden_data(Sent(s.data_seconds, 0), s.pace_one, s.micro_batches, zero.stage, overlap.data)
    s.seconds = s.micro_batches * s.pace_one + s.part_bubble + s.part_data
    s.mfu = batch * model.model_flops / (s.seconds * s.devices * cluster.peak)
    _memory(s, model, numbers, degrees, ranks, recompute, fused, (weight, gradient, optimizer))
    s.room = 1 * cluster.room
    s.used = s.memory / s.room
    s.fits = where(s.memory <= s.room, "yes", "no")
    s.no_zero = where(data > 1, "", "One data-parallel rank has nothing to divide its states with.")
    s.no_overlap = where(s.devices > 1, "", "One device exchanges nothing.")


def _refuse(s: Any, model: Any, tensor: Any, pipeline: Any, virtual: Any, data: Any, micro_batch: Any) -> None:
    """Set ``refused``: why there is no such layout, or ""."""
    stages = pipeline * virtual
    equal = where(model.layers % stages == 0, 1, where((model.layers + 2) % stages == 0, 1, 0))
    unequal = where(virtual > 1, 0, where(pipeline > model.layers, 0, 1))
    reasons = [
        (tensor > MOST_IN_NODE, f"Tensor-parallel ranks stay in a node of {MOST_IN_NODE} here."),
        (model.key_heads % tensor > 0, "{tensor} does not divide the key-value heads of {model}."),
        (model.query_heads % tensor > 0, "{tensor} does not divide the heads of {model}."),
        (where(pipeline > 1, 1, virtual) > 1, "Virtual stages need a pipeline: choose one, or more pipeline ranks."),
        (equal + unequal < 1, "The layers of {model} cannot be divided among {pipeline} with {virtual} each."),
        (s.micro_batches % 1 > 0, "{data_ranks} with micro-batches of {micro_batch} cannot divide {batch}."),
        (where(virtual > 1, s.micro_batches % pipeline, 0) > 0, "With several virtual stages, a rank's micro-batches must be a multiple of {pipeline}."),
    ]  # fmt: skip
    s.refused = reduce(lambda rest, reason: where(reason[0], reason[1], rest), reversed(reasons), "")


def _ranks(s: Any, layers: Any, pipeline: Any, virtual: Any) -> dict[str, tuple[Rank, Any]]:
    """Of each sort a rank, and how many there are; set the layers of each as ``layers_first`` and so on.

    Layers are divided as in `flopkit.parallel.ranks.stages`: into equal parts; with the first and the last part one fewer; or into parts that differ by
    one, of which the first and the last have the fewer where that is possible.
    """
    stages, between = pipeline * virtual, maximum(pipeline - 2, 0)
    rest = layers % pipeline
    base = (layers - rest) / pipeline
    s.each_layers = where(layers % stages == 0, 0, where((layers + 2) % stages == 0, 1, 2))  # which of the three
    whole, wide, fits_between = layers / pipeline, (layers + 2) / pipeline, rest < pipeline - 1
    ends = where(s.each_layers == 0, whole, wide - 1)
    s.layers_first = where(s.each_layers < 2, ends, where(fits_between, base, base + 1))
    s.layers_more = where(s.each_layers == 0, whole, where(s.each_layers == 1, wide, base + 1))
    s.layers_less = 1 * base
    s.layers_last = where(s.each_layers < 2, ends, base)
    s.count_more = where(s.each_layers < 2, between, where(fits_between, rest, between))
    s.count_less = where(s.each_layers < 2, 0, where(fits_between, between - rest, 0))
    s.alone = where(pipeline > 1, 0, 1)
    counts = {"first": 1, "more": s.count_more, "less": s.count_less, "last": 1 - s.alone}
    ends_of: dict[str, Any] = {"first": (1, s.alone), "more": (0, 0), "less": (0, 0), "last": (0, 1)}
    return {sort: (Rank((getattr(s, f"layers_{sort}"),), *ends_of[sort]), counts[sort]) for sort in SORTS}


def _by_policy(recompute: Any, degrees: Degrees, ask: Any) -> Any:
    """What *ask* says of a layout with the chosen recompute policy."""
    return pick(recompute, {policy: ask(degrees._replace(recompute=policy)) for policy in POLICIES})


def _one(s: Any, sort: str, numbers: Any, degrees: Degrees, rank: Rank, exchanges: Any, recompute: Any, peak: Any, hides: Mapping[str, Any]) -> None:  # fmt: skip
    """Set of a micro-batch on a rank of a sort: ``one_first``, its seconds, and the parts of these, ``arithmetic_first`` and so on."""
    products = computing.products_of(numbers, degrees, rank)
    again = _by_policy(recompute, degrees, lambda layout: computing.products_of(numbers, layout, rank).again)

    def on_rank(layout: Degrees) -> dict[str, Sent]:
        return traffic.on_rank(exchanges, numbers, layout, rank)

    sent = on_rank(degrees)
    tensor = Sent(
        *(_by_policy(recompute, degrees, lambda layout, at=at: on_rank(layout)["tensor"][at]) for at in range(2))
    )
    found = plans.micro_batch(products._replace(again=again), sent | {"tensor": tensor}, peak, hides)
    setattr(s, f"one_{sort}", found.seconds)
    for name in PARTS[:4]:
        setattr(s, f"{name}_{sort}", found.parts[name])


def _pace(s: Any, ranks: Mapping[str, tuple[Rank, Any]], virtual: Any) -> dict[str, Any]:
    """Set the seconds of the last rank to finish and their parts; give its layers, and whether it is the first and the last of the pipeline.

    Of several equal ranks the last one waits longest.
    """
    before: Any = 0
    finish: dict[str, Any] = {}
    for sort, (_, count) in ranks.items():
        one = getattr(s, f"one_{sort}")
        waited = before + (count - 1) * one
        setattr(s, f"bubble_{sort}", waited / virtual)
        finish[sort] = where(count > 0, s.micro_batches * one + getattr(s, f"bubble_{sort}"), -1)
        setattr(s, f"finish_{sort}", finish[sort])
        before = before + count * one
    s.finish = reduce(maximum, (getattr(s, f"finish_{sort}") for sort in SORTS))

    def chosen(values: Mapping[str, Any]) -> Any:
        rest = values[SORTS[-1]]
        for sort in reversed(SORTS[:-1]):
            rest = where(getattr(s, f"finish_{sort}") >= s.finish, values[sort], rest)
        return rest

    s.pace_one = chosen({sort: getattr(s, f"one_{sort}") for sort in SORTS})
    s.part_bubble = chosen({sort: getattr(s, f"bubble_{sort}") for sort in SORTS})
    for name in PARTS[:4]:
        setattr(s, f"part_{name}", s.micro_batches * chosen({sort: getattr(s, f"{name}_{sort}") for sort in SORTS}))
    s.pace_layers = chosen({sort: rank.kinds[0] for sort, (rank, _) in ranks.items()})
    s.pace_first = chosen({sort: rank.first for sort, (rank, _) in ranks.items()})
    s.pace_last = chosen({sort: rank.last for sort, (rank, _) in ranks.items()})
    return {"layers": (s.pace_layers,), "first": s.pace_first, "last": s.pace_last}


def _memory(s: Any, model: Any, numbers: Any, degrees: Degrees, ranks: Mapping[str, tuple[Rank, Any]], recompute: Any, fused: Any, sizes: tuple[int, int, int]) -> None:  # fmt: skip
    """Set bytes of the fullest rank: ``memory``, and its parts ``held_weights`` and so on; ``no_fused``, why it does not matter what a layer keeps. Of a sort
    the first rank holds most micro-batches."""
    whole = where(degrees.zero >= 3, where(degrees.data > 1, model.gathered / degrees.tensor, 0), 0)
    s.gathered = 1.0 * whole
    places: dict[str, Any] = {"first": 0, "more": 1, "less": 1 + s.count_more, "last": degrees.pipeline - 1}
    for sort, place in places.items():
        rank = ranks[sort][0]
        rest = computing.params_of(numbers, degrees, rank)[0]
        for name, value in zip(STATES, holding.states_of((rest, Over(0, 1)), degrees, sizes), strict=True):
            setattr(s, f"{name}_{sort}", 1.0 * value)
        stages = in_stages(degrees.pipeline, s.micro_batches, degrees.virtual, place)
        setattr(s, f"flight_{sort}", stages / degrees.virtual)
        setattr(s, f"ends_{sort}", 1.0 * holding.ends_of(numbers, degrees, rank))
        for less in (True, False):
            _kept(s, sort, numbers, degrees, rank, recompute, less)
        activations = where(fused > 0, getattr(s, f"less_{sort}"), getattr(s, f"all_{sort}"))
        setattr(s, f"activations_{sort}", activations)
    for what in ("less", "all", "activations"):
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
    alike = "What the head and the loss keep is more than a layer that is computed again."
    s.no_fused = where(s.whole_less < s.whole_all, "", alike)


def _kept(s: Any, sort: str, numbers: Any, degrees: Degrees, rank: Rank, recompute: Any, less: bool) -> None:
    """Set the bytes of activations of a rank, ``less_`` without what can be computed again from the rest, or ``all_``."""

    def kept(at: int) -> Any:
        def ask(layout: Degrees) -> Any:
            return 1.0 * holding.activations_of(numbers, layout, rank, getattr(s, f"flight_{sort}"), less)[at]

        return _by_policy(recompute, degrees, ask)

    setattr(s, f"{'less' if less else 'all'}_{sort}", kept(0) + maximum(getattr(s, f"ends_{sort}"), kept(1)))
