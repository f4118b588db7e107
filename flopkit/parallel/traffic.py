"""What a rank sends: the exchanges of a micro-batch, and those of gradients and weights, each with its least time."""

from __future__ import annotations

from typing import Any, NamedTuple

from flopkit.arithmetic import Number, exact_div, maximum, minimum, where
from flopkit.parallel import collectives
from flopkit.parallel.computing import Over, numbers_on
from flopkit.parallel.exchanges import Exchange, least
from flopkit.parallel.ranks import Rank

__all__ = [
    "RUNS",
    "Formats",
    "Runs",
    "Sent",
    "Traffic",
    "alone",
    "groups",
    "of_data",
    "of_micro_batch",
    "on_rank",
]


class Runs(NamedTuple):
    """How often an exchange runs: in a forward pass, in a backward pass, and the recompute policies under which that of the forward pass runs again."""

    forward: int
    backward: int
    recompute: tuple[str, ...] = ()

    def under(self, policy: str) -> int:
        """In a step with this policy."""
        return self.forwards(policy) + self.backward

    def forwards(self, policy: str) -> int:
        """That of the forward pass, in a step with this policy."""
        return self.forward * (2 if policy in self.recompute else 1)


RUNS = {
    "sum": Runs(1, 1, ("full",)),
    "branch's input": Runs(0, 1),
    "keys and values, kept": Runs(1, 1, ("full",)),
    "keys and values, again": Runs(1, 2, ("selective", "full")),
    "experts": Runs(2, 2, ("full",)),
    "stage": Runs(1, 1),
    "gradients": Runs(0, 1),
    "weights": Runs(1, 1),
}
"""What is exchanged, and when.

``"sum"``: an all-reduce of what tensor-parallel ranks add up, or a gather and a reduce-scatter (SP), see `Summed`. ``"branch's input"``: the gather of it in the backward
pass, where a rank kept its part (SP; Korthikanti et al. 2022, section 4.2.2). ``"keys and values"``: a gather forward, a reduce-scatter of their gradients
backward, and before it another gather, where a rank kept its part (Transformer Engine's context parallelism, where attention does both and selective
recompute repeats attention). ``"experts"``: tokens go to experts and come back. ``"stage"``: a checkpoint keeps what a stage got, so nothing is sent
twice. ``"gradients"``, ``"weights"``: ZeRO-3's; a layer that is computed again has its weights at hand, gathered for its backward pass.
"""


class Formats(NamedTuple):
    """Bytes of a number between layers, on the way to experts and back together, of a gradient that is reduced, and of a weight that is gathered; and
    the nodes to which a token goes once, at most or ``"expected"``. None: it goes to each of its experts."""

    moved: int
    routed: int
    gradient: int
    weight: int
    nodes: int | str | None = None


class Sent(NamedTuple):
    """Seconds, and bytes that a rank sends."""

    seconds: Number
    bytes: Number

    def times(self, count: Number) -> Sent:
        """Of *count* exchanges one after the other."""
        return Sent(count * self.seconds, count * self.bytes)


NOTHING = Sent(0.0, 0.0)


class Traffic(NamedTuple):
    """Exchanges of a micro-batch: one all-reduce among tensor-parallel ranks; of a layer of each kind one gather of keys and values and one
    all-to-all; and one message to a neighbouring stage."""

    tensor: Sent
    context: tuple[Sent, ...]
    expert: tuple[Sent, ...]
    pipeline: Sent


def alone(ranks: Any) -> bool:
    """Whether it is known that there is one rank alone; of a parameter it is not."""
    return isinstance(ranks, int) and ranks == 1


def _sent(exchange: Exchange, place: Any, inside: Any) -> Sent:
    return Sent(least(exchange, place, inside), exchange.sent)


def of_micro_batch(numbers: Any, layout: Any, place: Any, inside: Any, formats: Formats) -> Traffic:
    """The exchanges of a micro-batch. *inside*: of each axis, the ranks of a group that lie in a node."""
    t, c, b = layout.tensor, layout.context, layout.micro_batch
    kinds = numbers.kinds if numbers.mtp is None else (*numbers.kinds, numbers.mtp)
    tensor, pipeline = NOTHING, NOTHING
    context = expert = (NOTHING,) * len(kinds)
    edge = numbers.edge * b
    if not alone(t):
        tensor = _sent(collectives.all_reduce(bytes=edge / c, ranks=t), place, inside["tensor"])
    if not alone(c):
        context = tuple(
            _sent(collectives.all_gather(bytes=formats.moved * kind.keys_values * b / t, ranks=c), place, inside["context"])
            for kind in kinds
        )  # fmt: skip
    if not alone(layout.expert):
        divided = t * c
        expert = tuple(
            _routed(kind, kind.dispatched * b * formats.routed / divided / 2, layout.expert, place, inside["expert"], formats.nodes)
            if kind.dispatched else NOTHING
            for kind in kinds
        )  # fmt: skip
    if not alone(layout.pipeline):
        payload = edge / (c * t if layout.sequence else c)
        # with several ranks in a node some messages stay in it and some leave: that all stay is a bound
        neighbours = where(inside["pipeline"] > 1, 2, 1)
        pipeline = _sent(collectives.send(bytes=payload), place, neighbours)
    return Traffic(tensor, context, expert, pipeline)


