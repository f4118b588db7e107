"""After counting nothing is different, however it ended; and counting for a long time takes no more room than counting for a short one."""

from __future__ import annotations

import gc
import itertools
import threading
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import optimizer as optimizers
from torch.utils.checkpoint import checkpoint

import flopkit as fk
from flopkit.counter.watch import autograd, mode, modules, patches

CLASSES = (
    nn.Module,
    nn.Linear,
    threading.Thread,
    ThreadPoolExecutor,
    ThreadPool,
    FakeTensorMode,
    torch.autograd.function.BackwardCFunction,
    torch.autograd.Function,
    torch.optim.Optimizer,
    torch.optim.SGD,
    torch.Tensor,
    torch._C.ScriptFunction,
    torch._C.ScriptMethod,
    torch._C.ScriptModule,
)
MODULES = (
    torch,
    torch._C,
    torch.overrides,
    F,
    torch.autograd,
    torch.autograd.graph,
    torch.utils.checkpoint,
    nn.modules.module,
)
SDPA = "aten::scaled_dot_product_attention"


def contents(owner):
    """What can be called there. (Not every attribute: torch counts the hits of its caches.)"""
    found = {name: getattr(value, "__func__", value) for name, value in vars(owner).items()}
    return {name: same(value) for name, value in found.items() if callable(value) or isinstance(value, property)}


def same(value):
    """What tells whether a function is what it was: itself, and its code."""
    return id(value), id(getattr(value, "__code__", None))


def snapshot(model, optimizer):
    """Whatever a counter might have changed."""
    torch.ones(1)
    return {
        "classes": {kind: contents(kind) for kind in CLASSES},
        "functions": {m.__name__: {n: same(v) for n, v in vars(m).items() if callable(v)} for m in MODULES},
        "global hooks": {n: list(v) for n, v in vars(nn.modules.module).items() if n.startswith("_global_") and v},
        "optimizer hooks": (
            list(optimizers._global_optimizer_pre_hooks),
            list(optimizers._global_optimizer_post_hooks),
            list(optimizer._optimizer_step_pre_hooks),
            list(optimizer._optimizer_step_post_hooks),
        ),
        "optimizer": {name: id(value) for name, value in vars(optimizer).items()},
        "modules": {
            name: (type(m), {n: len(v) if isinstance(v, dict) else repr(v) for n, v in vars(m).items()})
            for name, m in model.named_modules()
        },
        "parameters": {
            name: (p.requires_grad, p._backward_hooks, p._post_accumulate_grad_hooks, vars(p) == {})
            for name, p in model.named_parameters()
        },
        "state": list(model.state_dict()),
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
        "kernels": {
            key: torch._C._dispatch_has_kernel_for_dispatch_key(SDPA, key)
            for key in ("AutogradCPU", "AutogradCUDA", "AutogradMeta", "CPU", "CompositeImplicitAutograd")
        },
        "stance": str(torch._dynamo.eval_frame._stance),
        "threads": threading.active_count(),
        "watching": (mode.thread_states(), patches._users, list(patches._changes._exit_callbacks)),
        "compiler": torch._C._dynamo.eval_frame.get_eval_frame_callback(),
    }


def network():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 8))
    model[2].eval()  # what is in eval mode stays in it
    model[3].weight.requires_grad_(False)
    return model


def run(model, optimizer):
    """A bit of everything."""
    import torch._dynamo

    x = torch.ones(4, 8, requires_grad=True)
    optimizer.zero_grad()
    y = checkpoint(model, x, use_reentrant=False) + checkpoint(model, x, use_reentrant=True)
    F.scaled_dot_product_attention(y[None], y[None], y[None]).sum().backward()
    optimizer.step()
    thread = threading.Thread(target=model, args=(x,))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(model, x).result()
    torch.compile(lambda t: t + 1, backend="eager")(x)
    with FakeTensorMode():
        torch.ones(4, 8) @ torch.ones(8, 8)


