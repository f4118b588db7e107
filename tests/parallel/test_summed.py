"""What tensor-parallel ranks add up: branches side by side once, experts on other ranks not at all. As torch sends it, to the byte."""

from __future__ import annotations

import pytest
import torch
import wire
from on_ranks import WIDE, Scattered, Sizes, counted, mesh

import flopkit as fk
from flopkit.models import Experts, transformer
from flopkit.parallel import Layout, all_gather, step

dist = torch.distributed
pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed"),
    pytest.mark.filterwarnings("ignore"),
]
FOUR_BYTES = {"precision": "fp32", "dispatch_bytes": 4, "combine_bytes": 4, "memory": 1e15}


class Routed(torch.nn.Module):
    """A layer of Megatron-LM's: tokens are divided, attention's place is taken by a branch between a gather and a reduce-scatter, and each rank sends its own
    tokens to the experts, one of which lies on each rank. *shared*: with an expert for every token, which all ranks divide."""

    def __init__(self, d, k, shared):
        super().__init__()
        self.mixer, self.experts = Scattered(d, 8), wire.Experts(d, 8, 1, k, dist.group.WORLD)
        self.shared = Scattered(d, 8) if shared else None

    def forward(self, x):
        x = x + self.mixer(x)
        out = self.experts(x[None])[0]
        return x + (out if self.shared is None else out + self.shared(x))


@pytest.mark.parametrize(
    "ranks, shared, policy, gathers", [(4, False, "none", 5), (4, True, "none", 10), (2, True, "full", 14)]
)
def test_tokens_go_to_experts_from_the_rank_that_has_them(ranks, shared, policy, gathers):
    """What a second layer sends: a gather and a reduce-scatter forward and backward and the gather again, of the mixer and of the shared expert; none of the
    experts that lie on other ranks, whose tokens come and go in four all-to-alls."""
    tokens = WIDE.length * WIDE.batch
    mixture = Experts(experts=ranks, top_k=2, d_ff=8, shared_d_ff=8 * shared)
    layout = Layout(tensor=ranks, expert=ranks, micro_batch=WIDE.batch, recompute=policy)

    def sent(layers):
        model = WIDE._replace(layers=layers).model(experts=mixture)
        return step(model, layout, "dgx-h100", seq=WIDE.length, batch=WIDE.batch, **FOUR_BYTES).sent

    one, two = sent(1), sent(2)
    of_tensor, of_experts = (two[name] - one[name] for name in ("tensor", "expert"))
    assert of_tensor == gathers * all_gather(bytes=4 * tokens * WIDE.d, ranks=ranks).sent

    def build():
        layers = Routed(WIDE.d, 2, shared)
        layers = wire.again(layers) if policy == "full" else layers
        x = torch.ones(tokens // ranks, WIDE.d, requires_grad=True)
        return lambda: (layers(x) * 2).sum().backward()

    assert counted(ranks, build) == of_tensor + of_experts


def test_torchtitan_gathers_the_tokens_of_experts_all_the_same():
    """Its plan for a layer with experts gathers what comes in and scatters what goes out, wherever the experts are: a rank keeps whole inputs."""
    model = transformer(
        name="routed", d_model=64, heads=8, layers=2, vocab=128, experts=Experts(experts=8, top_k=2, d_ff=32)
    )
    found = [
        step(model, Layout(tensor=4, data=2, expert=e, regather="context"), "dgx-h100", seq=16, batch=2).sent["tensor"]
        for e in (1, 8)
    ]
    assert found[0] == found[1] == (2 * 4 + 2) * 2 * 3 / 4 * 2 * 16 * 64


def test_experts_of_ranks_that_have_the_same_tokens_are_refused():
    with pytest.raises(ValueError, match="expert=2 with tensor=2 and sequence=False: .*give sequence=True"):
        step("mixtral-8x7b", Layout(tensor=2, expert=2, sequence=False), "dgx-h100", seq=64, batch=2)


# -- branches side by side -------------------------------------------------------------------------------------------


class SideBySide(torch.nn.Module):
    """Attention and an MLP read the layer's input through one norm (GPT-J), or two (GPT-NeoX), and add up before ranks do."""

    def __init__(self, sizes, norms, on, sequence):
        from torch.distributed.tensor import Partial, Shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(sizes.d) for _ in range(norms))
        self.attention = wire.Attention(sizes.d, sizes.heads, sizes.kv, sizes.size)
        self.mlp = wire.Up(sizes.d, sizes.hidden)
        last = {"output_layouts": Partial(), "use_local_output": False}
        parallelize_module(self, on, {
            **{f"attention.{name}": ColwiseParallel() for name in "qkv"}, "attention.o": RowwiseParallel(**last),
            "mlp.gate": ColwiseParallel(), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(**last),
        })  # fmt: skip
        self.on, self.sequence, self.by_tokens = on, sequence, Shard(1)

    def forward(self, x):
        from torch.distributed.tensor import DTensor, Replicate

        outside = [self.by_tokens if self.sequence else Replicate()]
        inputs = [
            DTensor.from_local(norm(x), self.on, outside, run_check=False).redistribute(placements=[Replicate()])
            for norm in self.norms
        ]
        made = self.attention(inputs[0]) + self.mlp(inputs[-1])
        return x + made.redistribute(placements=outside).to_local()


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("norms, inputs, policy", [("parallel", 1, "none"), ("parallel", 1, "full"), ("parallel-two", 2, "none"), ("parallel-two", 2, "full")])  # fmt: skip
def test_branches_side_by_side_add_up_once(norms, inputs, policy, sequence):
    """Forward one sum; backward one for each input that is not the other's. kingoflolz/mesh-transformer-jax, which trained GPT-J, does so: one psum of what
    both branches make, and one of the gradient of what both read."""
    ranks, sizes = 4, Sizes(d=64, heads=8, kv=8, size=8, hidden=96, length=8, batch=1)
    layout = Layout(tensor=ranks, sequence=sequence, recompute=policy, regather="context")

    def sent(layers):
        block = fk.models.Block(
            mixer=fk.models.Attention(heads=8, kv_heads=8, head_dim=8), mlp=fk.models.MLP(d_ff=96), norms=norms
        )
        model = fk.models.Model(name="beside", d_model=64, vocab=128, blocks=((block, layers),))
        return step(model, layout, "dgx-h100", seq=8, batch=1, **FOUR_BYTES).sent["tensor"]

    def build():
        layer = SideBySide(sizes, inputs, mesh(ranks), sequence)
        run = wire.again(layer) if policy == "full" else layer
        x = torch.ones(1, 8 // ranks if sequence else 8, 64, requires_grad=True)
        return lambda: run(x).sum().backward()

    one_way = 4 * 8 * 64 * 3 / 4  # a gather or a reduce-scatter
    forward = 1 + inputs if sequence else 2
    backward = 1 + inputs if sequence else 2 * inputs
    expected = one_way * (forward * (2 if policy == "full" else 1) + backward)
    assert sent(2) - sent(1) == expected == counted(ranks, build)
