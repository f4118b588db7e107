"""Counts that overlap in one thread, in whatever order they end: each has what ran while it was open."""

import asyncio
import threading

import torch
import torch.nn.functional as F
from torch import nn

import flopkit as fk

LAYER, X = nn.Linear(8, 8), torch.ones(4, 8)
ONE = 2 * 4 * 8 * 8


def stacks():
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


def test_the_first_ends_first():
    first, second = fk.counting(), fk.counting()
    one = first.__enter__()
    LAYER(X)
    two = second.__enter__()
    LAYER(X)
    first.__exit__(None, None, None)
    LAYER(X)
    with torch.no_grad():  # seen by the function mode: the scores of a kernel
        F.scaled_dot_product_attention(X[None, None], X[None, None], X[None, None])
    second.__exit__(None, None, None)
    LAYER(X)
    assert one.flops == 2 * ONE
    assert two.flops == 2 * ONE + 4 * 4 * 4 * 8
    assert stacks() == (0, 0)


def test_a_mode_of_the_programs_own_that_outlives_a_count():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Theirs(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    count, theirs = fk.counting(), Theirs()
    report = count.__enter__()
    theirs.__enter__()
    X + 1
    count.__exit__(None, None, None)
    X * 2
    theirs.__exit__(None, None, None)
    assert report.vector_flops == 32
    assert [func.overloadpacket for func in seen] == [torch.ops.aten.add, torch.ops.aten.mul]
    assert stacks() == (0, 0)


def test_two_tasks_of_one_loop():
    async def work(calls):
        with fk.counting() as report:
            for _ in range(calls):
                LAYER(X)
                await asyncio.sleep(0)
        return report

    async def both():
        return await asyncio.gather(work(2), work(5))

    short, long = asyncio.run(both())
    # Each counts its thread: while the short one is open, the long one runs as often (once more if it takes its turn before the end).
    assert short.flops in (4 * ONE, 5 * ONE) and long.flops in (6 * ONE, 7 * ONE)
    assert stacks() == (0, 0)


def test_a_generator_that_is_closed_inside_of_another_count():
    def steps():
        with fk.counting() as report:
            while True:
                LAYER(X)
                yield report

    generator = steps()
    inner = next(generator)
    with fk.counting() as outer:
        LAYER(X)
        generator.close()
        LAYER(X)
    assert (inner.flops, outer.flops) == (2 * ONE, 2 * ONE)
    assert stacks() == (0, 0)


def test_an_error_in_the_first_leaves_the_second():
    second = fk.counting()
    try:
        with fk.counting():
            report = second.__enter__()
            raise KeyError
    except KeyError:
        pass
    LAYER(X)
    second.__exit__(None, None, None)
    assert report.flops == ONE and stacks() == (0, 0)


def test_one_inside_of_the_other():
    with fk.counting() as outer:
        X @ X.t()
        assert outer.flops == 256
        with fk.counting() as inner:
            X @ X.t()
        assert (outer.flops, inner.flops) == (512, 256)
        X @ X.t()
    assert (outer.flops, inner.flops) == (768, 256)
    X @ X.t()
    assert (outer.flops, inner.flops) == (768, 256)


def test_one_after_the_other():
    first, second = fk.count(LAYER, X), fk.count(nn.Linear(8, 16), X)
    assert (first.flops, second.flops) == (ONE, 2 * ONE)


def test_a_thread_that_outlives_its_count_enters_a_fake_mode_in_the_next():
    from torch._subclasses import FakeTensorMode

    begin, found = threading.Event(), []

    def late():
        begin.wait(30)
        with FakeTensorMode():
            found.append(LAYER.weight.device.type)

    with fk.counting() as first:
        thread = threading.Thread(target=late)
        thread.start()
    with fk.counting() as second:
        LAYER(X)
        begin.set()
        thread.join(30)
    assert found == ["cpu"] and (first.flops, second.flops) == (0, ONE)
