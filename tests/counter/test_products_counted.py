"""Matrix products in every form: K multiply-adds for each result, forward and backward, wherever and however they run."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from programs import PLACES, at, backward, count, leaf, passes, row

import flopkit as fk
from flopkit import tally
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas import products as products_room

sizes = st.integers(0, 6)


def test_a_product_is_what_its_loops_do():
    """Multiplications and additions of the triple loop, the accumulator's start counted as an addition."""
    macs = 0
    for _ in range(5):
        for _ in range(7):
            for _ in range(3):
                macs += 1
    assert fk.count(torch.mm, torch.ones(5, 3), torch.ones(3, 7)).flops == 2 * macs == tally.matmul(m=5, k=3, n=7).flops


@settings(max_examples=20, deadline=None)
@given(m=sizes, k=sizes, n=sizes, place=st.sampled_from(PLACES))
def test_linear_backward_is_twice_forward(m, k, n, place):
    with at(place) as device:
        x, w, b = leaf(m, k, device=device), leaf(n, k, device=device), leaf(n, device=device)
        assert passes(lambda: F.linear(x, w, b)) == (2 * m * k * n, 4 * m * k * n)


@settings(max_examples=15, deadline=None)
@given(batch=st.integers(1, 4), m=sizes, k=st.integers(1, 6), n=sizes, cut=st.integers(0, 6))
def test_a_product_is_linear_in_its_batch_and_can_be_cut(batch, m, k, n, cut):
    whole = fk.count(torch.bmm, torch.ones(batch, m, k), torch.ones(batch, k, n)).flops
    assert whole == batch * fk.count(torch.mm, torch.ones(m, k), torch.ones(k, n)).flops
    a, b, cut = torch.ones(m, k), torch.ones(k, n), min(cut, k)
    parts = fk.count(lambda: a[:, :cut] @ b[:cut] + a[:, cut:] @ b[cut:])
    assert parts.flops * batch == whole


LEADING = ((), (3,), (2, 3), (2, 2, 3))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", LEADING, ids=str)
def test_linear_in_every_form(lead, bias):
    rows = int(torch.tensor(lead).prod())
    for place in PLACES:
        with at(place) as device:
            layer = torch.nn.Linear(4, 5, bias=bias, device=device)
            x = leaf(*lead, 4, device=device)
            assert passes(lambda layer=layer, x=x: layer(x)) == (2 * rows * 4 * 5, 4 * rows * 4 * 5)
            for off in (torch.no_grad, torch.inference_mode):
                with off():
                    assert fk.count(layer, x).flops == 2 * rows * 4 * 5


@pytest.mark.parametrize("freeze", ["x", "weight"])
def test_a_frozen_side_halves_the_backward_pass(freeze):
    x, w = leaf(3, 4, grad=freeze != "x"), leaf(5, 4, grad=freeze != "weight")
    assert passes(lambda: F.linear(x, w)) == (120, 120)


RANKS = [
    ((4,), (3, 4), (2, 3, 4), (5, 2, 3, 4), (1, 3, 4)),
    ((4,), (4, 6), (2, 4, 6), (5, 2, 4, 6), (1, 4, 6), (5, 1, 4, 6)),
]


@pytest.mark.parametrize(("left", "right"), list(itertools.product(*RANKS)), ids=str)
def test_matmul_broadcasts(left, right):
    """Each number of the result takes four multiply-adds. The gradient of the matrix in a matrix times a vector, and of both in a
    dot product, is a broadcast multiply and no contraction; a vector times a matrix torch runs as a matrix of one row."""
    results = (torch.empty(left) @ torch.empty(right)).numel()
    once = 2 * 4 * results
    times = 2 if (len(left), len(right)) == (1, 2) else 2 - (len(left) == 1) - (len(right) == 1)
    for place in PLACES:
        with at(place) as device:
            a, b = leaf(*left, device=device), leaf(*right, device=device)
            assert passes(lambda a=a, b=b: a @ b) == (once, times * once)
            with torch.no_grad():
                assert fk.count(torch.matmul, a, b).flops == once


def _fresh(*shapes):
    return [leaf(*shape) for shape in shapes]


