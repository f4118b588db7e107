"""Bytes of operators: each input read once, each output written once, and what is neither read nor written does not count. By hand."""

import pytest
import torch
import torch.nn.functional as F
from cases import t
from torch import nn

import flopkit as fk


def numbers(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def moved(fn, *args, **kwargs):
    with torch.no_grad():
        return fk.count(fn, *args, strict=True, **kwargs).bytes


def moved_backward(fn, *args):
    out = fn(*args)
    gradient = torch.empty_like(out)
    with fk.counting(strict=True) as report:
        torch.autograd.grad(out, [a for a in args if a.requires_grad], gradient)
    return report.backward.bytes


X, Y = numbers(4, 10), numbers(4, 10)  # 160 bytes each
N = 160
MASK = numbers(4, 10, dtype=torch.bool)  # 40 bytes


@pytest.mark.parametrize(
    "bytes, fn",
    [
        # inputs once, outputs once
        (3 * N, lambda: X + Y), (2 * N, lambda: X + X), (2 * N, lambda: X * 2), (2 * N, lambda: torch.addcmul(X, X, X)),
        (3 * N, lambda: torch.addcmul(X, Y, Y)), (3 * N, lambda: torch.cat([X, X])), (4 * N, lambda: torch.cat([X, Y])),
        (3 * N, lambda: torch.stack([X, X])), (2 * N + 40, lambda: X + numbers(10)), (N + 4, lambda: X.sum()),
        (N + 16, lambda: X.sum(1)), (N + 40, lambda: X.sum(0)), (N + 320, lambda: X.to(torch.float64)), (N + 80, lambda: X.to(torch.bfloat16)),
        (0, lambda: X.to(torch.float32)), (3 * N, lambda: torch.lerp(X, Y, 0.5)), (N + 40, lambda: X > 0),
        (2 * N + 40, lambda: X == Y), (N + 16 + 32, lambda: X.max(1)), (2 * N + 8 * 40, lambda: X.sort(1)),
        (N + 12 * (4 + 8), lambda: X.topk(3, 1)),
        # an expanded tensor is what it stands on
        (4 + N, lambda: numbers(1).expand(4, 10).clone(memory_format=torch.contiguous_format)), (4 + 2 * N, lambda: X + numbers(1).expand(4, 10)),
        (40 + 2 * N, lambda: X * numbers(10).expand(4, 10)),
        # views are free
        (0, lambda: X.view(10, 4)), (0, lambda: X.T), (0, lambda: X[1:3, ::2]), (0, lambda: X.chunk(2)), (0, lambda: X.unsqueeze_(0).squeeze_(0)),
        (0, lambda: X.expand(3, 4, 10)), (0, lambda: X.detach()), (0, lambda: torch.empty_like(X)), (0, lambda: X.reshape(2, 20)),
        (2 * N, lambda: X.T.reshape(-1)), (2 * N, lambda: X.T.contiguous()),
        # in place: read and written; what only receives: written
        (2 * N, lambda: X.mul_(2)), (3 * N, lambda: X.add_(Y)), (2 * N, lambda: X.add_(X)), (2 * N, lambda: X.copy_(Y)),
        (40 + N, lambda: X.copy_(numbers(10))), (N, lambda: X.fill_(1)), (N, lambda: X.zero_()), (N, lambda: X.normal_()),
        (N, lambda: X.bernoulli_(0.5)), (2 * N + 40, lambda: X.masked_fill_(MASK, 0)), (2 * N + 40, lambda: X.masked_fill(MASK, 0)),
        (3 * N, lambda: torch.add(X, Y, out=numbers(4, 10))), (2 * N, lambda: torch.exp(X, out=numbers(4, 10))), (2 * N, lambda: torch.exp(X, out=X)),
        # only written
        (N, lambda: numbers(4, 10).fill_(0)), (N, lambda: torch.zeros(4, 10, device="meta")), (N, lambda: torch.zeros_like(X)),
        (N, lambda: torch.rand_like(X)), (N, lambda: X.new_ones(4, 10)), (80, lambda: torch.arange(10, device="meta")),
        (80, lambda: torch.ones_like(X, dtype=torch.bfloat16)),
        # masks and tensors without dimensions
        (40 + 3 * N, lambda: torch.where(MASK, X, Y)), (40 + 2 * N, lambda: torch.where(MASK, X, X)),
        (40 + 2 * N + 4, lambda: torch.where(MASK, X, numbers(()))), (2 * N + 4, lambda: X * numbers(())),
        # lists
        (6 * N, lambda: torch._foreach_mul([X, numbers(4, 10)], [Y, numbers(4, 10)])),
        (4 * N, lambda: torch._foreach_mul([X, Y], [X, Y])), (4 * N, lambda: torch._foreach_mul_([X, Y], 2.0)), (2 * N, lambda: torch._foreach_zero_([X, Y])),
        (4 * N, lambda: torch._foreach_copy_([X, Y], [numbers(4, 10), numbers(4, 10)])),
        (2 * N + 8, lambda: torch._foreach_norm([X, Y])),
        # padding, flips, triangles, one part of a tensor
        (N + 4 * 4 * 12, lambda: F.pad(X, (1, 1))), (2 * N, lambda: X.flip(0)), (2 * N, lambda: X.roll(1)), (2 * N, lambda: X.tril()),
        (N + 3 * N, lambda: X.repeat(3, 1)), (2 * 40, lambda: torch.select_copy(X, 0, 1)), (2 * 80, lambda: torch.slice_copy(X, 0, 0, 2)),
        (N + 3 * N, lambda: torch.expand_copy(X, (3, 4, 10))),
    ],
)  # fmt: skip
def test_bytes(bytes, fn):
    assert moved(fn) == bytes


def test_what_is_passed_twice_is_told_from_two_of_the_same_shape():
    """Shapes that were seen are not looked at again; which tensors are the same must not be lost by that."""
    a, b = numbers(4, 10), numbers(4, 10)
    condition = MASK
    pairs = [
        (lambda: torch.cat([a, b]), lambda: torch.cat([a, a])),
        (lambda: a + b, lambda: a + a),
        (lambda: torch.where(condition, a, b), lambda: torch.where(condition, a, a)),
        (lambda: torch._foreach_mul([a], [b]), lambda: torch._foreach_mul([a], [a])),
        (lambda: torch.addcmul(a, b, numbers(4, 10)), lambda: torch.addcmul(a, b, b)),
    ]
    for two, one in pairs:
        with fk.counting() as report:
            two()
            first = report.bytes
            one()
            assert report.bytes == 2 * first - N
            two()
            assert report.bytes == 3 * first - N


def test_gathers_read_what_they_take():
    table, index = numbers(1000, 10), numbers(6, dtype=torch.int64)
    taken, where = 6 * 40, 6 * 8
    assert moved(F.embedding, index, table) == 2 * taken + where
    assert moved(lambda: table[index]) == 2 * taken + where
    assert moved(lambda: table.index_select(0, index)) == 2 * taken + where
    assert moved(lambda: table.gather(0, index.view(6, 1))) == 2 * 6 * 4 + where
    assert moved(lambda: torch.take(table, index)) == 2 * 6 * 4 + where


def test_scatters_write_what_they_name():
    table, index, rows = numbers(1000, 10), numbers(6, dtype=torch.int64), numbers(6, 10)
    named, where = 6 * 40, 6 * 8
    assert moved(lambda: table.index_copy_(0, index, rows)) == 2 * named + where
    assert moved(lambda: table.index_add_(0, index, rows)) == 3 * named + where  # read, added to, written
    assert moved(lambda: table.index_put_([index], rows)) == 2 * named + where
    assert moved(lambda: table.index_put_([index], rows, accumulate=True)) == 3 * named + where
    assert moved(lambda: table.index_fill_(0, index, 0.0)) == named + where
    assert moved(lambda: table.index_put_([index], numbers(()))) == named + where + 4
    assert (
        moved(lambda: torch.ops.aten.index_put_(table, [None, numbers(3, dtype=torch.int64)], numbers(())))
        == 1000 * 3 * 4 + 3 * 8 + 4
    )
    assert moved(lambda: table.scatter_(0, index.view(6, 1), rows)) == 2 * 6 * 4 + where  # of the rows, one number each
    # A new tensor: the old one is read and the new one written, whole.
    assert moved(lambda: table.index_add(0, index, rows)) == 3 * named + where + 2 * 40_000


def test_what_follows_from_the_data_is_counted_by_the_result():
    x = torch.tensor([0.0, 1.0, 2.0, 0.0])
    with fk.counting() as report:
        x.nonzero()  # 2 of int64
        assert report.bytes == 16 + 16
        torch.ones(4).nonzero()
        assert report.bytes == 32 + 16 + (16 + 32)
    mask = x > 0
    assert moved(lambda: x[mask]) == 4 + 2 * 8  # the mask, two numbers taken
    assert moved(lambda: torch.masked_select(x, mask)) == 16 + 4 + 8
    assert moved(lambda: torch.unique(x)) == 16 + 12


def test_outputs_that_nobody_asked_for():
    """A kernel writes what it writes; what it does not, or only hands on, does not count."""
    image = numbers(2, 3, 8, 8)
    size = 4 * image.numel()
    assert moved(F.max_pool2d, image, 2) == size + size // 4 + 8 * 96
    running = numbers(3), numbers(3)
    assert moved(lambda: F.batch_norm(image, *running)) == 2 * size + 2 * 12  # no statistics are kept
    assert moved(lambda: F.batch_norm(image, *running, training=True)) == 2 * size + 4 * 12 + 2 * 12
    assert moved(torch.native_dropout, X, 0.5, True) == 2 * N + 40


def test_backward_reads_what_it_needs():
    image = numbers(2, 3, 8, 8).requires_grad_()
    size, small = 4 * image.numel(), image.numel()
    assert moved_backward(lambda x: F.avg_pool2d(x, 2), image) == small + size  # the input's shape is enough
    assert moved_backward(lambda x: F.max_pool2d(x, 2), image) == small + 8 * 96 + size
    assert moved_backward(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), image) == 4 * 600 + size
    assert moved_backward(lambda x: F.interpolate(x, scale_factor=2), image) == 4 * size + size
    x = numbers(4, 10).requires_grad_()
    assert moved_backward(torch.relu, x) == 3 * N  # gradient, result, gradient
    answers = numbers(4, dtype=torch.int64)
    # The gradient of a mean, the answers, how many there were; a gradient of log-probabilities.
    assert moved_backward(lambda x: F.nll_loss(x, answers), x) == 4 + 32 + 4 + N
    w, b = numbers(10).requires_grad_(), numbers(10).requires_grad_()
    statistics = 2 * 16
    assert moved_backward(lambda x, w, b: F.layer_norm(x, (10,), w, b), x, w, b) == 3 * N + statistics + 40 + 2 * 40
    still = numbers(4, 10)
    assert moved_backward(lambda w, b: F.layer_norm(still, (10,), w, b), w, b) == 2 * N + statistics + 2 * 40
    table = numbers(100, 10).requires_grad_()
    assert moved_backward(lambda w: F.embedding(answers, w), table) == N + 32 + 4000
    # A sum's gradient is one number, seen everywhere: an expanded view.
    assert moved_backward(lambda x: x.sum(), x) == 0


