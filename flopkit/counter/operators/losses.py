"""Losses: the element's own work, and its sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flopkit.counter.calls import Call, extent, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise

__all__ = ["LOSSES"]

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


def _loss(name: str) -> Callable[[Call], Work]:
    def work(call: Call) -> Work:
        each, n = LOSSES[name][0], numel(call["self"])
        flops = each + (call.get("weight") is not None) + 4 * (call.get("pos_weight") is not None)
        reduction = int(call["reduction"])
        return elementwise((flops + (reduction != _NONE)) * n + (reduction == _MEAN), call.bytes())

    return work


for _name in LOSSES:
    explains(f"aten::{_name}")(_loss(_name))


@explains("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss(call: Call) -> Work:
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
def nll_loss_backward(call: Call) -> Work:
    """One number a prediction, divided by how many there are, in a gradient that is otherwise zero. The input itself is not read."""
    target, weight = call["target"], call["weight"]
    rows, width = numel(target), call["self"].element_size()
    flops = rows * ((int(call["reduction"]) == _MEAN) + (weight is not None))
    moved = extent(call["grad_output"]) + extent(target) + extent(call["total_weight"]) + sum(map(extent, call.outputs))
    return elementwise(flops, moved + rows * width * (weight is not None))


@explains("aten::multi_margin_loss")
def multi_margin_loss(call: Call) -> Work:
    """max(0, margin − x[y] + x) of each class: subtract, add, compare, add to the sum (and a power where p is 2); a division a row."""
    source = call["self"]
    rows = int(source.shape[0]) if source.dim() > 1 else 1
    each = 4 + (call["p"] != 1) + (call["weight"] is not None)
    return elementwise(each * numel(source) + rows * (1 + (int(call["reduction"]) != _NONE)), call.bytes())
