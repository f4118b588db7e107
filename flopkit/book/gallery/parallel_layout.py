"""A training step on a layout, for `parallel_step` and the calculator: `flopkit.parallel` with degrees that a reader moves.

What a rank computes, sends and holds are the functions that `flopkit.parallel.step` calls. Here is only what it does with whole numbers and lists:
which layers a rank has, which rank sets the pace, and which layouts there are.
"""

from __future__ import annotations

from functools import cache, reduce
from types import SimpleNamespace
from typing import Any

from flopkit.arithmetic import minimum, where
from flopkit.book.gallery.parallel_held import memory
from flopkit.book.gallery.parallel_ranks import PARTS, POLICIES, Asked, Degrees, opening_of, ranks_of
from flopkit.book.gallery.parallel_times import MOST_IN_NODE, exchanges, near, of_rank, pace
from flopkit.devices import memory_of
from flopkit.models.catalogue import load
from flopkit.parallel import computing, plans, traffic
from flopkit.parallel.clusters import cluster as the_cluster
from flopkit.parallel.shares import Divided, Layer, Summed, gathered, shares
from flopkit.parallel.traffic import Formats, Sent
from flopkit.training.memory import state_bytes

__all__ = [
    "MOST_IN_NODE", "PARTS", "POLICIES", "Asked", "Degrees", "a_step", "cluster_fields", "divide", "indivisible", "layout_of_a_step", "model_fields",
    "why_not",
]  # fmt: skip

PRECISION = "mixed-fp32-gradients"
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
_OF_LAYER = ("again", "core", "kept_core")


@cache
def model_fields(name: str, seq: int) -> dict[str, Any]:
    """Numbers of a model whose layers are all alike and have no experts, for one sequence."""
    found = shares(load(name), seq, "flash", False)
    (kind,) = found.kinds
    fields = {each: getattr(found, each) for each in _NUMBERS} | {each: getattr(kind, each) for each in _OF_LAYER}
    fields |= {f"summed_{part}": value for part, value in kind.summed._asdict().items()}
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


def _numbers_of(model: Any) -> Any:
    divided: dict[str, Any] = {
        each: Divided(**{part: getattr(model, f"{each}_{part}") for part in Divided._fields if part != "experts"})
        for each in _DIVIDED
    }
    alone = {each: getattr(model, each) for each in _OF_LAYER}
    summed = Summed(*(getattr(model, f"summed_{part}") for part in Summed._fields))
    kind = Layer(layers=model.layers, summed=summed, **divided, **alone, keys_values=0, dispatched=0, chosen=0)
    return SimpleNamespace(
        kinds=(kind,), layers=model.layers, mtp=None, **{each: getattr(model, each) for each in _NUMBERS}
    )


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
    ranks = ranks_of(s, numbers.layers, degrees, asked)
    place = SimpleNamespace(
        link=asked.link,
        network=asked.network,
        link_efficiency=1,
        network_efficiency=1,
        link_latency=0,
        network_latency=0,
    )
    inside = near(s, degrees)
    weight, gradient, _ = asked.state
    formats = Formats(2, 4, gradient, minimum(weight, 2))
    sent_of = exchanges(s, traffic.of_micro_batch(numbers, degrees, place, inside, formats), degrees)
    for sort, (rank, _) in ranks.items():
        of_rank(s, sort, numbers, degrees, rank, degrees.virtual, sent_of, asked)
    opening = opening_of(s, degrees, asked)
    of_rank(s, "opening", numbers, degrees, opening, 1, sent_of, asked._replace(sends=False))
    params = computing.params_of(numbers, degrees, pace(s, ranks, degrees.virtual, asked))
    sent = traffic.of_data(params, degrees, s.micro_batches, place, inside["data"], formats)
    s.data_seconds, s.data_bytes = 1.0 * sent.seconds, 1.0 * sent.bytes
    hides = asked.hides["data"]
    s.part_data = plans.hidden_data(Sent(s.data_seconds, 0), s.pace_one, s.micro_batches, degrees.zero, hides)
    s.seconds = s.micro_batches * s.pace_one + s.part_bubble + s.part_data
    s.mfu = asked.batch * numbers.model_flops / (s.seconds * s.devices * asked.peak)
    memory(s, numbers, degrees, ranks, opening, asked)
    s.room = 1 * asked.room
    s.used = s.memory / s.room
    s.fits = where(s.memory <= s.room, "yes", "no")
