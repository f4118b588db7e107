"""One small network in every way that torch runs programs, and what each phase of it costs, by hand."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import flopkit as fk

U = 2 * 4 * 8 * 8  # one product: a batch of 4 through 8 × 8
CASES = {}


def case(name, forward=0, backward=0, recompute=0, optimizer=0, model=None):
    """Register a program that gives what is to be run, and what it costs in units of `U`."""

    def register(build):
        assert name not in CASES
        CASES[name] = (build, (forward, backward, recompute, optimizer), forward + backward if model is None else model)
        return build

    return register


def x(grad=False, rows=4):
    return torch.ones(rows, 8, requires_grad=grad)


def linear(**kwargs):
    return nn.Linear(8, 8, **kwargs)


def mlp():
    return nn.Sequential(linear(), nn.GELU(), linear())


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


# -- torch.func ----------------------------------------------------------------------------------------------------


@case("func.grad", 1, 1)
def _():
    w = torch.ones(8, 8)
    return lambda: torch.func.grad(lambda v: (x() @ v).sum())(w)


@case("vjp", 1, 2)
def _():
    w = torch.ones(8, 8)

    def run():
        out, back = torch.func.vjp(torch.mm, x(), w)
        back(out)

    return run


@case("jvp of a product", 3)  # the product, and one for each tangent
def _():
    w = torch.ones(8, 8)
    return lambda: torch.func.jvp(torch.mm, (x(), w), (x(), w))


@case("jvp of a linear layer", 3)
def _():
    w = torch.ones(8, 8)
    return lambda: torch.func.jvp(lambda a, b: F.linear(a, b), (x(), w), (x(), w))


@case("vmap over rows", 1)
def _():
    w = torch.ones(8, 8)
    return lambda: torch.vmap(lambda row: row @ w)(x())


@case("vmap over weights", 3)
def _():
    w = torch.ones(3, 8, 8)
    return lambda: torch.vmap(lambda v: x() @ v)(w)


@case("vmap in chunks", 1)
def _():
    w = torch.ones(8, 8)
    return lambda: torch.vmap(lambda row: w @ row, chunk_size=2)(x())


@case("gradients of each sample", 1, 1)
def _():
    w = torch.ones(8, 8)

    def run():
        torch.vmap(torch.func.grad(lambda v, row: (row @ v).square().sum()), in_dims=(None, 0))(w, x())

    # row @ v is one product; the weight's gradient is an outer product of inner size 1 or a broadcast multiply
    return run


@case("functional_call", 2)
def _():
    m = mlp()
    return lambda: torch.func.functional_call(m, dict(m.named_parameters()), (x(),))


@case("an ensemble", 3 * 2)
def _():
    models = [mlp() for _ in range(3)]
    params, buffers = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    return lambda: torch.vmap(lambda p, b: torch.func.functional_call(base, (p, b), (x(),)))(params, buffers)


# -- ways of calling ------------------------------------------------------------------------------------------------


@case("a partial", 2)
def _():
    import functools

    return functools.partial(mlp(), x())


@case("autocast", 2, 3)
def _():
    m = mlp()

    def run():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = m(x()).float().sum()
        loss.backward()

    return run


@case("two threads", 2 * 2)
def _():
    m = mlp()

    def run():
        threads = [threading.Thread(target=m, args=(x(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


@case("a thread that differentiates", 2, 3)
def _():
    m = mlp()

    def run():
        thread = threading.Thread(target=lambda: m(x()).sum().backward())
        thread.start()
        thread.join()

    return run


@case("cond", 1)
def _():
    w = torch.ones(8, 8)
    return lambda: torch.cond(torch.tensor(True), lambda a: a @ w, lambda a: a @ w @ w, (x(),))


@case("the default device meta", 2, 3)
def _():
    def run():
        torch.set_default_device("meta")
        try:
            mlp()(x()).sum().backward()
        finally:
            torch.set_default_device(None)

    return run


@case("the device meta", 2, 4)
def _():
    def run():
        with torch.device("meta"):
            mlp()(x(True)).sum().backward()

    return run


@case("exported", 2)
def _():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(mlp(), (x(),)).module()
    return lambda: program(x())


@case("compiled, cold", 2, 3)
def _():
    compiled = torch.compile(mlp(), backend="aot_eager")
    return lambda: compiled(x()).sum().backward()


@case("compiled, warm", 2, 3)
def _():
    compiled = torch.compile(mlp(), backend="aot_eager")
    compiled(x()).sum().backward()
    return lambda: compiled(x()).sum().backward()


@case("traced", 2, 3)
def _():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(mlp(), x())
    return lambda: traced(x()).sum().backward()


@case("scripted", 2, 3)
def _():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(mlp())
    return lambda: scripted(x()).sum().backward()


@case("fx", 2, 3)
def _():
    graph = torch.fx.symbolic_trace(mlp())
    return lambda: graph(x()).sum().backward()


@case("parametrised by a norm", 1, 1)
def _():
    m = nn.utils.parametrizations.weight_norm(linear())
    return lambda: m(x()).sum().backward()


@case("saved tensors on hooks", 2, 3)
def _():
    m = mlp()

    def run():
        with torch.autograd.graph.saved_tensors_hooks(lambda a: a, lambda a: a):
            m(x()).sum().backward()

    return run


@case("saved on the CPU", 2, 3)
def _():
    m = mlp()

    def run():
        with torch.autograd.graph.save_on_cpu():
            m(x()).sum().backward()

    return run


@case("anomaly detection", 2, 3)
def _():
    m = mlp()

    def run():
        with warnings.catch_warnings(), torch.autograd.detect_anomaly():
            m(x()).sum().backward()

    return run


@case("a nested count", 2)
def _():
    m = mlp()

    def run():
        assert fk.count(m, x()).flops == 2 * U

    return run


@pytest.mark.filterwarnings(
    "ignore:Anomaly Detection", "ignore:None of the inputs have requires_grad", "ignore::DeprecationWarning"
)
@pytest.mark.parametrize("name", CASES)
def test_phases(name):
    build, phases, model = CASES[name]
    torch.manual_seed(0)
    run = build()
    gc.disable()
    try:
        report = fk.count(run)
    finally:
        gc.enable()
    found = [getattr(report, phase).flops / U for phase in ("forward", "backward", "recompute", "optimizer")]
    assert report.uncounted == []
    assert [n for n, true in zip(found, phases, strict=True) if true is not None] == [
        n for n in phases if n is not None
    ]
    assert report.model_flops == model * U
    assert report.hardware_flops == sum(found) * U
    again = fk.count(build())
    assert (again.model_flops, again.hardware_flops) == (report.model_flops, report.hardware_flops)


# -- sizes ---------------------------------------------------------------------------------------------------------


def test_counts_beyond_64_bits_are_exact():
    n = 10**7 + 1
    a = torch.empty(n, n, device="meta")
    report = fk.count(lambda: a @ a)
    assert report.flops == report.model_flops == 2 * n**3 > 2**63
    assert type(report.flops) is type(report.macs) is type(report.bytes) is int
    assert report.bytes == 4 * 3 * n * n or report.bytes == 4 * 2 * n * n  # the same matrix twice: once read, or twice
    assert f"{2 * n**3:,}" not in repr(report) or repr(report)


# -- nothing stays ---------------------------------------------------------------------------------------------------


def test_models_can_be_copied_and_pickled_afterwards():
    m = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    before = {name: set(vars(part)) for name, part in m.named_modules()}
    keys = list(m.state_dict())
    fk.count(lambda: m(torch.ones(2, 3, 8)).sum().backward())
    assert {name: set(vars(part)) for name, part in m.named_modules()} == before
    assert list(m.state_dict()) == keys
    assert not any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in m.modules())
    copy.deepcopy(m)
    buffer = io.BytesIO()
    torch.save(m.state_dict(), buffer)
    assert pickle.loads(pickle.dumps(m))(torch.ones(2, 3, 8)).shape == (2, 3, 8)
    assert m.training


def snapshot():
    return (
        torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), nn.Module.__call__, F.scaled_dot_product_attention,
        torch.autograd.Function.apply, threading.Thread.start, threading.Thread.run, torch.optim.Optimizer.step, torch.cond,
        len(nn.modules.module._global_forward_hooks), len(nn.modules.module._global_forward_pre_hooks), torch.utils.checkpoint.checkpoint,
        torch.compiler.is_compiling(), torch.is_grad_enabled(),
    )  # fmt: skip


class Wrong(Exception):
    pass


@pytest.mark.parametrize("where", ["forward", "backward", "optimizer", "thread", "nested"])
def test_exceptions_pass_and_leave_nothing(where):
    m = mlp()
    before = snapshot()

    def fail(*args):
        raise Wrong(where)

    def run():
        a = x(True)
        y = m(a)
        if where == "forward":
            fail()
        if where == "backward":
            y.register_hook(fail)
        if where == "nested":
            with fk.counting():
                fail()
        y.sum().backward()
        torch.optim.SGD(m.parameters(), 0.1).step(fail if where == "optimizer" else None)
        if where == "thread":
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(1) as pool:
                pool.submit(fail).result()

    with pytest.raises(Wrong, match=where):
        fk.count(run)
    assert snapshot() == before
    assert fk.count(m, x()).flops == 2 * U
    with pytest.raises(Wrong), fk.counting() as report:
        run()
    assert report.forward.flops >= 2 * U
    assert snapshot() == before


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, StopIteration, GeneratorExit])
def test_other_exceptions(raised):
    def run():
        raise raised

    with pytest.raises(raised):
        fk.count(run)
    assert torch._C._len_torch_dispatch_stack() == 0
