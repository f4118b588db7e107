"""What fully sharded data parallelism holds of a model beside a device's share: whole layers, for as long as it computes with them.

The account is that of FSDP2 (``torch.distributed.fsdp.fully_shard`` with ``reshard_after_forward=True``), buffer by buffer, as torch 2.13
allocates them. A group is what one all-gather brings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

from flopkit.arithmetic import Number, is_zero, maximum

__all__ = ["Gathered", "gathered"]


@dataclass(frozen=True)
class Gathered:
    """Parameters that are gathered together, in bytes.

    Parameters
    ----------
    weights : Number
        All of them, in the format in which they are gathered.
    gradients : Number, optional
        The whole gradients of those that are trained, as autograd makes them.
    reduced : Number, optional
        The buffer from which these are summed over the devices and divided, in the format of the sum.
    reached : bool, optional
        Whether the group has a backward pass.
    twice : Number, optional
        Of *gradients*, those of a matrix with two uses: autograd holds both beside their sum.
    late : Number, optional
        Of *gradients*, those that come at the end of the backward pass, with the second use.
    """

    weights: Number
    gradients: Number = 0
    reduced: Number = 0
    reached: bool = True
    twice: Number = 0
    late: Number = 0


def gathered(groups: Iterable[Gathered], held: Gathered | None = None) -> Number:
    """The most bytes at once of gathered weights, of their whole gradients and of the buffers through which both go.

    In the forward pass: what an all-gather has brought, the weights that are copied out of it, and what the one before it has brought, which is
    freed behind that copy. In the backward pass, of a group: its weights and its gradients, what the all-gather of the next one has brought,
    which is started early, and the gradients of the one before, which are being summed; then its own gradients twice, as they are copied
    for their sum.

    Parameters
    ----------
    groups : Iterable[Gathered]
        In the order of the forward pass. Three equal ones in a row say the same as many.
    held : Gathered, optional
        A group that begins and ends the pass, as embedding and head with one matrix do: it stays whole all the time.

    Notes
    -----
    Exact where the first dimension of each tensor, which is divided, is a multiple of the devices: FSDP2 rounds it up.
    Not counted: casts of a device's own share on their way into an all-gather and out of a sum, and buffers of the library beneath
    (NCCL's are some hundred MB).
    With ``reshard_after_forward=False`` all layers stay whole from the forward pass to the backward pass, which is more. With several
    sums under way at once (``set_reduce_scatter_max_input_buffers``), each takes a buffer more.

    References
    ----------
    torch 2.13, torch/distributed/fsdp/_fully_shard: ``_fsdp_param_group.py`` and ``_fsdp_collectives.py``. Zhao et al. 2023 (PyTorch FSDP).

    Examples
    --------
    >>> block, ends = Gathered(10, 10, 20), Gathered(4, 4, 8)
    >>> gathered([ends, block, block, block, ends])  # weights, gradients, the next one's weights, sums in twice the width
    50
    """
    forward = list(groups)
    whole: Number = 0 if held is None else held.weights
    found = [2 * whole]
    for before, each in pairwise([held or Gathered(0), *forward]):
        found.append(whole + before.weights + 2 * each.weights)
    if held is not None:
        whole = whole + held.gradients - held.late
    waiting: Number = 0  # gradients that are being summed
    backward = forward[::-1]
    for each, later in zip(backward, [*backward[1:], Gathered(0)], strict=True):
        if not each.reached:
            break
        found += [
            whole + 2 * each.weights + waiting,
            whole + each.weights + later.weights + each.gradients + waiting,
            whole + (later.weights if later.reached else 0) + each.gradients + each.reduced,
        ]
        waiting = each.reduced
    if held is not None:
        found += [whole + held.late + 2 * held.twice + waiting, held.gradients + held.reduced]
    return reduce(maximum, (each for each in found if not is_zero(each)), 0)
