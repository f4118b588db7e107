"""Linear algebra and Fourier transforms: the leading order of LAPACK's algorithm, rounded for each matrix to the nearest even integer.

The closed forms, and what "LAWN 41" and "GVL" are, stand in `flopkit.macs`. A complex number takes four times as many FLOPs. What follows a factorisation in ``backward`` is products and
triangular solves, and counts as those. Not counted: pivoting, scaling, iterations beyond what the source assumes.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from flopkit import macs
from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.formulas.sparse import is_sparse, stored
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted
from flopkit.macs import fourier

__all__: list[str] = []


def _each(matrix: Any, flops: Fraction | int, call: OpCall, vector: int = 0) -> Work:
    """*flops* for each matrix of a batch."""
    batch = prod(map(int, matrix.shape[:-2]))
    flops = macs.nearest_even(macs.of_numbers(flops, matrix.dtype.is_complex))
    return counted(batch * flops // 2, call.bytes(), vector=vector)


def _size(matrix: Any) -> tuple[int, int]:
    return int(matrix.shape[-2]), int(matrix.shape[-1])


def _columns(result: Any, matrix: Any) -> Fraction | int:
    """Right-hand sides for each matrix of the batch."""
    rows = prod(map(int, matrix.shape[:-1]))
    # equivalent: 0 -> 1 (there is nothing then that it could be multiplied with)
    return Fraction(numel(result), rows) if rows else 0


@explains("aten::linalg_cholesky_ex", "aten::cholesky", "aten::linalg_ldl_factor_ex")
def cholesky(call: OpCall) -> Work:
    """``A = L·Lᵀ`` or ``L·D·Lᵀ``: n³/3 (LAWN 41, potrf, sytrf)."""
    n, _ = _size(call["self"])
    return _each(call["self"], Fraction(n**3, 3), call)


@explains(
    "aten::linalg_lu_factor_ex", "aten::linalg_lu", "aten::_linalg_det", "aten::_linalg_slogdet", "aten::_lu_with_info"
)
def lu(call: OpCall) -> Work:
    """``A = P·L·U``, and the determinant, which is read off it."""
    a = call.get("A", call.get("self"))
    return _each(a, macs.lu(*_size(a)), call)


@explains("aten::linalg_inv_ex")
def inverse(call: OpCall) -> Work:
    """2n³: the factorisation, and 4n³/3 more (LAWN 41, getrf and getri)."""
    n, _ = _size(call["A"])
    return _each(call["A"], 2 * n**3, call)


@explains("aten::cholesky_inverse")
def inverse_of_factor(call: OpCall) -> Work:
    """The inverse from Cholesky's factor: 2n³/3 (LAWN 41, potri)."""
    n, _ = _size(call["self"])
    return _each(call["self"], Fraction(2 * n**3, 3), call)


@explains("aten::_linalg_solve_ex")
def solve(call: OpCall) -> Work:
    """A factorisation and two triangular solves for each right-hand side: 2n³/3 + 2·n²·r (LAWN 41, gesv)."""
    a = call["A"]
    n, _ = _size(a)
    return _each(a, macs.lu(n, n) + 2 * n * n * _columns(call.outputs[0], a), call)


@explains("aten::linalg_lu_solve", "aten::cholesky_solve", "aten::_cholesky_solve_helper", "aten::linalg_ldl_solve")
def solve_with_factors(call: OpCall) -> Work:
    """Two triangular solves: 2·n²·r (LAWN 41, getrs, potrs, sytrs)."""
    factor = call.get("LU", call.get("LD", call.get("input2", call.get("A"))))
    n, _ = _size(factor)
    return _each(factor, 2 * n * n * _columns(call.outputs[0], factor), call)


@explains("aten::linalg_solve_triangular", "aten::triangular_solve")
def triangular_solve(call: OpCall) -> Work:
    """n²·r (LAWN 41, trtrs); where the matrix is sparse, two FLOPs for each number that it stores."""
    a = call.get("A", call["self"])
    if is_sparse(a):
        return counted(macs.of_numbers(stored(a) * int(call["self"].shape[-1]), a.dtype.is_complex), call.bytes())
    n, _ = _size(a)
    return _each(a, n * n * _columns(call.outputs[0], a), call)


