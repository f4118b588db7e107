"""Small decoders on simulated ranks: what the counter says that a rank sends, where a recorder of torch's dispatch says the same."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import torch
import torch.nn.functional as F
import wire

import flopkit as fk
from flopkit.models import transformer
from flopkit.parallel import step

dist = torch.distributed


@contextlib.contextmanager
def numbers(dtype):
    """Parameters that are made inside are of this format; fake ones cannot change theirs."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Sizes(NamedTuple):
    """A decoder as Llama 3 is built, and the sequences of a micro-batch."""

    layers: int = 1
    d: int = 64
    heads: int = 8
    kv: int = 8
    size: int = 8
    hidden: int = 96
    vocabulary: int = 128
    length: int = 16
    batch: int = 2

    def program(self, dtype=torch.float32):
        with numbers(dtype):
            return wire.Llama(*self[:7])

    def tokens(self, times=1):
        return torch.zeros(self.batch * times, self.length, dtype=torch.long)

    def model(self, **more):
        return transformer(
            name="sizes", d_model=self.d, heads=self.heads, kv_heads=self.kv, head_dim=self.size, layers=self.layers, vocab=self.vocabulary,
            **(more or {"d_ff": self.hidden}),
        )  # fmt: skip

    def sent(self, layout, micro_batches=1, precision="bf16", **more):
        """Bytes of the step that `flopkit.parallel` foretells, by reason."""
        batch = self.batch * micro_batches * layout.data
        model = self.model(**more)
        return step(model, layout, "dgx-h100", seq=self.length, batch=batch, precision=precision, memory=1e15).sent


SMALL, WIDE = Sizes(), Sizes(layers=2, d=128, kv=4, size=16, hidden=160, vocabulary=256, length=8, batch=1)
BF16 = torch.bfloat16


def counted(world, build, rank=0):
    """Bytes that a rank sends in what *build* returns: by the counter, where the recorder says the same of the same run."""
    with fk.simulate_ranks(world, rank=rank):
        run = build()
        with wire.Recorder() as recorder:
            report = fk.count(run)
    assert report.uncounted == [] and wire.totals(report) == recorder.totals()
    return sum(row["sent"] for row in report.communication)


def mesh(*ranks):
    return dist.init_device_mesh("cpu", ranks, mesh_dim_names=("outer", "inner")[-len(ranks) :])


class Scattered(torch.nn.Module):
    """A branch of Megatron-LM's between a gather and a reduce-scatter of tokens. Its input is gathered again in the backward pass: of the first product that
    is all that a checkpoint needs, so the checkpoint sends what Megatron-LM does."""

    def __init__(self, d, hidden):
        super().__init__()
        self.up, self.down = torch.nn.Linear(d, hidden, bias=False), torch.nn.Linear(hidden, d, bias=False)

    def forward(self, x):
        from torch.distributed._functional_collectives import reduce_scatter_tensor_autograd as scatter

        return scatter(self.down(F.silu(wire.again(self.gathered)(x))), "sum", 0, dist.group.WORLD)

    def gathered(self, x):
        from torch.distributed._functional_collectives import all_gather_tensor_autograd as gather

        return self.up(gather(x, 0, dist.group.WORLD))
