"""Under DTensor, tensor parallelism, FSDP and DDP a report is one rank's local work, and says so."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flopkit as fk

dist = torch.distributed
pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed"),
    pytest.mark.filterwarnings("ignore:DTensor random operators may not have complete support"),  # torch 2.6, on a CPU
]

RANKS = 4
FULL = 2 * 4 * 8 * 32  # a batch of 4 through 8 × 32


@pytest.fixture
def mesh():
    """A process group that sends nothing, so that one process can be a rank of four."""
    fake_pg = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", store=fake_pg.FakeStore(), rank=1, world_size=RANKS)
    try:
        yield dist.init_device_mesh("cpu", (RANKS,))
    finally:
        dist.destroy_process_group()


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())


def phases(report):
    assert report.uncounted == []
    return report.forward.flops, report.backward.flops, report.recompute.flops


NOTE = f"rank 1 of {RANKS}: what is counted is this rank's local work"


def test_a_distributed_tensor_counts_its_shard(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    x = distribute_tensor(torch.ones(4, 8), mesh, [Replicate()])
    w = distribute_tensor(torch.ones(8, 32), mesh, [Shard(1)])
    for _ in range(2):  # the first time torch works out shapes, whole ones, which is no work
        report = fk.count(lambda: x @ w)
        assert phases(report) == (FULL // RANKS, 0, 0)
        assert report.notes == [NOTE]
        assert NOTE in repr(report)


def test_tensor_parallel_layers(mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = parallelize_module(Up(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    report = fk.count(lambda: model(torch.ones(4, 8)).sum().backward())
    assert phases(report) == (2 * FULL // RANKS, 3 * FULL // RANKS, 0)  # the first layer's input needs no gradient
    rows = {row["module"]: row["flops"] for row in report.by_module()}
    assert (rows["up"], rows["down"]) == (2 * FULL // RANKS, 3 * FULL // RANKS)
    assert NOTE in report.notes


@pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="torch 2.6 has no fully_shard on a CPU")
def test_fully_sharded_layers_multiply_whole_weights(mesh):
    fully_shard = pytest.importorskip("torch.distributed.fsdp").fully_shard
    model = Up()
    for part in (model.up, model.down, model):
        fully_shard(part, mesh=mesh)
    report = fk.count(lambda: model(torch.ones(4, 8)).sum().backward())
    assert phases(report) == (2 * FULL, 3 * FULL, 0)
    assert NOTE in report.notes


def test_collectives_are_no_traffic_of_memory(mesh):
    report = fk.count(lambda: dist.all_reduce(torch.ones(8)))
    assert report.flops == report.vector_flops == 0
    assert report.bytes == 8 * 4  # ones
    assert report.uncounted == []


@pytest.mark.filterwarnings("ignore::UserWarning")  # gloo speaks of the network
def test_data_parallel_of_one(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(Up())
        report = fk.count(lambda: model(torch.ones(4, 8)).sum().backward())
        assert phases(report) == (2 * FULL, 3 * FULL, 0)
        assert report.notes == []  # one rank of one
        rows = {row["module"]: row["backward"] for row in report.by_module()}
        assert (rows["module.up"], rows["module.down"]) == (FULL, 2 * FULL)
    finally:
        dist.destroy_process_group()
