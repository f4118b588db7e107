"""A table of small networks, trained: which gradients are asked for, checkpoints, optimisers; what each phase costs, by hand."""

from __future__ import annotations

import pytest
import torch
from cases import Steps, linear, mlp, x
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

CASES = Steps()
case = CASES.case


# -- gradients that are asked for --------------------------------------------------------------------------------


@case("all of it", 2, 4)
def _():
    m, a = mlp(), x(True)
    return lambda: m(a).sum().backward()


@case("an input without gradient", 2, 3)
def _():
    m = mlp()
    return lambda: m(x()).sum().backward()


@case("the first layer frozen", 2, 1)
def _():
    m = mlp()
    m[0].requires_grad_(False)
    return lambda: m(x()).sum().backward()


@case("the last layer frozen", 2, 2)
def _():
    m = mlp()
    m[2].requires_grad_(False)
    return lambda: m(x()).sum().backward()


@case("all frozen but the input", 2, 2)
def _():
    m, a = mlp().requires_grad_(False), x(True)
    return lambda: m(a).sum().backward()


@case("a bias alone learns", 2, 1)
def _():
    m = mlp().requires_grad_(False)
    m[0].bias.requires_grad_(True)
    return lambda: m(x()).sum().backward()


@case("detached between", 2, 1)
def _():
    m = mlp()
    return lambda: m[2](m[0](x()).detach()).sum().backward()


@case("no_grad within", 2, 1)
def _():
    m = mlp()

    def run():
        with torch.no_grad():
            y = m[0](x())
        m[2](y).sum().backward()

    return run


@case("autograd.grad of the input", 2, 2)
def _():
    m, a = mlp(), x(True)
    return lambda: torch.autograd.grad(m(a).sum(), a)


@case("autograd.grad of one weight", 2, 1)
def _():
    m, a = mlp(), x(True)
    return lambda: torch.autograd.grad(m(a).sum(), m[2].weight)


@case("autograd.grad of the first weight", 2, 2)
def _():
    m, a = mlp(), x(True)
    return lambda: torch.autograd.grad(m(a).sum(), m[0].weight)


@case("backward with inputs", 2, 2)
def _():
    m, a = mlp(), x(True)
    return lambda: m(a).sum().backward(inputs=[m[0].weight])


@case("backward twice with the graph kept", 2, 8)
def _():
    m, a = mlp(), x(True)

    def run():
        loss = m(a).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    return run


@case("accumulated over two batches", 4, 8)
def _():
    m, a = mlp(), x(True)

    def run():
        for _ in range(2):
            m(a).sum().backward()

    return run


@case("one layer called three times", 3, 6)
def _():
    m, a = linear(), x(True)
    return lambda: m(m(m(a))).sum().backward()


@case("two losses of one trunk", 3, 6)
def _():
    trunk, left, right, a = linear(), linear(), linear(), x(True)

    def run():
        y = trunk(a)
        (left(y).sum() + right(y).sum()).backward()

    return run


# gradient of the gradient of a linear layer: w·g needs no product of x, so one forward, one for dL/dx; then of that, one for w
@case("a gradient penalty", 1, 1 + 1)
def _():
    m, a = linear(bias=False), x(True)

    def run():
        (grad,) = torch.autograd.grad((m(a)).sum(), a, create_graph=True)
        grad.square().sum().backward()

    return run


# y = (x·w)²: forward 1; dy/dx: 1 (2y·wᵀ); its square's gradient: through the product (two: of 2y and of w), then of y (two)
@case("double backward", 1, 1 + 2 + 2)
def _():
    w, a = torch.ones(8, 8, requires_grad=True), x(True)

    def run():
        (grad,) = torch.autograd.grad((a @ w).square().sum(), a, create_graph=True)
        grad.square().sum().backward()

    return run


@case("a hook that multiplies", 1, 2 + 1)
def _():
    m, a, w = linear(), x(True), torch.ones(8, 8)
    a.register_hook(lambda grad: grad @ w)
    return lambda: m(a).sum().backward()