@pytest.mark.parametrize("closure", [False, True])
def test_whoever_replaced_the_call_of_a_module_is_still_called(monkeypatch, closure):
    original, called = nn.Module.__call__, []

    def watched(module, *args, **kwargs):
        called.append(type(module).__name__)
        return original(module, *args, **kwargs)

    exec(
        "def plain(module, *args, **kwargs): return watched(module, *args, **kwargs)", {"watched": watched}, made := {}
    )
    replaced = watched if closure else made["plain"]
    monkeypatch.setattr(nn.Module, "__call__", replaced)
    code = replaced.__code__
    report = fk.count(nn.Sequential(nn.Linear(2, 3)), torch.ones(4, 2))
    assert called == ["Sequential", "Linear"]
    assert {row["module"] for row in report.by_module()} == {"", "0"}
    assert nn.Module.__call__ is replaced and replaced.__code__ is code


class Stop(Exception):
    pass


def fails_in_forward(model, optimizer):
    run(model, optimizer)
    handle = model[3].register_forward_pre_hook(lambda *_: fail())
    try:
        model(torch.ones(4, 8))
    finally:
        handle.remove()


def fails_in_backward(model, optimizer):
    y = model(torch.ones(4, 8, requires_grad=True))
    y.register_hook(lambda g: fail())
    y.sum().backward()


def fails_in_a_checkpoint(model, optimizer):
    x = torch.ones(4, 8, requires_grad=True)

    def inside(t):
        if torch._C._current_graph_task_id() != -1:
            fail()
        return model(t)

    checkpoint(inside, x, use_reentrant=True).sum().backward()


def fails_in_the_optimizer(model, optimizer):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step(fail)


def fails_in_attention(model, optimizer):
    F.scaled_dot_product_attention(torch.ones(1, 4, 8), torch.ones(1, 4, 9), torch.ones(1, 4, 8))


def fails_in_fake_mode(model, optimizer):
    with FakeTensorMode():
        fail()


def fails_in_a_pool(model, optimizer):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(fail).result()


def interrupted(model, optimizer):
    model(torch.ones(4, 8))
    raise KeyboardInterrupt


THE_ERROR = Stop("the very same")


def fail(*_):
    raise THE_ERROR


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_is_called_as_before():
    script, x = torch.jit.script(nn.Sequential(nn.Linear(8, 8))), torch.ones(4, 8)
    kinds = (torch._C.ScriptFunction, torch._C.ScriptMethod)
    before = [vars(kind)["__call__"] for kind in kinds]
    with pytest.raises(RuntimeError, match="TorchScript"):
        fk.count(script, torch.ones(4, 3))
    fk.count(script, x)
    assert [vars(kind)["__call__"] for kind in kinds] == before
    torch.testing.assert_close(script(x), script.forward(x))


@pytest.mark.parametrize("times", [1, 3])
def test_nothing_is_left_behind(times):
    import torch._dynamo

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run(model, optimizer)  # what torch does the first time is not our doing
    before = snapshot(model, optimizer)
    for _ in range(times):
        fk.count(run, model, optimizer)
    assert snapshot(model, optimizer) == before


@pytest.mark.parametrize(
    "program",
    [
        fails_in_forward,
        fails_in_backward,
        fails_in_a_checkpoint,
        fails_in_the_optimizer,
        fails_in_attention,
        fails_in_fake_mode,
        fails_in_a_pool,
        interrupted,
    ],
)
def test_an_exception_reaches_the_caller_unchanged_and_nothing_is_left(program):
    import torch._dynamo

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run(model, optimizer)

    def error():
        with pytest.raises(BaseException) as caught:
            program(model, optimizer)
        return caught.value

    plain = error()
    before = snapshot(model, optimizer)
    with pytest.raises(type(plain)) as caught:
        fk.count(program, model, optimizer)
    assert str(caught.value) == str(plain)
    assert caught.value.__cause__ is plain.__cause__
    if isinstance(plain, Stop):
        assert caught.value is THE_ERROR
    assert snapshot(model, optimizer) == before
    with pytest.raises(type(plain)), fk.counting() as report:
        program(model, optimizer)
    assert report.flops >= 0 and repr(report)
    assert snapshot(model, optimizer) == before
    THE_ERROR.__traceback__ = None
    assert fk.count(model, torch.ones(4, 8)).flops == 2 * 2 * 4 * 8 * 8


