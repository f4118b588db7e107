"""A training step that ranks share in one of six ways, for `strategies`: what it sends,
and that its gradients are those of one process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["STRATEGIES", "strategy"]

STRATEGIES = ("data", "fully_sharded", "fully_sharded_kept", "tensor", "sequence", "pipeline")
"""DDP; FSDP2, and with ``reshard_after_forward=False``; Megatron's tensor parallelism, and
with what is not multiplied divided by tokens; 1F1B."""


def strategy(params: dict[str, Any], device: Any, kind: Any) -> tuple[Any, ...]:
    """One case: the step, the gradients of a weight, what is right, FLOPs and bytes of this
    rank's work, and the bytes that all ranks send."""
    import torch
    from torch import distributed

    from flopkit.counter.running import count

    torch.manual_seed(0)
    net = _network(params["layers"] // params["ranks"] * params["ranks"], params["width"])
    x = torch.randn(1, params["tokens"] * params["ranks"], params["width"])
    plain = copy.deepcopy(net)
    plain(x).square().mean().backward()
    run, weight = _step(params["strategy"], net, x)
    mine = dict(plain.named_parameters())[weight[0]].grad
    run()
    run()  # buckets are put together anew, connections are made
    distributed.barrier()
    before = _written()
    run()
    wrote = _written() - before
    report = count(run)
    ring = sum(row["sent"] for row in report.communication)
    gloo = sum(row["sent"] * (1 + (row["collective"] == "reduce-scatter")) for row in report.communication)
    every = torch.tensor([float(wrote), float(gloo), float(ring)], dtype=torch.float64)
    distributed.all_reduce(every)
    names = ("written", "foretold", "of_a_ring") if before else ("", "foretold", "of_a_ring")
    extra = {name: int(n) for name, n in zip(names, every.tolist(), strict=True) if name}

    def gradients() -> Any:
        found = weight[1].grad
        return found.full_tensor() if hasattr(found, "full_tensor") else found

    return run, gradients, mine.double(), report.flops, report.bytes, extra


def _network(layers: int, width: int) -> Any:
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

        def forward(self, x: Any) -> Any:
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    return nn.Sequential(*(Layer() for _ in range(layers)))


def _step(name: str, net: Any, x: Any) -> tuple[Callable[[], None], tuple[str, Any]]:
    """Forward and backward, shared by *name*, of a loss that all ranks have; and a weight
    whose gradients this rank has, by its name in the whole network."""
    import torch
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    ranks, rank = distributed.get_world_size(), distributed.get_rank()
    if name == "pipeline":
        return _pipeline(net, x, ranks, rank)
    mesh = init_device_mesh("cpu", (ranks,))
    runs = net
    if name == "data":
        runs = torch.nn.parallel.DistributedDataParallel(net)
    elif name.startswith("fully_sharded"):
        for layer in net:
            fully_shard(layer, mesh=mesh, reshard_after_forward=name == "fully_sharded")
        fully_shard(net, mesh=mesh)
    else:
        _by_tensors(net, mesh, sequence=name == "sequence")
    part = x.chunk(ranks, dim=1)[rank] if name == "sequence" else x

    def run() -> None:
        runs.zero_grad()
        out = runs(part)
        (out.square().sum() / x.numel()).backward()

    return run, ("0.down.weight", net[0].down.weight)


def _by_tensors(net: Any, mesh: Any, sequence: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    # What comes between layers are plain tensors: all of them, or with *sequence* this rank's tokens.
    between, whole = (Shard(1) if sequence else Replicate()), Replicate()
    for layer in net:
        plan: dict[str, Any] = {
            "up": ColwiseParallel(input_layouts=whole), "down": RowwiseParallel(output_layouts=between),
        }  # fmt: skip
        if sequence:
            plan["norm"] = SequenceParallel(use_local_output=True)
            plan["up"] = ColwiseParallel(input_layouts=between)
        else:
            entry: dict[str, Any] = {
                "input_layouts": (whole,),
                "desired_input_layouts": (whole,),
                "use_local_output": False,
            }
            parallelize_module(layer.up, mesh, PrepareModuleInput(**entry))
        parallelize_module(layer, mesh, plan)


def _pipeline(net: Any, x: Any, ranks: int, rank: int) -> tuple[Callable[[], None], tuple[str, Any]]:
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    each = len(net) // ranks
    mine = net[rank * each : (rank + 1) * each]
    parts = ranks  # micro-batches, of tokens
    one = x.chunk(parts, dim=1)[0]
    given = torch.zeros_like(one).requires_grad_(rank > 0)
    made = torch.zeros_like(one).requires_grad_()
    stage = PipelineStage(mine, rank, ranks, torch.device("cpu"), input_args=(given,), output_args=(made,))
    schedule = Schedule1F1B(stage, parts, loss_fn=lambda out, target: (out - target).square().mean())
    rows = torch.cat(x.chunk(parts, dim=1))  # a micro-batch is a row of its own
    told: dict[str, Any] = {"target": torch.zeros_like(rows)} if rank == ranks - 1 else {}

    def run() -> None:
        mine.zero_grad()
        schedule.step(*[rows] * (rank == 0), **told)

    return run, (f"{rank * each}.down.weight", mine[0].down.weight)


def _written() -> int:
    """Bytes that this process has written, to sockets too; 0 where the system does not say
    it."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["wchar"])