@explains("aten::geqrf")
def factors_of_qr(call: OpCall) -> Work:
    """Only R, and the reflectors that Q is made of."""
    return _each(call["self"], macs.qr(*_size(call["self"])), call)


@explains("aten::linalg_qr")
def qr(call: OpCall) -> Work:
    """R, and Q put together from its reflectors where it is asked for (``mode="r"`` does not)."""
    a, mode = call["A"], call["mode"]
    m, n = _size(a)
    k = min(m, n)
    build = Fraction(0) if mode == "r" else macs.reflectors(m, m if mode == "complete" else k, k)
    return _each(a, macs.qr(m, n) + build, call)


@explains("aten::linalg_householder_product")
def reflectors(call: OpCall) -> Work:
    """Q from its reflectors."""
    a = call["input"]
    m, n = _size(a)
    return _each(a, macs.reflectors(m, n, int(call["tau"].shape[-1])), call)


@explains("aten::ormqr")
def apply_reflectors(call: OpCall) -> Work:
    """k reflectors applied to an m × n matrix: 4·m·n·k - 2·n·k² from the left, 4·m·n·k - 2·m·k² from the right (LAWN 41, ormqr)."""
    other = call["input3"]
    m, n = _size(other)
    k = int(call["input2"].shape[-1])
    return _each(other, 4 * m * n * k - 2 * (n if call["left"] else m) * k * k, call)


@explains("aten::_linalg_eigh")
def eigh(call: OpCall) -> Work:
    """Eigenvalues of a symmetric matrix, with or without the vectors."""
    a = call["A"]
    # equivalent: 0 -> 1 (the matrix is square)
    return _each(a, macs.eigh(_size(a)[0], call["compute_v"]), call)


@explains("aten::linalg_eig", "aten::_linalg_eigvals", "aten::linalg_eigvals")
def eig(call: OpCall) -> Work:
    """Of any square matrix, by Hessenberg form and QR steps: 10n³ for the values, 25n³ with the vectors (GVL, section 7.5)."""
    a = call["self"]
    n, _ = _size(a)
    return _each(a, (10 if "eigvals" in str(call.func) else 25) * n**3, call)


@explains("aten::_linalg_svd")
def svd(call: OpCall) -> Work:
    """Singular values, with or without the vectors."""
    a = call["A"]
    return _each(a, macs.svd(*_size(a), call.get("compute_uv", True), bool(call["full_matrices"])), call)


@explains("aten::linalg_pinv")
def pseudo_inverse(call: OpCall) -> Work:
    """``V·Σ⁻¹·Uᴴ``: thin singular value decomposition (of a Hermitian matrix its eigenvectors), and a product."""
    a = call["self"]
    m, n = _size(a)
    parts = macs.eigh(n, True) if call["hermitian"] else macs.svd(m, n, True)
    work = _each(a, parts + 2 * m * n * min(m, n), call, vector=min(m, n) * m * prod(map(int, a.shape[:-2])))
    return replace(work, bytes=extent(a) + extent(call.outputs[0]))


@explains("aten::linalg_lstsq")
def least_squares(call: OpCall) -> Work:
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
        factor = macs.qr(m, n)
    return _each(a, factor + (4 * max(m, n) * k - 2 * k * k) * r + k * k * r, call)


# -- Fourier transforms: 5·N·log₂N FLOPs each ----------------------------------------------------------------------


def _transforms(whole: Any, dims: Any, call: OpCall) -> Work:
    points = prod(int(whole.shape[d]) for d in dims)
    # equivalent: 0 -> 1 (a transform of no points has no FLOPs)
    many = numel(whole) // points if points else 0
    scaled = numel(call.outputs[0]) if call.get("normalization") else 0
    return counted(many * fourier(points) // 2, call.bytes(), vector=scaled)


@explains("aten::_fft_c2c", "aten::_fft_r2c")
def transform(call: OpCall) -> Work:
    """A transform of complex or of real numbers: N is the size of the input in the dimensions that are transformed.

    A scale for the norm is one element-wise FLOP a number.
    """
    return _transforms(call["self"], call["dim"], call)


@explains("aten::_fft_c2r")
def transform_to_real(call: OpCall) -> Work:
    """A transform to real numbers: N is the size of the result."""
    return _transforms(call.outputs[0], call["dim"], call)
