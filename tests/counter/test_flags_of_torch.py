"""What torch keeps of modes at work is as before when counts that overlap are over, in whatever order they end."""

import itertools
import threading

import numpy
import pytest
import torch
from programs import counting_backend
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

import flopkit as fk


class Own(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def flags():
    return {name: value for name, value in vars(_python_dispatch).items() if name.startswith("_is_in")}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_counts_that_overlap(order):
    before = flags()
    assert before
    assert not any(before.values())
    counts = [fk.counting() for _ in order]
    for each in counts:
        each.__enter__()
    for i in order:
        counts[i].__exit__(None, None, None)
    assert flags() == before
    assert not _python_dispatch._get_current_dispatch_mode_stack()


def test_a_mode_of_the_programs_own_that_is_entered_twice_and_stays():
    before, own, count = flags(), Own(), fk.counting()
    count.__enter__()
    with own, own:
        count.__exit__(None, None, None)
        assert _python_dispatch._get_current_dispatch_mode_stack() == [own, own]
        torch.ones(2) + 1
    assert flags() == before


def test_counts_that_overlap_in_two_threads():
    """The one that began first ends first; each stays in its thread."""
    before = flags()
    begun, ended = threading.Event(), threading.Event()

    def other():
        with fk.counting():
            begun.set()
            assert ended.wait(60)

    thread = threading.Thread(target=other)
    with fk.counting():
        thread.start()
        assert begun.wait(60)
    ended.set()
    thread.join()
    assert flags() == before


def test_a_mode_of_fake_tensors_that_outlives_the_count():
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake = FakeTensorMode()
    with fk.counting() as report:
        fake.__enter__()
        torch.ones(2, 3) @ torch.ones(3, 5)
    try:
        assert _python_dispatch._get_current_dispatch_mode_stack() == [fake]
    finally:
        fake.__exit__(None, None, None)
    assert report.flops == 60
    assert not _python_dispatch._get_current_dispatch_mode_stack()


def test_what_is_compiled_afterwards_is_compiled():
    calls = []
    first, second = fk.counting(), fk.counting()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    torch.compile(lambda a: a @ a + 1, backend=counting_backend(calls))(torch.ones(4, 4))
    assert calls == [1]


def in_numpy(graph, inputs):
    """A backend whose kernels no dispatcher sees."""
    return lambda *given: (torch.from_numpy(numpy.zeros((4, 4), "float32")),)


@pytest.mark.parametrize("stance", ["default", "eager_on_recompile"])
def test_what_was_compiled_before_is_seen_whatever_the_program_tells_the_compiler(stance):
    x = torch.ones(4, 4)
    compiled = torch.compile(lambda a: (a.sin() * 2).relu() @ a, backend=in_numpy)
    compiled(x)

    def run():
        with torch.compiler.set_stance(stance):
            compiled(x)

    report = fk.count(run, strict=True)
    assert (report.flops, report.vector_flops) == (128, 3 * 16)
