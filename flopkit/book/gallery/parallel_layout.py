"""A training step on a layout, for the calculator: `flopkit.parallel` with degrees that a reader moves.

What a rank computes, sends and holds are the functions that `flopkit.parallel.step` calls. Here is only what it does with whole numbers and lists:
which layers a rank has, which rank sets the pace, and which layouts there are.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flopkit.arithmetic import minimum, where
from flopkit.book.gallery.parallel_held import memory
from flopkit.book.gallery.parallel_ranks import Asked, Degrees, opening_of, ranks_of
from flopkit.book.gallery.parallel_times import MOST_IN_NODE, exchanges, near, of_rank, pace
from flopkit.parallel import computing, plans, traffic
from flopkit.parallel.traffic import Formats, Sent

__all__ = ["MOST_IN_NODE", "Asked", "Degrees", "a_step", "divide", "indivisible"]


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
