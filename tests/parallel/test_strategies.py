"""What a step sends under each strategy: `flopkit.parallel`'s closed form, `fk.count` on simulated ranks, and a recorder of torch's
dispatch that knows nothing of flopkit, to the byte."""

from __future__ import annotations

from math import ceil, prod

import pytest
import torch
import torch.nn.functional as F
import wire
from on_ranks import BF16, SMALL, WIDE, Scattered, counted, mesh, numbers

from flopkit.models import Experts
from flopkit.parallel import Layout, all_gather, all_reduce, all_to_all, cluster, reduce_scatter, send, traffic
from flopkit.parallel.plans import OVERLAPS, Plan, Setting

dist = torch.distributed
pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed"),
    pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="torch 2.6 has no fully_shard on a CPU"),
    pytest.mark.filterwarnings("ignore"),
]


# -- data parallel ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes, ranks, hold", [(SMALL, 48, True), (WIDE, 7, True), (SMALL, 4, False)])
def test_distributed_data_parallel(sizes, ranks, hold):
    """Three micro-batches: reduced once with `no_sync`, which is the plan's step, and else three times."""

    def build():
        model, x = torch.nn.parallel.DistributedDataParallel(sizes.program()), sizes.tokens()
        for _ in range(2):  # buckets are put together anew
            wire.step(model, x)

        def run():
            for last in (False, False, True):
                model.require_backward_grad_sync = last or not hold  # what no_sync sets
                wire.step(model, x)

        return run

    layout = Layout(data=ranks, zero=0, micro_batch=sizes.batch)
    once = sizes.sent(layout, micro_batches=3, precision="fp32")["data"]
    assert counted(ranks, build) == round(once * (1 if hold else 3))


def rows(parameters, ranks):
    """Numbers in a gather of FSDP2: each parameter's rows filled up to a multiple of the ranks."""
    return sum(ranks * ceil(p.shape[0] / ranks) * prod(p.shape[1:]) for p in parameters)


def of_blocks(sizes, ranks):
    model = sizes.program()
    layers = rows(model.layers.parameters(), ranks)
    return layers, rows(model.parameters(), ranks) - layers


def fully_sharded(sizes, reshard=None, ranks=8, times=1, outer=0, recompute="none", **options):
    def build():
        where = mesh(outer, ranks) if outer else mesh(ranks)
        model = wire.recomputed(sizes.program(), recompute)
        model = wire.fully_sharded(model, where, reshard_after_forward=reshard, **options)
        x = sizes.tokens()
        return lambda: [wire.step(model, x) for _ in range(times)]

    return counted(ranks * max(outer, 1), build)


@pytest.mark.parametrize("sizes, ranks, times, policy", [(SMALL, 8, 2, "none"), (WIDE, 4, 1, "selective"), (WIDE, 4, 2, "full")])  # fmt: skip
def test_fully_sharded_is_zero_3(sizes, ranks, times, policy):
    """`reshard_after_forward=True`, weights and gradients in four bytes. A layer that is computed again has its weights at hand: none is gathered for it."""
    layout = Layout(data=ranks, zero=3, micro_batch=sizes.batch, recompute=policy)
    found = fully_sharded(sizes, True, ranks, times, recompute=policy)
    assert found == round(sizes.sent(layout, times, "fp32")["data"])


def test_fully_sharded_in_half_precision_is_zero_3():
    policy = dist.fsdp.MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=torch.float32)
    layout = Layout(data=8, zero=3, micro_batch=SMALL.batch)
    assert fully_sharded(SMALL, True, mp_policy=policy) == SMALL.sent(layout, precision="fsdp")["data"]


@pytest.mark.parametrize("sizes, ranks", [(SMALL, 8), (WIDE, 16)])
def test_fully_sharded_without_resharding_is_zero_2(sizes, ranks):
    """`reshard_after_forward=False`, of one micro-batch."""
    layout = Layout(data=ranks, zero=2, micro_batch=sizes.batch)
    assert fully_sharded(sizes, False, ranks) == round(sizes.sent(layout, precision="fp32")["data"])


