"""The least time of a program on a cluster: operators on a device, and communication over links and network, by hand."""

import pytest
import torch

import flopkit as fk
from flopkit.parallel import Cluster

dist = torch.distributed
pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed"),
    pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="torch 2.6 has no fully_shard on a CPU"),
    pytest.mark.filterwarnings("ignore"),
]
# 1,000 FLOP/s and 10 bytes/s; nodes of four, 1,000 bytes/s over links and 100 over the network.
SMALL = fk.Device("small", peak={"fp32": 1e3}, bandwidth=1e4)
FOURS = Cluster("fours", SMALL, per_node=4, link=1e3, network=1e2)


def on(run, world=8, rank=0, cluster=FOURS):
    with fk.simulate_ranks(world, rank=rank):
        return fk.count(run).roofline(cluster)


def ones(bytes=4000):
    return torch.ones(bytes // 4)


def inner():
    return dist.init_device_mesh("cpu", (2, 4)).get_group(1)


def outer():
    return dist.init_device_mesh("cpu", (2, 4)).get_group(0)


@pytest.mark.parametrize("run, rank, seconds", [
    (lambda: dist.all_reduce(ones()), 0, max(2 * 3 / 4 * 4, 2 * 1 / 2 * 4000 / 4 / 100)),  # four cards of two nodes
    (lambda: dist.all_reduce(ones(), group=inner()), 0, 2 * 3 / 4 * 4),  # of one node: over links
    (lambda: dist.all_reduce(ones(), group=outer()), 5, 2 * 1 / 2 * 40),  # one of each: over one card
    (lambda: dist.all_gather_into_tensor(ones(), ones(500)), 0, max(3 / 4 * 4, 1 / 2 * 4000 / 4 / 100)),
    (lambda: dist.all_to_all_single(ones(), ones(), group=outer()), 0, 1 / 2 * 40),
    (lambda: dist.all_to_all_single(ones(), ones()), 0, max(3 / 8 * 4, 1 / 2 * 40)),
    (lambda: dist.all_to_all_single(ones(), ones(), [250, 750], [250, 750], group=outer()), 0, 3000 / 100),
    (lambda: dist.scatter(ones(1000), [ones(1000)] * 4, 0, group=inner()), 0, 3 / 4 * 4),
    (lambda: dist.gather(ones(1000), [ones(1000)] * 4, 0, group=inner()), 0, 3 / 4 * 4),
    (lambda: dist.broadcast(ones(), 0), 0, max(4, 4000 / 4 / 100)),
    (lambda: dist.send(ones(), 3), 0, 4),  # in the node
    (lambda: dist.send(ones(), 4), 0, 40),  # to the next
    (lambda: dist.send(ones(), 0), 4, 40),
    (lambda: dist.recv(ones(), 4), 0, 0),  # the sender's
    (lambda: [dist.all_reduce(ones(), group=g()) for g in (inner, outer)], 0, 6 + 40),
])  # fmt: skip
def test_communication_by_hand(run, rank, seconds):
    found = on(run, rank=rank)
    assert found.communication_seconds == found.by_phase["communication"] == pytest.approx(seconds, rel=1e-12)


def test_it_is_a_part_of_its_own():
    """A product of 2,000 s beside two all-reduces of 10 s."""

    def run():
        for _ in range(2):
            dist.all_reduce(ones())
        return torch.empty(100, 100) @ torch.empty(100, 100)

    found = on(run)
    with fk.simulate_ranks(8):
        alone = fk.count(lambda: (ones(), ones(), torch.empty(100, 100) @ torch.empty(100, 100))).roofline(SMALL)
    assert found.compute_seconds == 2 * 100**3 / 1e3
    assert found.communication_seconds == pytest.approx(20) and alone.communication_seconds == 0
    assert found.seconds == pytest.approx(alone.seconds + 20) and found.overlapped_seconds == pytest.approx(
        alone.seconds
    )
    (row,) = [each for each in found.rows if each["bound"] == "communication"]
    assert (row["operator"], row["phase"], row["calls"], row["seconds"]) == (
        "all-reduce, 8 ranks",
        "communication",
        2,
        20,
    )
    assert row["share"] == pytest.approx(20 / found.seconds) and sum(
        each["share"] for each in found.rows
    ) == pytest.approx(1)
    assert "20 s of communication over links and network" in repr(found) and "small of fours" in repr(found)
    assert on(lambda: dist.all_reduce(ones(40_000))).overlapped_seconds == 100


def test_efficiencies_and_latencies_of_the_cluster():
    real = FOURS.replace(matmul_efficiency=0.5, link_efficiency=0.8, link_latency=0.25)
    found = on(
        lambda: (torch.empty(100, 100) @ torch.empty(100, 100), dist.all_reduce(ones(), group=inner())), cluster=real
    )
    assert found.compute_seconds == 4000
    assert found.communication_seconds == pytest.approx(6 / 0.8 + 6 * 0.25)


def test_nodes_that_are_half_full_are_refused():
    with pytest.raises(ValueError, match=r"the 6 ranks of an all-reduce fill nodes of 4 unevenly.*per_node=") as _:
        on(lambda: dist.all_reduce(ones()), world=6)
    assert on(lambda: dist.all_reduce(ones()), world=6, cluster=FOURS.replace(per_node=3)).communication_seconds > 0


def test_one_device_has_nothing_to_say():
    found = fk.count(torch.nn.Linear(4, 4), torch.ones(2, 4)).roofline(FOURS)
    assert (found.communication_seconds, found.seconds) == (0, found.overlapped_seconds)


def test_parts_that_differ_are_noted():
    found = on(lambda: dist.all_to_all_single(ones(), ones(), [250, 750], [250, 750], group=outer()))
    assert found.notes == ["1 collectives with parts that differ are taken to go to all nodes alike"]
