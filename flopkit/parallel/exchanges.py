"""What an exchange among ranks asks of each: bytes, steps, and the least time over a link or over the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from flopkit import units
from flopkit.arithmetic import Number, divided, maximum, reading, where
from flopkit.parallel.clusters import Cluster, cluster
from flopkit.sizes import Count, Factor, Size, choice, factor, positive, size

__all__ = ["BUS_FACTORS", "Exchange", "around", "bus_bandwidth", "least", "payload_of"]


class _Way(NamedTuple):
    """How a kind of collective goes around a ring.

    *share* and *steps* are of n ranks: the part of the payload that a rank sends, times n, and the messages. *inside* and *between*, where a node
    has g of n ranks in N nodes: the parts that go over the links of a rank and over its network card.
    """

    share: Callable[[Any], Any]
    steps: Callable[[Any], Any]
    inside: Callable[[Any, Any], Any]
    between: Callable[[Any, Any], Any]


def _gathered(times: int) -> _Way:
    return _Way(
        share=lambda n: times * (n - 1),
        steps=lambda n: times * (n - 1),
        inside=lambda g, nodes: times * (g - 1) / g,
        between=lambda g, nodes: times * (nodes - 1) / nodes / g,
    )


_SPREAD = _Way(
    share=lambda n: n,
    steps=lambda n: n - 1,
    inside=lambda g, nodes: where(nodes > 1, (g - 1) / g, where(g > 1, 1, 0)),
    between=lambda g, nodes: where(nodes > 1, 1, 0) / g,
)
_WAYS = {
    "all-reduce": _gathered(2),
    "all-gather": _gathered(1),
    "reduce-scatter": _gathered(1),
    "all-to-all": _Way(
        share=lambda n: n - 1,
        steps=lambda n: n - 1,
        inside=lambda g, nodes: (g - 1) / (g * nodes),
        between=lambda g, nodes: (nodes - 1) / nodes,
    ),
    "broadcast": _SPREAD,
    "reduce": _SPREAD,
    "send": _Way(
        share=lambda n: n,
        steps=lambda n: 1,
        inside=lambda g, nodes: where(nodes > 1, 0, 1),
        between=lambda g, nodes: where(nodes > 1, 1, 0),
    ),
}


def _bus_factor(way: _Way) -> Callable[[Any], Any]:
    return lambda n: way.share(n) / n


BUS_FACTORS = {kind: _bus_factor(way) for kind, way in _WAYS.items()}
"""What nccl-tests multiplies the payload a second with, by kind (its doc/PERFORMANCE.md)."""


@dataclass(frozen=True, repr=False)
class Exchange:
    """What one collective asks of each rank.

    Parameters
    ----------
    kind : str
        ``"all-reduce"``, ``"all-gather"``, ``"reduce-scatter"``, ``"all-to-all"``, ``"broadcast"``, ``"reduce"`` or ``"send"``.
    ranks : Number
        Ranks that take part.
    payload : Number
        Bytes of the whole tensor: before a reduction, after a gather, on each rank before an all-to-all.
    sent : Number
        Bytes that a rank sends.
    steps : Number
        Messages one after the other.
    algorithm : str, optional
        How it is done.

    Notes
    -----
    Not counted: headers; flags (NCCL's protocol LL sends as many bytes of flags as of data); copies inside of a rank; the arithmetic of sums.

    Examples
    --------
    >>> from flopkit.parallel import all_reduce
    >>> all_reduce(bytes=16_000_000, ranks=8)
    all-reduce of 16 MB among 8 ranks (ring): each sends 28 MB in 14 steps
    """

    kind: str
    ranks: Number
    payload: Number
    sent: Number
    steps: Number
    algorithm: str = "ring"

    def seconds(self, bandwidth: Factor, latency: Factor = 0) -> Number:
        """The least time over links of one bandwidth: ``steps · latency + sent / bandwidth``.

        Parameters
        ----------
        bandwidth : Factor
            Bytes a second that a rank sends, while it receives as many: one direction.
        latency : Factor, optional
            Seconds of a message beside its bytes.

        Examples
        --------
        >>> from flopkit.parallel import all_reduce
        >>> gradients = all_reduce(bytes=16e9, ranks=8)
        >>> round(gradients.seconds(450e9), 4)  # NVLink of an H100, one direction
        0.0622
        """
        waited = self.steps * positive("latency", latency, "seconds", zero=True, sweep=True)
        return waited + self.sent / factor("bandwidth", bandwidth)

    def on(self, where: Cluster | str, in_node: Size | None = None) -> Number:
        """The least time on a cluster, in seconds.

        The ranks lie in N nodes with g of them in each. What goes between the nodes has g network cards, and is on its way while the links of the
        nodes carry the rest, so that the longer of the two is the bound. An all-reduce of S bytes takes 2·(g−1)/g·S over a link and 2·(N−1)/N·S/g over
        a card; a gather or a reduce-scatter half of both.

        Parameters
        ----------
        where : Cluster or str
            The cluster, or its name.
        in_node : Size, optional
            Ranks of this collective in each node. None: as many as there are, up to those that a node has.

        Raises
        ------
        ValueError
            For more ranks in a node than it has, and for ranks that leave a node half full.

        Notes
        -----
        An all-reduce in the switch (``"nvls"``) has no bound here: it is the link's, ``seconds``.

        References
        ----------
        jax-ml/scaling-book, gpus.md, on collectives between nodes.

        Examples
        --------
        >>> from flopkit.parallel import all_reduce
        >>> whole = all_reduce(bytes=16e9, ranks=64)
        >>> round(whole.on("dgx-h100"), 4)  # eight cards in each of eight nodes
        0.07
        >>> round(whole.on("dgx-h100", in_node=1), 2)  # one card in each of 64
        0.63
        """
        place = cluster(where)
        if self.algorithm == "nvls":
            raise ValueError("algorithm='nvls': a switch adds inside of a node; ask for .seconds(bandwidth)")
        known = self.ranks if reading(self.ranks) == "plain" and self.ranks <= place.per_node else place.per_node
        inside = known if in_node is None else size("in_node", in_node)
        if reading(inside, self.ranks) == "plain":
            _check(self.ranks, inside, place)
        return least(self, place, inside)

    def bus_bandwidth(self, seconds: Factor) -> Number:
        """Its bus bandwidth if it takes so long; see the function `bus_bandwidth`."""
        return bus_bandwidth(kind=self.kind, bytes=self.payload, ranks=self.ranks, seconds=seconds)

    def __repr__(self) -> str:
        sent, payload = (
            units.si(each, "B") if reading(each) == "plain" else str(each) for each in (self.sent, self.payload)
        )
        return f"{self.kind} of {payload} among {self.ranks} ranks ({self.algorithm}): each sends {sent} in {self.steps} steps"


def least(exchange: Exchange, place: Any, inside: Any) -> Number:
    """The least time of *exchange* where a node has *inside* of its ranks; *place* is a cluster, or has the same rates as parameters of a figure."""
    nodes, payload, way = exchange.ranks / inside, exchange.payload, _WAYS[exchange.kind]
    near = payload * way.inside(inside, nodes) / (place.link * place.link_efficiency)
    far = payload * way.between(inside, nodes) / (place.network * place.network_efficiency)
    return maximum(near, far) + (place.link_latency * way.steps(inside) + place.network_latency * way.steps(nodes))


def _check(ranks: int, inside: int, place: Cluster) -> None:
    most = min(ranks, place.per_node)
    if inside > most:
        raise ValueError(
            f"in_node={inside}: a node of {place.name} has {place.per_node} devices and the collective {ranks} ranks; give at most {most}"
        )
    if ranks % inside:
        raise ValueError(
            f"{ranks} ranks with {inside} in each node leave one half full: give in_node= a divisor of {ranks}"
        )


def bus_bandwidth(*, kind: str, bytes: Count, ranks: Size, seconds: Factor) -> Number:
    """What nccl-tests calls bus bandwidth (busbw): bytes a second of the payload times a factor of the kind.

    The factor makes it what each rank sends in a ring, which one direction of a link bounds. In a switch that adds, it can be above the link.

    Parameters
    ----------
    kind : str
        As `Exchange` has it.
    bytes : Count
        The payload.
    ranks : Size
        Those that take part.
    seconds : Factor
        What was measured.

    Examples
    --------
    >>> round(bus_bandwidth(kind="all-reduce", bytes=16e9, ranks=8, seconds=0.0622) / 1e9)
    450
    """
    choice("kind", kind, tuple(BUS_FACTORS))
    return payload_of(bytes) / factor("seconds", seconds) * BUS_FACTORS[kind](size("ranks", ranks))


def payload_of(bytes: Any) -> Any:
    """Bytes of a tensor, which as a float need not be whole."""
    return positive("bytes", bytes, "bytes", zero=True) if isinstance(bytes, float) else size("bytes", bytes, minimum=0)


def around(kind: str, payload: Any, ranks: Any) -> Exchange:
    """A collective of *kind* around a ring of *ranks*."""
    n, way = size("ranks", ranks), _WAYS[kind]
    payload = payload_of(payload)
    sent = way.share(n) * payload
    if n == 1 if reading(n) == "plain" else False:
        return Exchange(kind, n, payload, 0, 0)
    return Exchange(kind, n, payload, divided(sent, n) if isinstance(n, int) else sent / n, way.steps(n))