def test_packed_formats_take_whole_bytes():
    byte = numbers(4, 10, dtype=torch.float8_e4m3fn)
    assert moved(lambda: byte.to(torch.bfloat16)) == 40 + 80
    assert moved(lambda: MASK.logical_not()) == 80
    if hasattr(torch, "float4_e2m1fn_x2"):
        packed = numbers(5, dtype=torch.float4_e2m1fn_x2)  # ten numbers, two in a byte
        assert moved(lambda: packed.clone()) == 10


def test_sparse_tensors_are_what_they_hold():
    matrix = torch.eye(4).to_sparse()  # 4 numbers and 2·4 indices
    held = 4 * 4 + 2 * 4 * 8
    assert moved(lambda: matrix.to_dense()) == held + 4 * 16
    assert moved(lambda: matrix * 2) in (2 * held, 2 * 4 * 4)  # of a product by a number the indices may be shared


def test_no_numbers_no_bytes():
    nothing = numbers(0, 10)
    assert moved(lambda: nothing + nothing) == moved(lambda: nothing.relu()) == 0
    assert moved(lambda: torch.cat([nothing, X])) == 2 * N


# -- a table of single operators on the CPU: each input and weight once, each output once; views nothing ----------

IDS = torch.zeros(6, dtype=torch.long)
# fmt: off
BYTES = {
    "mm": (lambda: torch.mm(t(3, 5), t(5, 7)), 4 * (15 + 35 + 21)),
    "mm of halves": (lambda a, b: torch.mm(a, b), 2 * (15 + 35 + 21), t(3, 5, dtype=torch.half), t(5, 7, dtype=torch.half)),
    "mm of doubles": (lambda a, b: torch.mm(a, b), 8 * (15 + 35 + 21), t(3, 5, dtype=torch.double), t(5, 7, dtype=torch.double)),
    "linear": (nn.Linear(5, 7), 4 * (15 + 35 + 7 + 21), t(3, 5)),
    "conv": (nn.Conv2d(3, 5, 3), 4 * (2 * 3 * 64 + 5 * 27 + 5 + 2 * 5 * 36), t(2, 3, 8, 8)),
    "add": (torch.add, 4 * 3 * 15, t(3, 5), t(3, 5)),
    "add, broadcast": (torch.add, 4 * (15 + 5 + 15), t(3, 5), t(5)),
    "add of itself": (lambda a: a + a, 4 * 2 * 15, t(3, 5)),
    "add a number": (lambda a: a + 1, 4 * 2 * 15, t(3, 5)),
    "add in place": (lambda a, b: a.add_(b), 4 * 3 * 15, t(3, 5), t(3, 5)),
    "relu": (torch.relu, 4 * 2 * 15, t(3, 5)),
    "sum": (torch.sum, 4 * (15 + 1), t(3, 5)),
    "clone": (torch.clone, 4 * 2 * 15, t(3, 5)),
    "contiguous that copies": (lambda a: a.t().contiguous(), 4 * 2 * 15, t(3, 5)),
    "contiguous that does not": (lambda a: a.contiguous(), 0, t(3, 5)),
    "cast": (lambda a: a.half(), 15 * (4 + 2), t(3, 5)),
    "cat": (lambda a, b: torch.cat([a, b]), 4 * 2 * 30, t(3, 5), t(3, 5)),
    "zeros": (lambda: torch.zeros(3, 5), 4 * 15),
    "empty": (lambda: torch.empty(3, 5), 0),
    "views": (lambda a: a.view(15).unsqueeze(0).expand(9, 15).t()[2:5].split(1)[0].squeeze().detach(), 0, t(3, 5)),
    "expanded, then read": (lambda a: a.expand(9, 5) + 1, 4 * (5 + 45), t(1, 5)),
    "copy_": (lambda a, b: a.copy_(b), 4 * 2 * 15, t(3, 5), t(3, 5)),
    "where": (torch.where, 15 + 4 * 3 * 15, torch.ones(3, 5, dtype=torch.bool), t(3, 5), t(3, 5)),
    "compare": (torch.gt, 4 * 2 * 15 + 15, t(3, 5), t(3, 5)),
    "embedding": (nn.Embedding(1000, 4), 8 * 6 + 2 * 4 * 6 * 4, IDS),  # only the rows that are asked for
    "gather": (lambda a, i: torch.gather(a, 1, i), 4 * 6 + 8 * 6 + 4 * 6, t(3, 5), torch.zeros(3, 2, dtype=torch.long)),
    "index": (lambda a, i: a[i], 2 * 4 * 30 + 8 * 6, t(3, 5), IDS),
    "nothing": (lambda: None, 0),
}
# fmt: on


@pytest.mark.parametrize("name", BYTES)
def test_bytes_of_single_operators(name):
    fn, moved, *args = BYTES[name]
    report = fk.count(fn, *args)
    if name == "mm":  # its operands are made inside: written once
        moved += 4 * (15 + 35)
    assert report.bytes == moved
    assert report.forward.bytes == report.bytes == sum(row["bytes"] for row in report.by_op())
    assert type(report.bytes) is int
    assert report.intensity == pytest.approx(report.flops / report.bytes if report.bytes else 0)
