"""A table of the ways in which torch runs a small network, and what each phase takes, by hand."""

from __future__ import annotations

import copy
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from cases import Steps, U, linear, mlp, x
from torch import nn

import flopkit as fk

CASES = Steps()
case = CASES.case


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
def test_a_way_of_running(name):
    CASES.check(name)
