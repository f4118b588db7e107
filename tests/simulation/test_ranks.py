"""One process as a rank of many: what it leaves behind, what it refuses, and models that no machine here could hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from math import ceil, prod
from pathlib import Path

import pytest
import torch
import wire

import flopkit as fk

dist = torch.distributed
pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed"),
    pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="torch 2.6 has no fully_shard on a CPU"),
    pytest.mark.filterwarnings("ignore"),
]


def patched():
    from torch.distributed.fsdp._fully_shard import _fsdp_param
    from torch.distributed.pipelining import schedules
    from torch.distributed.tensor import experimental
    from torch.nn.parallel import DistributedDataParallel as Parallel

    mesh = dist.device_mesh.DeviceMesh
    return [
        _fsdp_param._chunk_with_empty, schedules._PipelineSchedule._warmup_p2p, experimental.context_parallel, Parallel.__init__,
        Parallel._pre_forward, dist.Reducer._rebuild_buckets, mesh.__init__, mesh.get_local_rank, torch._guards.detect_fake_mode(),
        dist.Backend._plugins["FAKE"],
    ]  # fmt: skip


def test_nothing_is_left_behind():
    before = (*patched(), sys.excepthook)
    with fk.simulate_ranks(5, rank=3):
        assert (dist.get_rank(), dist.get_world_size()) == (3, 5)
        assert type(torch.ones(2)).__name__ == "FakeTensor"
        assert all(new is not old for new, old in zip(patched(), before, strict=False))
    assert (*patched(), sys.excepthook) == before
    with pytest.raises(KeyError), fk.simulate_ranks(2):
        raise KeyError
    assert (*patched(), sys.excepthook) == before
    assert not dist.is_initialized() and type(torch.ones(2)) is torch.Tensor


def test_a_model_of_the_block_is_of_no_use_outside():
    """It answered, with whatever was in memory; so did the block's default group, with what it was given."""
    with fk.simulate_ranks(4):
        model, group = dist.fsdp.fully_shard(torch.nn.Linear(8, 8)), dist.group.WORLD
    with pytest.raises(AssertionError, match="FakeTensors"):
        model(torch.ones(2, 8))
    with pytest.raises(RuntimeError, match="error_on_collective"):
        dist.all_reduce(torch.ones(3), group=group)


def test_no_group_of_the_block_answers_outside():
    """Subgroups and the groups of a mesh did, with what they were given."""
    with fk.simulate_ranks(8):
        mesh = dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))
        flat = mesh["data", "tensor"]._flatten("both")
        groups = [dist.new_group([0, 1, 5]), mesh.get_group("data"), mesh.get_group("tensor"), flat.get_group()]
        own = dist.distributed_c10d._new_group_with_tag([0, 2], backend="fake")
        inside = [dist.all_reduce(torch.ones(3), group=group) for group in [*groups, own]]
    assert inside == [None] * 5
    for group in [*groups, own]:
        with pytest.raises(RuntimeError, match="error_on_collective"):
            dist.all_reduce(torch.ones(3), group=group)
        with pytest.raises(RuntimeError, match="error_on_collective"):
            dist.all_gather([torch.ones(3)] * group.size(), torch.ones(3), group=group)
    with fk.simulate_ranks(8):  # and a new block begins anew
        dist.all_reduce(torch.ones(3), group=dist.new_group([0, 1]))


def test_a_program_may_end_its_group_itself():
    with fk.simulate_ranks(4):
        dist.destroy_process_group()
    with fk.simulate_ranks(4):
        assert dist.get_world_size() == 4


@pytest.mark.parametrize("rows, ranks", [(12, 4), (10, 4), (9, 8), (3, 8), (1, 4), (7, 1), (0, 3)])
def test_chunks_are_those_of_torch(rows, ranks):
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    whole = torch.arange(rows * 2).view(rows, 2)
    expected = _fsdp_param._chunk_with_empty(whole, ranks, dim=0)
    with fk.simulate_ranks(2):
        chunks = _fsdp_param._chunk_with_empty(whole, ranks, dim=0)
        shapes = [tuple(chunks[i].shape) for i in range(ranks)]
    assert shapes == [tuple(each.shape) for each in expected]


def test_ranks_hold_what_torch_gives_them():
    """Ten rows on four ranks: three, three, three and one."""
    sizes = []
    for rank in range(4):
        with fk.simulate_ranks(4, rank=rank):
            layer = dist.fsdp.fully_shard(torch.nn.Linear(8, 10, bias=False))
            sizes.append(layer.weight.to_local().shape[0])
    assert sizes == [3, 3, 3, 1]


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"world": 0}, ValueError, "world"),
        ({"world": 2.5}, TypeError, "world"),
        ({"world": 4, "rank": 4}, ValueError, "rank=4: must be below world=4"),
        ({"world": 4, "rank": -1}, ValueError, "rank"),
    ],
)
def test_worlds_that_cannot_be(arguments, error, message):
    with pytest.raises(error, match=message), fk.simulate_ranks(**arguments):
        raise AssertionError
    assert not dist.is_initialized()


