"""Linear algebra and Fourier transforms: the leading order of LAPACK's algorithm, rounded for each matrix to the nearest even integer.

The closed forms, and what "LAWN 41" and "GVL" are, stand in `flopkit.macs`. A complex number takes four times as many FLOPs. What follows a
factorisation in ``backward`` is products and triangular solves, and counts as those. Not counted: pivoting, scaling, iterations beyond what
the source assumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

from flopkit import macs
from flopkit.counter.calls import OpCall, extent, numel
from flopkit.counter.formulas.elementwise import plain
from flopkit.counter.formulas.products import is_sparse, stored
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

Flops = Fraction | int


class One(NamedTuple):
    """One matrix of a batch: m rows and n columns, r right-hand sides (columns of the result), and the call that it is of."""

    m: int
    n: int
    r: Flops
    call: OpCall


def _qr(one: One) -> Flops:
    k, mode = min(one.m, one.n), one.call["mode"]
    columns = one.m if mode == "complete" else k
    return macs.qr(one.m, one.n) + (0 if mode == "r" else macs.reflectors(one.m, columns, k))


def _least_squares(one: One) -> Flops:
    m, k = max(one.m, one.n), min(one.m, one.n)
    by_values = one.call["driver"] in ("gelsd", "gelss")
    factor = 4 * m * k * k + 8 * k**3 if by_values else macs.qr(one.m, one.n)
    return factor + (4 * m * k - 2 * k * k) * one.r + k * k * one.r


# The argument that is the matrix, its FLOPs, and what they are.
_ROWS: Mapping[str, tuple[str, Callable[[One], Flops], str]] = {
    # factorisations
    "linalg_cholesky_ex cholesky": ("self", lambda a: Fraction(a.n**3, 3), "A = L·Lᵀ: n³/3 (LAWN 41, potrf)"),
    "linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet":
        ("A", lambda a: macs.lu(a.m, a.n), "A = P·L·U, and the determinant, which is read off it"),
    "geqrf": ("self", lambda a: macs.qr(a.m, a.n), "only R, and the reflectors that Q is made of"),
    "linalg_qr": ("A", _qr, "R, and Q put together from its reflectors where it is asked for (mode='r' does not)"),
    "linalg_householder_product":
        ("input", lambda a: macs.reflectors(a.m, a.n, int(a.call["tau"].shape[-1])), "Q from its reflectors"),
    # inverses and solves
    "linalg_inv_ex": ("A", lambda a: 2 * a.n**3, "the factorisation, and 4n³/3 more (LAWN 41, getrf and getri)"),
    "cholesky_inverse": ("self", lambda a: Fraction(2 * a.n**3, 3), "the inverse from Cholesky's factor: 2n³/3 (LAWN 41, potri)"),
    "_linalg_solve_ex": ("A", lambda a: macs.lu(a.n, a.n) + 2 * a.n * a.n * a.r,
                         "a factorisation, two triangular solves for each right-hand side: 2n³/3 + 2·n²·r (LAWN 41, gesv)"),
    "linalg_solve_triangular": ("self", lambda a: a.n * a.n * a.r, "n²·r (LAWN 41, trtrs)"),
    "triangular_solve": ("A", lambda a: a.n * a.n * a.r, "the same; where the matrix is sparse, two FLOPs for each number that it stores"),
    **{name: (factor, lambda a: 2 * a.n * a.n * a.r, "two triangular solves: 2·n²·r (LAWN 41, getrs, potrs)") for name, factor in
       {"linalg_lu_solve": "LU", "cholesky_solve": "input2", "_cholesky_solve_helper": "A"}.items()},
    # eigenvalues and singular values
    "_linalg_eigh": ("A", lambda a: macs.eigh(a.n, a.call["compute_v"]), "of a symmetric matrix, with or without the vectors"),
    "linalg_eig": ("self", lambda a: 25 * a.n**3, "of any square matrix, by Hessenberg form and QR steps: 25n³ (GVL, section 7.5)"),
    "_linalg_eigvals linalg_eigvals": ("self", lambda a: 10 * a.n**3, "the same without the vectors: 10n³"),
    "_linalg_svd":
        ("A", lambda a: macs.svd(a.m, a.n, a.call["compute_uv"], bool(a.call["full_matrices"])), "with or without the vectors"),
    "linalg_lstsq": ("self", _least_squares, "by QR: the factorisation, Qᵀ applied to r right-hand sides, a triangular solve (LAWN 41, gels); "
                     "the drivers gelsd and gelss take singular values, 4·m·n² + 8n³ (GVL, section 5.5), and as much for the right-hand sides"),
}  # fmt: skip
ALGORITHMS = {name: row for names, row in _ROWS.items() for name in names.split()}


@explains(*ALGORITHMS)
def algorithm(call: OpCall) -> Work:
    """A row of the table."""
    name, flops, _ = ALGORITHMS[plain(call.name)]
    matrix, sides = call[name], call.outputs[0] if call.get("b") is None else call["b"]
    if is_sparse(matrix):  # of a triangular solve
        columns = int(call["self"].shape[-1])
        return counted(macs.of_numbers(stored(matrix) * columns, matrix.dtype.is_complex), call.bytes())
    *batch, m, n = map(int, matrix.shape)
    rows = prod(batch) * m
    # equivalent: 0 -> 1 (there is nothing then that it could be multiplied with)
    return _each(matrix, flops(One(m, n, Fraction(numel(sides), rows) if rows else 0, call)), call)


def _each(matrix: Any, flops: Flops, call: OpCall) -> Work:
    """*flops* for each matrix of a batch."""
    flops = macs.nearest_even(macs.of_numbers(flops, matrix.dtype.is_complex))
    return counted(prod(map(int, matrix.shape[:-2])) * flops // 2, call.bytes())


@explains("linalg_pinv")
def pseudo_inverse(call: OpCall) -> Work:
    """``V·Σ⁻¹·Uᴴ``: thin singular value decomposition (of a Hermitian matrix its eigenvectors), and a product; Σ⁻¹ scales the vectors."""
    a = call["self"]
    *batch, m, n = map(int, a.shape)
    parts = macs.eigh(n, True) if call["hermitian"] else macs.svd(m, n, True)
    work = _each(a, parts + 2 * m * n * min(m, n), call)
    return replace(work, vector={"elementwise": min(m, n) * m * prod(batch)}, bytes=extent(a) + extent(call.outputs[0]))


@explains("_fft_c2c _fft_r2c _fft_c2r")
def fourier_transform(call: OpCall) -> Work:
    """5·N·log₂N FLOPs each. N is the size of the input in the dimensions that are transformed; of a transform to real numbers, of the result.

    A scale for the norm is one element-wise FLOP a number.
    """
    result = call.outputs[0]
    whole = result if "c2r" in call.name else call["self"]
    points = prod(int(whole.shape[d]) for d in call["dim"])
    # equivalent: 0 -> 1 (a transform of no points has no FLOPs)
    many = numel(whole) // points if points else 0
    return counted(many * macs.fourier(points) // 2, call.bytes(), vector=numel(result) if call["normalization"] else 0)
