"""What a rank sends: closed form, `fk.count` on simulated ranks, and a recorder that shares nothing with the counter say the same, to the byte."""

from __future__ import annotations

import pickle
from fractions import Fraction
from math import ceil, prod

import pytest
import torch
import torch.nn.functional as F
import wire

import flopkit as fk

dist = torch.distributed
pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed"),
    pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="torch 2.6 has no fully_shard on a CPU"),
    pytest.mark.filterwarnings("ignore"),
]


BATCH, LENGTH, WIDTH, VOCABULARY = 2, 16, 64, 128


def tokens():
    return torch.zeros(BATCH, LENGTH, dtype=torch.long)


def counted(run, *args):
    """What the counter says, where the recorder has said the same of the same run."""
    with wire.Recorder() as recorder:
        report = fk.count(run, *args)
    assert report.uncounted == [] and not [note for note in report.notes if "communication" in note]
    assert wire.totals(report) == recorder.totals() != {}
    return report


def sent(report):
    return sum(row["sent"] for row in report.communication)


# -- data parallel ---------------------------------------------------------------------------------------------------


def padded(parameters, ranks):
    """Numbers that FSDP2 gathers: each parameter's rows in chunks of the same length."""
    return sum(ranks * ceil(p.shape[0] / ranks) * prod(p.shape[1:]) for p in parameters)


def of_blocks(ranks):
    """Numbers of all layers, and of the rest, as they are gathered."""
    model = wire.Llama()
    layers = padded(model.layers.parameters(), ranks)
    return layers, padded(model.parameters(), ranks) - layers


FSDP = {  # gathers of the layers and of the root, in a step
    None: (2, 1),
    True: (2, 2),
    False: (1, 1),
}


@pytest.mark.parametrize("reshard, ranks", [(None, 7), (True, 30), (False, 7)])
def test_fully_sharded(reshard, ranks):
    layers, root = of_blocks(ranks)
    gathers = FSDP[reshard]
    with fk.simulate_ranks(ranks):
        model = wire.fully_sharded(wire.Llama(), dist.init_device_mesh("cpu", (ranks,)), reshard_after_forward=reshard)
        report = counted(wire.step, model, tokens())
    share = Fraction(ranks - 1, ranks)
    assert sent(report) == share * 4 * (gathers[0] * layers + gathers[1] * root + layers + root)
    by_phase = {(row["collective"], row["phase"]) for row in report.communication}
    assert by_phase == {("all-gather", "forward"), ("reduce-scatter", "backward")} | (
        {("all-gather", "backward")} if reshard is not False else set()
    )


def test_padding_of_fully_sharded_rows():
    """Four rows over a thousand ranks: a thousand are gathered."""
    with fk.simulate_ranks(1000):
        model = torch.distributed.fsdp.fully_shard(torch.nn.Linear(8, 4, bias=False))
        report = counted(lambda: model(torch.ones(2, 8)).sum().backward())
    assert [row["payload"] for row in report.communication] == [1000 * 8 * 4] * 2
    moved = {row["operator"]: row["bytes"] for row in report.by_op()}
    assert moved["fsdp.all_gather_copy_in"] == 2 * 8 * 4  # this rank's row, and no other


@pytest.mark.parametrize("copies, ranks", [(3, 5)])
def test_hybrid_sharded(copies, ranks):
    layers, root = of_blocks(ranks)
    with fk.simulate_ranks(copies * ranks):
        mesh = dist.init_device_mesh("cpu", (copies, ranks), mesh_dim_names=("copies", "shards"))
        report = counted(wire.step, wire.fully_sharded(wire.Llama(), mesh), tokens())
    inside = Fraction(ranks - 1, ranks) * 4 * (3 * layers + 2 * root)
    across = 2 * Fraction(copies - 1, copies) * 4 * Fraction(layers + root, ranks)
    assert sent(report) == inside + round(across)
    assert {row["ranks"]: row["phase"] for row in report.communication if row["collective"] == "all-reduce"} == {
        copies: "backward"
    }