@pytest.mark.parametrize("sizes, ranks", [(SMALL, 1000), (WIDE, 30)])
def test_fully_sharded_by_default(sizes, ranks):
    """The root, which has embedding, norm and head, is gathered once, the layers twice; rows are filled up to the ranks."""
    layers, root = of_blocks(sizes, ranks)
    gathers = all_gather(bytes=4 * (2 * layers + root), ranks=ranks).sent
    assert fully_sharded(sizes, None, ranks) == gathers + reduce_scatter(bytes=4 * (layers + root), ranks=ranks).sent


@pytest.mark.parametrize("sizes, ranks, back", [(SMALL, 8, 2), (WIDE, 16, 4)])
def test_fully_sharded_to_a_few_ranks(sizes, ranks, back):
    """`reshard_after_forward=back`: gathered from all in the forward pass, from so many in the backward pass."""
    whole = 4 * sum(of_blocks(sizes, ranks))
    moved = [all_gather(bytes=whole, ranks=n) for n in (ranks, back)] + [reduce_scatter(bytes=whole, ranks=ranks)]
    assert fully_sharded(sizes, back, ranks) == sum(each.sent for each in moved)


@pytest.mark.parametrize("sizes, copies, ranks", [(SMALL, 3, 8), (WIDE, 4, 2)])
def test_hybrid_sharded(sizes, copies, ranks):
    """ZeRO-3 among *ranks*, then an all-reduce of a shard among *copies*."""
    layout = Layout(data=ranks, zero=3, micro_batch=sizes.batch)
    inside = sizes.sent(layout, precision="fp32")["data"]
    across = all_reduce(bytes=4 * sum(of_blocks(sizes, ranks)) // ranks, ranks=copies).sent
    assert fully_sharded(sizes, True, ranks, outer=copies) == round(inside + across)


# -- tensor parallel -------------------------------------------------------------------------------------------------


def with_loss(model, x):
    """A step whose loss is taken of logits that stay divided: three all-reduces of a number a token."""
    from torch.distributed.tensor.parallel import loss_parallel

    def run():
        with loss_parallel():
            F.cross_entropy(model(x).flatten(0, 1).float(), x.flatten()).backward()

    return run


def of_loss(sizes, ranks):
    """Maxima, sums of exponentials, and the target's logit, in fp32."""
    return 3 * all_reduce(bytes=4 * sizes.batch * sizes.length, ranks=ranks).sent


def whole_tensor_parallel(model, on):
    """Megatron's: the blocks, and the vocabulary of embedding and head."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    wire.tensor_parallel(model, on)
    return parallelize_module(model, on, {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    })  # fmt: skip


@pytest.mark.parametrize("plan, sequence", [(whole_tensor_parallel, False), (wire.sequence_parallel, True)])
@pytest.mark.parametrize("sizes, ranks, policy", [(SMALL, 8, "none"), (WIDE, 4, "selective"), (WIDE, 4, "full")])
def test_tensor_parallel(plan, sequence, sizes, ranks, policy):
    """Four all-reduces a layer and two for the ends, or as many gathers and reduce-scatters; those of a layer's forward pass twice with full recompute."""
    precision, dtype = ("bf16", BF16) if sizes is SMALL else ("fp32", torch.float32)
    layout = Layout(tensor=ranks, sequence=sequence, micro_batch=sizes.batch, recompute=policy, regather="context")
    foretold = sizes.sent(layout, precision=precision)

    def build():
        model = plan(sizes.program(dtype), mesh(ranks))
        return with_loss(wire.recomputed(model, policy), sizes.tokens())

    assert counted(ranks, build) == foretold["tensor"] + of_loss(sizes, ranks)


@pytest.mark.parametrize("policy, transfers", [("none", 5), ("full", 7)])
def test_megatron_gathers_the_input_of_a_branch_again(policy, transfers):
    """Of a layer, which is what two layers send more than one: of its two branches the gather and the reduce-scatter forward, the same backward, and
    the gather again (Korthikanti et al. 2022, section 4.2.2)."""
    ranks, tokens = 4, WIDE.length * WIDE.batch
    layout = Layout(tensor=ranks, micro_batch=WIDE.batch, recompute=policy)
    one, two = (WIDE._replace(layers=n).sent(layout, precision="fp32")["tensor"] for n in (1, 2))

    def build():
        branches = torch.nn.Sequential(Scattered(WIDE.d, 8), Scattered(WIDE.d, 8))
        branches = wire.again(branches) if policy == "full" else branches
        x = torch.ones(tokens // ranks, WIDE.d, requires_grad=True)
        return lambda: (branches(x) * 2).sum().backward()

    assert counted(ranks, build) == two - one == 2 * transfers * all_gather(bytes=4 * tokens * WIDE.d, ranks=ranks).sent


@pytest.mark.parametrize("sizes, tensor, data", [(SMALL, 8, 2), (WIDE, 4, 8)])
def test_tensor_parallel_times_fully_sharded(sizes, tensor, data):
    """Each dimension of the mesh by itself; the gradients of norms, which are divided by tokens, are summed over the tensor-parallel ranks."""

    def build():
        on = mesh(data, tensor)
        model = wire.sequence_parallel(sizes.program(BF16), on["inner"])
        return with_loss(wire.fully_sharded(model, on["outer"], reshard_after_forward=True), sizes.tokens())

    foretold = sizes.sent(Layout(tensor=tensor, data=data, zero=3, micro_batch=sizes.batch, regather="context"))
    norms = all_reduce(bytes=2 * (2 * sizes.layers + 1) * sizes.d, ranks=tensor).sent
    assert counted(data * tensor, build) == foretold["tensor"] + foretold["data"] + of_loss(sizes, tensor) + norms


# -- experts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes, ranks, k, policy", [(WIDE, 4, 1, "none"), (SMALL, 32, 4, "selective"), (WIDE, 4, 2, "full")])  # fmt: skip
def test_experts(sizes, ranks, k, policy):
    """Equal parts: two all-to-alls a layer forward, two backward, and with full recompute two again."""

    def build():
        model = sizes.program(BF16)
        with numbers(BF16):
            for layer in model.layers:
                layer.mlp = wire.Experts(sizes.d, sizes.hidden, 1, k, dist.group.WORLD)
        wire.recomputed(model, policy)
        return lambda: wire.step(model, sizes.tokens())

    layout = Layout(data=ranks, expert=ranks, zero=0, micro_batch=sizes.batch, recompute=policy)
    mixture = Experts(experts=ranks, top_k=k, d_ff=sizes.hidden)
    assert counted(ranks, build) == sizes.sent(layout, experts=mixture)["expert"]


@pytest.mark.parametrize("rank", [0, 3])
def test_experts_that_are_chosen_unequally(rank):
    """All but the part that the rank keeps: of equal parts that is the formula's (n - 1)/n."""
    from torch.distributed._functional_collectives import all_to_all_single_autograd as exchange

    out, back, d = [100, 4, 4, 20], [10, 20, 30, 40], 32

    def build():
        x = torch.ones(sum(out), d, requires_grad=True)
        world = dist.group.WORLD
        return lambda: exchange(exchange(x, back, out, world), out, back, world).sum().backward()

    rest = sum(out) - out[rank] + sum(back) - back[rank]
    assert counted(4, build, rank) == 2 * rest * d * 4
    equal = [32] * 4
    assert all_to_all(bytes=sum(equal) * d * 4, ranks=4).sent == (sum(equal) - equal[rank]) * d * 4


# -- context parallel ------------------------------------------------------------------------------------------------


class Gathering(wire.Attention):
    """Keys and values of all ranks for the queries of this one, as Llama 3 was trained."""

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, self.size).transpose(1, 2) for w in (self.q, self.k, self.v))
        k, v = (self.whole(each) for each in (k, v))
        return self.o(self.core(q, k, v, enable_gqa=True).transpose(1, 2).reshape(b, t, -1))

    def whole(self, x):
        from torch.distributed._functional_collectives import all_gather_tensor_autograd as gather

        return gather(x.contiguous(), 2, dist.group.WORLD)


