"""What each rank of `all_reduce`, `strategies` and `wire` runs: ``torchrun … -m flopkit.experiments.ranks
'{"cases": […], …}'``. The first rank writes a line a case."""

from __future__ import annotations

import copy
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

from flopkit.experiments import cards, sharded
from flopkit.layers.products import dense
from flopkit.measuring import checking, protocol
from flopkit.measuring.measurement import Judgement, Measurement
from flopkit.measuring.timers import CudaEvents, WallClock
from flopkit.measuring.workloads import torch_dtype

__all__ = ["Together", "main"]


class Together:
    """A timer whose first rank leads: it tells the others how many calls come next, so
    that all make the same ones."""

    def __init__(self, run: Callable[[], object], control: Any, cuda: bool) -> None:
        import torch

        self.timer = CudaEvents(run, torch) if cuda else WallClock(run)
        self.control = control

    def now(self) -> float:
        return self.timer.now()

    def calls(self, count: int) -> list[float]:
        self._tell(count)
        return self.timer.calls(count)

    def end(self) -> None:
        self._tell(0)

    def follow(self) -> None:
        """Call as often as the first rank says, until it says 0."""
        while count := self._tell(0):
            self.timer.calls(count)

    def _tell(self, count: int) -> int:
        import torch
        from torch import distributed

        said = torch.tensor(count)
        distributed.broadcast(said, 0, group=self.control)
        return int(said)


def main(asked: str) -> None:
    """Measure the cases that are *asked* for, one after the other."""
    import torch
    from torch import distributed

    plan = json.loads(asked)
    cuda = plan["cases"][0]["backend"] == "nccl"
    local = int(os.environ["LOCAL_RANK"])
    if cuda:
        torch.cuda.set_device(local)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // plan["cases"][0]["ranks"]))
    distributed.init_process_group("nccl" if cuda else "gloo")
    control = distributed.new_group(backend="gloo")
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    for params in plan["cases"]:
        make = {"all_reduce": _all_reduce, "step": _step, "wire": _wire, "strategy": sharded.strategy}[params["what"]]
        run, result, right, flops, bytes, extra = make(params, device, torch_dtype(plan["dtype"]))
        run()
        error = float((result().double() - right).norm() / right.norm())
        timer = Together(run, control, cuda)
        if distributed.get_rank():
            timer.follow()
            continue
        timing = protocol.timed(timer, plan["time_budget"])
        timer.end()
        notes = [*timing.unsteady, *["the result is not finite"] * (not math.isfinite(error))]
        tolerance = checking.TOLERANCE[str(torch_dtype(plan["dtype"]))]
        told = Judgement.DISTURBED if timing.disturbed else Judgement.OK
        found = Measurement(
            name=params["what"], device=f"{params['ranks']} ranks over {params['backend']}", flops=flops, bytes=bytes, mfu=None, mbu=None,
            verdict=told if error <= tolerance else Judgement.WRONG, error=error if math.isfinite(error) else None, notes=tuple(notes),
            protocol={"timer": "CUDA events" if cuda else "wall clock", "warm_up_s": timing.warm_up}, **timing.statistics(),
        )  # fmt: skip
        print(json.dumps({**found.record(), "extra": extra}), flush=True)
    distributed.destroy_process_group()


def _normal(seed: int, *shape: int) -> Any:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _averaged(tensor: Any) -> None:
    """All-reduce by the mean, as training needs it; gloo has the sum alone."""
    from torch import distributed

    if distributed.get_backend() == "nccl":
        distributed.all_reduce(tensor, distributed.ReduceOp.AVG)
    else:
        distributed.all_reduce(tensor)
        tensor /= distributed.get_world_size()


def wire_bytes(ranks: int, bytes: int) -> float:
    """Bytes that each rank sends in an all-reduce of a tensor of *bytes*, in a ring:
    ``2·(ranks − 1)/ranks·bytes``.

    >>> wire_bytes(4, 1000)
    1500.0
    """
    return 2 * (ranks - 1) / ranks * bytes


def _all_reduce(params: dict[str, Any], device: Any, kind: Any) -> tuple[Any, ...]:
    """A tensor of *numbers*: each rank has others."""
    import torch
    from torch import distributed

    numbers, ranks = params["numbers"], params["ranks"]
    x = _normal(distributed.get_rank(), numbers).to(device, kind)
    right = torch.stack([_normal(rank, numbers).to(kind).double() for rank in range(ranks)]).mean(0).to(device)
    wire = wire_bytes(ranks, x.nbytes)
    return lambda: _averaged(x), lambda: x, right, 0, wire, {"wire_bytes": wire}


def _wire(params: dict[str, Any], device: Any, kind: Any) -> tuple[Any, ...]:
    """The same over a card of this process's own, at *megabits* a second; ``card_bytes`` is
    what it sends in one call."""
    from torch import distributed

    cards.set_speed(params["megabits"])
    run, result, right, flops, bytes, extra = _all_reduce(params, device, kind)
    found = []
    for call in (run, lambda: None):  # the second: what the barrier sends
        distributed.barrier()
        before = cards.sent()
        call()
        distributed.barrier()
        found.append(cards.sent() - before)
    return (
        run,
        result,
        right,
        flops,
        bytes,
        {**extra, "card_bytes": found[0] - found[1], "burst": cards.burst(params["megabits"])},
    )


def _step(params: dict[str, Any], device: Any, kind: Any) -> tuple[Any, ...]:
    """Forward and backward of a stack of dense layers on a batch of one's own; what is
    right are the gradients of all batches together."""
    import torch
    from torch import distributed

    layers, width, batch, mode, ranks = (params[key] for key in ("layers", "width", "batch", "mode", "ranks"))
    net = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers)))
    for i, weight in enumerate(net.parameters()):
        weight.data = _normal(1000 + i, width, width) / width**0.5
    net.to(device, kind)
    weights = list(net.parameters())
    runs = torch.nn.parallel.DistributedDataParallel(net) if mode == "overlapped" else net

    def gradients(runs: Any, x: Any) -> None:
        runs.zero_grad()
        runs(x).square().mean().backward()

    mine = distributed.get_rank()
    batches = [_normal(rank, batch, width).to(device, kind) for rank in range(ranks)]

    def run() -> None:
        gradients(runs, batches[mine])
        if mode == "after":
            for each in weights:
                _averaged(each.grad)

    def flat(module: Any) -> Any:
        return torch.cat([each.grad.flatten() for each in module.parameters()])

    double = copy.deepcopy(net).double()
    gradients(double, batches[mine].double() if mode == "alone" else torch.cat(batches).double())
    products = 3 * layers - 1  # the first layer's input needs no gradient
    one = dense(tokens=batch, d_in=width, d_out=width, dtype=kind)
    wire = 0.0 if mode == "alone" else wire_bytes(ranks, sum(each.nbytes for each in weights))
    return run, lambda: flat(net), flat(double), products * one.flops, products * one.bytes, {"wire_bytes": wire}


if __name__ == "__main__":
    main(sys.argv[1])