def _routed(kind: Any, payload: Number, ranks: Number, place: Any, inside: Number, most: int | str | None) -> Sent:
    """An all-to-all. Where a token's experts lie in *most* nodes, it goes to each of these once, and inside of them to all of its experts."""
    exchange = collectives.all_to_all(bytes=payload, ranks=ranks)
    nodes = ranks / inside
    if most is None or alone(ranks // inside):
        return _sent(exchange, place, inside)
    near = payload * (inside - 1) / inside
    reached = expected_nodes(nodes, kind) if isinstance(most, str) else minimum(most, minimum(nodes, kind.chosen))
    far = payload * reached / kind.chosen * (nodes - 1) / nodes
    seconds = maximum(near / (place.link * place.link_efficiency), far / (place.network * place.network_efficiency))
    waited = place.link_latency * (inside - 1) + place.network_latency * (nodes - 1)
    return Sent(seconds + waited, near + far)


def expected_nodes(nodes: Any, kind: Any) -> Any:
    """Nodes that have one of a token's experts or more, on average, where all experts are equally likely: ``N·(1 − C(E − E/N, k)/C(E, k))``.

    >>> from types import SimpleNamespace
    >>> round(expected_nodes(2, SimpleNamespace(experts=4, chosen=2)), 4)  # of six pairs two lie in one node
    1.6667
    """
    missed: Any = 1.0
    for i in range(kind.chosen):
        missed *= maximum(kind.experts * (1 - 1 / nodes) - i, 0) / (kind.experts - i)
    return nodes * (1 - missed)


def on_rank(traffic: Traffic, numbers: Any, layout: Any, rank: Rank, stages: Number) -> dict[str, Sent]:
    """Of a micro-batch on *rank*, on so many of its virtual *stages*, by axis; and as ``"regathered"`` what the tensor-parallel ranks gather in the backward pass beside arithmetic.

    Outputs of branches are all-reduced forward and gradients of their inputs backward, as often as `RUNS` says; embedding and head, which no policy computes again,
    have one. With SP inputs are gathered and outputs reduced and scattered, and backward the other way round. Experts on other ranks, to which each
    tensor-parallel rank sends its own tokens, have nothing to add up, where a rank keeps no whole input. A stage sends on and back, the first of a pipeline
    only on, the last only back.
    """
    policy = layout.recompute
    keys_values = RUNS["keys and values, kept" if layout.regather == "none" else "keys and values, again"]
    halves: Any = 2 * (rank.first + rank.last)  # of all-reduces: gathers, or reduce-scatters
    again: Any = rank.last
    sums = RUNS["sum"]
    context = expert = NOTHING
    for (kind, count), gather, routed in zip(numbers_on(numbers, rank), traffic.context, traffic.expert, strict=True):
        if kind is numbers.mtp:
            policy = "none"
        outputs, inputs = kind.summed.outputs, kind.summed.inputs
        if layout.regather == "all":
            outputs = where(layout.expert > 1, kind.summed.outputs_apart, outputs)
            inputs = where(layout.expert > 1, kind.summed.inputs_apart, inputs)
        forward, backward = (outputs + inputs,) * 2 if layout.sequence else (2 * outputs, 2 * inputs)
        halves += count * (forward * sums.forwards(policy) + backward * sums.backward)
        again += (
            count * kind.summed.inputs_apart * RUNS["branch's input"].under(policy)
        )  # experts keep the tokens that come to them
        if gather is not NOTHING:
            context = _added(context, gather.times(keys_values.under(policy) * count))
        if routed is not NOTHING:
            expert = _added(expert, routed.times(RUNS["experts"].under(policy) * count))
    tensor, regathered, pipeline = traffic.tensor, NOTHING, traffic.pipeline
    if tensor is not NOTHING:
        regathered = tensor.times(again / 2) if layout.regather == "all" and layout.sequence else NOTHING
        tensor = tensor.times(halves / 2)
    if pipeline is not NOTHING:
        stage = RUNS["stage"]
        pipeline = pipeline.times(
            stages * stage.under(policy) - stage.forward * rank.last - stage.backward * rank.first
        )
    return {"tensor": tensor, "context": context, "expert": expert, "pipeline": pipeline, "regathered": regathered}


def _added(a: Sent, b: Sent) -> Sent:
    return Sent(a.seconds + b.seconds, a.bytes + b.bytes)


def groups(layout: Any) -> tuple[Number, Number]:
    """Data-parallel ranks that have the same weights: of all but experts, and of experts."""
    rest = layout.data * layout.context
    if alone(layout.expert):
        return rest, rest
    return rest, where(layout.expert > 1, exact_div(layout.tensor * rest, layout.expert), rest)


def of_data(params: tuple[Over, Over], layout: Any, micro_batches: Number, place: Any, inside: Any, formats: Formats) -> Sent:  # fmt: skip
    """The exchange of gradients and weights in a step. *inside*: of the ranks that exchange them, those in a node; and of those with the same experts.

    Without ZeRO an all-reduce of gradients. With it a reduce-scatter, from ZeRO-2 on of each micro-batch, and a gather of weights, with ZeRO-3 two in
    each micro-batch.
    """
    found = NOTHING
    for each, ranks, near in zip(params, groups(layout), inside, strict=True):
        if alone(ranks) or (isinstance(each.number, int) and not each.number):
            continue
        of_gradients, of_weights = each.times(formats.gradient), each.times(formats.weight)
        several = where(layout.zero >= 2, RUNS["gradients"].under(layout.recompute) * micro_batches, 1)
        gathers = where(layout.zero >= 3, RUNS["weights"].under(layout.recompute) * micro_batches, 1)
        summed = _sent(collectives.all_reduce(bytes=of_gradients, ranks=ranks), place, near)
        scattered = _sent(collectives.reduce_scatter(bytes=of_gradients, ranks=ranks), place, near).times(several)
        gathered = _sent(collectives.all_gather(bytes=of_weights, ranks=ranks), place, near).times(gathers)
        divided = _added(scattered, gathered)
        found = _added(found, Sent(*(where(layout.zero > 0, a, b) for a, b in zip(divided, summed, strict=True))))
    return found
