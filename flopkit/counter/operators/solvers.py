"""Linear algebra: the leading order of LAPACK's algorithm, rounded for each matrix to the nearest even integer.

"LAWN 41" is LAPACK Working Note 41 (Blackford and Dongarra, *Installation Guide for LAPACK*, appendix C), "GVL" Golub and Van Loan,
*Matrix Computations*. A complex number takes four times as many FLOPs. What follows a factorisation in ``backward`` is products and
triangular solves, and counts as those. Not counted: pivoting, scaling, iterations beyond what the source assumes.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from flopkit.counter.calls import Call, extent, numel
from flopkit.counter.operators.sparse import is_sparse, stored
from flopkit.counter.operators.transforms import nearest_even
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

__all__: list[str] = []


def _each(matrix: Any, flops: Fraction | int, call: Call, vector: int = 0) -> Work:
    """*flops* for each matrix of a batch."""
    batch = prod(map(int, matrix.shape[:-2]))
    factor = 4 if matrix.dtype.is_complex else 1
    return counted(batch * nearest_even(flops * factor) // 2, call.bytes(), vector=vector)


def _size(matrix: Any) -> tuple[int, int]:
    return int(matrix.shape[-2]), int(matrix.shape[-1])


def _columns(result: Any, matrix: Any) -> Fraction | int:
    """Right-hand sides for each matrix of the batch."""
    rows = prod(map(int, matrix.shape[:-1]))
    # equivalent: 0 -> 1 (there is nothing then that it could be multiplied with)
    return Fraction(numel(result), rows) if rows else 0


def lu_flops(m: int, n: int) -> Fraction:
    """A factorisation with row exchanges, m·n² - n³/3 for m ≥ n (LAWN 41, getrf): 2n³/3 of a square matrix.

    >>> lu_flops(3, 3), lu_flops(6, 3) == lu_flops(3, 6) == 45
    (Fraction(18, 1), True)
    """
    m, n = max(m, n), min(m, n)
    return m * n * n - Fraction(n**3, 3)


def qr_flops(m: int, n: int) -> Fraction:
    """Householder's factorisation, 2·m·n² - 2n³/3 for m ≥ n (LAWN 41, geqrf)."""
    return 2 * lu_flops(m, n)


def reflectors_flops(m: int, n: int, k: int) -> Fraction:
    """The m × n matrix that k reflectors stand for, 4·m·n·k - 2·(m + n)·k² + 4k³/3 (LAWN 41, orgqr)."""
    return 4 * m * n * k - 2 * (m + n) * k * k + Fraction(4 * k**3, 3)


def svd_flops(m: int, n: int, vectors: bool, full: bool = False) -> Fraction:
    """Singular values, or all three factors: the cheaper of Golub and Reinsch's algorithm and Chan's (GVL, section 8.6).

    Values: 4·m·n² - 4n³/3 or 2·m·n² + 2n³. Thin factors: 14·m·n² + 8n³ or 6·m·n² + 20n³; full ones: 4·m²·n + 8·m·n² + 9n³ or
    4·m²·n + 22n³. (m ≥ n)
    """
    m, n = max(m, n), min(m, n)
    if not vectors:
        return min(4 * m * n * n - Fraction(4 * n**3, 3), Fraction(2 * m * n * n + 2 * n**3))
    whole = min(4 * m * m * n + 8 * m * n * n + 9 * n**3, 4 * m * m * n + 22 * n**3)
    thin = min(14 * m * n * n + 8 * n**3, 6 * m * n * n + 20 * n**3)
    return Fraction(whole if full else min(whole, thin))


def eigh_flops(n: int, vectors: bool) -> Fraction:
    """The symmetric QR algorithm: 4n³/3 for the values, 9n³ with the vectors (GVL, section 8.3)."""
    return Fraction(9 * n**3) if vectors else Fraction(4 * n**3, 3)


@explains("aten::linalg_cholesky_ex", "aten::cholesky", "aten::linalg_ldl_factor_ex")
def cholesky(call: Call) -> Work:
    """``A = L·Lᵀ`` or ``L·D·Lᵀ``: n³/3 (LAWN 41, potrf, sytrf)."""
    n, _ = _size(call["self"])
    return _each(call["self"], Fraction(n**3, 3), call)


@explains(
    "aten::linalg_lu_factor_ex", "aten::linalg_lu", "aten::_linalg_det", "aten::_linalg_slogdet", "aten::_lu_with_info"
)
def lu(call: Call) -> Work:
    """``A = P·L·U``, and the determinant, which is read off it."""
    a = call.get("A", call.get("self"))
    return _each(a, lu_flops(*_size(a)), call)


@explains("aten::linalg_inv_ex")
def inverse(call: Call) -> Work:
    """2n³: the factorisation, and 4n³/3 more (LAWN 41, getrf and getri)."""
    n, _ = _size(call["A"])
    return _each(call["A"], 2 * n**3, call)


@explains("aten::cholesky_inverse")
def inverse_of_factor(call: Call) -> Work:
    """The inverse from Cholesky's factor: 2n³/3 (LAWN 41, potri)."""
    n, _ = _size(call["self"])
    return _each(call["self"], Fraction(2 * n**3, 3), call)


