"""Collectives: bytes of each rank against algorithms that are run, bounds against what was measured."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flopkit import parallel
from flopkit.published import nccl_tests

RANKS = (1, 2, 3, 4, 8)


class Wire:
    """Ranks that pass numbers, and what each has sent."""

    def __init__(self, ranks):
        self.sent, self.steps = [0] * ranks, 0

    def step(self, messages):
        """Messages at once: (from, to, numbers)."""
        for sender, _, numbers in messages:
            self.sent[sender] += len(numbers)
        self.steps += bool(messages)


def ring_reduce_scatter(wire, held, n):
    """Each rank has n pieces; after it rank r has the sum of the pieces (r+1) % n."""
    for step in range(n - 1):
        messages = [(r, (r + 1) % n, held[r][(r - step) % n]) for r in range(n)]
        wire.step(messages)
        for r, to, numbers in messages:
            piece = (r - step) % n
            held[to][piece] = [a + b for a, b in zip(held[to][piece], numbers, strict=True)]


def ring_all_gather(wire, held, n, first):
    for step in range(n - 1):
        messages = [(r, (r + 1) % n, held[r][(first(r) - step) % n]) for r in range(n)]
        wire.step(messages)
        for r, to, numbers in messages:
            held[to][(first(r) - step) % n] = list(numbers)


@pytest.mark.parametrize("n", RANKS)
def test_an_all_reduce_around_a_ring(n):
    each = 6
    held = [[[100 * r + 10 * piece + i for i in range(each)] for piece in range(n)] for r in range(n)]
    sums = [[sum(held[r][piece][i] for r in range(n)) for i in range(each)] for piece in range(n)]
    wire = Wire(n)
    ring_reduce_scatter(wire, held, n)
    half = parallel.reduce_scatter(bytes=n * each, ranks=n)
    assert set(wire.sent) == {half.sent} and wire.steps == half.steps
    ring_all_gather(wire, held, n, lambda r: r + 1)
    assert all(one == sums for one in held)
    whole = parallel.all_reduce(bytes=n * each, ranks=n)
    assert set(wire.sent) == {whole.sent} and wire.steps == whole.steps
    assert whole.sent == half.sent + parallel.all_gather(bytes=n * each, ranks=n).sent


@pytest.mark.parametrize("n", RANKS)
def test_an_all_to_all_keeps_a_part(n):
    wire = Wire(n)
    for shift in range(1, n):
        wire.step([(r, (r + shift) % n, [0] * 5) for r in range(n)])
    found = parallel.all_to_all(bytes=5 * n, ranks=n)
    assert set(wire.sent) == {found.sent} and wire.steps == found.steps


@pytest.mark.parametrize("g, nodes", list(itertools.product((1, 2, 4, 8), (1, 2, 8))))
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_what_goes_over_links_and_cards_is_all_that_is_sent(kind, g, nodes):
    """Of a gather each rank receives all but its own part: by its card a share of the other nodes' parts, by its links the rest."""
    n, payload = g * nodes, 840.0
    found = getattr(parallel, kind)(bytes=payload, ranks=n)
    slow = parallel.Cluster("one", "h100-sxm", per_node=8, link=1, network=1e30)
    fast = slow.replace(link=1e30, network=1)
    links, cards = found.on(slow, in_node=g), found.on(fast, in_node=g)
    assert links + cards == pytest.approx(found.sent)


def test_nothing_measured_is_faster_than_the_bound():
    """nccl-tests on 16 A100: no row beats the cluster's bound, and the largest reaches four fifths of it."""
    place = parallel.cluster("aws-p4d")
    rows = [row for row in nccl_tests() if "p4de" in row.system]
    shares = {row.bytes: parallel.all_reduce(bytes=row.bytes, ranks=row.ranks).on(place) / row.seconds for row in rows}
    assert len(rows) > 20
    assert max(shares.values()) <= 1
    assert 0.8 < shares[max(shares)]


def test_bus_bandwidth_is_what_nccl_tests_prints():
    rows = [row for row in nccl_tests() if row.bus > 10e9]
    assert len(rows) > 20
    for row in rows:
        found = parallel.all_reduce(bytes=row.bytes, ranks=row.ranks)
        assert found.bus_bandwidth(row.seconds) == pytest.approx(row.bus, rel=0.01)


