"""Many GPUs: the chunks of a ring, the network cards between two nodes, and the exchange beside a step's arithmetic."""

from __future__ import annotations

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE, PURPLE
from flopkit.models.catalogue import load
from flopkit.parallel.clusters import cluster
from flopkit.parallel.collectives import all_gather, all_reduce, reduce_scatter
from flopkit.parallel.layouts import Layout
from flopkit.parallel.steps import step
from flopkit.units import count, seconds, si

__all__ = ["hidden_exchange", "node_cards", "ring_all_reduce"]

RANKS, CELL = 4, 30.0


def ring_all_reduce() -> Drawing:
    """Four GPUs that all-reduce four chunks in a ring: how many parts each GPU has of each chunk, before, in the middle and after.

    Examples
    --------
    >>> ring_all_reduce().title
    'In a ring of 4, each GPU sends 6 quarters of the tensor: 1.5 times the tensor'
    """
    asked = all_reduce(bytes=RANKS, ranks=RANKS)  # a chunk is one byte
    half = RANKS - 1
    held = _ring()
    shown = {
        0: "At the start",
        1: "After 1 step",
        half: f"After {half}: reduce-scattered",
        asked.steps: f"After {asked.steps}: all-gathered",
    }
    canvases = [Canvas(172), Canvas(172)]
    for at, (steps, title) in enumerate(shown.items()):
        _state(canvases[at // 2], 184.0 * (at % 2), title, steps, held[steps], last=steps == asked.steps)
    foot = Canvas(56)
    foot.box(1, 3, 12, 12, name="key", colour=ORANGE, fill=0, edge=2, round=0)
    foot.text(20, 9, f"sent next, to the GPU below; by GPU {RANKS} to GPU 1", anchor="start", colour=MUTED)
    foot.lines(
        0, 30, "A number says how many GPUs' parts are added up.", f"Chunks a to d are quarters of the tensor; {RANKS} is a sum.",
        anchor="start", colour=MUTED,
    )  # fmt: skip
    return Drawing(
        "ring-all-reduce",
        f"In a ring of {RANKS}, each GPU sends {asked.steps} quarters of the tensor: {asked.sent / RANKS:g} times the tensor",
        f"Four tables of {RANKS} GPUs and {RANKS} chunks of a tensor. In each step every GPU sends a chunk to the next. At first each has its own part of each chunk. In {half} steps the receiver adds: "
        f"then GPU 1 has the sum of chunk b, GPU 2 of c, GPU 3 of d, GPU 4 of a. In {half} more the sums go around, until every GPU has all {RANKS}.",
        [*canvases, foot],
    )


def _state(canvas: Canvas, left: float, title: str, steps: int, held: list[list[int]], last: bool) -> None:
    """A table of GPUs and chunks after some steps; what each GPU sends next has a frame."""
    x, y = left + 44, 44.0
    canvas.text(left, 10, title, anchor="start", bold=True)
    if last:
        canvas.box(x, y, RANKS * CELL, RANKS * CELL, colour=GREEN, fill=0.5, edge=0, round=0)
    canvas.grid(x, y, RANKS, RANKS, CELL)
    for gpu, row in enumerate(held):
        canvas.text(x + CELL * (gpu + 0.5), 32, "abcd"[gpu], colour=MUTED)
        canvas.text(left, y + CELL * (gpu + 0.5), f"GPU {gpu + 1}", anchor="start")
        for chunk, parts in enumerate(row):
            if parts > 1 and not last:
                colour, fill = (GREEN, 0.5) if parts == RANKS else (BLUE, 0.15 * parts)
                canvas.box(x + CELL * chunk, y + CELL * gpu, CELL, CELL, colour=colour, fill=fill, edge=0, round=0)
            canvas.text(x + CELL * (chunk + 0.5), y + CELL * (gpu + 0.5), str(parts), name=f"after {steps}")
        if not last:
            sent = (gpu - steps) % RANKS
            canvas.box(x + CELL * sent + 2, y + CELL * gpu + 2, CELL - 4, CELL - 4, name=f"sent after {steps}", colour=ORANGE, fill=0, edge=2, round=0)  # fmt: skip


def _ring() -> list[list[list[int]]]:
    """After each step, how many parts each GPU has of each chunk. Each GPU passes on what it received last; it adds in the first half and overwrites in the second."""
    now = [[1] * RANKS for _ in range(RANKS)]
    found = [now]
    for done in range(2 * (RANKS - 1)):
        after = [list(row) for row in now]
        for gpu in range(RANKS):
            chunk, to = (gpu - done) % RANKS, (gpu + 1) % RANKS
            after[to][chunk] = now[gpu][chunk] + (now[to][chunk] if done < RANKS - 1 else 0)
        found.append(now := after)
    return found


def node_cards(gigabytes: int = 16, where: str = "dgx-h100") -> Drawing:
    """Two nodes and their network cards: a group with all GPUs of both, and eight groups with one GPU in each.

    Parameters
    ----------
    gigabytes : int, optional
        Gradients of the whole model, in GB.
    where : str, optional
        A cluster of eight GPUs and eight cards a node.

    Raises
    ------
    ValueError
        For a cluster of other nodes.

    Examples
    --------
    >>> node_cards().title
    'One group of 16 or eight groups of 2: each card sends 2 GB either way'
    """
    whole("node_cards", "gigabytes", gigabytes, 1, 10_000)
    place = cluster(where)
    if place.per_node != 8:
        raise ValueError(f"node_cards(where={where!r}): draws eight GPUs a node, and {place.name} has {place.per_node}")
    each = all_reduce(bytes=gigabytes * 10**9 / 8, ranks=2)
    both = all_reduce(bytes=gigabytes * 10**9, ranks=16)
    card = si(each.sent, "B")
    ring = both.sent / place.network  # all that a GPU of one ring through both nodes sends
    links = 2 * reduce_scatter(bytes=gigabytes * 10**9, ranks=8).sent / place.link
    crossing = f"each card sends {card}, {seconds(each.sent / place.network)}"
    words = {
        "one group of 16, whole model on each": (range(8), f"{crossing}; links: {seconds(links)}"),
        "eight groups of 2, an eighth on each": (range(1), crossing),
    }
    canvases = []
    for title, (members, said) in words.items():
        canvas = Canvas(176)
        canvas.text(0, 10, title, anchor="start", bold=True)
        for node, y in enumerate((34, 118)):
            cards = y + 30 if node == 0 else y - 14
            canvas.box(42, y - 5, 316, 34, name=f"node {node + 1}", colour=MUTED, fill=0.06)
            canvas.text(0, y + 12, f"node {node + 1}", anchor="start")
            for i in range(8):
                x = 48 + 38.5 * i
                mine = i in members
                canvas.box(x, y, 32, 24, name="member" if mine else "other", colour=BLUE if mine else MUTED, fill=0.6 if mine else 0.15, edge=0, round=0)  # fmt: skip
                canvas.box(x + 9, cards, 14, 9, name="card of the group" if mine else "card", colour=ORANGE if mine else MUTED, fill=0.8 if mine else 0.3, edge=0, round=0)  # fmt: skip
        for i in range(8):
            x = 64 + 38.5 * i
            mine = i in members
            canvas.line(x, 73, x, 104, colour=ORANGE if mine else MUTED, width=2 if mine else 1, dash=not mine, name="wire of the group" if mine else "wire")  # fmt: skip
        canvas.text(0, 160, said, anchor="start")
        canvases.append(canvas)
    foot = Canvas(56)
    for x, colour, wording in ((0, BLUE, "GPU of the group"), (150, ORANGE, "card that it uses")):
        foot.box(x, 2, 14, 14, colour=colour, fill=0.6, edge=0)
        foot.text(x + 20, 9, wording, anchor="start", colour=MUTED)
    foot.text(0, 36, f"One ring of 16 would send {si(both.sent, 'B')} per card: {seconds(ring)}.", anchor="start", colour=MUTED)  # fmt: skip
    return Drawing(
        "node-cards",
        f"One group of 16 or eight groups of 2: each card sends {card} either way",
        f"Two nodes of eight GPUs, each GPU with a network card ({place.name}). Above, all 16 GPUs exchange the gradients of a whole model, {count(gigabytes, 'GB')}, "
        f"and the traffic between the nodes goes through all eight cards of each. Below, each GPU has an eighth of the model and exchanges it with one GPU of the other "
        f"node, through one card; seven such groups beside it use the others. Either way a card sends {card}. A single ring through all 16 would send {si(both.sent, 'B')} through one card.",
        [*canvases, foot],
    )


LEFT, WIDE, BAR = 58.0, 300.0, 24.0


def hidden_exchange(
    sequences: int = 4, seq: int = 1024, model: str = "llama-3-8b", ranks: int = 64, where: str = "dgx-h100"
) -> Drawing:
    """A data-parallel step beside its exchange, in one micro-batch and in several: only the first forward and the last backward pass hide it.

    Weights travel in bf16, gradients in fp32, each once per step.

    Parameters
    ----------
    sequences : int, optional
        Sequences per GPU and step, 2 to 8: all in one micro-batch, then each in its own.
    seq : int, optional
        Tokens of a sequence.
    model : str, optional
        A name that `flopkit.load` knows.
    ranks : int, optional
        GPUs, each with the whole model.
    where : str, optional
        A cluster.

    Raises
    ------
    ValueError
        For fewer or more sequences.

    Examples
    --------
    >>> hidden_exchange().title
    'In one micro-batch, 4,096 tokens hide the exchange; in 4 of 1,024, 57.82 ms of it remain'
    """
    whole("hidden_exchange", "sequences", sequences, 2, 8)
    of = {
        n: step(
            model, Layout(data=ranks, zero=1, micro_batch=sequences // n), where,
            seq=seq, batch=ranks * sequences, precision="mixed-fp32-gradients",
        )
        for n in (1, sequences)
    }  # fmt: skip
    params = load(model).params
    gather = all_gather(bytes=2 * params, ranks=ranks).on(where)
    reduce = reduce_scatter(bytes=4 * params, ranks=ranks).on(where)
    longest = max(each.seconds for each in of.values())
    canvases = [_hidden(n, each.seconds - each.parts["data"], gather, reduce, WIDE / longest) for n, each in of.items()]
    foot = Canvas(64)
    foot.text(
        0,
        52,
        f"{model_title(model)} on {count(ranks)} GPUs, {cluster(where).device.title}",
        anchor="start",
        colour=MUTED,
    )
    for x, y, wording, look in (
        (0, 2, "forward pass", {"colour": BLUE, "fill": 0.5}),
        (132, 2, "backward pass", {"colour": PURPLE, "fill": 0.5}),
        (258, 2, "the GPU waits", {"dash": True, "fill": 0.0}),
        (0, 24, "weights, 2 bytes", {"colour": GREEN, "fill": 0.5}),
        (132, 24, "gradients, 4 bytes per parameter", {"colour": ORANGE, "fill": 0.5}),
    ):
        foot.box(x, y, 12, 12, name="key", **look)
        foot.text(x + 18, y + 6, wording, anchor="start", colour=MUTED)
    one, several = of[1], of[sequences]
    left = {n: each.parts["data"] for n, each in of.items()}
    hidden = "hide the exchange" if not left[1] else f"leave {seconds(left[1])} of the exchange"
    tokens = count(sequences * seq, "tokens")
    return Drawing(
        "hidden-exchange",
        f"In one micro-batch, {tokens} {hidden}; in {sequences} of {count(seq)}, {seconds(left[sequences])} of it remain",
        f"Two timelines of a GPU and its network, {model} on {ranks} GPUs. The exchange takes {seconds(gather)} for the weights, beside the first forward pass, and {seconds(reduce)} for the "
        f"gradients, beside the last backward pass. With all {tokens} in one micro-batch the step takes {seconds(one.seconds)}, of which {seconds(left[1]) if left[1] else 'nothing'} is waiting. In {sequences} micro-batches "
        f"these two passes are {sequences} times as short: the step takes {seconds(several.seconds)}, and {seconds(left[sequences])} of it is waiting.",
        [*canvases, foot],
    )


def _hidden(n: int, busy: float, gather: float, reduce: float, scale: float) -> Canvas:
    """*n* micro-batches that compute *busy* seconds in all; the backward pass takes twice as long as the forward pass."""
    forward, backward = busy / n / 3, 2 * busy / n / 3
    late = max(gather - forward, 0.0)
    last = busy + late - backward
    end = max(last + reduce, last + backward)
    canvas = Canvas(92)
    title = "One micro-batch" if n == 1 else f"{n} micro-batches"
    canvas.text(0, 8, f"{title}: {seconds(end)}", anchor="start", bold=True)
    canvas.text(0, 34, "GPU", anchor="start")
    canvas.text(0, 66, "network", anchor="start")
    at = late  # a forward pass does not end before its last weights are there
    waits = [(0.0, late)] if late else []
    for _ in range(n):
        for name, colour, took in (("forward", BLUE, forward), ("backward", PURPLE, backward)):
            canvas.box(LEFT + at * scale, 22, took * scale, BAR, name=name, colour=colour, fill=0.5)
            at += took
    if end > at:
        waits.append((at, end))
    for start, stop in waits:
        canvas.box(LEFT + start * scale, 22, (stop - start) * scale, BAR, name="waits", dash=True, fill=0)
    canvas.box(LEFT, 54, gather * scale, BAR, name="weights", colour=GREEN, fill=0.5)
    canvas.box(LEFT + last * scale, 54, reduce * scale, BAR, name="gradients", colour=ORANGE, fill=0.5)
    lost = sum(stop - start for start, stop in waits)
    canvas.text(
        360, 8, f"nothing hides {seconds(lost)}" if lost else "all of the exchange hides", anchor="end", name="lost"
    )
    return canvas
