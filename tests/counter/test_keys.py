"""Calls that look alike and cost different amounts, one after the other: what is remembered of the first is not taken for the second."""

import threading

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import flopkit as fk
from flopkit.counter import formulas, registry
from flopkit.counter.watch import cache


@pytest.fixture
def double():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("op", [lambda i: i / 3, torch.sqrt, lambda i: i * 1.5], ids=["divide", "root", "multiply"])
def test_what_an_integer_becomes_follows_the_default_dtype(double, device, op):
    i = torch.ones(1000, dtype=torch.int64, device=device)
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        with fk.counting() as report:
            found.append((op(i).dtype, report.bytes))
    assert found == [(torch.float32, 8000 + 4000), (torch.float64, 8000 + 8000)]


def test_a_dimension_is_no_scalar():
    x = torch.ones(4, 6, 8, device="meta")
    with fk.counting():
        shapes = [torch.nn.functional.glu(x, dim).shape for dim in (2, -2)]
    assert shapes == [(4, 6, 4), (4, 3, 8)]


def test_true_is_not_one_and_one_is_not_one_point_nought():
    for values in ((True, 1), (1, True)):
        moved = [fk.count(torch.full, (1000,), value).bytes for value in values]
        assert moved == [1000 if value is True else 8000 for value in values]
    small = [torch.ones(1000, dtype=torch.int8)] * 2
    moved = [fk.count(torch._foreach_add, small, scalars).bytes for scalars in ([1, 1], [1, 1.0])]
    assert moved == [1000 + 2 * 1000, 1000 + 1000 + 4000]


def test_how_much_is_packed_follows_the_lengths():
    x = torch.ones(50, 4, 100)
    alone = fk.count(pack_padded_sequence, x, [50, 1, 1, 1]).bytes
    assert fk.count(pack_padded_sequence, x, [50, 50, 50, 50]).bytes > alone
    assert fk.count(pack_padded_sequence, x, [50, 1, 1, 1]).bytes == alone


@torch.library.custom_op("key_tests::kept", mutates_args=("out",))
def kept(out: torch.Tensor, keep: float) -> None:
    out.numpy()[:] = 0


def test_a_float_matters_to_a_formula_of_the_users_also_in_place():
    fk.formula(kept)(lambda out, keep: int(1000 * keep))
    try:
        found = [fk.count(kept, torch.ones(4), keep).flops for keep in (0.5, 0.25, 0.5)]
    finally:
        registry.forget(kept)
    assert found == [500, 250, 500]


def test_a_formula_that_is_registered_while_another_thread_looks_for_one(monkeypatch):
    """The rule that was found before is not kept for later."""
    asked, registered = threading.Event(), threading.Event()

    def slow(func):
        rule = formulas.rule_for(func)
        if "kept" in str(func):
            asked.set()
            assert registered.wait(60)
        return rule

    monkeypatch.setattr(cache, "rule_for", slow)
    thread = threading.Thread(target=lambda: fk.count(kept, torch.ones(4), 0.5))
    thread.start()
    assert asked.wait(60)
    try:
        fk.formula(kept)(lambda out, keep: 10)
        registered.set()
        thread.join()
        assert fk.count(kept, torch.ones(4), 0.5).flops == 10
    finally:
        registry.forget(kept)


def test_a_size_that_nobody_knows_yet_does_not_end_the_program():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with fk.counting() as report, FakeTensorMode(shape_env=ShapeEnv()) as mode:
        x = mode.from_tensor(torch.ones(8))
        found = torch.nonzero(x).reshape(-1)
        found.to(torch.float32).cos()
        torch.ones(2, 3) @ torch.ones(3, 5)
    assert report.flops == 60


class CheckpointedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient @ w.t(), x.t() @ gradient


def test_a_function_is_no_checkpoint_because_its_name_begins_like_one():
    x, w = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    report = fk.count(lambda: CheckpointedLinear.apply(x, w).sum().backward())
    assert (report.forward.flops, report.backward.flops, report.recompute.flops) == (128, 256, 0)
