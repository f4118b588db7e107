"""Losses and optimisers' steps: vector FLOPs for each element, each parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flopkit.counter.calls import OpCall, extent, numel, tensors
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise
from flopkit.training.optimizers import ADAM as ADAM_FLOPS

__all__ = ["BY_VALUE", "LOSSES"]

# -- losses: the element's own work, and its sum -------------------------------------------------------------------


_NONE, _MEAN = 0, 1  # torch's numbers for reduction="none" and "mean"

# FLOPs of an element before the reduction, and what they are. The reduction adds one an element, the mean a division.
LOSSES: Mapping[str, tuple[int, str]] = {
    "mse_loss": (2, "(x − y)²: subtract, multiply"),
    "smooth_l1_loss": (5, "subtract, compare, two multiplies, divide"),
    "huber_loss": (4, "subtract, compare, two multiplies"),
    "soft_margin_loss": (3, "log(1 + exp(−x·y)): multiply, exponential, logarithm"),
    "binary_cross_entropy": (
        8,
        "y·log p + (1 − y)·log(1 − p): two logarithms, two compares, subtract, two multiplies, add",
    ),
    "binary_cross_entropy_with_logits": (7, "(1 − y)·x − log σ(x): subtract, multiply, four for log σ, subtract"),
}


def _loss(name: str) -> Callable[[OpCall], Work]:
    def work(call: OpCall) -> Work:
        each, n = LOSSES[name][0], numel(call["self"])
        flops = each + (call.get("weight") is not None) + 4 * (call.get("pos_weight") is not None)
        reduction = int(call["reduction"])
        return elementwise((flops + (reduction != _NONE)) * n + (reduction == _MEAN), call.bytes())

    return work


for _name in LOSSES:
    explains(f"aten::{_name}")(_loss(_name))


@explains("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss(call: OpCall) -> Work:
    """The log-probability of the right answer, picked (a change of sign is free): one add a prediction and, for the mean, a division.

    With class weights also a multiplication and an add, for the sum of the weights. Bytes: the numbers that are picked, the answers,
    the weights that go with them, the results.
    """
    target, weight = call["target"], call["weight"]
    rows, width = numel(target), call["self"].element_size()
    reduction = int(call["reduction"])
    weighted = rows * (2 if reduction != _NONE else 1) if weight is not None else 0
    flops = rows * (reduction != _NONE) + (reduction == _MEAN) + weighted
    moved = rows * width * (1 + (weight is not None)) + extent(target) + sum(map(extent, call.outputs))
    return elementwise(flops, moved)


@explains("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(call: OpCall) -> Work:
    """One number a prediction, divided by how many there are, in a gradient that is otherwise zero. The input itself is not read."""
    target, weight = call["target"], call["weight"]
    rows, width = numel(target), call["self"].element_size()
    flops = rows * ((int(call["reduction"]) == _MEAN) + (weight is not None))
    moved = extent(call["grad_output"]) + extent(target) + extent(call["total_weight"]) + sum(map(extent, call.outputs))
    return elementwise(flops, moved + rows * width * (weight is not None))


@explains("aten::multi_margin_loss")
def multi_margin_loss(call: OpCall) -> Work:
    """max(0, margin − x[y] + x) of each class: subtract, add, compare, add to the sum (and a power where p is 2); a division a row."""
    source = call["self"]
    rows = int(source.shape[0]) if source.dim() > 1 else 1
    each = 4 + (call["p"] != 1) + (call["weight"] is not None)
    return elementwise(each * numel(source) + rows * (1 + (int(call["reduction"]) != _NONE)), call.bytes())


# -- an optimiser's step in one operator ---------------------------------------------------------------------------


ADAM = ("aten::_fused_adam", "aten::_fused_adam_")
ADAMW = ("aten::_fused_adamw", "aten::_fused_adamw_")
SGD = ("aten::_fused_sgd", "aten::_fused_sgd_")
ADAGRAD = ("aten::_fused_adagrad", "aten::_fused_adagrad_")

# Whether there is weight decay, momentum and so on decides, and those are numbers, not shapes.
BY_VALUE = frozenset((*ADAM, *ADAMW, *SGD, *ADAGRAD))


def _step(call: OpCall, each: int, *states: str) -> Work:
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
def adam(call: OpCall) -> Work:
    """13 a parameter: first moment 3 (two multiplies, add), second 4 (three multiplies, add), √v/c + ε 3, p − a·m/d 3 (multiply, divide, subtract).

    Weight decay: 2 in Adam (multiply, add to the gradient), 1 in AdamW (multiply the parameter). AMSGrad: a compare. A gradient that
    is unscaled: a division. Not counted: the step's own few numbers, such as the bias corrections.
    """
    decay = (1 if "adamw" in call.name else 2) if call["weight_decay"] else 0
    amsgrad = bool(call["amsgrad"])
    states = ["exp_avgs", "exp_avg_sqs"] + (["max_exp_avg_sqs"] if amsgrad else [])
    return _step(call, ADAM_FLOPS + decay + amsgrad, *states)


@explains(*SGD)
def sgd(call: OpCall) -> Work:
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
def adagrad(call: OpCall) -> Work:
    """7 a parameter: g² summed 2, √s + ε 2, p − a·g/d 3. Weight decay 2."""
    return _step(call, 7 + 2 * bool(call["weight_decay"]), "state_sums")