OTHERS = {
    "mm": (lambda a, b: torch.mm(a, b), [(3, 4), (4, 5)], 60, 2),
    "bmm": (lambda a, b: torch.bmm(a, b), [(7, 3, 4), (7, 4, 5)], 420, 2),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b), [(3, 5), (3, 4), (4, 5)], 60, 2),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b), [(7, 3, 5), (7, 3, 4), (7, 4, 5)], 420, 2),
    "addbmm": (lambda c, a, b: torch.addbmm(c, a, b), [(3, 5), (7, 3, 4), (7, 4, 5)], 420, 2),
    "mv": (lambda a, b: torch.mv(a, b), [(3, 4), (4,)], 12, 1),
    "addmv": (lambda c, a, b: torch.addmv(c, a, b), [(3,), (3, 4), (4,)], 12, 1),
    "dot": (lambda a, b: torch.dot(a, b), [(4,), (4,)], 4, 0),
    "vdot": (lambda a, b: torch.vdot(a, b), [(4,), (4,)], 4, 0),
    "addr": (lambda c, a, b: torch.addr(c, a, b), [(3, 4), (3,), (4,)], 12, 2),
    "outer": (lambda a, b: torch.outer(a, b), [(3,), (4,)], 0, 0),
    "kron": (lambda a, b: torch.kron(a, b), [(3, 4), (5, 2)], 0, 0),
    "inner": (lambda a, b: torch.inner(a, b), [(3, 4), (5, 4)], 60, 2),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), [(3, 4, 5), (4, 5, 6)], 360, 2),
    "multi_dot": (
        lambda a, b, c: torch.linalg.multi_dot([a, b, c]),
        [(3, 4), (4, 50), (50, 2)],
        4 * 50 * 2 + 3 * 4 * 2,
        2,
    ),
    "chain_matmul": (lambda a, b: torch.linalg.multi_dot([a, b]), [(3, 4), (4, 5)], 60, 2),
    "einsum ij,jk": (lambda a, b: torch.einsum("ij,jk->ik", a, b), [(3, 4), (4, 5)], 60, 2),
    "einsum attention": (lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b), [(2, 3, 4, 5), (2, 3, 6, 5)], 720, 2),
    "einsum dot": (lambda a, b: torch.einsum("ij,ij->", a, b), [(3, 4), (3, 4)], 12, 2),
    "einsum three": (lambda a, b, c: torch.einsum("ij,kj,lk->il", a, b, c), [(3, 4), (5, 4), (6, 5)], 150, 2),
    "einsum outer": (lambda a, b: torch.einsum("i,j->ij", a, b), [(3,), (4,)], 0, 0),
    "einsum diagonal": (lambda a: torch.einsum("ii->i", a), [(3, 3)], 0, 0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_products_by_other_names(name):
    fn, shapes, macs, times = OTHERS[name]
    for place in PLACES:
        with at(place) as device:
            leaves = [leaf(*shape, device=device) for shape in shapes]
            assert passes(lambda leaves=leaves: fn(*leaves)) == (2 * macs, 2 * macs * times), place


IN_PLACE = {
    "addmm_": ((3, 5), (3, 4), (4, 5), 60),
    "baddbmm_": ((7, 3, 5), (7, 3, 4), (7, 4, 5), 420),
    "addbmm_": ((3, 5), (7, 3, 4), (7, 4, 5), 420),
    "addmv_": ((3,), (3, 4), (4,), 12),
    "addr_": ((3, 4), (3,), (4,), 12),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("place", PLACES)
def test_in_place(name, place):
    *shapes, macs = IN_PLACE[name]
    with at(place) as device:
        c, a, b = (torch.ones(shape, device=device) for shape in shapes)
        report = fk.count(getattr(c, name), a, b)
        assert (report.flops, report.uncounted) == (2 * macs, [])
        # c is read and written, the others read once.
        assert report.bytes == 4 * (2 * c.numel() + a.numel() + b.numel())


def test_out_is_only_written():
    a, b, out = torch.ones(3, 4), torch.ones(4, 5), torch.empty(3, 5)
    report = fk.count(lambda: torch.mm(a, b, out=out))
    assert (report.flops, report.bytes) == (120, 4 * (12 + 20 + 15))
    assert fk.count(lambda: torch.ops.aten.mm.out(self=a, mat2=b, out=out)).flops == 120
    assert fk.count(lambda: torch.addmm(out, a, b, out=torch.empty(3, 5))).flops == 120


def test_what_is_added_counts_apart_and_only_where_it_is():
    a, b, c = torch.ones(3, 4), torch.ones(4, 5), torch.ones(5)
    for beta, adds in ((1, 15), (0.5, 15), (0.0, 0), (0, 0)):
        report = fk.count(lambda beta=beta: torch.addmm(c, a, b, beta=beta))
        assert (report.flops, report.vector_flops) == (120, adds)
    a, b, v = torch.ones(3, 4), torch.ones(4, 5), torch.ones(4)
    for fn, args, adds in (
        (torch.baddbmm, (torch.ones(7, 3, 5), a.expand(7, 3, 4), b.expand(7, 4, 5)), 7 * 15),
        (torch.addmv, (torch.ones(3), a, v), 3), (torch.addr, (torch.ones(3, 4), torch.ones(3), v), 12),
    ):  # fmt: skip
        assert [fk.count(fn, *args, beta=beta).vector_flops for beta in (1, 0)] == [adds, 0]
    with fk.counting() as report:  # one cache for both
        torch.addmm(c, a, b, beta=0.5)
        torch.addmm(c, a, b, beta=0.0)
    assert report.vector_flops == 15
    assert fk.count(torch._addmm_activation, c, a, b).vector_flops == 30
    report = fk.count(torch.addbmm, torch.ones(3, 5), torch.ones(7, 3, 4), torch.ones(7, 4, 5))
    assert report.vector_flops == 15 * (6 + 1)
    assert fk.count(torch.addbmm, torch.ones(3, 5), torch.ones(1, 3, 4), torch.ones(1, 4, 5)).vector_flops == 15
    assert fk.count(torch.addbmm, torch.ones(3, 5), torch.ones(0, 3, 4), torch.ones(0, 4, 5)).flops == 0


DTYPES = [torch.float64, torch.float16, torch.bfloat16, torch.int64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_number_is_worth_the_same(dtype):
    a, b = torch.ones(3, 4, dtype=dtype), torch.ones(4, 5, dtype=dtype)
    report = fk.count(torch.mm, a, b)
    assert (report.flops, report.bytes) == (120, (12 + 20 + 15) * a.element_size())


@pytest.mark.parametrize("place", PLACES)
def test_a_complex_multiply_add_is_eight(place):
    kind = torch.complex64
    with at(place) as device:
        a, b = leaf(3, 4, dtype=kind, device=device), leaf(4, 5, dtype=kind, device=device)
        c, v = leaf(5, dtype=kind, device=device), leaf(4, dtype=kind, device=device)
        assert passes(lambda: a @ b) == (8 * 60, 16 * 60)
        assert passes(lambda: F.linear(a, b.T, c)) == (8 * 60, 16 * 60)
        assert passes(lambda: torch.vdot(v, v))[0] == 8 * 4
        assert passes(lambda: a @ v) == (8 * 12, 8 * 12)
        assert fk.count(lambda: torch.addr(torch.ones(4, 4, dtype=kind, device=device), v, v)).flops == 8 * 16


def test_a_product_of_a_complex_and_a_real_matrix_runs_as_complex():
    """torch refuses to mix them, einsum and @ alike: who mixes has converted before."""
    with pytest.raises(RuntimeError, match="dtype"):
        torch.ones(2, 2, dtype=torch.complex64) @ torch.ones(2, 2)


@pytest.mark.parametrize("place", PLACES)
def test_bilinear(place):
    """2·N·out·in1·in2, and as many for each of three gradients."""
    with at(place) as device:
        layer = torch.nn.Bilinear(3, 4, 5, device=device)
        x, y = leaf(7, 3, device=device), leaf(7, 4, device=device)
        once = 2 * 7 * 5 * 3 * 4
        assert passes(lambda: layer(x, y)) == (once, 3 * once)
        assert passes(lambda: layer(x.detach(), y)) == (once, 2 * once)
        with torch.no_grad():
            report = fk.count(layer, x, y)
        assert report.flops == once
        # What is left is the dot product with y for each output, and the bias.
        assert report.vector_flops == 2 * 7 * 5 * 4 + 7 * 5


def test_bilinear_of_complex_numbers():
    x, y, w = (torch.ones(*shape, dtype=torch.complex64, device="meta") for shape in ((7, 3), (7, 4), (5, 3, 4)))
    assert fk.count(torch.bilinear, x, y, w, None).flops == 8 * 7 * 5 * 3 * 4


def test_bilinear_by_its_loops():
    n, o, i, j = 2, 3, 4, 5
    report = fk.count(torch.nn.Bilinear(i, j, o, bias=False), torch.ones(n, i), torch.ones(n, j))
    macs = sum(1 for _ in itertools.product(range(n), range(o), range(i), range(j)))
    assert report.flops == 2 * macs
    assert fk.count(torch.nn.Bilinear(i, j, o), torch.ones(6, n, i), torch.ones(6, n, j)).flops == 6 * 2 * macs
    assert fk.count(torch.nn.Bilinear(1, 1, 1), torch.ones(1, 1), torch.ones(1, 1)).flops == 2
    assert fk.count(torch.nn.Bilinear(3, 4, 5), torch.ones(0, 3), torch.ones(0, 4)).flops == 0


def test_the_other_step_of_a_bilinear_gradient_is_element_wise():
    """Of the weight: the two inputs (or one of them and the gradient) are multiplied first, and then summed over the batch."""
    x, y = torch.ones(7, 3), torch.ones(7, 4)
    layer = torch.nn.Bilinear(3, 4, 5, bias=False)
    report = count(lambda: layer(x, y))
    found = row(report, "_trilinear", "backward")
    assert found["flops"] == 2 * 7 * 5 * 3 * 4
    assert found["vector_flops"] in (7 * 5 * 3, 7 * 5 * 4, 7 * 3 * 4)


def test_bytes_are_those_of_the_formula():
    report = fk.count(torch.nn.Linear(4, 5), torch.ones(3, 4))
    assert report.bytes == fk.dense(tokens=3, d_in=4, d_out=5, bias=True, dtype="fp32").bytes
    assert report.flops == fk.dense(tokens=3, d_in=4, d_out=5, bias=True).flops
    report = fk.count(torch.bmm, torch.ones(2, 3, 4), torch.ones(2, 4, 5))
    assert report.bytes == fk.matmul(batch=2, m=3, k=4, n=5, dtype="fp32").bytes


def test_an_expanded_matrix_is_read_once():
    one = torch.ones(1, 4, 5).expand(9, 4, 5)
    report = fk.count(torch.bmm, torch.ones(9, 3, 4), one)
    assert (row(report, "bmm")["flops"], row(report, "bmm")["bytes"]) == (2 * 9 * 60, 4 * (9 * 12 + 20 + 9 * 15))


def test_lists_of_products():
    a, b = torch.ones(3, 8), torch.ones(8, 4)
    if hasattr(torch.ops.aten, "_foreach_mm"):
        report = fk.count(torch.ops.aten._foreach_mm, [a, torch.ones(2, 3)], [b, torch.ones(3, 5)])
        assert (report.flops, report.uncounted) == (2 * (3 * 8 * 4 + 2 * 3 * 5), [])


def test_strided_nested_products_count_true_lengths():
    parts = [torch.ones(2, 4), torch.ones(5, 4)]
    with warnings.catch_warnings():  # torch warns once that these are a prototype
        warnings.simplefilter("ignore")
        x = torch.nested.nested_tensor(parts)
    assert fk.count(lambda: F.linear(x, torch.ones(6, 4))).flops == 2 * 7 * 4 * 6
    y = torch.nested.nested_tensor([torch.ones(4, 3), torch.ones(4, 2)])
    assert fk.count(lambda: torch.bmm(x, y)).flops == 2 * (2 * 4 * 3 + 5 * 4 * 2)
    assert fk.count(torch.bmm, x, torch.ones(2, 4, 3)).flops == 2 * (2 * 4 * 3 + 5 * 4 * 3)
    wide = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(2, 5)])
    assert fk.count(torch.bmm, torch.ones(2, 3, 2), wide).flops == 2 * (3 * 2 * 4 + 3 * 2 * 5)


def test_backward_in_one_kernel():
    """What runs for nested tensors; called by hand."""
    aten, empty = torch.ops.aten, torch.empty
    with torch.device("meta"):
        x, w, g = empty(3, 4), empty(6, 4), empty(3, 6)
        for mask, products in (([True, True, True], 2), ([True, False, False], 1), ([False, True, True], 1),
                               ([False, True, False], 1), ([False, False, True], 0)):  # fmt: skip
            call = OpCall(aten.linear_backward.default, (x, g, w, mask), {}, (x, w, empty(6)))
            work = products_room.product_backward(call)
            assert (work.model["products"], work.vector.get("elementwise", 0)) == (products * 72, 18 * mask[2])
        call = OpCall(aten.matmul_backward.default, (g, x, w.T, [True, True]), {}, (x, w.T))
        assert products_room.product_backward(call).model["products"] == 144
        x, w, g = (t.to(torch.complex64) for t in (x, w, g))  # four multiply-adds of real numbers each
        call = OpCall(aten.linear_backward.default, (x, g, w, [True, True, False]), {}, (x, w, None))
        assert products_room.product_backward(call).model["products"] == 4 * 2 * 72
        assert products_room.linear(OpCall(aten.linear.default, (x, w), {}, g)).model["products"] == 4 * 72


def test_double_backward_of_a_product():
    """d/d of |dx|² + |dw|²: forward, its two gradients, and for each of those two products of its own and one for the rest."""
    x, w = leaf(3, 4), leaf(4, 5)

    def twice():
        y = x @ w
        gradients = torch.autograd.grad(y.pow(2).sum(), [x, w], create_graph=True)
        backward(sum(g.pow(2).sum() for g in gradients))

    report = fk.count(twice)
    assert (report.forward.flops, report.backward.flops) == (120, 120 * 8)


def test_forward_mode_takes_three_products():
    report = fk.count(
        torch.func.jvp, F.linear, (torch.ones(3, 4), torch.ones(5, 4)), (torch.ones(3, 4), torch.ones(5, 4))
    )
    assert report.flops == 3 * 120


def test_an_operator_may_be_called_by_names():
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    assert fk.count(lambda: torch.ops.aten.mm(self=a, mat2=b)).flops == 120
    assert fk.count(lambda: torch.ops.aten.mv(self=a, vec=torch.ones(4))).flops == 24
    assert fk.count(lambda: torch.ops.aten.dot(self=torch.ones(4), tensor=torch.ones(4))).flops == 8


def test_every_room_is_counted_not_opened():
    """A formula gives the row, not what a kernel happens to call inside."""
    report = count(lambda: torch.nn.Bilinear(3, 4, 5)(torch.ones(7, 3), torch.ones(7, 4)))
    assert row(report, "_trilinear")["status"] == "counted"
    assert [r for r in report.by_op().rows if r["operator"] == "bmm"] == []


def test_complex_numbers_that_are_added():
    """A complex multiply-add is four real ones, a complex add is two adds; the gradient of a bias sums as many."""
    z, row = torch.ones(3, 5, dtype=torch.complex64), torch.ones(5, dtype=torch.complex64)
    square = torch.ones(5, 5, dtype=torch.complex64)
    for fn in (lambda: torch.addmm(z, z, square), lambda: torch.nn.functional.linear(z, square, row)):
        assert (fk.count(fn).flops, fk.count(fn).vector_flops) == (8 * 3 * 5 * 5, 2 * 15)
    x, w, b = (t.clone().requires_grad_() for t in (z, square, row))
    report = fk.count(lambda: torch.autograd.grad(torch.nn.functional.linear(x, w, b), [x, w, b], z), strict=True)
    assert report.backward.flops == 2 * 8 * 3 * 5 * 5
    with torch.inference_mode():
        assert fk.count(torch.nn.functional.linear, z, square, row).vector_flops == 2 * 15
        assert fk.count(torch.nn.functional.linear, torch.ones(3, 4), torch.ones(4)).flops == 2 * 3 * 4
    args = (z, z, square, [True, True, True])
    work = products_room.product_backward(OpCall(torch.ops.aten.linear_backward.default, args, {}, (z, square, row)))
    assert (work.model, work.vector) == ({"products": 2 * 4 * 75}, {"elementwise": 2 * 15})
