"""Forward, backward, recompute, optimiser: each operator in its own phase, whoever runs it. One product of the layers here is UNIT FLOPs."""

from __future__ import annotations

import functools
import threading

import pytest
import torch
from cases import Product
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import flopkit as fk

UNIT = 2 * 4 * 8 * 8  # a batch of 4 through 8 × 8
PHASES = ("forward", "backward", "recompute", "optimizer")


def units(report):
    assert sum(getattr(report, phase).flops for phase in PHASES) == report.flops == report.hardware_flops
    assert report.model_flops == report.forward.flops + report.backward.flops
    return tuple(getattr(report, phase).flops / UNIT for phase in PHASES)


def mlp(device="cpu"):
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)).to(device)


def data(device="cpu", grad=True):
    return torch.ones(4, 8, device=device, requires_grad=grad)


# -- backward by cases ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_backward_is_twice_forward_where_every_input_needs_a_gradient(device):
    model, x = mlp(device), data(device)
    assert units(fk.count(lambda: model(x).sum().backward())) == (2, 4, 0, 0)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_first_layer_has_no_gradient_of_its_input(device):
    model, x = mlp(device), data(device, grad=False)
    assert units(fk.count(lambda: model(x).sum().backward())) == (2, 3, 0, 0)


def test_frozen_layers():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    model[:2].requires_grad_(False)  # nothing before the third asks for a gradient
    assert units(fk.count(lambda: model(data(grad=False)).sum().backward())) == (4, 3, 0, 0)
    model.requires_grad_(True)
    model[2:].requires_grad_(False)  # the gradient passes through the last two on its way: one product each
    assert units(fk.count(lambda: model(data(grad=False)).sum().backward())) == (4, 2 + 2 + 1, 0, 0)


def test_lora():
    class LoRA(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(8, 8).requires_grad_(False)
            self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    model = nn.Sequential(LoRA(), LoRA())
    thin = 1 / 4  # 4 × 8 × 2
    forward = 2 * (1 + 2 * thin)
    second = 1 + 4 * thin  # through the base once, each adapter twice
    first = 3 * thin  # its input asks for nothing, so neither the base nor the first adapter passes anything on
    assert units(fk.count(lambda: model(data(grad=False)).sum().backward())) == (forward, second + first, 0, 0)


def test_autograd_grad_asks_for_what_it_is_asked():
    model, x = mlp(), data()
    for wanted, products in ((model[2].weight, 1), (x, 2), ((x, model[0].weight), 3), (tuple(model.parameters()), 3)):
        report = fk.count(lambda w=wanted: torch.autograd.grad(model(x).sum(), w))
        assert units(report) == (2, products, 0, 0)


def test_double_backward():
    w = torch.ones(8, 8, requires_grad=True)

    def penalty():
        h = (data() @ w).tanh() @ w  # two products
        (g,) = torch.autograd.grad(h.sum(), w, create_graph=True)  # dW twice, dh once
        g.pow(2).sum().backward()
        # Of the three products: hᵀ·1 gives dh (1); 1·wᵀ gives dw (1); xᵀ·d gives both (2); then x·w gives both (2).

    assert units(fk.count(penalty)) == (2, 3 + 6, 0, 0)


def test_several_backward_passes():
    model, x = mlp(), data()

    def twice():
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    def accumulated():
        for _ in range(3):
            model(x).sum().backward()

    assert units(fk.count(twice)) == (2, 8, 0, 0)
    assert units(fk.count(accumulated)) == (6, 12, 0, 0)


def test_backward_in_another_thread():
    model, x = mlp(), data()

    def elsewhere():
        loss = model(x).sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()

    report = fk.count(elsewhere)
    assert units(report) == (2, 4, 0, 0)
    assert {row["module"]: row["backward"] / UNIT for row in report.by_module() if row["flops"]} == {
        "": 4,
        "0": 2,
        "2": 2,
    }


def test_backward_alone():
    model, x = mlp(), data()
    loss = model(x).sum()
    assert units(fk.count(loss.backward)) == (0, 4, 0, 0)


def test_hooks_that_compute_belong_to_the_pass_they_run_in():
    model, x, w = mlp(), data(), torch.ones(8, 8)

    def on_the_way_back(module, inputs, outputs):
        outputs[0] @ w

    handles = [
        model[0].register_forward_hook(lambda m, i, o: o @ w),
        model[2].register_full_backward_hook(on_the_way_back),
    ]
    # The forward hook's product takes part in the graph (one gradient: w needs none), the backward hook's does not.
    assert units(fk.count(lambda: model(x).sum().backward())) == (3, 4 + 1 + 1, 0, 0)
    for handle in handles:
        handle.remove()

    def tensor_hook():
        y = model(x)
        y.register_hook(lambda g: g @ w)
        y.sum().backward()

    assert units(fk.count(tensor_hook)) == (2, 5, 0, 0)


def test_saved_tensor_hooks_are_no_recomputation():
    model, x, eye = mlp(), data(), torch.eye(8)

    def packed():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t @ eye if t.shape == (4, 8) else t):
            loss = model(x).sum()
        loss.backward()

    # Saved of this shape: the input of each linear layer, and of the GELU.
    assert units(fk.count(packed)) == (2, 4 + 3, 0, 0)