@explains("aten::_linalg_solve_ex")
def solve(call: Call) -> Work:
    """A factorisation and two triangular solves for each right-hand side: 2n³/3 + 2·n²·r (LAWN 41, gesv)."""
    a = call["A"]
    n, _ = _size(a)
    return _each(a, lu_flops(n, n) + 2 * n * n * _columns(call.outputs[0], a), call)


@explains("aten::linalg_lu_solve", "aten::cholesky_solve", "aten::_cholesky_solve_helper", "aten::linalg_ldl_solve")
def solve_with_factors(call: Call) -> Work:
    """Two triangular solves: 2·n²·r (LAWN 41, getrs, potrs, sytrs)."""
    factor = call.get("LU", call.get("LD", call.get("input2", call.get("A"))))
    n, _ = _size(factor)
    return _each(factor, 2 * n * n * _columns(call.outputs[0], factor), call)


@explains("aten::linalg_solve_triangular", "aten::triangular_solve")
def triangular_solve(call: Call) -> Work:
    """n²·r (LAWN 41, trtrs); where the matrix is sparse, two FLOPs for each number that it stores."""
    a = call.get("A", call["self"])
    if is_sparse(a):
        return counted(stored(a) * int(call["self"].shape[-1]) * (4 if a.dtype.is_complex else 1), call.bytes())
    n, _ = _size(a)
    return _each(a, n * n * _columns(call.outputs[0], a), call)


@explains("aten::geqrf")
def factors_of_qr(call: Call) -> Work:
    """Only R, and the reflectors that Q is made of."""
    return _each(call["self"], qr_flops(*_size(call["self"])), call)


@explains("aten::linalg_qr")
def qr(call: Call) -> Work:
    """R, and Q put together from its reflectors where it is asked for (``mode="r"`` does not)."""
    a, mode = call["A"], call["mode"]
    m, n = _size(a)
    k = min(m, n)
    build = Fraction(0) if mode == "r" else reflectors_flops(m, m if mode == "complete" else k, k)
    return _each(a, qr_flops(m, n) + build, call)


@explains("aten::linalg_householder_product")
def reflectors(call: Call) -> Work:
    """Q from its reflectors."""
    a = call["input"]
    m, n = _size(a)
    return _each(a, reflectors_flops(m, n, int(call["tau"].shape[-1])), call)


@explains("aten::ormqr")
def apply_reflectors(call: Call) -> Work:
    """k reflectors applied to an m × n matrix: 4·m·n·k - 2·n·k² from the left, 4·m·n·k - 2·m·k² from the right (LAWN 41, ormqr)."""
    other = call["input3"]
    m, n = _size(other)
    k = int(call["input2"].shape[-1])
    return _each(other, 4 * m * n * k - 2 * (n if call["left"] else m) * k * k, call)


@explains("aten::_linalg_eigh")
def eigh(call: Call) -> Work:
    """Eigenvalues of a symmetric matrix, with or without the vectors."""
    a = call["A"]
    # equivalent: 0 -> 1 (the matrix is square)
    return _each(a, eigh_flops(_size(a)[0], call["compute_v"]), call)


@explains("aten::linalg_eig", "aten::_linalg_eigvals", "aten::linalg_eigvals")
def eig(call: Call) -> Work:
    """Of any square matrix, by Hessenberg form and QR steps: 10n³ for the values, 25n³ with the vectors (GVL, section 7.5)."""
    a = call["self"]
    n, _ = _size(a)
    return _each(a, (10 if "eigvals" in str(call.func) else 25) * n**3, call)


@explains("aten::_linalg_svd")
def svd(call: Call) -> Work:
    """Singular values, with or without the vectors."""
    a = call["A"]
    return _each(a, svd_flops(*_size(a), call.get("compute_uv", True), bool(call["full_matrices"])), call)


@explains("aten::linalg_pinv")
def pseudo_inverse(call: Call) -> Work:
    """``V·Σ⁻¹·Uᴴ``: thin singular value decomposition (of a Hermitian matrix its eigenvectors), and a product."""
    a = call["self"]
    m, n = _size(a)
    parts = eigh_flops(n, True) if call["hermitian"] else svd_flops(m, n, True)
    work = _each(a, parts + 2 * m * n * min(m, n), call, vector=min(m, n) * m * prod(map(int, a.shape[:-2])))
    return replace(work, bytes=extent(a) + extent(call.outputs[0]))


@explains("aten::linalg_lstsq")
def least_squares(call: Call) -> Work:
    """Least squares by QR: the factorisation, Qᵀ applied to r right-hand sides, a triangular solve (LAWN 41, gels).

    The drivers ``gelsd`` and ``gelss`` take singular values: 4·m·n² + 8n³ (GVL, section 5.5), and as much for the right-hand sides.
    """
    a, b = call["self"], call["b"]
    m, n = _size(a)
    k = min(m, n)
    r = _columns(b, a)
    if call["driver"] in ("gelsd", "gelss"):
        factor: Fraction | int = 4 * max(m, n) * k * k + 8 * k**3
    else:
        factor = qr_flops(m, n)
    return _each(a, factor + (4 * max(m, n) * k - 2 * k * k) * r + k * k * r, call)