def test_a_thread_that_ran_is_as_if_nobody_had_watched():
    def ran():
        thread = threading.Thread(target=lambda: torch.ones(2) + 1)
        thread.start()
        thread.join()
        return thread

    found = []
    fk.count(lambda: found.append(ran()))
    assert set(vars(found[0])) == set(vars(ran()))


def test_a_thread_that_does_not_start_is_left_as_it_was():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    before = set(vars(thread))

    def again():
        with pytest.raises(RuntimeError, match="only be started once"):
            thread.start()

    fk.count(again)
    assert set(vars(thread)) == before


def test_a_strict_count_leaves_nothing_either():
    @torch.library.custom_op("traceless::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run(model, optimizer)
    before = snapshot(model, optimizer)
    with pytest.raises(fk.UncountedError):
        fk.count(lambda: (run(model, optimizer), opaque(torch.ones(3))), strict=True)
    assert snapshot(model, optimizer) == before


def test_statistics_move_as_in_a_call_of_ones_own_and_not_on_meta():
    one, two = network(), network()
    two.load_state_dict(one.state_dict())
    x = torch.arange(32.0).reshape(4, 8)
    one(x)
    fk.count(two, x)
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, two.state_dict()[name], msg=name)


def test_the_result_is_that_of_the_program():
    torch.manual_seed(0)
    model, x = network(), torch.rand(4, 8, requires_grad=True)
    model.eval()

    def step():
        x.grad = None
        y = checkpoint(model, x, use_reentrant=False)
        z = F.scaled_dot_product_attention(y[None], y[None], y[None], is_causal=True)
        z.sum().backward()
        return z.detach(), x.grad

    plain = step()
    found = []
    fk.count(lambda: found.extend(step()))
    for mine, theirs in zip(found, plain, strict=True):
        assert torch.equal(mine, theirs)


def test_random_numbers_are_those_of_the_program():
    def draw():
        torch.manual_seed(1)
        return F.dropout(torch.rand(100), 0.5) + nn.Linear(100, 100)(torch.rand(100))

    found = []
    fk.count(lambda: found.append(draw()))
    assert torch.equal(found[0], draw())


def test_the_model_can_be_forgotten_though_the_report_is_kept():
    def counted():
        model = network()
        x = torch.ones(4, 8, requires_grad=True)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step():
            checkpoint(model, x, use_reentrant=False).sum().backward()
            optimizer.step()

        return fk.count(step), [weakref.ref(thing) for thing in (*model.modules(), *model.parameters(), x)]

    report, gone = counted()
    rows = report.by_module().rows
    gc.collect()
    assert [ref for ref in gone if ref() is not None] == []
    assert [row["module"] for row in rows] == ["", "0", "1", "3", "(no module)"]
    assert report.by_module().rows == rows


def test_nothing_outlives_a_step_while_counting():
    with fk.counting() as report:
        model = network()
        x = torch.ones(4, 8, requires_grad=True)
        out = model(x)
        alive = [weakref.ref(x), weakref.ref(out)]
        out.sum().backward()
        del x, out
        gc.collect()
        assert [ref for ref in alive if ref() is not None] == []
    assert report.flops


def training():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones(4, 8)

    def step(loss=nn.MSELoss):
        optimizer.zero_grad()
        y = checkpoint(model, x, use_reentrant=False)
        y = F.scaled_dot_product_attention(y[None], y[None], y[None])[0]
        loss()(y, x).backward()
        optimizer.step()

    return step