# -- functional transforms ---------------------------------------------------------------------------------------


def test_func_transforms():
    w, v = torch.ones(8, 8), torch.ones(8)
    mv = 2 * 8 * 8

    def flops(fn):
        report = fk.count(fn)
        assert not report.recompute.flops and not report.optimizer.flops
        return report.forward.flops // mv, report.backward.flops // mv

    def f(a):
        return (w @ a).tanh().sum()

    assert flops(lambda: torch.func.grad(f)(v)) == (1, 1)
    assert flops(lambda: torch.func.vjp(lambda a: w @ a, v)[1](v)) == (1, 1)
    assert flops(lambda: torch.func.jacrev(lambda a: w @ a)(v)) == (1, 8)
    assert flops(lambda: torch.func.vmap(lambda a: w @ a)(torch.ones(5, 8))) == (5, 0)
    assert flops(lambda: torch.func.vmap(torch.func.grad(f))(torch.ones(5, 8))) == (5, 5)


# -- recomputation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("reentrant", "again"), [(True, 2), (False, 1)], ids=["reentrant", "early stop"])
def test_a_checkpoint_executes_4_or_3_and_a_half_times_its_forward(device, reentrant, again):
    model, x = mlp(device), data(device)
    report = fk.count(lambda: checkpoint(model, x, use_reentrant=reentrant).sum().backward())
    assert units(report) == (2, 4, again, 0)
    assert report.flops / report.forward.flops == (4 if reentrant else 3.5)
    assert report.model_flops == 3 * report.forward.flops
    assert report.recompute.vector_flops > 0  # the GELU
    assert report.recompute.bytes > 0


@pytest.mark.parametrize(("reentrant", "again"), [(True, 5), (False, 3)])
def test_nested_checkpoints(reentrant, again):
    inner, outer, x = mlp(), nn.Linear(8, 8), data()

    def both(t):
        return outer(checkpoint(inner, t, use_reentrant=reentrant))

    # Reentrant: all three again, then the inner two again. Early stop: the inner two to reach the outer's input, then one of them.
    report = fk.count(lambda: checkpoint(both, x, use_reentrant=reentrant).sum().backward())
    assert units(report) == (3, 6, again, 0)


@pytest.mark.parametrize(("reentrant", "again"), [(True, 2), (False, 1)])
def test_checkpoint_sequential(reentrant, again):
    model, x = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))), data()
    report = fk.count(lambda: checkpoint_sequential(model, 2, x, use_reentrant=reentrant).sum().backward())
    assert units(report) == (4, 8, again, 0)  # the last segment is not checkpointed