def test_one_world_at_a_time():
    with fk.simulate_ranks(4), pytest.raises(RuntimeError, match="already, as rank 0 of 4: .*destroy_process_group"):
        with fk.simulate_ranks(8):
            raise AssertionError
    with fk.simulate_ranks(8):
        assert dist.get_world_size() == 8


def test_a_number_is_refused_with_the_way_out():
    with pytest.raises(Exception, match="_local_scalar_dense") as error, fk.simulate_ranks(4):
        torch.ones(3).sum().item()
    assert error.value.__notes__ == [
        "Simulated ranks have tensors without numbers, and this program asks for one. Give sizes and splits as ints."
    ]


OBJECTS = {
    "all_gather_object": lambda: dist.all_gather_object([None] * 4, {"loss": 1}),
    "gather_object": lambda: dist.gather_object({"loss": 1}, [None] * 4, dst=0),
    "scatter_object_list": lambda: dist.scatter_object_list([None], [1, 2, 3, 4], src=0),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_other_ranks_are_refused_in_words(name):
    with pytest.raises(Exception) as error, fk.simulate_ranks(4):
        OBJECTS[name]()
    (note,) = error.value.__notes__
    assert note.startswith(f"{name}() brings Python objects from other ranks") and "in its place" in note


def coalesced():
    from torch.distributed.distributed_c10d import _coalescing_manager

    with _coalescing_manager():
        dist.all_reduce(torch.ones(8))
        dist.all_reduce(torch.ones(16))


def scattered():
    from torch.distributed.distributed_c10d import _coalescing_manager

    with _coalescing_manager(async_ops=True) as waiting:
        dist.reduce_scatter_tensor(torch.ones(8), torch.ones(32))
    waiting.wait()


SEVERAL = [
    (lambda: dist.all_reduce_coalesced([torch.ones(8), torch.ones(16)]), "all-reduce", 4 * 24, 2 * 3 * 24),
    (coalesced, "all-reduce", 4 * 24, 2 * 3 * 24),
    (lambda: dist.all_gather_coalesced([[torch.ones(8)] * 2 for _ in range(4)], [torch.ones(8)] * 2), "all-gather", 4 * 64, 3 * 64),
    (scattered, "reduce-scatter", 4 * 32, 3 * 32),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("program, kind, payload, sent", SEVERAL)
def test_collectives_of_several_tensors_at_once(program, kind, payload, sent):
    """float32 on 4 ranks: a ring sends 2·3/4 of what it reduces, 3/4 of what it gathers or scatters."""
    with fk.simulate_ranks(4):
        report = fk.count(program)
    assert [(row["collective"], row["payload"], row["sent"]) for row in report.communication] == [(kind, payload, sent)]


def test_context_parallel_is_refused():
    experimental = pytest.importorskip("torch.distributed.tensor.experimental")
    with fk.simulate_ranks(4), pytest.raises(NotImplementedError, match="needs attention kernels of a GPU"):
        experimental.context_parallel(dist.init_device_mesh("cpu", (4,)))


def test_what_torch_cannot_simulate_says_why():
    """DDP's vote on parameters without gradients; FSDP1 and symmetric memory, which ask for a GPU."""
    with fk.simulate_ranks(4):
        layer = torch.nn.Linear(4, 4)
        with pytest.raises(
            NotImplementedError, match="find_unused_parameters=True: DDP asks the other ranks .*, by values"
        ):
            torch.nn.parallel.DistributedDataParallel(layer, find_unused_parameters=True)
        with pytest.raises(RuntimeError, match="needs a non-CPU accelerator"):
            dist.fsdp.FullyShardedDataParallel(layer)
        with pytest.raises(RuntimeError, match="does not support device type cpu"):
            torch.distributed._symmetric_memory.empty(4, 4)


def test_a_stage_without_shapes_is_refused():
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    with fk.simulate_ranks(4, rank=1):
        stage = pipelining.PipelineStage(torch.nn.Linear(4, 4), 1, 4, torch.device("cpu"))
        schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=lambda out, target: out.sum())
        with pytest.raises(NotImplementedError, match="give PipelineStage its input_args and output_args"):
            schedule.step()


# -- on 1,024 ranks ----------------------------------------------------------------------------------------------------

WORLD, LENGTH = 1024, 8192


def gathered(parameters, ranks):
    """Bytes of float32, rows padded to the ranks."""
    return 4 * sum(ranks * ceil(p.shape[0] / ranks) * prod(p.shape[1:]) for p in parameters)


def llama_8b(layers):
    """Under FSDP2."""
    mesh = dist.init_device_mesh("cpu", (WORLD,))
    model = wire.Llama(layers, d=4096, heads=32, kv=8, size=128, hidden=14336, vocabulary=128256)
    inside = gathered(model.layers.parameters(), WORLD)
    root = gathered(model.parameters(), WORLD) - inside
    x = torch.zeros(1, LENGTH, dtype=torch.long)
    report = fk.count(wire.step, wire.fully_sharded(model, mesh), x)
    return report, Fraction(WORLD - 1, WORLD) * (3 * inside + 2 * root)


def llama_70b(layers):
    """Under tensor parallelism with sequences, in eights, times FSDP2."""
    mesh = dist.init_device_mesh("cpu", (WORLD // 8, 8), mesh_dim_names=("data", "tensor"))
    model = wire.Llama(layers, d=8192, heads=64, kv=8, size=128, hidden=28672, vocabulary=128256)
    wire.sequence_parallel(model, mesh["tensor"])
    shards = [p.to_local() for p in model.layers.parameters()], [p.to_local() for p in model.parameters()]
    inside, ranks = gathered(shards[0], WORLD // 8), WORLD // 8
    root = gathered(shards[1], ranks) - inside
    x = torch.zeros(1, LENGTH, dtype=torch.long)

    def step():
        from torch.distributed.tensor.parallel import loss_parallel

        with loss_parallel():
            torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()

    wire.fully_sharded(model, mesh["data"])
    report = fk.count(step)
    reductions = sum(
        row["sent"] for row in report.communication if row["collective"] == "all-reduce"
    )  # of norms and the loss
    assert reductions < 1e-4 * sum(row["sent"] for row in report.communication)
    activations = (8 * layers + 4) * Fraction(7, 8) * LENGTH * 8192 * 4
    return report, Fraction(ranks - 1, ranks) * (3 * inside + 2 * root) + activations + reductions


def experts(layers):
    """Sizes of Qwen3-30B-A3B: 128 experts on 64 ranks, 16 times; the rest under FSDP2 on all."""
    mesh = dist.init_device_mesh("cpu", (16, 64), mesh_dim_names=("copies", "experts"))
    every, group = dist.init_device_mesh("cpu", (WORLD,)), mesh["experts"].get_group()
    model = wire.Llama(layers, d=2048, heads=32, kv=4, size=128, hidden=768, vocabulary=151936)
    for layer in model.layers:
        layer.mlp = wire.Experts(2048, 768, mine=2, k=8, group=group)
    theirs = gathered([p for layer in model.layers for p in layer.mlp.parameters()], 16)
    inside = gathered([p for layer in model.layers for name, p in layer.named_parameters() if "mlp" not in name], WORLD)
    root = gathered([*model.embedding.parameters(), *model.norm.parameters(), *model.head.parameters()], WORLD)
    for layer in model.layers:
        dist.fsdp.fully_shard(layer.mlp, mesh=mesh["copies"])
    x = torch.zeros(1, LENGTH, dtype=torch.long)
    report = fk.count(wire.step, wire.fully_sharded(model, every), x)
    exchanged = layers * 4 * Fraction(63, 64) * LENGTH * 8 * 2048 * 4
    share = Fraction(WORLD - 1, WORLD)
    return report, Fraction(15, 16) * 3 * theirs + share * (3 * inside + 2 * root) + exchanged


def run(name, layers):
    with fk.simulate_ranks(WORLD):
        report, expected = globals()[name](layers)
    assert report.uncounted == []
    return report.flops, sum(row["sent"] for row in report.communication), round(expected)


@pytest.mark.parametrize("name", ["llama_8b", "llama_70b", "experts"])
def test_a_thousand_ranks(name):
    _, sent, expected = run(name, layers=1)
    assert sent == expected


@pytest.mark.slow
@pytest.mark.parametrize("name, layers", [("llama_8b", 32), ("llama_70b", 80), ("experts", 48)])
def test_whole_models_on_a_thousand_ranks(name, layers):
    """In a process of its own, which leaves nothing behind in this one."""
    paths = [str(Path(fk.__file__).parents[1]), str(Path(wire.__file__).parent), str(Path(__file__).parent)]
    code = (
        "import json, warnings; warnings.simplefilter('ignore'); import test_ranks as here\n"
        f"print(json.dumps(here.run({name!r}, {layers})))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    _, sent, expected = json.loads(done.stdout.splitlines()[-1])
    assert sent == expected
