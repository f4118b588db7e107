"""Products with sparse matrices: two FLOPs for each stored number and each column it meets."""

import pytest
import torch
from cases import REAL, WAYS, Table, call, g, t
from hypothesis import given, settings, strategies as st
from programs import backward, count, leaf, row

import flopkit as fk
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas.linear_algebra import algorithm
from flopkit.counter.formulas.products import sparse_macs

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse .* tensor support is in beta", "ignore:.*invariant checks are implicitly disabled"
)

DENSE = torch.tensor([[1.0, 0, 0, 0], [0, 2, 0, 3], [0, 0, 0, 0], [0, 0, 4, 5]])
LAYOUTS = {
    "coo": lambda m: m.to_sparse(),
    "csr": lambda m: m.to_sparse_csr(),
    "csc": lambda m: m.to_sparse_csc(),
    "bsr": lambda m: m.to_sparse_bsr((2, 2)),
}
STORED = {"coo": 5, "csr": 5, "csc": 5, "bsr": 3 * 4}  # three of the four blocks have a number in them


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_times_dense(layout):
    s, nnz = LAYOUTS[layout](DENSE), STORED[layout]
    for fn in (
        lambda: s @ torch.ones(4, 7),
        lambda: torch.sparse.mm(s, torch.ones(4, 7)),
        lambda: torch.addmm(torch.ones(4, 7), s, torch.ones(4, 7)),
    ):
        report = fk.count(fn)
        assert (report.flops, report.uncounted) == (2 * nnz * 7, [])
    assert fk.count(lambda: torch.sparse.addmm(torch.ones(4, 7), s, torch.ones(4, 7))).flops == 2 * nnz * 7
    assert fk.count(torch.mv, s, torch.ones(4)).flops == 2 * nnz


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_dense_times_sparse(layout):
    s = LAYOUTS[layout](DENSE)
    assert fk.count(lambda: torch.ones(7, 4) @ s).flops == 2 * 5 * 7
    assert fk.count(torch.nn.functional.linear, torch.ones(7, 4), s).flops == 2 * 5 * 7


def naive(a, b):
    """Multiply-adds of a product that skips zeros, one place after the other."""
    return sum(1 for i in range(a.shape[0]) for k in range(a.shape[1]) if a[i, k] for j in range(b.shape[1]) if b[k, j])


bits = st.lists(st.booleans(), min_size=16, max_size=16).map(lambda b: torch.tensor(b).float().reshape(4, 4))


@settings(max_examples=20, deadline=None)
@given(a=bits, b=bits)
def test_sparse_times_sparse_counts_real_multiply_adds(a, b):
    for layout in ("coo", "csr", "csc"):
        left, right = LAYOUTS[layout](a), LAYOUTS[layout](b)
        assert fk.count(lambda left=left, right=right: left @ right).flops == 2 * naive(a, b)


@settings(max_examples=15, deadline=None)
@given(a=bits, n=st.integers(1, 5))
def test_sparse_is_what_is_stored_times_columns(a, n):
    assert fk.count(lambda: a.to_sparse() @ torch.ones(4, n)).flops == 2 * int(a.sum()) * n


def test_shapes_alike_stored_numbers_not():
    """The same shapes with other numbers stored are looked at anew."""
    with fk.counting() as report:
        DENSE.to_sparse() @ torch.ones(4, 7)
        torch.ones(4, 4).to_sparse() @ torch.ones(4, 7)
    assert report.flops == 2 * 5 * 7 + 2 * 16 * 7


def test_backward():
    s = DENSE.to_sparse_csr().requires_grad_()
    report = count(lambda: torch.sparse.mm(s, leaf(4, 7)))
    # The dense side's gradient is sparse times dense; the sparse side's is a product at the stored places.
    assert (report.forward.flops, report.backward.flops) == (70, 140)
    assert row(report, "sparse_sampled_addmm", "backward")["flops"] == 70
    s = DENSE.to_sparse()
    assert count(lambda: s @ leaf(4, 7)).backward.flops == 70


def test_a_coo_gradient_is_taken_dense_and_masked_afterwards():
    """So torch runs it: all 4 × 4 places, of which it keeps five."""
    s = DENSE.to_sparse().requires_grad_()
    report = fk.count(lambda: backward(torch.sparse.mm(s, leaf(4, 7))))
    assert report.backward.flops == 2 * 4 * 4 * 7 + 70


