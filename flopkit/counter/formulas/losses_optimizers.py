"""Losses and optimisers' steps: vector FLOPs for each element, each parameter."""

from __future__ import annotations

from collections.abc import Mapping

from flopkit.counter.calls import OpCall, extent, numel, tensors
from flopkit.counter.formulas.elementwise import plain
from flopkit.counter.registry import explains
from flopkit.counter.work import COUNTED, Work, elementwise
from flopkit.layers.pointwise import LOGSUMEXP_FLOPS
from flopkit.macs import product
from flopkit.training.optimizers import ADAM, DECAY

_NONE, _MEAN = 0, 1  # torch's numbers for reduction="none" and "mean"

# FLOPs of an element before the reduction, and what they are. The reduction adds one an element, the mean a division.
LOSSES: Mapping[str, tuple[int, str]] = {
    "mse_loss": (2, "(x − y)²: subtract, multiply"),
    "smooth_l1_loss": (5, "subtract, compare, two multiplies, divide"),
    "huber_loss": (4, "subtract, compare, two multiplies"),
    "soft_margin_loss": (3, "log(1 + exp(−x·y)): multiply, exponential, logarithm"),
    "binary_cross_entropy": (8, "y·log p + (1 − y)·log(1 − p): two logarithms, two compares, subtract, two multiplies, add"),
    "binary_cross_entropy_with_logits": (7, "(1 − y)·x − log σ(x): subtract, multiply, four for log σ, subtract"),
}  # fmt: skip


@explains(*LOSSES)
def loss(call: OpCall) -> Work:
    """A row of the table: an operation more for a weight, four for a weight of the positive class."""
    each = LOSSES[plain(call.name)][0] + (call.get("weight") is not None) + 4 * (call.get("pos_weight") is not None)
    reduction = int(call["reduction"])
    return elementwise((each + (reduction != _NONE)) * numel(call["self"]) + (reduction == _MEAN), call.bytes())


@explains("nll_loss_forward nll_loss2d_forward nll_loss_backward nll_loss2d_backward")
def nll_loss(call: OpCall) -> Work:
    """The log-probability of the right answer, picked (a change of sign is free): one add a prediction and, for the mean, a division.

    With class weights also a multiplication and an add, for the sum of the weights. Backward a number for each prediction is divided for
    the mean, and weighed, in a gradient that is otherwise zero. Bytes: the answers, the numbers that are picked and the weights that go
    with them, the results; backward the input itself is not read.
    """
    rows, weighs, reduction = numel(call["target"]), call["weight"] is not None, int(call["reduction"])
    back, adds, mean = "backward" in call.name, reduction != _NONE, reduction == _MEAN
    read = [call["target"], *((call.gradient, call["total_weight"]) if back else ())]
    picked = rows * call["self"].element_size() * (weighs + (not back))
    flops = rows * (mean + weighs) if back else rows * (adds + weighs * (1 + adds)) + mean
    return elementwise(flops, picked + sum(map(extent, [*read, *call.outputs])))


_CHUNKED = "torch_nn::_linear_cross_entropy_batch_chunked"


@explains(_CHUNKED, f"{_CHUNKED}_no_reduction")
def linear_cross_entropy(call: OpCall) -> Work:
    """The product that makes the logits, and the cross-entropy of `flopkit.layers.pointwise`; a bias is an add a logit.

    Reduced, it computes the gradients at once: a product each of input and weight, which are the backward pass's. Of element-wise work a
    gradient takes a multiply a logit, those two besides a multiply and an add a number of the input, the bias's the sums.
    """
    x, classes = call["input"], int(call["linear_weight"].shape[0])
    rows = int(x.shape[0])
    logits, weighs, reduced = rows * classes, call["weight"] is not None, call.get("reduction") is not None
    wanted = [bool(call.get(f"compute_{name}_grad")) for name in ("input", "linear_weight", "linear_bias")]
    macs, products = product(rows, int(x.shape[1]), classes), sum(wanted[:2])
    vector = logits * (LOGSUMEXP_FLOPS + (call["linear_bias"] is not None)) + rows * (3 + weighs + reduced)
    vector += (call.get("reduction") == "mean") + logits * any(wanted)
    vector += 2 * numel(x) * products + (logits + rows) * wanted[2]
    ahead = {"products": macs * products} if products else {}
    return Work(COUNTED, {"products": macs}, ahead=ahead, vector={"elementwise": vector}, bytes=call.bytes())


# An optimiser's step in one operator. Whether there is weight decay, momentum and so on decides, and those are numbers, not shapes.
FUSED = {name: [f"aten::_fused_{name}", f"aten::_fused_{name}_"] for name in ("adam", "adamw", "sgd", "adagrad")}
BY_VALUE = frozenset(name for names in FUSED.values() for name in names)


def _step(call: OpCall, each: int, *states: str, unread: str = "") -> Work:
    """*each* FLOPs a parameter. Bytes: gradients are read, parameters and *states* read and written, but for an *unread* state.

    A gradient that is unscaled takes a division, and is written back.
    """
    scaled = call.get("grad_scale") is not None
    written = ["self", *states, *(["grads"] if scaled else [])]
    moved = sum(map(extent, call.inputs)) + sum(map(extent, tensors([call[name] for name in written])))
    moved -= sum(map(extent, tensors(call.get(unread))))
    return elementwise((each + scaled) * sum(map(numel, call["self"])), moved)


@explains(*FUSED["adam"], *FUSED["adamw"])
def adam(call: OpCall) -> Work:
    """13 a parameter: first moment 3 (two multiplies, add), second 4 (three multiplies, add), √v/c + ε 3, p − a·m/d 3 (multiply, divide, subtract).

    Weight decay: 2 in Adam (multiply, add to the gradient), 1 in AdamW (multiply the parameter). AMSGrad: a compare. A gradient that
    is unscaled: a division. Not counted: the step's own few numbers, such as the bias corrections.
    """
    decay = (DECAY if "adamw" in call.name else 2) if call["weight_decay"] else 0
    maxima, amsgrad = "max_exp_avg_sqs", bool(call["amsgrad"])
    states = ["exp_avgs", "exp_avg_sqs", *([maxima] if amsgrad else [])]
    return _step(call, ADAM + decay + amsgrad, *states, unread="" if amsgrad else maxima)


@explains(*FUSED["sgd"])
def sgd(call: OpCall) -> Work:
    """2 a parameter: p − a·g. Weight decay 2; momentum 2 (multiply, add; none in the first step, which copies), 1 more for dampening; Nesterov 2."""
    decay, momentum, nesterov = (bool(call[name]) for name in ("weight_decay", "momentum", "nesterov"))
    first = bool(call["is_first_step"])  # the momentum is only written
    each = 2 + 2 * decay + (momentum and not first) * (2 + bool(call["dampening"])) + 2 * (momentum and nesterov)
    buffers = "momentum_buffer_list"
    return _step(call, each, *([buffers] if momentum else []), unread=buffers if momentum and first else "")


@explains(*FUSED["adagrad"])
def adagrad(call: OpCall) -> Work:
    """7 a parameter: g² summed 2, √s + ε 2, p − a·g/d 3. Weight decay 2."""
    return _step(call, 7 + 2 * bool(call["weight_decay"]), "state_sums")
