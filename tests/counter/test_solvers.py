"""Linear algebra: the leading order of the algorithm, against loops that count, for each matrix, complex or not, on CPU and meta."""

from fractions import Fraction

import pytest
import torch
from cases import WAYS, Table, call, t
from hypothesis import given, settings, strategies as st
from programs import count, row

import flopkit as fk
from flopkit import macs

L = torch.linalg


def even(flops):
    """The nearest even integer, found by looking at both neighbours; of two as near, the multiple of four."""
    below = int(Fraction(flops) // 2) * 2
    return min((below, below + 2), key=lambda n: (abs(n - Fraction(flops)), n % 4))


# -- the formulas against loops: multiplications and additions of the textbook algorithm, whose leading term they are ----------------


def loops_cholesky(n):
    return sum(2 * j for j in range(n) for _ in range(j, n))


def loops_lu(m, n):
    return sum(2 * (m - k - 1) * (n - k - 1) for k in range(min(m, n)))


def loops_triangular(n, r):
    return sum(2 * i for i in range(n)) * r


def loops_reflect(m, n):
    """Householder's QR: each reflector is applied to the columns behind it, a dot product and an update of its length."""
    return sum(4 * (m - k) * (n - k - 1) for k in range(min(m, n)))


def loops_build(m, n, k):
    """Q from its k reflectors, the last one first, each applied to the columns from its own on."""
    return sum(4 * (m - j) * (n - j) for j in range(k))


@pytest.mark.parametrize(
    ("formula", "loops"),
    [
        (Fraction(300**3, 3), loops_cholesky(300)),
        (macs.lu(300, 300), loops_lu(300, 300)),
        (macs.lu(500, 200), loops_lu(500, 200)),
        (macs.lu(200, 500), loops_lu(200, 500)),
        (300**2 * 7, loops_triangular(300, 7)),
        (macs.qr(500, 200), loops_reflect(500, 200)),
        (macs.qr(200, 500), loops_reflect(200, 500)),
        (macs.reflectors(500, 200, 200), loops_build(500, 200, 200)),
        (macs.reflectors(500, 300, 200), loops_build(500, 300, 200)),
    ],
)
def test_leading_order_is_that_of_the_loops(formula, loops):
    assert float(formula) == pytest.approx(loops, rel=0.02)


# -- what is counted ------------------------------------------------------------------------------------------------------------


def spd(n, *batch, dtype=torch.float64):
    a = torch.randn(*batch, n, n, dtype=dtype)
    return a @ a.mH + n * torch.eye(n, dtype=dtype)


def lower(n):
    return torch.eye(n, dtype=torch.float64) + torch.ones(n, n, dtype=torch.float64).tril()


def tall(m=9, n=7):
    return torch.randn(m, n, dtype=torch.float64)


def wide(r=3, n=7):
    return torch.randn(n, r, dtype=torch.float64)


# name: function, arguments, FLOPs of one matrix. n = 7, m = 9, r = 3
CASES = {
    "cholesky": (L.cholesky, (spd(7),), Fraction(343, 3)),
    "lu": (lambda a: L.lu(a)[1], (tall(),), 9 * 49 - Fraction(343, 3)),
    "lu of a wide matrix": (lambda a: L.lu(a)[1], (tall(7, 9),), 9 * 49 - Fraction(343, 3)),
    "lu_factor": (lambda a: L.lu_factor(a)[0], (spd(7),), Fraction(2 * 343, 3)),
    "det": (L.det, (spd(7),), Fraction(2 * 343, 3)),
    "slogdet": (lambda a: L.slogdet(a)[1], (spd(7),), Fraction(2 * 343, 3)),
    "logdet": (torch.logdet, (spd(7),), Fraction(2 * 343, 3)),
    "inv": (L.inv, (spd(7),), 2 * 343),
    "solve": (L.solve, (spd(7), wide()), Fraction(2 * 343, 3) + 2 * 49 * 3),
    "solve one": (L.solve, (spd(7), wide()[:, 0]), Fraction(2 * 343, 3) + 2 * 49),
    "solve from the right": (lambda a, b: L.solve(a, b, left=False), (spd(7), wide().T), Fraction(2 * 343, 3) + 2 * 49 * 3),
    "solve_triangular": (lambda a, b: L.solve_triangular(a, b, upper=False), (lower(7), wide()), 49 * 3),
    "solve_triangular from the right": (lambda a, b: L.solve_triangular(a, b, upper=False, left=False), (lower(7), wide().T), 49 * 3),
    "cholesky_solve": (torch.cholesky_solve, (wide(), lower(7)), 2 * 49 * 3),
    "cholesky_inverse": (torch.cholesky_inverse, (lower(7),), Fraction(2 * 343, 3)),
    "qr": (lambda a: L.qr(a)[0], (tall(),), 2 * 2 * (9 * 49 - Fraction(343, 3))),
    "qr, only r": (lambda a: L.qr(a, mode="r")[1], (tall(),), 2 * (9 * 49 - Fraction(343, 3))),
    "qr, complete": (lambda a: L.qr(a, mode="complete")[0], (tall(),), 2 * (9 * 49 - Fraction(343, 3)) + 4 * 9 * 9 * 7 - 2 * 18 * 49 + Fraction(4 * 343, 3)),
    "householder_product": (L.householder_product, (tall(), torch.ones(7, dtype=torch.float64)), 4 * 9 * 7 * 7 - 2 * 16 * 49 + Fraction(4 * 343, 3)),
    "eigh": (lambda a: L.eigh(a)[1], (spd(7),), 9 * 343),
    "eig": (lambda a: L.eig(a)[1], (tall(7, 7),), 25 * 343),
    "svd, thin": (lambda a: L.svd(a, full_matrices=False)[0], (tall(90, 7),), 6 * 90 * 49 + 20 * 343),
    "svd, full": (lambda a: L.svd(a)[0], (tall(),), 4 * 81 * 7 + 8 * 9 * 49 + 9 * 343),
    "pinv": (L.pinv, (tall(90, 7),), 6 * 90 * 49 + 20 * 343 + 2 * 90 * 49),
    "pinv of a symmetric matrix": (lambda a: L.pinv(a, hermitian=True), (spd(7),), 9 * 343 + 2 * 343),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_matrix(name):
    fn, arguments, flops = CASES[name]
    report = fk.count(fn, *arguments)
    assert (report.flops, report.uncounted) == (even(flops), [])
    on_meta = fk.count(fn, *(a.to("meta") for a in arguments))
    assert on_meta.flops == even(flops)


BATCHED = (
    "cholesky",
    "lu_factor",
    "det",
    "inv",
    "solve",
    "solve_triangular",
    "cholesky_solve",
    "qr",
    "eigh",
    "eig",
    "svd, full",
)


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(BATCHED), batch=st.lists(st.integers(0, 3), min_size=1, max_size=2))
def test_rounded_once_for_each_matrix(name, batch):
    fn, arguments, flops = CASES[name]
    report = fk.count(fn, *(a.expand(*batch, *a.shape).contiguous() for a in arguments))
    assert report.flops == even(flops) * int(torch.tensor(batch).prod())


@pytest.mark.parametrize("name", ["cholesky", "lu_factor", "inv", "solve", "qr", "svd, full"])
def test_complex_numbers_take_four_times_as_many(name):
    fn, arguments, flops = CASES[name]
    assert fk.count(fn, *(a.to(torch.complex128) for a in arguments)).flops == even(4 * flops)


def test_one_factor_serves_many_right_hand_sides():
    """A broadcast matrix is factored once."""
    report = fk.count(L.solve, spd(7), torch.randn(5, 7, 3, dtype=torch.float64))
    assert report.flops in (even(Fraction(2 * 343, 3) + 2 * 49 * 15), 5 * even(Fraction(2 * 343, 3) + 2 * 49 * 3))
    factors = L.lu_factor(spd(7))
    assert fk.count(L.lu_solve, *factors, wide()).flops == 2 * 49 * 3


def test_empty():
    assert fk.count(L.inv, torch.ones(0, 0)).flops == 0
    assert fk.count(L.solve, torch.ones(0, 0), torch.ones(0, 3)).flops == 0
    assert fk.count(L.cholesky, torch.ones(2, 0, 0)).flops == 0


def test_least_squares():
    a, b = tall(), torch.randn(9, 3, dtype=torch.float64)
    by_qr = 2 * (9 * 49 - Fraction(343, 3)) + (4 * 9 * 7 - 2 * 49) * 3 + 49 * 3
    assert fk.count(L.lstsq, a, b).flops == even(by_qr)
    by_values = 4 * 9 * 49 + 8 * 343 + (4 * 9 * 7 - 2 * 49) * 3 + 49 * 3
    assert fk.count(L.lstsq, a, b, driver="gelsd").flops == even(by_values)


def test_backward_is_what_autograd_calls():
    """The inverse: two products. A solve: two triangular solves with the same factors, and an outer product of r columns."""
    a = spd(7).requires_grad_()
    report = count(lambda: L.inv(a))
    assert report.backward.flops == 2 * 2 * 343
    a, b = spd(7).requires_grad_(), wide().requires_grad_()
    report = count(lambda: L.solve(a, b))
    assert row(report, "linalg_lu_solve", "backward")["flops"] == 2 * 49 * 3
    assert row(report, "mm", "backward")["flops"] == 2 * 7 * 3 * 7


VALUES = {L.eigvalsh: (spd(7), 9 * 343), L.svdvals: (tall(), 4 * 81 * 7 + 8 * 9 * 49 + 9 * 343)}


@pytest.mark.parametrize("fn", VALUES, ids=lambda fn: fn.__name__)
def test_values_alone_are_counted_as_they_run(fn):
    """Under any dispatch mode torch takes the vectors along. The operator that does without them costs less."""
    a, with_vectors = VALUES[fn]
    for matrix in (a, a.to("meta"), a.clone().requires_grad_()):
        assert fk.count(fn, matrix).flops == even(with_vectors)
    without = fk.count(torch.ops.aten._linalg_eigh, spd(7), "L", False)
    assert without.flops == even(Fraction(4 * 343, 3))
    assert fk.count(torch.ops.aten._linalg_eigvals, spd(7)).flops == 10 * 343


def test_powers_are_products():
    assert fk.count(L.matrix_power, spd(7), 5).flops == 3 * 2 * 343
    assert fk.count(L.multi_dot, [tall(), tall(7, 9)]).flops == 2 * 9 * 7 * 9


def test_the_exponential_counts_the_products_that_run():
    """How many there are depends on the norm: none for a matrix of almost nothing. Nothing runs on meta, so there it is named."""
    small, large = torch.eye(7) * 1e-12, torch.eye(7) * 30
    assert fk.count(L.matrix_exp, small).flops == 0
    found = fk.count(L.matrix_exp, large).flops
    assert found % (2 * 343) == 0 and found >= 5 * 2 * 343
    assert [r["operator"] for r in fk.count(L.matrix_exp, small.to("meta")).uncounted] == ["linalg_matrix_exp"]


@pytest.mark.skipif(not hasattr(L, "polar"), reason="torch has polar and matrix_sqrth since 2.14")
def test_the_polar_decomposition_and_the_root_count_what_they_are_made_of():
    """Of 6 × 4: thin singular vectors, 14·96 + 8·64, U·Vᴴ and V·Σ·Vᴴ; of 4 × 4: eigenvectors, 9·64, and their product."""
    tall, square = torch.eye(6, 4), torch.eye(4)
    assert fk.count(L.polar, tall).flops == 14 * 96 + 8 * 64 + 2 * 6 * 4 * 4 + 2 * 4 * 4 * 4
    assert fk.count(L.matrix_sqrth, square).flops == 9 * 64 + 2 * 4 * 4 * 4
    for name, function, matrix in (("polar", L.polar, tall), ("matrix_sqrth", L.matrix_sqrth, square)):
        [row] = fk.count(function, matrix.to("meta")).uncounted
        assert row["operator"] == f"linalg_{name}"


@pytest.mark.parametrize(
    ("size", "values", "thin", "full"),
    [
        # Square: Golub and Reinsch's: 4·27 - 4·27/3; 4·27 + 8·27 + 9·27, less than 14·27 + 8·27.
        ((3, 3), 72, 567, 567),
        # 7 × 5: 4·175 - 4·125/3, against 2·175 + 2·125; 14·175 + 8·125, against 6·175 + 20·125; 4·245 + 8·175 + 9·125, against 980 + 22·125.
        ((7, 5), Fraction(1600, 3), 3450, 3505),
        # 6 × 3, where Chan's are cheaper: 2·54 + 2·27; 6·54 + 20·27; 4·108 + 22·27.
        ((6, 3), 162, 864, 1026),
    ],
)
def test_singular_values_by_the_cheaper_algorithm(size, values, thin, full):
    for m, n in (size, size[::-1]):
        assert macs.svd(m, n, vectors=False) == values
        assert (macs.svd(m, n, vectors=True), macs.svd(m, n, vectors=True, full=True)) == (thin, full)


def test_r_alone():
    assert fk.count(lambda: L.qr(torch.eye(2), mode="r")).flops == even(2 * 8 - Fraction(2 * 8, 3)) == 10


def test_scaling_between_the_factors_of_a_pseudo_inverse():
    """Three matrices of 4 × 2: two rows of four are divided by the singular values. Read and written once."""
    report = fk.count(L.pinv, torch.ones(3, 4, 2))
    assert row(report, "linalg_pinv")["vector_flops"] == 3 * 2 * 4
    assert row(report, "linalg_pinv")["bytes"] == 4 * (3 * 8 + 3 * 8)
    for name in ("cholesky_ex", "inv_ex", "qr", "svd"):  # nothing but what the leading order counts
        report = fk.count(getattr(L, name), torch.eye(3))
        assert all(r["vector_flops"] == 0 for r in report.by_op().rows if r["status"] == "counted")


# -- a table: four matrices each, by the leading order ---------------------------------------------------------------

TABLE = Table()
case = TABLE.case


def diagonal(n, batch):
    return torch.eye(n).expand(batch, n, n) * 2


# fmt: off
case("cholesky", lambda: call(torch.linalg.cholesky, diagonal(6, 4)), 4 * 72)  # n³/3
case("cholesky, odd", lambda: call(torch.linalg.cholesky, diagonal(5, 4)), 4 * 42)  # 125/3 = 41.67: nearest even 42
case("lu", lambda: call(torch.linalg.lu_factor, diagonal(6, 4)), 4 * 144)  # 2n³/3
case("solve", lambda: call(torch.linalg.solve, diagonal(6, 4), t(4, 6, 5)), 4 * (144 + 2 * 36 * 5))  # 2n³/3 + 2n²·k
case("inv", lambda: call(torch.linalg.inv, diagonal(6, 4)), 4 * 432)  # 2n³
case("triangular solve", lambda: call(torch.linalg.solve_triangular, diagonal(6, 4), t(4, 6, 5), upper=True), 4 * 36 * 5)  # n²·k
case("det", lambda: call(torch.linalg.det, diagonal(6, 4)), 4 * 144)
case("singular values", lambda: call(torch.linalg.svdvals, t(4, 6, 6)), 4 * 4536)  # 4m²n + 8mn² + 9n³: a mode makes torch take the vectors along
case("eigenvalues of a symmetric one", lambda: call(torch.linalg.eigvalsh, diagonal(6, 4)), 4 * 1944)  # 9n³: likewise
# fmt: on


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TABLE)
def test_flops(name, way):
    TABLE.check(name, way)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_a_triangular_solve_by_its_old_name():
    """n²·r, as the new one."""
    a, b = torch.eye(7), torch.ones(7, 3)
    old, new = fk.count(torch.triangular_solve, b, a), fk.count(L.solve_triangular, a, b, upper=True)
    assert old.flops == new.flops == even(7 * 7 * 3)