def test_sampled_and_reduced():
    s = DENSE.to_sparse_csr()
    report = fk.count(torch.sparse.sampled_addmm, s, torch.ones(4, 3), torch.ones(3, 4))
    assert (report.flops, report.vector_flops) == (2 * 5 * 3, 5)
    assert fk.count(torch.sparse.mm, s, torch.ones(4, 7), "mean").flops == 70
    wanted = DENSE.to_sparse_csr().requires_grad_()
    report = fk.count(lambda: backward(torch.sparse.mm(wanted, leaf(4, 7), "sum")))
    assert row(report, "_sparse_mm_reduce_impl_backward", "backward")["flops"] == 140


def test_sparse_results():
    s = DENSE.to_sparse()
    assert fk.count(torch.hspmm, s, torch.ones(4, 7)).flops == 70
    assert fk.count(torch.sspaddmm, s, s, torch.ones(4, 4)).flops == 2 * 5 * 4
    batch = torch.stack([DENSE, torch.eye(4)]).to_sparse()
    assert fk.count(torch.bmm, batch, torch.ones(2, 4, 7)).flops == 2 * 9 * 7


def test_complex_and_solving():
    s = DENSE.to(torch.complex64).to_sparse()
    assert fk.count(lambda: s @ torch.ones(4, 7, dtype=torch.complex64)).flops == 8 * 5 * 7
    mask, c = s.to_sparse_csr(), torch.complex64
    assert (
        fk.count(torch.sparse.sampled_addmm, mask, torch.ones(4, 3, dtype=c), torch.ones(3, 4, dtype=c)).flops
        == 8 * 5 * 3
    )
    assert fk.count(torch.sparse.mm, s, s).flops == 8 * naive(DENSE, DENSE)
    lower = (torch.eye(4) + DENSE.tril()).to_sparse_csr()
    report = fk.count(torch.triangular_solve, torch.ones(4, 2), lower, upper=False)
    assert report.flops == 2 * 5 * 2  # the diagonal, and one number below it


def test_bytes_are_those_of_what_is_stored():
    s = DENSE.to_sparse_csr()
    stored = 5 * 4 + 5 * s.col_indices().element_size() + 5 * s.crow_indices().element_size()
    report = fk.count(lambda: s @ torch.ones(4, 7))
    assert row(report, "mm")["bytes"] == stored + 4 * 2 * 4 * 7


def test_rows_that_hold_nothing():
    """The third row of the right side is empty; of the left side's two numbers one meets the first, which holds two."""
    a = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]).to_sparse()
    b = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]).to_sparse()
    assert fk.count(torch.sparse.mm, a, b).flops == 2 * 2
    assert sparse_macs(torch.ones(2), a) == 2  # a vector meets each stored number once


def test_what_is_added_at_the_stored_places():
    s = DENSE.to_sparse_csr()
    for beta, adds in ((1.0, int((DENSE != 0).sum())), (0.0, 0)):
        report = fk.count(
            lambda beta=beta: torch.sparse.sampled_addmm(s, torch.ones(4, 3), torch.ones(3, 4), beta=beta)
        )
        assert row(report, "sparse_sampled_addmm")["vector_flops"] == adds


def test_triangles_of_complex_numbers():
    lower = (torch.eye(4) + DENSE.tril(-1)).to(torch.complex64)
    call = OpCall(
        torch.ops.aten.triangular_solve.default,
        (torch.ones(4, 3, dtype=torch.complex64), lower.to_sparse_csr()),
        {},
        None,
    )
    call.out = (torch.ones(4, 3, dtype=torch.complex64), lower)
    assert algorithm(call).model == {"products": 4 * 3 * int((lower != 0).sum())}


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_a_sparse_sum(layout):
    """Five stored numbers are added to a product whose numbers meet: each of column k the ones in row k, 1 + 2 + 0 + … as they stand."""
    s = LAYOUTS[layout](DENSE)
    for beta, adds in ((1, 5), (2.5, 5), (0, 0)):
        report = fk.count(torch.addmm, s, s, s, beta=beta)
        assert (report.flops, report.vector_flops) == (2 * naive(DENSE, DENSE), adds)


# -- a table: every way of running -----------------------------------------------------------------------------------

TABLE = Table()
case = TABLE.case

# fmt: off
case("sparse × dense", lambda: call(torch.sparse.mm, torch.eye(6).to_sparse(), t(6, 5)), 2 * 6 * 5, ways=REAL)
case("sparse × dense, backward", lambda: call(torch.sparse.mm, torch.eye(6).to_sparse(), g(6, 5)), 2 * 6 * 5, 2 * 6 * 5, ways=("cpu", "no_grad"))
case("csr × vector", lambda: call(torch.mv, torch.eye(6).to_sparse_csr(), t(6)), 2 * 6, ways=REAL)
# fmt: on


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TABLE)
def test_flops(name, way):
    TABLE.check(name, way)