@case("a forward hook that multiplies", 2, 4)
def _():
    m, a, w = linear(), x(True), torch.ones(8, 8, requires_grad=True)
    m.register_forward_hook(lambda module, args, out: out @ w)
    return lambda: m(a).sum().backward()


class Twice(torch.autograd.Function):
    """A custom function whose backward makes one product more than its forward."""

    @staticmethod
    def forward(ctx, a, w):
        ctx.save_for_backward(a, w)
        return a @ w

    @staticmethod
    def backward(ctx, grad):
        a, w = ctx.saved_tensors
        return (grad @ w.t()) @ w.t(), a.t() @ grad


@case("a function of one's own", 1, 3)
def _():
    a, w = x(True), torch.ones(8, 8, requires_grad=True)
    return lambda: Twice.apply(a, w).sum().backward()


# -- checkpoints ---------------------------------------------------------------------------------------------------


@case("checkpoint, reentrant", 2, 4, 2)
def _():
    m, a = mlp(), x(True)
    return lambda: checkpoint(m, a, use_reentrant=True).sum().backward()


@case("checkpoint, which stops early", 2, 4, 1)  # the last product is not needed again
def _():
    m, a = mlp(), x(True)
    return lambda: checkpoint(m, a, use_reentrant=False).sum().backward()


@case("checkpoint that does not stop early", 2, 4, 2)
def _():
    m, a = mlp(), x(True)

    def run():
        with torch.utils.checkpoint.set_checkpoint_early_stop(False):
            checkpoint(m, a, use_reentrant=False).sum().backward()

    return run


@case("checkpoints in sequence", 2, 4, 1)  # two segments; the last is not checkpointed
def _():
    m, a = mlp(), x(True)
    return lambda: checkpoint_sequential(m, 2, a, use_reentrant=True).sum().backward()


@case("a checkpoint in a checkpoint", 2, 4, None)
def _():
    m, a = mlp(), x(True)

    def outer(b):
        return m[2](checkpoint(lambda c: m[1](m[0](c)), b, use_reentrant=False))

    return lambda: checkpoint(outer, a, use_reentrant=False).sum().backward()


@case("a selective checkpoint that keeps products", 2, 4, 0)
def _():
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    m, a = mlp(), x(True)

    def keep(ctx, op, *args, **kwargs):
        products = (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
        return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = lambda: create_selective_checkpoint_contexts(keep)
    return lambda: checkpoint(m, a, use_reentrant=False, context_fn=contexts).sum().backward()


@case("a checkpoint that is not differentiated", 2)
def _():
    m, a = mlp(), x(True)
    return lambda: checkpoint(m, a, use_reentrant=False)


# -- optimisers ----------------------------------------------------------------------------------------------------


@case("AdamW", 2, 3)
def _():
    m = mlp()
    optimizer = torch.optim.AdamW(m.parameters())

    def run():
        m(x()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


@case("LBFGS with a closure", 2 * 2, 2 * 3, 0, None)  # its own dot products
def _():
    m = mlp()
    optimizer = torch.optim.LBFGS(m.parameters(), max_iter=2, max_eval=2, tolerance_grad=0, tolerance_change=0)

    def closure():
        optimizer.zero_grad()
        loss = m(x()).square().sum()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


@case("SGD with a closure", 2, 3)
def _():
    m = mlp()
    optimizer = torch.optim.SGD(m.parameters(), 0.1)

    def closure():
        loss = m(x()).sum()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


if hasattr(torch.optim, "Muon"):
    # one matrix, 8 × 8: five steps of three products of 8³ multiply-adds; one product of a batch of 4 is half of one of 8
    @case("Muon", 1, 1, 0, 5 * 3 * 2)
    def _():
        m = linear(bias=False)
        optimizer = torch.optim.Muon(m.parameters())

        def run():
            m(x()).sum().backward()
            optimizer.step()

        return run


@pytest.mark.filterwarnings(
    "ignore:Anomaly Detection", "ignore:None of the inputs have requires_grad", "ignore::DeprecationWarning"
)
@pytest.mark.parametrize("name", CASES)
def test_phases(name):
    CASES.check(name)
