"""However a program is run, its model FLOPs are the same: devices, modes, compilers, scripts, control flow, threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import pytest
import torch
import torch.nn.functional as F
from programs import counting_backend
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import flopkit as fk

OLD = torch.__version__ < (2, 7)
UNIT = 2 * 4 * 8 * 8  # a batch of 4 through 8 × 8
W = torch.ones(8, 8)
X = torch.ones(4, 8)


def mlp():
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))


def units(fn, *args, **kwargs):
    report = fk.count(fn, *args, **kwargs)
    assert report.uncounted == []
    assert report.model_flops == report.forward.flops + report.backward.flops
    return report.forward.flops / UNIT, report.backward.flops / UNIT


def product(*_):
    return X @ W


# -- devices and modes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_with_and_without_gradients(context, device):
    model, x = mlp().to(device), X.to(device)

    def run():
        with context():
            model(x)
            F.scaled_dot_product_attention(x[None], x[None], x[None])

    assert units(run) == (2 + 2 * (4 * 4 * 8 * 2) / UNIT, 0)


def test_fake_tensors():
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        model, x = mlp(), torch.ones(4, 8, requires_grad=True)
        assert units(model, x) == (2, 0)
        assert units(lambda: model(x).sum().backward()) == (2, 4)
    assert units(model, x) == (2, 0)

    def entered():
        with mode:
            model(torch.ones(4, 8, requires_grad=True)).sum().backward()

    for _ in range(2):  # the second time torch knows the shapes already
        assert units(entered) == (2, 4)

    def twice():
        with mode, mode:
            model(x)
        model(x)

    assert units(twice) == (4, 0)


def test_shapes_that_torch_makes_up_for_itself_are_no_work():
    import torch._dynamo  # it may be there before

    for strict in (False, True):
        assert units(lambda strict=strict: torch.export.export(mlp(), (X,), strict=strict)) == (0, 0)


@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (2, 0, 8)])
def test_empty_batches(shape):
    x = torch.ones(shape, requires_grad=True)
    n = x.numel() // 8
    model = mlp()
    assert units(lambda: model(x).sum().backward()) == (2 * n / 4, 4 * n / 4)


def test_no_numbers_no_flops():
    report = fk.count(lambda: torch.tensor(2.0) * torch.tensor(3.0))
    assert (report.flops, report.vector_flops) == (0, 1)
    assert fk.count(lambda: torch.ones(3, 0) @ torch.ones(0, 5)).flops == 0
    nothing = fk.count(lambda: None)
    assert (nothing.flops, nothing.bytes, nothing.coverage, nothing.intensity) == (0, 0, 1.0, 0.0)
    assert [row["flops"] for row in nothing.by_module()] == []


def test_lazy_modules():
    lazy = nn.LazyLinear(8)
    assert units(lazy, X) == (1, 0)
    assert not isinstance(lazy, nn.LazyLinear) and units(lazy, X) == (1, 0)


# -- compiled ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [False, True])
def test_a_compiled_function_is_counted_and_stays_compiled(warm):
    calls = []
    compiled = torch.compile(lambda a: (a @ W).relu() @ W, backend=counting_backend(calls))
    if warm:
        compiled(X)
    before = len(calls)
    assert units(compiled, X) == (2, 0)
    assert len(calls) == before  # counted as it was written
    for _ in range(2):
        compiled(X)
    assert len(calls) == before + 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model(backend):
    model = mlp()
    compiled, x = torch.compile(model, backend=backend), X.clone().requires_grad_()
    assert units(lambda: compiled(x).sum().backward()) == (2, 4)
    compiled(x).sum().backward()
    assert units(lambda: compiled(x).sum().backward()) == (2, 4)


def test_a_backward_pass_that_was_compiled_before_is_said_to_be_partly_hidden():
    compiled, x = torch.compile(mlp(), backend="aot_eager"), X.clone().requires_grad_()
    loss = compiled(x).sum()
    report = fk.count(loss.backward)
    assert report.backward.flops == 4 * UNIT
    assert any("compiled before" in note for note in report.notes)
    assert fk.count(lambda: mlp()(x).sum().backward()).notes == []


def test_compiling_inside_of_the_count():
    def run():
        compiled = torch.compile(lambda a: a @ W, backend="aot_eager")
        compiled(X)
        thread = threading.Thread(target=compiled, args=(X,))
        thread.start()
        thread.join()

    assert units(run) == (2, 0)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch 2.9's compiler looks at it where it breaks off
def test_counting_inside_of_what_is_compiled():
    model, calls = mlp(), []

    def block(x):
        x = model(x)
        with fk.counting() as report:
            y = model(model(x))
        return y, report.flops

    def call(x):
        return model(x), fk.count(model, x, strict=True).flops

    for function, flops in ((block, 4 * UNIT), (call, 2 * UNIT)):
        calls.clear()
        compiled = torch.compile(function, backend=counting_backend(calls))
        for _ in range(2):
            y, found = compiled(X)
            assert found == flops
            torch.testing.assert_close(y, function(X)[0])
        assert calls  # what stands beside it is compiled as ever
        said = "torch._dynamo.disable" if OLD else "flopkit counts what runs"  # torch 2.6 gives no reason
        with pytest.raises(Exception, match=said):
            torch.compile(function, backend="eager", fullgraph=True)(X)
    calls.clear()
    torch.compile(model, backend=counting_backend(calls))(X)
    assert calls


@pytest.mark.slow
def test_inductor():
    compiled, x = torch.compile(mlp()), X.clone().requires_grad_()
    try:
        compiled(x).sum().backward()
    except (torch._inductor.exc.InductorError, torch._dynamo.exc.BackendCompilerFailed) as error:
        pytest.skip(f"inductor cannot compile here (no C++ compiler, or a space in torch's path): {str(error)[:80]}")
    assert units(lambda: compiled(x).sum().backward()) == (2, 4)
    loss = compiled(x).sum()
    assert any("compiled before" in note for note in fk.count(loss.backward).notes)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export's own
def test_exported_programs():
    model = mlp()
    program = torch.export.export(model, (X,))
    assert units(program.module(), X) == (2, 0)
    assert units(lambda: program.module()(X).sum().backward()) == (2, 3)
    assert units(program.run_decompositions().module(), X) == (2, 0)


def test_exported_regions():
    torch._dynamo.reset()  # what other tests compiled is not exported again

    class Regions(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x):
            with torch.no_grad():
                y = self.inner(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = self.inner(x)
            return y + z.float() + torch.cond(x.sum() > 0, lambda t: t @ t.t() @ t, lambda t: t + 1, (x,))

    program = torch.export.export(Regions(), (X,))
    assert units(program.module(), X) == (2 + 2 * (2 * 4 * 4 * 8) / UNIT, 0)


# TorchScript is on its way out of torch, and says so.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, X)], ids=["script", "trace"])
def test_torchscript(make):
    model, x = make(mlp()), X.clone().requires_grad_()
    for _ in range(3):  # its executor optimises after the first calls
        assert units(lambda: model(x).sum().backward()) == (2, 4)
    with torch.no_grad():
        for _ in range(3):
            assert units(model, X) == (2, 0)
    assert units(torch.jit.freeze(model.eval()), X) == (2, 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_convolutions_that_pass_no_dispatcher_are_listed():
    conv, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval(), torch.ones(2, 3, 8, 8)
    script = torch.jit.script(conv)
    flops = 2 * 2 * 36 * 4 * 27 + 2 * 2 * 16 * 2 * 36
    assert fk.count(torch.jit.freeze(script), x, strict=True).flops == flops
    fast = torch.jit.optimize_for_inference(script)
    if not fast.graph.findAllNodes("prim::mkldnn_convolution"):
        pytest.skip("torch was built without oneDNN")
    row = {"operator": "prim.mkldnn_convolution", "calls": 2, "bytes": 4 * (x.numel() + 2 * 2 * 4 * 4)}
    for call in (fast, fast.forward, lambda x: nn.Sequential(fast)(x)):
        report = fk.count(call, x)
        assert (report.flops, report.uncounted) == (0, [row]) and report.coverage < 1
        with pytest.raises(fk.UncountedError, match="mkldnn_convolution"):
            fk.count(call, x, strict=True)
    assert fk.count(script, x, strict=True).flops == flops


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::torch.jit.TracerWarning")
def test_tracing_inside_of_the_count():
    deep = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)))
    fixed = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8))).requires_grad_(False)
    for program in (deep, lambda a: F.gelu(fixed(a) @ W)):
        plain = torch.jit.trace(program, (X,), check_trace=False)
        with fk.counting() as report:
            traced = torch.jit.trace(program, (X,))  # checked: it is recorded again, and compared
        assert report.flops > 0
        assert [node.kind() for node in traced.inlined_graph.nodes()] == [n.kind() for n in plain.inlined_graph.nodes()]
        assert units(traced, X) == units(program, X)
    inside = []

    def counts(a):
        inside.append(fk.count(fixed, a).flops)
        return fixed(a)

    torch.jit.trace(counts, (X,))
    assert set(inside) == {2 * UNIT}


# -- control flow ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicate", [True, torch.tensor(True)])
def test_cond_counts_the_branch_that_is_taken(predicate):
    x = X.clone().requires_grad_()
    taken = []

    def branch(t):
        taken.append(1)
        return t @ W

    assert units(lambda: torch.cond(predicate, lambda t: t @ W @ W, branch, (x,))) == (2, 0)
    assert not taken
    other = not predicate if predicate is True else ~predicate
    assert units(lambda: torch.cond(other, lambda t: t @ W @ W, branch, (x,)).sum().backward()) == (1, 1)
    assert len(taken) == 1


def test_loops():
    from torch._higher_order_ops import while_loop

    found = []

    def three(x):
        found.append(while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t @ W), (torch.tensor(0), x)))

    assert units(three, X) == (3, 0)
    torch.testing.assert_close(found[0][1], X @ W @ W @ W)


def test_scan_and_map_are_listed():
    scan = pytest.importorskip("torch._higher_order_ops.scan").scan
    mapped = pytest.importorskip("torch._higher_order_ops.map").map
    rows = torch.rand(5, 4, 8)

    def step(carry, row):
        return carry @ W / 8, row * 2

    for name, call in (("scan", lambda: scan(step, X, rows)), ("map_impl", lambda: mapped(lambda x: x @ W, rows))):
        found = []
        report = fk.count(lambda call=call, found=found: found.append(call()))
        assert name in [row["operator"] for row in report.uncounted]
        for one, other in zip(
            torch.utils._pytree.tree_leaves(found[0]), torch.utils._pytree.tree_leaves(call()), strict=True
        ):
            torch.testing.assert_close(one, other)


# -- threads -----------------------------------------------------------------------------------------------------


class Subclass(threading.Thread):
    def run(self):
        product()


def started(make):
    thread = make()
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "make",
    [lambda: threading.Thread(target=product), Subclass, lambda: threading.Timer(0.01, product)],
    ids=["thread", "subclass", "timer"],
)
def test_threads(make):
    assert units(started, make) == (1, 0)


def test_a_thread_within_a_thread():
    def outer():
        product()
        started(lambda: threading.Thread(target=product))

    assert units(started, lambda: threading.Thread(target=outer)) == (2, 0)


def test_a_thread_that_outlives_the_count_leaves_no_mode_at_work():
    """torch compiles nothing while its flag says that one is, which is one flag for all threads."""
    is_watched = torch.utils._python_dispatch.is_in_torch_dispatch_mode
    go, here = threading.Event(), threading.Event()

    def work():
        here.set()
        go.wait(60)

    thread = threading.Thread(target=work)

    def run():
        thread.start()
        here.wait(60)
        product()

    try:
        assert units(run) == (1, 0)
        assert not is_watched()
    finally:
        go.set()
        thread.join()
    assert not is_watched()
    assert units(product) == (1, 0)


def test_pools_that_were_there_before():
    for kind in (ThreadPoolExecutor, ThreadPool):
        pool = kind(2)
        list(pool.map(lambda _: 0, range(4)))  # its threads are there
        with pool:
            assert units(lambda pool=pool: list(pool.map(product, range(7)))) == (7, 0)
            if kind is ThreadPoolExecutor:
                assert units(lambda pool=pool: pool.submit(product).result()) == (1, 0)
            else:
                assert units(lambda pool=pool: pool.apply(product)) == (1, 0)
                assert units(lambda pool=pool: pool.apply_async(product).get()) == (1, 0)
                assert units(lambda pool=pool: list(pool.imap(product, range(3)))) == (3, 0)
                assert units(lambda pool=pool: list(pool.imap_unordered(product, range(3)))) == (3, 0)
                assert units(lambda pool=pool: pool.starmap(torch.mm, [(X, W)] * 3)) == (3, 0)
            pool.close() if kind is ThreadPool else pool.shutdown()


def test_pools_made_inside():
    def run():
        with ThreadPool(2) as pool:
            pool.map(product, range(5))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(product, range(5)))

    assert units(run) == (10, 0)


def test_work_in_threads_belongs_to_the_module_that_started_them():
    class Parallel(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

        def forward(self, x):
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(lambda head: head(x), self.heads))

    rows = fk.count(nn.Sequential(Parallel()), X).by_module()
    assert {row["module"]: row["flops"] / UNIT for row in rows} == {
        "": 2,
        "0": 2,
        "0.heads": 2,
        "0.heads.0": 1,
        "0.heads.1": 1,
    }


def test_a_thread_that_outlives_the_block_is_let_go():
    go, done = threading.Event(), threading.Event()

    def late():
        product()
        done.set()
        go.wait(10)
        product()

    def run():
        thread = threading.Thread(target=late)
        thread.start()
        done.wait(10)
        return thread

    with fk.counting() as report:
        thread = run()
    counted = report.flops
    go.set()
    thread.join()
    assert counted == report.flops == UNIT


class Products(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(8) @ torch.ones(8, 8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a process that has threads is forked
@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_of_data(workers):
    loader = torch.utils.data.DataLoader(Products(), batch_size=4, num_workers=workers)
    # Other processes are not seen: that is where a worker makes its batches.
    assert units(lambda: [batch @ W for batch in loader]) == (2 + (2 * 8 * 8 * 8 / UNIT if not workers else 0), 0)


def test_asyncio():
    async def one():
        await asyncio.sleep(0)
        return product()

    async def both():
        await asyncio.gather(one(), one())
        return await asyncio.to_thread(product)

    assert units(lambda: asyncio.run(both())) == (3, 0)


def test_what_has_not_run_is_not_counted_and_said():
    def generator():
        yield product()

    report = fk.count(generator)
    assert report.flops == 0
    assert any("generator" in note for note in report.notes)

    async def coroutine():
        product()

    async def inside():
        pass

    report = fk.count(coroutine)
    assert report.flops == 0 and any("coroutine" in note for note in report.notes)
    assert fk.count(lambda: list(generator())).notes == []

    for lazy in (lambda: map(product, range(2)), lambda: filter(product, [1]), lambda: [map(product, range(2)), 0]):
        report = fk.count(lazy)
        assert report.flops == 0 and any("map" in note or "filter" in note for note in report.notes)
    for plain in (lambda: iter([product()]), lambda: {"y": product()}, lambda: (product(), 1), lambda: [product()] * 9,
                  lambda: iter({"y": product()}.values()), lambda: reversed([product()])):  # fmt: skip
        report = fk.count(plain)
        assert (report.flops, report.notes) == (UNIT, [])


def test_what_a_pool_has_not_done_yet_is_said():
    go = threading.Event()

    def late():
        go.wait(30)

    def is_said(report, name):
        return any(name in note and "not run to its end" in note for note in report.notes)

    with ThreadPoolExecutor(1) as pool, ThreadPool(1) as other:
        for back in (lambda: pool.submit(late), lambda: [pool.submit(late) for _ in range(2)]):
            assert is_said(fk.count(back), "Future")
        assert is_said(fk.count(lambda: other.apply_async(late)), "ApplyResult")
        assert is_said(fk.count(torch.futures.Future), "Future")
        go.set()

        def waited():
            future = pool.submit(product)
            future.result()
            return future

        report = fk.count(waited)
        assert (report.flops, report.notes) == (UNIT, [])


def test_generators_in_a_block():
    def generator():
        for _ in range(3):
            yield product()

    with fk.counting() as report:
        for _ in generator():
            pass
    assert report.flops == 3 * UNIT


# -- several counts ----------------------------------------------------------------------------------------------


def test_nested_counts_each_see_all_of_theirs():
    with fk.counting() as outer:
        product()
        with fk.counting() as inner:
            product()
            innermost = fk.count(product)
        product()
    assert [r.flops / UNIT for r in (outer, inner, innermost)] == [4, 2, 1]


def test_nested_counts_end_in_any_order():
    one, two = fk.counting(), fk.counting()
    first = one.__enter__()
    product()
    second = two.__enter__()
    product()
    two.__exit__(None, None, None)
    product()
    one.__exit__(None, None, None)
    product()
    assert (first.flops / UNIT, second.flops / UNIT) == (3, 1)


def test_counts_in_several_threads_do_not_see_each_other():
    found = {}
    start = threading.Barrier(4)

    def run(n):
        start.wait()
        with fk.counting() as report:
            for _ in range(10 * n):
                product()
        found[n] = report.flops / UNIT

    threads = [threading.Thread(target=run, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: 10 * n for n in range(1, 5)}


def test_numbers_grow_inside_of_the_block():
    with fk.counting() as report:
        assert report.flops == 0
        for n in range(1, 4):
            product()
            assert report.flops == report.under(fk.conventions.EXACT).flops == n * UNIT
    product()
    assert report.flops == 3 * UNIT


def test_a_thread_that_is_watched_twice_is_counted_once():
    model = nn.Sequential(nn.Linear(8, 8))
    with fk.counting() as report:
        with report._source.mode.on_this_thread():  # a task of a pool, in a thread that is watched itself
            model(X)
        model(X)
    assert report.flops == 2 * UNIT
    assert [row["module"] for row in report.by_module()] == ["", "0"]
