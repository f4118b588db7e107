"""What one step of an optimiser costs: element-wise arithmetic, and the traffic that sets its time."""

from __future__ import annotations

from flopkit.cost import Cost
from flopkit.sizes import Flag, Size, checked, choice
from flopkit.training.memory import PRECISIONS

__all__ = ["adam_step"]

# Element-wise FLOPs a parameter: momentum 3 (subtract, multiply, add), squares 4 (decay; square, weigh, add), denominator 3 (root, divide,
# add), update 3 (divide, multiply, add).
ADAM = 13
DECAY = 1  # multiply the weight


@checked
def adam_step(*, params: Size, precision: str = "mixed", weight_decay: Flag = True) -> Cost:
    """One step of Adam, or of AdamW where there is weight decay, over *params* trained numbers.

    FLOPs: none, there is no product of matrices. Vector FLOPs: 13 a parameter, 14 with *weight_decay*.
    Bytes: gradient, weight and both states are read, weight and both states are written; in mixed precision the weight is the copy in
    fp32, and the 16-bit weight is written besides. That is 28 bytes a parameter for ``"fp32"``, ``"autocast"``, ``"fsdp"`` and ``"mixed"``, 30 for
    ``"mixed-fp32-gradients"`` and ``"mixed-both-gradients"``, 14 for ``"bf16"``.

    Parameters
    ----------
    params : Size
        Trained numbers.
    precision : str, optional
        What is stored for a parameter, as in `Model.train_memory`.
    weight_decay : Flag, optional
        Whether weights decay, as in AdamW.

    Raises
    ------
    ValueError or TypeError
        For a precision that is not known, or a size that is not a whole number of at least 1.

    Notes
    -----
    Not counted: clipping the gradient, which reads all of it once more; unfused, each operator reads and writes its tensors by itself.

    References
    ----------
    Kingma and Ba 2015; Loshchilov and Hutter 2019; the order of operations is torch.optim.Adam's.

    Examples
    --------
    >>> step = adam_step(params=8_030_261_248)
    >>> round(step.bytes / 3.35e12, 4)  # seconds on an H100 SXM, at least
    0.0671
    """
    choice("precision", precision, tuple(PRECISIONS))
    kind = PRECISIONS[precision]
    changed = (kind.master or kind.weight) + 2 * kind.state
    moved = (kind.summed or kind.gradient) + 2 * changed + (kind.weight if kind.master else 0)
    return Cost(
        "adam step", vector_by_kind={"elementwise": params * (ADAM + weight_decay * DECAY)}, bytes=params * moved
    )