@pytest.mark.parametrize(("policy", "again"), [(CheckpointPolicy.MUST_SAVE, 0), (CheckpointPolicy.MUST_RECOMPUTE, 1)])
def test_selective_checkpoint(policy, again):
    model, x = mlp(), data()

    def choose(context, op, *args, **kwargs):
        return policy if op == torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, choose)
    report = fk.count(lambda: checkpoint(model, x, use_reentrant=False, context_fn=contexts).sum().backward())
    assert units(report) == (2, 4, again, 0)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_region_without_gradients_is_computed_again_too(reentrant):
    w, x = torch.ones(8, 8, requires_grad=True), data()

    def run(t):
        with torch.no_grad():
            scale = t @ w
        return (t @ w) * scale

    report = fk.count(lambda: checkpoint(run, x, use_reentrant=reentrant).sum().backward())
    assert units(report) == (2, 2, 2, 0)


def test_a_checkpoint_differentiated_twice():
    w, x = torch.ones(8, 8, requires_grad=True), data()

    def penalty():
        y = checkpoint(lambda t: (t @ w).tanh() @ w, x, use_reentrant=False).sum()
        (g,) = torch.autograd.grad(y, w, create_graph=True)
        g.pow(2).sum().backward()

    assert units(fk.count(penalty)) == (2, 9, 2, 0)  # as without a checkpoint, and each pass makes one product again


class Again(torch.autograd.Function):
    """Runs its forward once more in order to differentiate it, under a name that says nothing of it."""

    @staticmethod
    def forward(ctx, run, *args):
        ctx.run = run
        ctx.save_for_backward(*args)
        with torch.no_grad():
            return run(*args)

    @staticmethod
    def backward(ctx, *gradients):
        args = [a.detach().requires_grad_() for a in ctx.saved_tensors]
        with torch.enable_grad():
            out = ctx.run(*args)
        torch.autograd.backward(out, gradients)
        return (None, *[a.grad for a in args])


class CheckpointFunction(Again):
    """As Megatron-LM and DeepSpeed call theirs."""


class CheckpointWithoutGrad(torch.autograd.Function):
    """Known by its name alone: what it makes again it makes without gradients."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x @ w).tanh() @ w

    @staticmethod
    def backward(ctx, g):
        return _plain_backward(ctx, g)


def _plain_backward(ctx, g):
    x, w = ctx.saved_tensors
    return g @ w.t(), x.t() @ g


class Differentiated(torch.autograd.Function):
    """Computes its gradient by differentiating something small, and by a product of its own."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (dx,) = torch.autograd.grad(x @ w.detach(), x, g)
        return dx, x.detach().t() @ g


@pytest.mark.parametrize("function", [Again, CheckpointFunction])
def test_checkpoints_of_other_libraries(function):
    model, x = mlp(), data()
    report = fk.count(lambda: function.apply(model, x).sum().backward())
    assert units(report) == (2, 4, 2, 0)
    rows = {row["module"]: (row["forward"], row["backward"], row["recompute"]) for row in report.by_module()}
    assert rows["0"] == rows["2"] == (UNIT, 2 * UNIT, UNIT)


def test_a_custom_function_that_only_computes_is_backward():
    w, x = torch.ones(8, 8, requires_grad=True), data()
    assert units(fk.count(lambda: Product.apply(x, w).sum().backward())) == (1, 2, 0, 0)
    assert units(fk.count(lambda: Differentiated.apply(x, w).sum().backward())) == (1, 2, 1, 0)


def test_a_custom_function_under_create_graph_is_backward():
    w, x = torch.ones(8, 8, requires_grad=True), data()
    report = fk.count(lambda: torch.autograd.grad(Product.apply(x, w).sum(), (x, w), create_graph=True))
    assert units(report) == (1, 2, 0, 0)


@pytest.mark.parametrize(("reentrant", "again"), [(True, 2), (False, 2)])
def test_a_custom_function_in_a_checkpoint(reentrant, again):
    w, x = torch.ones(8, 8, requires_grad=True), data()

    def run(t):
        return Product.apply(Product.apply(t, w).tanh(), w)

    # No early stop before the last: a custom function saves its tensors only after it ran.
    report = fk.count(lambda: checkpoint(run, x, use_reentrant=reentrant).sum().backward())
    assert units(report) == (2, 4, again, 0)


