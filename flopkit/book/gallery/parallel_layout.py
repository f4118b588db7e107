"""A training step on a layout, for `parallel_step` and the calculator: `flopkit.parallel` with degrees that a reader moves.

What a rank computes, sends and holds are the functions that `flopkit.parallel.step` calls. Here is only what it does with whole numbers and lists:
which layers a rank has, which rank sets the pace, and which layouts there are. Ranks of a pipeline are of four sorts, in this order: the first, those
with a layer more, those without, the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, reduce
from types import SimpleNamespace
from typing import Any, NamedTuple

from flopkit.arithmetic import maximum, minimum, total, where
from flopkit.charts.readings import pick
from flopkit.devices import memory_of
from flopkit.models.catalogue import load
from flopkit.parallel import computing, holding, plans, traffic
from flopkit.parallel.clusters import cluster as the_cluster
from flopkit.parallel.pipelines import in_stages
from flopkit.parallel.ranks import Rank
from flopkit.parallel.shares import Divided, Layer, gathered, shares
from flopkit.parallel.traffic import Formats, Sent
from flopkit.training.memory import state_bytes

__all__ = [
    "MOST_IN_NODE", "PARTS", "POLICIES", "Asked", "Degrees", "a_step", "cluster_fields", "divide", "indivisible", "layout_of_a_step", "model_fields",
    "why_not",
]  # fmt: skip

PRECISION = "mixed-fp32-gradients"
POLICIES = ("none", "selective", "full")
PARTS = ("arithmetic", "recompute", "tensor", "pipeline", "bubble", "data")
ONCE = ("bubble", "data")  # of a step, the other parts of each micro-batch
STATES = ("weights", "gradients", "optimizer")
SORTS = ("first", "more", "less", "last")
MOST_IN_NODE = 8
_NUMBERS = (
    "head_flops",
    "embedding",
    "head",
    "before",
    "after",
    "edge",
    "ends",
    "log_probs",
    "loss",
    "model_flops",
    "tied",
)
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
    context: Any = 1
    expert: Any = 1
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
    return SimpleNamespace(kinds=(kind,), layers=model.layers, **{each: getattr(model, each) for each in _NUMBERS})


class Asked(NamedTuple):
    """What `a_step` is asked beside numbers and degrees.

    *link* and *network* of a device, *peak* and *room* are those of a cluster; *state*: bytes of a parameter's weight, gradient and optimiser; *gathered*:
    bytes of whole layers with ZeRO-3; *hides*: 1 for what runs beside arithmetic, by axis; *parts*: the parts of a step that there can be; *kinds*: the
    layers of each kind of a rank, from its sort and all its layers; *fused*: above 0 without outputs of norms and activations, None: with them; *sends*: whether bytes
    and seconds of each axis are asked for, too.
    """

    link: Any
    network: Any
    peak: Any
    room: Any
    batch: Any
    recompute: Any
    hides: Mapping[str, Any]
    state: tuple[Any, Any, Any]
    gathered: Any
    fused: Any = None
    parts: tuple[str, ...] = PARTS
    sends: bool = False
    kinds: Callable[[str, Any], tuple[Any, ...]] = lambda sort, layers: (layers,)

    @property
    def of_micro_batch(self) -> tuple[str, ...]:
        """The parts of each micro-batch."""
        return tuple(name for name in self.parts if name not in ONCE)

    @property
    def axes(self) -> tuple[str, ...]:
        """Those along which ranks exchange something in each micro-batch."""
        return tuple(name for name in self.parts if name in plans.AXES)


def layout_of_a_step(
    s: Any, *, model: Any, cluster: Any, tensor: Any, pipeline: Any, virtual: Any, data_ranks: Any, batch: Any, micro_batch: Any, zero: Any, recompute: Any,
    fused: Any, overlap: Any,
) -> None:  # fmt: skip
    """Set seconds, their parts, MFU and memory of a rank, as `flopkit.parallel.step` has them; ``refused`` says why there is no such layout."""
    degrees = Degrees(tensor, pipeline, data_ranks, zero.stage, virtual, micro_batch)
    divide(s, degrees, batch)
    why_not(
        s,
        (tensor > MOST_IN_NODE, f"Tensor-parallel ranks stay in a node of {MOST_IN_NODE} here."),
        (model.key_heads % tensor > 0, "{tensor} does not divide the key-value heads of {model}."),
        (model.query_heads % tensor > 0, "{tensor} does not divide the heads of {model}."),
        *indivisible(s, model.layers, degrees, of_model="The layers of {model}", batch="{batch}"),
    )
    hides = {"tensor": overlap.tensor, "context": 0, "expert": 0, "pipeline": overlap.pipeline, "data": overlap.data}
    a_step(s, _numbers_of(model), degrees, Asked(
        link=cluster.link, network=cluster.network, peak=cluster.peak, room=cluster.room, batch=batch, recompute=recompute, fused=fused, hides=hides,
        state=state_bytes(PRECISION, "adam"), gathered=model.gathered,
    ))  # fmt: skip
    s.no_zero = where(data_ranks > 1, "", "One data-parallel rank has nothing to divide its states with.")
    s.no_overlap = where(s.devices > 1, "", "One device exchanges nothing.")
    alike = "What the head and the loss keep is more than a layer that is computed again."
    s.no_fused = where(s.whole_less < s.whole_all, "", alike)


def divide(s: Any, degrees: Degrees, batch: Any) -> None:
    """Set ``devices``, and ``micro_batches`` of a rank, which are no whole number where the batch does not divide."""
    s.devices = degrees.tensor * degrees.context * degrees.pipeline * degrees.data
    s.micro_batches = batch / (degrees.data * degrees.micro_batch)


def indivisible(s: Any, layers: Any, degrees: Degrees, of_model: str, batch: str) -> list[tuple[Any, str]]:
    """Why layers and a batch cannot be divided so, each as a condition and a sentence. *of_model*, *batch*: what the sentences call the layers and it."""
    pipeline, virtual = degrees.pipeline, degrees.virtual
    stages = pipeline * virtual
    equal = where(layers % stages == 0, 1, where((layers + 2) % stages == 0, 1, 0))
    unequal = where(virtual > 1, 0, where(pipeline > layers, 0, 1))
    return [
        (where(pipeline > 1, 1, virtual) > 1, "Virtual stages need a pipeline: choose one, or more pipeline ranks."),
        (equal + unequal < 1, f"{of_model} cannot be divided among {{pipeline}} with {{virtual}} each."),
        (s.micro_batches % 1 > 0, f"{{data_ranks}} with micro-batches of {{micro_batch}} cannot divide {batch}."),
        (where(virtual > 1, s.micro_batches % pipeline, 0) > 0, "With several virtual stages, a rank's micro-batches must be a multiple of {pipeline}."),
    ]  # fmt: skip


def why_not(s: Any, *reasons: tuple[Any, str]) -> None:
    """Set ``refused``: the sentence of the first condition that holds, or ""."""
    s.refused = reduce(lambda rest, reason: where(reason[0], reason[1], rest), reversed(reasons), "")


def a_step(s: Any, numbers: Any, degrees: Degrees, asked: Asked) -> None:
    """Set seconds of a step and their parts (``part_arithmetic`` and so on), MFU, memory of the fullest rank and its parts (``held_weights`` and so
    on), and whether it fits, as `flopkit.parallel.step` has them. `divide` comes before it."""
    ranks = _ranks(s, numbers.layers, degrees, asked)
    place = SimpleNamespace(
        link=asked.link,
        network=asked.network,
        link_efficiency=1,
        network_efficiency=1,
        link_latency=0,
        network_latency=0,
    )
    inside = _near(s, degrees)
    weight, gradient, _ = asked.state
    formats = Formats(2, 4, gradient, minimum(weight, 2))
    exchanges = _exchanges(s, traffic.of_micro_batch(numbers, degrees, place, inside, formats), degrees)
    for sort, (rank, _) in ranks.items():
        _one(s, sort, numbers, degrees, rank, exchanges, asked)
    params = computing.params_of(numbers, degrees, _pace(s, ranks, degrees.virtual, asked))
    sent = traffic.of_data(params, degrees, s.micro_batches, place, inside["data"], formats)
    s.data_seconds, s.data_bytes = 1.0 * sent.seconds, 1.0 * sent.bytes
    hides = asked.hides["data"]
    s.part_data = plans.hidden_data(Sent(s.data_seconds, 0), s.pace_one, s.micro_batches, degrees.zero, hides)
    s.seconds = s.micro_batches * s.pace_one + s.part_bubble + s.part_data
    s.mfu = asked.batch * numbers.model_flops / (s.seconds * s.devices * asked.peak)
    _memory(s, numbers, degrees, ranks, asked)
    s.room = 1 * asked.room
    s.used = s.memory / s.room
    s.fits = where(s.memory <= s.room, "yes", "no")


def _largest(ranks: Any, most: Any) -> Any:
    """The largest divisor of *ranks* up to *most*, which is at most `MOST_IN_NODE`."""
    held = (where(k <= most, where(ranks % k == 0, k, 1), 1) for k in range(2, MOST_IN_NODE + 1))
    return reduce(maximum, held, 1)


def _near(s: Any, degrees: Degrees) -> dict[str, Any]:
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
    if not (isinstance(degrees.expert, int) and degrees.expert == 1):
        s.alike_experts = 1 * traffic.groups(degrees)[1]
        s.near_experts = _largest(s.alike_experts, found["data"])
        found["data"] = (found["data"], s.near_experts)
    return found


def _exchanges(s: Any, found: traffic.Traffic, degrees: Degrees) -> traffic.Traffic:
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


def _ranks(s: Any, layers: Any, degrees: Degrees, asked: Asked) -> dict[str, tuple[Rank, Any]]:
    """Of each sort a rank, and how many there are; set the layers of each as ``layers_first`` and so on.

    Layers are divided as in `flopkit.parallel.ranks.stages`: into equal parts; with the first and the last part one fewer; or into parts that differ by
    one, of which the first and the last have the fewer where that is possible.
    """
    pipeline, virtual = degrees.pipeline, degrees.virtual
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
    kinds = {sort: asked.kinds(sort, getattr(s, f"layers_{sort}")) for sort in SORTS}
    return {sort: (Rank(kinds[sort], *ends_of[sort]), counts[sort]) for sort in SORTS}


def _by_policy(recompute: Any, degrees: Degrees, ask: Any) -> Any:
    """What *ask* says of a layout with the chosen recompute policy."""
    return pick(recompute, {policy: ask(degrees._replace(recompute=policy)) for policy in POLICIES})


def _one(s: Any, sort: str, numbers: Any, degrees: Degrees, rank: Rank, exchanges: Any, asked: Asked) -> None:
    """Set of a micro-batch on a rank of a sort: ``one_first``, its seconds, the parts of these, ``arithmetic_first`` and so on, and of each axis
    ``bytes_tensor_first`` that are sent and ``wire_tensor_first``, the seconds of that."""
    products = computing.products_of(numbers, degrees, rank)
    again = _by_policy(asked.recompute, degrees, lambda layout: computing.products_of(numbers, layout, rank).again)

    def on_rank(layout: Degrees) -> dict[str, Sent]:
        return traffic.on_rank(exchanges, numbers, layout, rank)

    sent = on_rank(degrees)
    for axis in (
        "tensor",
        "context",
        "expert",
        "regathered",
    ):  # those that run again, or the more of them, under some policy
        if sent[axis] is not traffic.NOTHING:
            sent[axis] = Sent(
                *(_by_policy(asked.recompute, degrees, lambda layout, axis=axis, at=at: on_rank(layout)[axis][at]) for at in range(2))
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


def _pace(s: Any, ranks: Mapping[str, tuple[Rank, Any]], virtual: Any, asked: Asked) -> Rank:
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


def _memory(s: Any, numbers: Any, degrees: Degrees, ranks: Mapping[str, tuple[Rank, Any]], asked: Asked) -> None:
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
        setattr(s, f"flight_{sort}", stages / degrees.virtual)
        setattr(
            s, f"ends_{sort}", 1.0 * (holding.ends_of(numbers, degrees, rank) + holding.loss_of(numbers, degrees, rank))
        )
        for way in ways:
            _kept(s, sort, numbers, degrees, rank, asked.recompute, way)
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


def _kept(s: Any, sort: str, numbers: Any, degrees: Degrees, rank: Rank, recompute: Any, way: str) -> None:
    """Set the bytes of activations of a rank, ``less_`` without what can be computed again from the rest, or ``all_``."""

    def kept(at: int) -> Any:
        def ask(layout: Degrees) -> Any:
            in_flight = getattr(s, f"flight_{sort}")
            return 1.0 * holding.activations_of(numbers, layout, rank, in_flight, way == "less")[at]

        return _by_policy(recompute, degrees, ask)

    setattr(s, f"{way}_{sort}", kept(0) + maximum(getattr(s, f"ends_{sort}"), kept(1)))
