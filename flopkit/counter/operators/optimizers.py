"""An optimiser's step in one operator: vector FLOPs for each parameter."""

from __future__ import annotations

from flopkit.counter.calls import Call, extent, name_of, numel, tensors
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise
from flopkit.training.optimizers import ADAM as ADAM_FLOPS

__all__ = ["BY_VALUE"]

ADAM = ("aten::_fused_adam", "aten::_fused_adam_")
ADAMW = ("aten::_fused_adamw", "aten::_fused_adamw_")
SGD = ("aten::_fused_sgd", "aten::_fused_sgd_")
ADAGRAD = ("aten::_fused_adagrad", "aten::_fused_adagrad_")

# Whether there is weight decay, momentum and so on decides, and those are numbers, not shapes.
BY_VALUE = frozenset((*ADAM, *ADAMW, *SGD, *ADAGRAD))


def _step(call: Call, each: int, *states: str) -> Work:
    """*each* FLOPs a parameter; bytes: parameters and states read and written, gradients read (and written back where they are unscaled)."""
    parameters = list(tensors(call["self"]))
    scaled = call.get("grad_scale") is not None
    changed = [parameters, *(list(tensors(call[name])) for name in states)]
    if scaled:
        changed.append(list(tensors(call["grads"])))
    read = {id(t): t for t in call.inputs}
    moved = sum(map(extent, read.values())) + sum(extent(t) for group in changed for t in group)
    unused = (
        () if "max_exp_avg_sqs" not in call.named or "max_exp_avg_sqs" in states else tensors(call["max_exp_avg_sqs"])
    )
    moved -= sum(map(extent, unused))
    return elementwise((each + scaled) * sum(map(numel, parameters)), moved)


@explains(*ADAM, *ADAMW)
def adam(call: Call) -> Work:
    """13 a parameter: first moment 3 (two multiplies, add), second 4 (three multiplies, add), √v/c + ε 3, p − a·m/d 3 (multiply, divide, subtract).

    Weight decay: 2 in Adam (multiply, add to the gradient), 1 in AdamW (multiply the parameter). AMSGrad: a compare. A gradient that
    is unscaled: a division. Not counted: the step's own few numbers, such as the bias corrections.
    """
    decay = (1 if "adamw" in name_of(call.func) else 2) if call["weight_decay"] else 0
    amsgrad = bool(call["amsgrad"])
    states = ["exp_avgs", "exp_avg_sqs"] + (["max_exp_avg_sqs"] if amsgrad else [])
    return _step(call, ADAM_FLOPS + decay + amsgrad, *states)


@explains(*SGD)
def sgd(call: Call) -> Work:
    """2 a parameter: p − a·g. Weight decay 2; momentum 2 (multiply, add; none in the first step, which copies), 1 more for dampening; Nesterov 2."""
    momentum = bool(call["momentum"])
    later = momentum and not call["is_first_step"]
    each = (
        2
        + 2 * bool(call["weight_decay"])
        + later * (2 + bool(call["dampening"]))
        + 2 * (momentum and bool(call["nesterov"]))
    )
    work = _step(call, each, *(["momentum_buffer_list"] if momentum else []))
    if momentum and not later:  # the buffer is only written
        unread = sum(extent(t) for t in tensors(call["momentum_buffer_list"]))
        return elementwise(sum(work.vector.values()), work.bytes - unread)
    return work


@explains(*ADAGRAD)
def adagrad(call: Call) -> Work:
    """7 a parameter: g² summed 2, √s + ε 2, p − a·g/d 3. Weight decay 2."""
    return _step(call, 7 + 2 * bool(call["weight_decay"]), "state_sums")