class Regathering(Gathering):
    """The same, where attention gathers, keeps its own keys and values alone, and gathers again in its backward pass, as Transformer Engine's does."""

    def core(self, q, k, v, **more):
        return wire.again(lambda q, k, v: F.scaled_dot_product_attention(q, super(Regathering, self).whole(k), super(Regathering, self).whole(v), **more))(q, k, v)  # fmt: skip

    def whole(self, x):
        return x


class Ulysses(wire.Attention):
    """All positions for a rank's share of the heads (Jacobs et al. 2023)."""

    def forward(self, x):
        b, t, _ = x.shape
        n = dist.get_world_size()
        q, k, v = (self.turn(w(x).view(b, t, n, -1)) for w in (self.q, self.k, self.v))  # n, b, t, heads of a rank
        q, k, v = (each.transpose(0, 1).reshape(b, n * t, -1, self.size).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = y.transpose(1, 2).reshape(b, n, t, -1).transpose(1, 2)
        return self.o(self.turn(y).permute(1, 2, 0, 3).reshape(b, t, -1))

    def turn(self, x):
        from torch.distributed._functional_collectives import all_to_all_single_autograd as exchange

        x = x.permute(2, 0, 1, 3).contiguous()
        ones = [1] * len(x)
        return exchange(x, ones, ones, dist.group.WORLD)


def contextual(sizes, ranks, kind, policy="none"):
    def build():
        model = sizes.program(BF16)
        with numbers(BF16):
            for layer in model.layers:
                layer.attention = kind(sizes.d, sizes.heads, sizes.kv, sizes.size)
        part = torch.zeros(sizes.batch, sizes.length // ranks, dtype=torch.long)
        wire.recomputed(model, policy)
        return lambda: wire.step(model, part)

    return counted(ranks, build)


@pytest.mark.parametrize(
    "kind, regather, times",
    [(Gathering, "none", {"none": 2, "selective": 2, "full": 3}), (Regathering, "all", {"none": 3, "selective": 4, "full": 4})],
)  # fmt: skip
@pytest.mark.parametrize("sizes, ranks, policy", [(SMALL, 8, "none"), (WIDE, 4, "selective"), (WIDE, 4, "full")])
def test_keys_and_values_that_are_gathered(kind, regather, times, sizes, ranks, policy):
    """Gathered forward, reduced backward; what a policy computes again gathers again, and attention that kept its own part alone once more."""
    layout = Layout(context=ranks, zero=0, micro_batch=sizes.batch, recompute=policy, regather=regather)
    whole = all_gather(bytes=2 * 2 * sizes.batch * sizes.length * sizes.kv * sizes.size, ranks=ranks).sent
    found = contextual(sizes, ranks, kind, policy)
    assert found == sizes.sent(layout)["context"] == times[policy] * sizes.layers * whole


@pytest.mark.parametrize("sizes, ranks", [(SMALL, 8), (WIDE, 4)])
def test_ulysses(sizes, ranks):
    """Queries, keys, values and outputs change hands, forward and backward."""
    numbers = sizes.batch * sizes.length // ranks * sizes.size * (2 * sizes.heads + 2 * sizes.kv)
    expected = 2 * sizes.layers * all_to_all(bytes=2 * numbers, ranks=ranks).sent
    assert contextual(sizes, ranks, Ulysses) == expected


@pytest.mark.parametrize("ranks, dtype, forward, backward", [(4, torch.float32, 3, 7), (8, BF16, 7, 23)])
def test_ring_attention(ranks, dtype, forward, backward):
    """Blocks of keys and values go round, backward once more with their gradients in fp32."""
    ring = pytest.importorskip("torch.distributed.tensor.experimental._context_parallel._attention")
    aten = torch.ops.aten
    before = ring._cp_options.rotate_method
    ring.set_rotate_method("alltoall")
    shape = (2, 8, 32, 16)
    local = 2 * prod(shape) * dtype.itemsize

    def both():
        q, k, v = (torch.ones(shape, dtype=dtype) for _ in range(3))
        more = {"is_causal": True, "dropout_p": 0.0}

        def run():
            out, lse = ring._templated_ring_attention(
                dist.group.WORLD, 2, aten._scaled_dot_product_flash_attention_for_cpu, q, k, v, **more
            )[:2]
            ring._templated_ring_attention_backward(
                dist.group.WORLD, 2, aten._scaled_dot_product_flash_attention_for_cpu_backward.default, out, "grad_out",
                q, k, v, out.to(dtype), lse, **more,
            )  # fmt: skip

        return run

    try:
        found = counted(ranks, both)
    finally:
        ring._cp_options.rotate_method = before
    assert found == (forward + backward) * send(bytes=local).sent


# -- pipelines -------------------------------------------------------------------------------------------------------


def of_pipeline(sizes, layout, m, rank):
    """Bytes that a rank of a pipeline sends to its neighbours in a step."""
    place = cluster("dgx-h100")
    plan = Plan(Setting(sizes.model(), place, sizes.length, sizes.batch * m, memory=1e15), layout)
    inside = {name: layout.in_node(place, name) for name in OVERLAPS}
    exchanges = traffic.of_micro_batch(plan.numbers, layout, place, inside, plan.setting.formats)
    return m * traffic.on_rank(exchanges, plan.numbers, layout, plan.ranks[rank], layout.virtual)["pipeline"].bytes


@pytest.mark.parametrize(
    "sizes, stages, virtual, m, rank, policy",
    [(SMALL, 4, 1, 4, 1, "none"), (WIDE, 3, 1, 3, 0, "none"), (WIDE, 3, 1, 3, 2, "full"), (SMALL, 3, 2, 3, 0, "none"), (SMALL, 3, 2, 3, 1, "full"), (SMALL, 3, 2, 3, 2, "none")],
)  # fmt: skip
def test_pipelines(sizes, stages, virtual, m, rank, policy):
    """Each stage of a rank sends on and back, but the first of all only on, and the last only back; a checkpoint keeps what came, so nothing comes twice."""
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    last = stages * virtual - 1
    sizes = sizes._replace(layers=1)

    def build():
        between, logits = (
            torch.zeros(sizes.batch, sizes.length, width, dtype=BF16, requires_grad=True)
            for width in (sizes.d, sizes.vocabulary)
        )
        parts = []
        for stage in range(rank, last + 1, stages):
            model = wire.recomputed(sizes.program(BF16), policy)
            if stage > 0:
                model.embedding = None
            if stage < last:
                model.norm = model.head = None
            parts.append(pipelining.PipelineStage(
                model, stage, last + 1, torch.device("cpu"), input_args=between if stage else sizes.tokens(), output_args=logits if stage == last else between,
            ))  # fmt: skip
        kind = pipelining.ScheduleInterleaved1F1B if virtual > 1 else pipelining.Schedule1F1B
        schedule = kind(
            parts if virtual > 1 else parts[0], m, loss_fn=lambda out, target: F.cross_entropy(out.flatten(0, 1).float(), target.flatten())
        )  # fmt: skip
        given = [sizes.tokens(m)] if rank == 0 else []
        return lambda: schedule.step(*given, **({"target": sizes.tokens(m)} if rank == stages - 1 else {}))

    layout = Layout(pipeline=stages, virtual=virtual, micro_batch=sizes.batch, zero=0, recompute=policy)
    sizes_of_all = sizes._replace(layers=last + 1)
    message = send(bytes=2 * sizes.batch * sizes.length * sizes.d).sent
    ends = (rank == 0) + (rank == stages - 1)
    assert (
        counted(stages, build, rank) == of_pipeline(sizes_of_all, layout, m, rank) == m * (2 * virtual - ends) * message
    )
    assert sizes_of_all.sent(layout, m)["pipeline"] in {
        of_pipeline(sizes_of_all, layout, m, each) for each in (0, 1, stages - 1)
    }
