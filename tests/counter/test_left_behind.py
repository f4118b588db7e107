"""What a count leaves in models and in torch, also where the program fails: nothing."""

from __future__ import annotations

import copy
import io
import pickle
import sys
import threading
from multiprocessing.pool import ThreadPool

import pytest
import torch
import torch.nn.functional as F
from cases import U, mlp, x
from torch import nn

import flopkit as fk


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
        torch.compiler.is_compiling(), torch.is_grad_enabled(), sys.getrecursionlimit(),
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


def test_a_pool_that_takes_its_function_by_name():
    with ThreadPool(1) as pool:
        report = fk.count(lambda: pool.apply_async(func=torch.mm, args=(torch.ones(2, 3), torch.ones(3, 5))).get())
        assert report.flops == 2 * 2 * 3 * 5
        report = fk.count(lambda: list(pool.imap(func=lambda a: a @ a, iterable=[torch.ones(2, 2)])))
    assert report.flops == 2 * 2 * 2 * 2


def test_an_error_of_devices_is_the_program_s_own():
    """What a known shape on meta gives is not made up where a tensor of a real device would not fit."""
    meta, other, real = torch.ones(2, 3, device="meta"), torch.ones(2, 3, device="meta"), torch.ones(2, 3)

    def program():
        meta + other
        return meta + real

    with pytest.raises(RuntimeError, match="meta"):
        program()
    with pytest.raises(RuntimeError, match="meta"):
        fk.count(program)


def test_a_module_loses_what_was_compiled_of_it_while_counting():
    model = mlp()
    model.compile(backend="eager")

    def program(data):
        del model._compiled_call_impl
        return model(data)

    fk.count(program, x())
    assert "_compiled_call_impl" not in vars(model)


def test_a_count_that_cannot_begin_leaves_nothing_changed(monkeypatch):
    from flopkit.counter.watch import patches

    before, start = torch.nn.Module._call_impl, threading.Thread.start

    def fails(changes):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(patches.launches, "install", fails)
        with pytest.raises(KeyboardInterrupt):
            fk.count(torch.nn.Linear(2, 2), torch.ones(1, 2))
    assert (torch.nn.Module._call_impl, threading.Thread.start) == (before, start)
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    assert fk.count(torch.nn.Linear(2, 2, bias=False), torch.ones(1, 2)).flops == 8


class Chain(nn.Module):
    """Calls itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2, bias=False)

    def forward(self, x, levels):
        return x if levels == 0 else self.layer(self(x, levels - 1))


def test_a_program_may_recurse_as_deep_as_uncounted():
    chain, data, limit = Chain(), torch.ones(1, 2), sys.getrecursionlimit()
    with torch.no_grad():
        levels = 50
        while levels:
            try:
                chain(data, levels)
                levels += 10
            except RecursionError:
                break
        levels -= 10
        assert fk.count(chain, data, levels).flops == levels * 2 * 2 * 2
    assert sys.getrecursionlimit() == limit


def test_a_recursion_limit_of_the_program_s_own_stays():
    before = sys.getrecursionlimit()
    try:
        fk.count(sys.setrecursionlimit, before + 7)
        assert sys.getrecursionlimit() == before + 7
    finally:
        sys.setrecursionlimit(before)