def test_accumulation_sends_each_time():
    layers, root = of_blocks(8)
    with fk.simulate_ranks(8):
        model = wire.fully_sharded(wire.Llama(), dist.init_device_mesh("cpu", (8,)))
        report = counted(lambda: [wire.step(model, tokens()) for _ in range(3)])
        model.set_requires_gradient_sync(False)
        without = fk.count(wire.step, model, tokens())
    assert sent(report) == 3 * Fraction(7, 8) * 4 * (3 * layers + 2 * root)
    assert {row["collective"] for row in without.communication} == {"all-gather"}


@pytest.mark.parametrize("ranks", [6, 512])
def test_data_parallel(ranks):
    numbers = sum(p.numel() for p in wire.Llama().parameters())
    once = 2 * Fraction(ranks - 1, ranks) * 4 * numbers
    with fk.simulate_ranks(ranks):
        model, x = torch.nn.parallel.DistributedDataParallel(wire.Llama(), bucket_cap_mb=0.05), tokens()
        first, second, third = (fk.count(wire.step, model, x) for _ in range(3))
        assert wire.totals(counted(wire.step, model, x)) == wire.totals(third)
        with model.no_sync():
            alone = fk.count(wire.step, model, x)
    assert round(once) == sent(first) == sent(third)
    (row,) = third.communication
    assert (row["calls"], row["phase"], first.communication[0]["calls"]) == (5, "backward", 1)  # buckets
    assert {row["collective"] for row in second.communication} == {"all-reduce", "broadcast"}  # of what goes into which
    assert list(alone.communication) == []
    assert third.flops == alone.flops


# -- tensor parallel -------------------------------------------------------------------------------------------------


def activation():
    return BATCH * LENGTH * WIDTH * 4


@pytest.mark.parametrize("ranks, branch, reductions", [(2, True, 8), (8, True, 8), (4, False, 14)])  # of two layers
def test_tensor_parallel(ranks, branch, reductions):
    with fk.simulate_ranks(ranks):
        model = wire.tensor_parallel(wire.Llama(), dist.init_device_mesh("cpu", (ranks,)), branch)
        report = counted(wire.step, model, tokens())
    assert sent(report) == reductions * 2 * Fraction(ranks - 1, ranks) * activation()
    assert sum(row["calls"] for row in report.communication) == reductions
    assert {row["phase"] for row in report.communication if row["module"] == "layers.1.mlp.down"} == {"forward"}


@pytest.mark.parametrize("ranks", [2, 8])
def test_sequence_parallel(ranks):
    with fk.simulate_ranks(ranks):
        model = wire.sequence_parallel(wire.Llama(), dist.init_device_mesh("cpu", (ranks,)))
        report = counted(wire.step, model, tokens())
        alone = fk.count(wire.step, wire.Llama(), tokens())
    logits = BATCH * LENGTH * VOCABULARY * 4
    assert sent(report) == Fraction(ranks - 1, ranks) * ((2 * 8 + 4) * activation() + logits)
    assert report.flops * ranks == alone.flops


def test_tensor_parallel_in_sharded_data_parallel():
    """On 4 × 8 ranks: each dimension of the mesh sends by itself."""
    with fk.simulate_ranks(32):
        mesh = dist.init_device_mesh("cpu", (4, 8), mesh_dim_names=("data", "tensor"))
        model = wire.fully_sharded(wire.sequence_parallel(wire.Llama(), mesh["tensor"]), mesh["data"])
        report = counted(wire.step, model, tokens())
    of_eight = [row for row in report.communication if row["ranks"] == 8 and row["collective"] != "all-reduce"]
    logits = BATCH * LENGTH * VOCABULARY * 4
    assert sum(row["sent"] for row in of_eight) == Fraction(7, 8) * (20 * activation() + logits)


