"""`simulate_ranks`: one process is a rank of a world of any size, so that a sharded program can be counted on one machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flopkit.sizes import number

__all__ = ["simulate_ranks"]


@contextlib.contextmanager
def simulate_ranks(world: int, *, rank: int = 0) -> Iterator[None]:
    """Inside the block this process is one rank of *world*, as seen by ``torch.distributed``, and tensors have shapes but no numbers.

    A model that is built and sharded there, by FSDP2, HSDP, DDP, tensor, sequence, expert or pipeline parallelism, takes no memory,
    and `flopkit.count` tells what a step asks of one rank: FLOPs, bytes, and in `Report.communication` what it sends. Nothing is
    sent, and nobody answers.

    Parameters
    ----------
    world : int
        How many ranks there are.
    rank : int, optional
        Which of them this process is. It matters where ranks differ: in a pipeline, or where a tensor's rows do not divide.

    Raises
    ------
    TypeError, ValueError
        For a *world* or a *rank* that cannot be.
    RuntimeError
        If ``torch.distributed`` is initialised already, or torch was built without it.
    NotImplementedError
        Inside, from ``context_parallel()``, which finds no kernel for tensors without numbers; from DDP with ``find_unused_parameters``,
        which asks the other ranks; from a stage of a pipeline without its shapes.

    Notes
    -----
    Tensors are PyTorch's fake tensors on the CPU: make the model, its inputs and its optimiser inside of the block. Collectives are those
    that torch takes on a CPU. A program that reads numbers (``.item()``, ``.tolist()``, routing by values) or asks for other ranks' objects
    (``all_gather_object``) ends with torch's error: give splits of an all-to-all as ints. What was made inside is of no use outside: a collective of any group of the block ends there with torch's ``RuntimeError`` (``error_on_collective``). DDP's own all-reduce becomes a communication hook with the same buckets; the first
    step has one bucket, as in torch, and the second is like all later ones. Use it in one thread at a time.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> from torch.distributed.fsdp import fully_shard
    >>> with fk.simulate_ranks(64):
    ...     model = fully_shard(torch.nn.Linear(4096, 4096, bias=False))
    ...     x = torch.ones(16, 4096)
    ...     report = fk.count(lambda: model(x).sum().backward())
    >>> [(row["collective"], row["ranks"], row["sent"]) for row in report.communication]
    [('all-gather', 64, 66060288), ('reduce-scatter', 64, 66060288)]
    """
    world, rank = number("world", world), number("rank", rank, minimum=0)
    if rank >= world:
        raise ValueError(f"rank={rank}: must be below world={world}")
    try:
        import torch.distributed as dist
    except ImportError:
        raise ImportError("simulating ranks needs torch, which is not installed: pip install torch") from None
    if not dist.is_available():
        raise RuntimeError("this torch was built without torch.distributed")
    if dist.is_initialized():
        raise RuntimeError(
            f"torch.distributed is initialised already, as rank {dist.get_rank()} of {dist.get_world_size()}: "
            "torch.distributed.destroy_process_group() ends that"
        )
    from flopkit.simulation import answers

    with answers.simulated(world, rank):
        try:
            yield
        except Exception as error:
            if collective := answers.asks_for_objects(error):
                error.add_note(
                    f"{collective}() brings Python objects from other ranks, and simulated ranks have nobody who would send one. Pass over it "
                    f"here, and put what the others would say in its place."
                )
            elif type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
                error.add_note(
                    "Simulated ranks have tensors without numbers, and this program asks for one. Give sizes and splits as ints."
                )
            raise