def held():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def grown(monkeypatch, steps, warm):
    """Bytes that the counter holds more after *steps* steps: the least of three stretches, for torch's own come and go."""
    monkeypatch.setattr(autograd, "PASSES", 8)
    step = training()
    for _ in range(3):
        step()
    tracemalloc.start()
    try:
        with fk.counting() as report:
            sizes, lines = [], []
            for stretch in (warm, steps, steps, steps):
                for _ in range(stretch):
                    step()
                sizes.append(held())
                lines.append(len(report._source.ledger().calls))
            assert len(set(lines)) == 1
            return min(later - earlier for earlier, later in itertools.pairwise(sizes))
    finally:
        tracemalloc.stop()


def test_more_steps_take_no_more_room(monkeypatch):
    assert grown(monkeypatch, steps=25, warm=25) < 40_000


@pytest.mark.slow
def test_a_thousand_steps_take_no_more_room_than_a_hundred(monkeypatch):
    assert grown(monkeypatch, steps=500, warm=100) < 40 * 500  # bytes: less than a list keeps of anything in each step


def test_the_timeline_is_bounded():
    somewhere = [modules.Scope("a"), modules.Scope("b")]
    timeline = autograd.AutogradTimeline(0, somewhere[0])
    for number in range(autograd.LONGEST_TIMELINE * 2):
        timeline.mark(number, somewhere[number % 2])
    assert len(timeline.numbers) == len(timeline.scopes) <= autograd.LONGEST_TIMELINE
    last = autograd.LONGEST_TIMELINE * 2 - 1
    assert timeline.at(last) is somewhere[last % 2]
    assert timeline.at(0) is None


def test_the_timeline_forgets_what_no_backward_pass_comes_back_to():
    somewhere = [modules.Scope("a"), modules.Scope("b")]
    timeline = autograd.AutogradTimeline(0, somewhere[0])
    number = 0
    for _ in range(autograd.PASSES * 3):  # a graph of 40 marks, and its backward pass
        first = number
        for _ in range(40):
            timeline.mark(number, somewhere[number % 2])
            number += 1
        timeline.lowest = first
        assert all(timeline.at(n) is somewhere[n % 2] for n in range(first, number))
        timeline.end_pass()
    assert len(timeline.numbers) < 40 * autograd.PASSES * 1.5
    assert timeline.at(0) is None


def test_an_old_graph_that_is_come_back_to_keeps_its_modules():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    with fk.counting() as report:
        loss = model(torch.ones(4, 8)).sum()
        for _ in range(500):
            (model(torch.ones(4, 8))).sum().backward()
            loss.backward(retain_graph=True)
    rows = {row["module"]: row["backward"] for row in report.by_module()}
    assert rows["0"] == 1000 * 512 and rows["1"] == 2 * 1000 * 512


def test_many_shapes_share_no_line_and_many_calls_do():
    with fk.counting() as report:
        for n in range(1, 30):
            for _ in range(3):
                torch.ones(n, 4) @ torch.ones(4, 4)
    assert report.flops == sum(3 * 2 * n * 16 for n in range(1, 30))
    assert sum(row["calls"] for row in report.by_op() if row["operator"] == "mm") == 87


def test_counting_holds_no_memory():
    with fk.counting():
        x = torch.ones(1000)
        storage = torch.multiprocessing.reductions.StorageWeakRef(x.untyped_storage())
        x = x + 1
        gc.collect()
        assert storage.expired()


def test_a_package_beside_torch_is_not_torch():
    """What torch enters in order to find out shapes is no work of the program's. Another package's name may begin like torch's."""
    beside = f"{Path(torch.__file__).parent}tune/program.py"
    space = {"torch": torch, "FakeTensorMode": FakeTensorMode}
    code = "def program():\n    with FakeTensorMode():\n        return torch.ones(2, 3) @ torch.ones(3, 5)\n"
    exec(compile(code, beside, "exec"), space)
    assert fk.count(space["program"]).flops == 2 * 2 * 3 * 5