def test_the_word_checkpoint_in_a_name_is_not_enough():
    model, x = mlp(), data()

    class CheckpointManager:
        def backward(self, loss):
            loss.backward()

        def recompute_fn(self):
            model(x).sum().backward()

    assert units(fk.count(lambda: CheckpointManager().backward(model(x).sum()))) == (2, 4, 0, 0)
    assert units(fk.count(CheckpointManager().recompute_fn)) == (2, 4, 0, 0)


# -- the optimiser -----------------------------------------------------------------------------------------------

optim = torch.optim
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "adamw": lambda p: optim.AdamW(p),
    "foreach": lambda p: optim.AdamW(p, foreach=True),
    "fused": lambda p: optim.AdamW(p, fused=True),
    "single": lambda p: optim.AdamW(p, foreach=False),
    "adagrad": lambda p: optim.Adagrad(p),
    "rmsprop": lambda p: optim.RMSprop(p),
    "amsgrad": lambda p: optim.Adam(p, amsgrad=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimiser_has_a_phase_of_its_own(name):
    model, x = mlp(), data()
    optimizer = OPTIMIZERS[name](model.parameters())

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    step()
    report, plain = fk.count(step), fk.count(lambda: model(x).sum().backward())
    assert units(report) == (2, 4, 0, 0)
    assert report.forward.vector_flops == plain.forward.vector_flops
    # (The gradients of a second pass would be added to those of the first: here they were set to None.)
    numbers = sum(p.numel() for p in model.parameters())
    assert report.optimizer.vector_flops >= 2 * numbers
    assert report.optimizer.bytes >= 3 * 4 * numbers
    assert report.uncounted == []


def test_the_kinds_of_adamw_cost_the_same():
    def flops(**options):
        model = mlp()
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer = optim.AdamW(model.parameters(), **options)
        optimizer.step()
        return fk.count(optimizer.step).optimizer.vector_flops

    assert flops(foreach=True) == flops(foreach=False)


@pytest.mark.skipif(not hasattr(optim, "Muon"), reason="this torch has no Muon")
def test_muons_products_are_the_optimisers():
    w = nn.Parameter(torch.ones(8, 16))
    w.grad = torch.ones(8, 16)
    optimizer = optim.Muon([w])
    report = fk.count(optimizer.step)
    # Five rounds of X·Xᵀ, A·A and B·X with X of 8 × 16.
    assert report.optimizer.flops == report.flops == 5 * (2 * 8 * 16 * 8 + 2 * 8**3 + 2 * 8 * 8 * 16)
    assert report.model_flops == 0


@pytest.mark.parametrize("how", ["position", "keyword"])
def test_a_closure_keeps_its_own_phases(how):
    model, x = mlp(), data()
    optimizer = optim.LBFGS(model.parameters(), max_iter=2, max_eval=2)
    calls = []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss

    report = fk.count(lambda: optimizer.step(closure) if how == "position" else optimizer.step(closure=closure))
    n = len(calls)
    assert n >= 1
    assert units(report)[:3] == (2 * n, 4 * n, 0)
    assert report.optimizer.vector_flops > 0


def test_a_step_inside_of_a_backward_pass():
    model, x = mlp(), data(grad=False)
    optimizers = {p: optim.SGD([p], 0.1) for p in model.parameters()}

    def step(p):
        optimizers[p].step()
        p.grad = None

    handles = [p.register_post_accumulate_grad_hook(step) for p in model.parameters()]
    report = fk.count(lambda: model(x).sum().backward())
    for handle in handles:
        handle.remove()
    plain = fk.count(lambda: model(x).sum().backward())
    assert units(report) == (2, 3, 0, 0)
    assert report.optimizer.vector_flops == 2 * sum(p.numel() for p in model.parameters())  # p += -lr * g
    assert report.backward.vector_flops == plain.backward.vector_flops


def test_an_optimiser_that_asks_for_gradients_itself():
    w = torch.ones(8, 8, requires_grad=True)

    class Newton(optim.Optimizer):
        def __init__(self):
            super().__init__([w], {})

        def step(self, closure=None):
            with torch.enable_grad():
                torch.autograd.grad((data(grad=False) @ w).sum(), w)

    report = fk.count(Newton().step)
    assert units(report) == (0, 0, 0, 2)


def test_an_exception_in_a_step_ends_the_phase():
    model, x = mlp(), data()

    class Broken(optim.Optimizer):
        def __init__(self):
            super().__init__(model.parameters(), {})

        def step(self, closure=None):
            torch.ones(4, 8) @ torch.ones(8, 8)
            raise ZeroDivisionError

    optimizer = Broken()

    def run():
        with pytest.raises(ZeroDivisionError):
            optimizer.step()
        model(x)

    assert units(fk.count(run)) == (2, 0, 0, 1)


def test_an_optimiser_in_an_optimiser():
    model = mlp()
    for p in model.parameters():
        p.grad = torch.ones_like(p)

    class Outer(optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(model.parameters(), {})

        def step(self, closure=None):
            self.inner.step()
            torch.ones(4, 8) @ torch.ones(8, 8)

    report = fk.count(Outer(optim.SGD(model.parameters(), 0.1)).step)
    assert units(report) == (0, 0, 0, 1)
    assert not report.forward.vector_flops and not report.backward.vector_flops


def test_mixed_precision_training():
    model, x = mlp(), data()
    optimizer, scaler = optim.AdamW(model.parameters()), torch.amp.GradScaler("cpu")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    report = fk.count(step)
    assert units(report) == (2, 4, 0, 0)
    assert report.uncounted == []


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_backward_pass_in_autograds_own_thread(reentrant):
    """On a GPU autograd works in threads of its own, which no one starts and which only take the modes along."""
    import _thread

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.scale = mlp(), nn.Parameter(torch.ones(8))

        def forward(self, x):
            return checkpoint(self.body, x, use_reentrant=reentrant)

    model, x = Model(), data()
    watcher = None
    done = threading.Event()

    def engine(y, g):
        with watcher:
            y.backward(g)
        done.set()

    with fk.counting() as report:
        watcher = report._source.mode
        y = model(x)
        _thread.start_new_thread(engine, (y, torch.ones(4, 8)))
        assert done.wait(30)
    again = 2 if reentrant else 1
    assert units(report) == (2, 4, again, 0)
    rows = {row["module"]: tuple(row[phase] / UNIT for phase in PHASES) for row in report.by_module()}
    assert rows["body.0"] == (1, 2, 1, 0)
    assert rows["body.2"] == (1, 2, again - 1, 0)


def test_gradients_that_are_asked_for():
    """Of a node whose first inputs nobody follows, though it runs for a later one, all are taken to be asked for; so are they where no node is known."""
    from flopkit.counter.formulas.attentions import asked

    class Node:
        next_functions = ((None, 0), (None, 0), (None, 0))

    assert asked(Node, 3) == asked(None, 3) == (True, True, True)
    assert asked(type("Short", (), {"next_functions": ((None, 0),)}), 2) == (False, True)


class Deep(torch.autograd.Function):
    """Starts a backward pass in its own, and so on *n* times; the innermost has a product."""

    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        if ctx.n:
            with torch.enable_grad():
                inner = Deep.apply(x.detach().requires_grad_(), ctx.n - 1).sum()
            inner.backward()
        else:
            torch.mm(x.detach(), torch.ones(8, 8))
        return gradient, None


def test_a_backward_pass_in_a_thread_without_python_below():
    """Autograd moves what is nested deep to threads of its own, as it does every backward pass on a GPU: no Python frame called it."""
    x = torch.ones(4, 8, requires_grad=True)
    with fk.counting() as report:
        Deep.apply(x, 80).sum().backward()
    assert units(report) == (0, 1, 0, 0)
