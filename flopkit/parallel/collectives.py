"""Collectives: what each rank has afterwards, and what it sends for that."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import ceil_div, log2, reading
from flopkit.parallel.exchanges import Exchange, around, payload_of
from flopkit.sizes import Count, Size, choice, size

__all__ = ["ALGORITHMS", "all_gather", "all_reduce", "all_to_all", "broadcast", "reduce", "reduce_scatter", "send"]

ALGORITHMS = ("ring", "tree", "nvls")
"""Of an all-reduce: around a ring; up and down two binary trees, each with half of the data; in a switch that adds (NVLS, SHARP)."""


def all_reduce(*, bytes: Count, ranks: Size, algorithm: str = "ring") -> Exchange:
    """Every rank ends with the sum of all: 2·(n−1)/n·S bytes around a ring.

    Parameters
    ----------
    bytes : Count
        S, the tensor's.
    ranks : Size
        Those that take part, n.
    algorithm : str, optional
        ``"ring"``: a reduce-scatter and an all-gather, 2·(n−1) steps. ``"tree"``: up and down two binary trees, of which each has half of the
        tensor; a rank sends 2·S at most, in 2·⌈log₂n⌉ steps. ``"nvls"``: the switch adds, and a rank sends its S once.

    Returns
    -------
    Exchange

    Raises
    ------
    ValueError
        For an algorithm that is not known.

    References
    ----------
    Thakur, Rabenseifner and Gropp 2005; nccl-tests, doc/PERFORMANCE.md; NCCL, src/graph/tuning.cc.

    Examples
    --------
    >>> all_reduce(bytes=1000, ranks=8).sent, all_reduce(bytes=1000, ranks=1000).sent  # hardly more with more ranks
    (1750, 1998)
    """
    choice("algorithm", algorithm, ALGORITHMS)
    if algorithm == "ring":
        return around("all-reduce", bytes, ranks)
    payload, n = payload_of(bytes), size("ranks", ranks)
    alone = n == 1 if reading(n) == "plain" else False
    if algorithm == "tree":
        depth = _levels(n)
        return Exchange("all-reduce", n, payload, 0 if alone else 2 * payload, 2 * depth, algorithm)
    return Exchange("all-reduce", n, payload, 0 if alone else payload, 0 if alone else 2, algorithm)


def _levels(n: Any) -> Any:
    """⌈log₂n⌉. As a double, the logarithm of a power of two may lie a last digit above the whole number."""
    return (n - 1).bit_length() if isinstance(n, int) else ceil_div(log2(n) - 1e-9, 1)


def all_gather(*, bytes: Count, ranks: Size) -> Exchange:
    """Every rank ends with the parts of all: (n−1)/n·S bytes, where S is the whole.

    Parameters
    ----------
    bytes : Count
        S, of the whole tensor, after the gather.
    ranks : Size
        Those that take part, n.

    Examples
    --------
    >>> all_gather(bytes=1000, ranks=8).sent
    875
    """
    return around("all-gather", bytes, ranks)


def reduce_scatter(*, bytes: Count, ranks: Size) -> Exchange:
    """Every rank ends with its part of the sum: (n−1)/n·S bytes, where S is the whole.

    Parameters
    ----------
    bytes : Count
        S, of the whole tensor, before the reduction.
    ranks : Size
        Those that take part, n.

    Examples
    --------
    >>> reduce_scatter(bytes=1000, ranks=8).sent
    875
    """
    return around("reduce-scatter", bytes, ranks)


def all_to_all(*, bytes: Count, ranks: Size) -> Exchange:
    """Every rank sends another part to each: (n−1)/n·S bytes, where each has S.

    Parameters
    ----------
    bytes : Count
        S, what a rank has before it, the part that it keeps included.
    ranks : Size
        Those that take part, n.

    Notes
    -----
    Of equal parts. Of others a rank sends S less the part that it keeps, which differs from rank to rank.

    Examples
    --------
    >>> all_to_all(bytes=1024, ranks=8).sent
    896
    """
    return around("all-to-all", bytes, ranks)


def broadcast(*, bytes: Count, ranks: Size) -> Exchange:
    """Every rank ends with the tensor of one: S bytes from each to the next, the last excepted.

    Parameters
    ----------
    bytes : Count
        S, the tensor's.
    ranks : Size
        Those that take part, n.

    Notes
    -----
    ``sent`` is that of the first, around a ring in pieces. The root of a binomial tree sends log₂n times as much.

    Examples
    --------
    >>> broadcast(bytes=1000, ranks=8).sent
    1000
    """
    return around("broadcast", bytes, ranks)


def reduce(*, bytes: Count, ranks: Size) -> Exchange:
    """One rank ends with the sum of all: S bytes from each to the next.

    Parameters
    ----------
    bytes : Count
        S, the tensor's.
    ranks : Size
        Those that take part, n.

    Examples
    --------
    >>> reduce(bytes=1000, ranks=8).sent
    1000
    """
    return around("reduce", bytes, ranks)


def send(*, bytes: Count) -> Exchange:
    """One rank sends S bytes to another, as stages of a pipeline do.

    Parameters
    ----------
    bytes : Count
        S, the tensor's.

    Examples
    --------
    >>> send(bytes=1000)
    send of 1 kB among 2 ranks (ring): each sends 1 kB in 1 steps
    """
    return around("send", bytes, 2)