def test_a_tree_has_whole_levels_in_an_array():
    ranks = [2, 3, 4, 5, 8, 9, 64, 65, 1000, 1024, 1025]
    steps = parallel.all_reduce(bytes=1, ranks=np.array(ranks), algorithm="tree").steps
    assert list(steps) == [2, 4, 4, 6, 6, 8, 12, 14, 20, 20, 22]


def test_a_tree_has_few_steps_and_a_switch_sends_once():
    ring, tree, switch = (parallel.all_reduce(bytes=1000, ranks=64, algorithm=a) for a in ("ring", "tree", "nvls"))
    assert (ring.steps, tree.steps, switch.steps) == (126, 12, 2)
    assert (tree.sent, switch.sent) == (2000, 1000)
    assert [parallel.all_reduce(bytes=9, ranks=1, algorithm=a).sent for a in ("ring", "tree", "nvls")] == [0, 0, 0]


def test_odd_bytes_are_exact():
    from fractions import Fraction

    assert parallel.all_gather(bytes=10, ranks=4).sent == Fraction(15, 2)
    assert parallel.all_reduce(bytes=3 * 10**18 + 1, ranks=3).sent == Fraction(4 * (3 * 10**18 + 1), 3)


def test_in_four_readings():
    np, sympy, alt = pytest.importorskip("numpy"), pytest.importorskip("sympy"), pytest.importorskip("altair")
    sizes = np.array([8, 16, 1024])
    assert list(parallel.all_reduce(bytes=1024, ranks=sizes).sent) == [1792.0, 1920.0, 2046.0]
    n, s = sympy.symbols("n s", positive=True, integer=True)
    assert sympy.simplify(parallel.all_reduce(bytes=s, ranks=n).sent - 2 * (n - 1) * s / n) == 0
    expression = parallel.all_reduce(bytes=alt.param(name="S", value=8), ranks=alt.param(name="n", value=8)).sent
    assert "S" in expression.to_dict()["expr"]
    place = parallel.cluster("dgx-h100")
    assert "S" in parallel.all_reduce(bytes=alt.param(name="S", value=8), ranks=64).on(place).to_dict()["expr"]


@pytest.mark.parametrize(
    "ask, said",
    [
        (lambda: parallel.all_reduce(bytes=8, ranks=0), "ranks=0"),
        (lambda: parallel.all_reduce(bytes=-1, ranks=2), "bytes=-1"),
        (
            lambda: parallel.all_reduce(bytes=-3.0, ranks=8),
            "bytes=-3.0: must be a finite number of bytes of at least 0",
        ),
        (lambda: parallel.all_reduce(bytes=-3.0, ranks=8, algorithm="tree"), "bytes=-3.0"),
        (lambda: parallel.send(bytes=float("nan")), "bytes=nan"),
        (lambda: parallel.all_to_all(bytes=float("inf"), ranks=8), "bytes=inf"),
        (
            lambda: parallel.all_reduce(bytes=8, ranks=2).seconds(1e9, -1e-6),
            "latency=-1e-06: must be a finite number of seconds",
        ),
        (lambda: parallel.all_reduce(bytes=8, ranks=2).seconds(1e9, float("nan")), "latency=nan"),
        (lambda: parallel.bus_bandwidth(kind="send", bytes=-1.0, ranks=2, seconds=1), "bytes=-1.0"),
        (lambda: parallel.cluster("dgx-h100").replace(link_latency=float("nan")), "link_latency=nan"),
        (lambda: parallel.all_reduce(bytes=8, ranks=2, algorithm="star"), "algorithm='star'"),
        (lambda: parallel.all_reduce(bytes=8, ranks=12).on("dgx-h100"), "12 ranks with 8 in each node"),
        (lambda: parallel.all_reduce(bytes=8, ranks=16).on("dgx-h100", in_node=16), "in_node=16"),
        (lambda: parallel.all_reduce(bytes=8, ranks=16).on("dgx-h10"), "dgx-h100"),
        (lambda: parallel.all_reduce(bytes=8, ranks=8).seconds(0), "bandwidth=0"),
        (lambda: parallel.Cluster("x", "h100-sxm", per_node=8, link=0, network=1), "link=0"),
        (lambda: parallel.cluster("dgx-h100").replace(link_efficiency=1.2), "link_efficiency=1.2"),
        (lambda: parallel.bus_bandwidth(kind="gossip", bytes=1, ranks=2, seconds=1), "kind='gossip'"),
    ],
)
def test_bad_input_names_the_way_out(ask, said):
    with pytest.raises(ValueError, match=said):
        ask()