def test_waits_and_wrappers_move_nothing():
    """One all-reduce of a function that is differentiated: its wait is no copy, and it is no traffic of memory."""
    from torch.distributed import _functional_collectives as functional

    with fk.simulate_ranks(4):
        x = torch.ones(8, requires_grad=True)
        report = fk.count(lambda: functional.wait_tensor(functional.all_gather_tensor_autograd(x, 0, dist.group.WORLD)))
    assert [row["bytes"] for row in report.by_op() if "c10d" in row["operator"]] == [0] * 2
    assert [row["sent"] for row in report.by_op() if row["sent"]] == [3 * 8 * 4]


# -- experts, rings, pipelines ---------------------------------------------------------------------------------------


def experts(x, up, down, out, back):
    """Two experts for each token: rows go to them and come back."""
    from torch.distributed._functional_collectives import all_to_all_single_autograd as exchange

    rows = x.repeat_interleave(2, 0)
    here = exchange(rows, back, out, dist.group.WORLD)
    there = exchange(F.silu(here @ up) @ down, out, back, dist.group.WORLD)
    return there.view(len(x), 2, -1).sum(1).sum().backward()


@pytest.mark.parametrize("ranks", [128])
def test_experts(ranks):
    with fk.simulate_ranks(ranks):
        x, up, down = (torch.ones(*shape, requires_grad=True) for shape in ((64, 32), (32, 48), (48, 32)))
        report = counted(experts, x, up, down, [128 // ranks] * ranks, [128 // ranks] * ranks)
    assert sent(report) == 4 * Fraction(ranks - 1, ranks) * 64 * 2 * 32 * 4
    assert {row["phase"]: row["calls"] for row in report.communication} == {"forward": 2, "backward": 2}


@pytest.mark.parametrize("ranks, rotation", [(4, "allgather"), (8, "allgather")])
def test_ring_attention(ranks, rotation):
    ring = pytest.importorskip("torch.distributed.tensor.experimental._context_parallel._attention")
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    before = ring._cp_options.rotate_method
    ring.set_rotate_method(rotation)
    try:
        with fk.simulate_ranks(ranks):
            q, k, v = (torch.ones(2, 8, 32, 16) for _ in range(3))

            def forward():
                return ring._templated_ring_attention(
                    dist.group.WORLD, 2, kernel, q, k, v, is_causal=True, dropout_p=0.0
                )

            out, lse = forward()[:2]
            ahead = counted(forward)
            back = counted(lambda: ring._templated_ring_attention_backward(
                dist.group.WORLD, 2, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default, out, "grad_out",
                q, k, v, out, lse, is_causal=True, dropout_p=0.0,
            ))  # fmt: skip
    finally:
        ring._cp_options.rotate_method = before
    local = k.nbytes + v.nbytes
    assert sent(ahead) == (ranks - 1) * local
    assert (
        sent(back) == (ranks - 1) * local + ranks * local
    )  # keys and values again, and their gradients all the way round


SCHEDULES = ["GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]
STAGES, MICRO_BATCHES = 4, 8


@pytest.mark.parametrize(
    "name, rank", [*((name, 1) for name in SCHEDULES), *(("1F1B", 0), ("ZBVZeroBubble", 0), ("Interleaved1F1B", 3))]
)
def test_pipelines(name, rank):
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    folded, chunks = name in ("ZBVZeroBubble", "DualPipeV"), 1 if name in SCHEDULES[:2] else 2
    last = STAGES * chunks - 1
    mine = [rank, last - rank][:chunks] if folded else [rank + STAGES * i for i in range(chunks)]
    with fk.simulate_ranks(STAGES, rank=rank):
        x, between = (
            torch.zeros(2 * MICRO_BATCHES, LENGTH, dtype=torch.long),
            torch.zeros(2, LENGTH, WIDTH, requires_grad=True),
        )
        logits = torch.zeros(2, LENGTH, VOCABULARY, requires_grad=True)
        stages = []
        for stage in mine:
            model = wire.Llama(layers=1)
            if stage:
                model.embedding = None
            if stage < last:
                model.norm = model.head = None
            given, made = x[:2] if stage == 0 else between, logits if stage == last else between
            stages.append(
                pipelining.PipelineStage(
                    model, stage, last + 1, torch.device("cpu"), input_args=given, output_args=made
                )
            )
        kind = pipelining.schedules.get_schedule_class(name)
        schedule = kind(
            stages[0] if chunks == 1 else stages, MICRO_BATCHES,
            loss_fn=lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten()),
        )  # fmt: skip
        report = counted(lambda: schedule.step(*[x] * (0 in mine), **{"target": x} if last in mine else {}))

    def elsewhere(stage):  # whether a stage's neighbour is on another rank
        return 0 <= stage <= last and stage not in mine

    size = MICRO_BATCHES * between.nbytes
    found = {(row["collective"], row["phase"]): row["payload"] for row in report.communication}
    assert found == {key: size * n for key, n in {
        ("send", "forward"): sum(elsewhere(stage + 1) for stage in mine), ("receive", "forward"): sum(elsewhere(stage - 1) for stage in mine),
        ("send", "backward"): sum(elsewhere(stage - 1) for stage in mine), ("receive", "backward"): sum(elsewhere(stage + 1) for stage in mine),
    }.items() if n}  # fmt: skip
    assert sent(report) == found.get(("send", "forward"), 0) + found.get(("send", "backward"), 0)


# -- each function of torch.distributed ------------------------------------------------------------------------------

S = 96  # bytes of the whole tensor: 24 numbers
ONE = {  # of four ranks, in bytes sent by rank 0 and by rank 1
    "all_reduce": (lambda x, part: dist.all_reduce(x), 2 * S * 3 // 4, 2 * S * 3 // 4),
    "all_gather": (lambda x, part: dist.all_gather(list(x.chunk(4)), part), S * 3 // 4, S * 3 // 4),
    "all_gather of other lengths": (
        lambda x, part: dist.all_gather([*x.split([10, 6, 6, 2])], x.split([10, 6, 6, 2])[dist.get_rank()].clone()),
        4 * 18, 4 * 18,
    ),
    "all_gather_into_tensor": (lambda x, part: dist.all_gather_into_tensor(x, part), S * 3 // 4, S * 3 // 4),
    "reduce_scatter": (lambda x, part: dist.reduce_scatter(part, list(x.chunk(4))), S * 3 // 4, S * 3 // 4),
    "reduce_scatter_tensor": (lambda x, part: dist.reduce_scatter_tensor(part, x), S * 3 // 4, S * 3 // 4),
    "all_to_all": (lambda x, part: dist.all_to_all(list(x.chunk(4)), list(x.chunk(4))), S * 3 // 4, S * 3 // 4),
    "all_to_all_single": (lambda x, part: dist.all_to_all_single(x.clone(), x), S * 3 // 4, S * 3 // 4),
    "broadcast": (lambda x, part: dist.broadcast(x, 0), S, S),
    "reduce": (lambda x, part: dist.reduce(x, 0), S, S),
    "scatter": (lambda x, part: dist.scatter(part, list(x.chunk(4)) if dist.get_rank() == 0 else None, 0), S * 3 // 4, 0),
    "gather": (lambda x, part: dist.gather(part, list(x.chunk(4)) if dist.get_rank() == 0 else None, 0), 0, S // 4),
    "send": (lambda x, part: dist.send(x, 2), S, S),
    "recv": (lambda x, part: dist.recv(x, 2), 0, 0),
    "barrier": (lambda x, part: dist.barrier(), 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("rank", [0, 1])
def test_each_function(name, rank):
    run, *expected = ONE[name]
    with fk.simulate_ranks(4, rank=rank):
        report = fk.count(run, torch.ones(24), torch.ones(6))
    assert sent(report) == expected[rank]
    assert [row["payload"] for row in report.communication] == ([] if name == "barrier" else [S])
    assert (report.uncounted, report.flops, report.notes[0]) == (
        [],
        0,
        f"rank {rank} of 4: what is counted is this rank's local work",
    )
    assert all(row["bytes"] == 0 for row in report.by_op() if row["operator"].startswith("c10d"))


def test_parts_of_a_byte_are_added_up_before_they_are_rounded():
    with fk.simulate_ranks(3):
        report = fk.count(lambda: [dist.all_reduce(torch.ones(1)) for _ in range(3)])
    assert sent(report) == 3 * 2 * 4 * 2 // 3  # each 16/3


def test_groups_of_other_sizes_are_told_apart():
    with fk.simulate_ranks(8):
        mesh = dist.init_device_mesh("cpu", (2, 4))
        report = fk.count(lambda: [dist.all_reduce(torch.ones(4), group=mesh.get_group(i)) for i in (0, 1)])
    assert [(row["ranks"], row["sent"]) for row in report.communication] == [(4, 24), (2, 16)]


def test_one_rank_sends_nothing():
    with fk.simulate_ranks(1):
        report = fk.count(lambda: (dist.all_reduce(torch.ones(4)), dist.broadcast(torch.ones(4), 0)))
    assert sent(report) == 0


# -- how it is shown -------------------------------------------------------------------------------------------------


def test_the_report_says_what_was_sent():
    with fk.simulate_ranks(8):
        model = wire.tensor_parallel(wire.Llama(), dist.init_device_mesh("cpu", (8,)))
        report = fk.count(wire.step, model, tokens())
    assert sent(report) == 114_688
    line = "114.7 kB sent to other ranks: all-reduce 114.7 kB in 8 calls"
    assert line in repr(report).splitlines() and line in report._repr_html_()
    assert "<td" in report.communication._repr_html_() and "all-reduce" in str(report.communication)
    assert sum(row["sent"] for row in report.by_op()) == sent(report)
    (whole,) = report.by_module(depth=0).rows[:1]
    assert (whole["module"], whole["sent"]) == ("", sent(report))
    assert "sent" in report.by_op().columns and "sent" in report.by_module().columns
    assert list(pickle.loads(pickle.dumps(report)).communication) == list(report.communication)


def test_a_report_of_one_device_has_no_column_for_it():
    report = fk.count(torch.nn.Linear(4, 4), torch.ones(2, 4))
    assert list(report.communication) == []
    assert "sent" not in repr(report) and "sent" not in [*report.by_op().columns, *report.by_module().columns]


def test_what_nobody_knows_is_said():
    """An operator of torch.distributed without a row in the table: not a silent zero."""
    from flopkit.counter.calls import OpCall
    from flopkit.counter.formulas import rule_for

    work = rule_for(torch.ops.symm_mem.nccl_put.default).formula(OpCall(None, (), {}, None))
    assert (work.exchanges, work.note) == ((), "symm_mem.nccl_put sends bytes that are not in report.communication")


def test_sends_that_are_launched_together():
    """`batch_p2p_ops` is one operator with several sends and receives."""
    pytest.importorskip("torch.distributed._functional_collectives")
    if not hasattr(torch.ops._c10d_functional, "batch_p2p_ops"):
        pytest.skip("this torch has no such operator")
    from flopkit.counter.calls import OpCall
    from flopkit.counter.formulas import rule_for

    op = torch.ops._c10d_functional.batch_p2p_ops.default
    with fk.simulate_ranks(4):
        x, y = torch.ones(6), torch.ones(10)
        call = OpCall(op, (["isend", "irecv"], [1, 3], [0, 0], [x, y], dist.group.WORLD.group_name), {}, [x, y])
        work = rule_for(op).formula(call)
    assert [tuple(each) for each in work.exchanges] == [("send", 4, 24, 24, (0, 1)), ("receive", 4, 40, 0, None)]
