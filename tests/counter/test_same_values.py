"""A program gives the same numbers counted and uncounted, bit by bit: complex linear algebra and transforms, and their gradients.

Below a dispatch mode torch leaves the keys Conjugate and Negative out: what a kernel conjugates inside would stay as it was.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

import flopkit as fk
from flopkit.counter import registry
from flopkit.counter.watch import decompose, internals

COMPLEX, REAL = torch.complex64, torch.float32
L, FFT = torch.linalg, torch.fft


def hermitian(a):
    """A positive definite matrix for each."""
    return a @ a.mH + torch.eye(a.shape[-2], dtype=a.dtype)


# name: a function of two batches of 4x3 matrices
PROGRAMS = {
    "pinv": lambda a, b: L.pinv(a),
    "pinverse": lambda a, b: a.pinverse(),
    "pinv of hermitian": lambda a, b: L.pinv(hermitian(a), hermitian=True),
    "lstsq": lambda a, b: L.lstsq(a, b)[0],
    "lstsq, wide": lambda a, b: L.lstsq(a.mH, b.mH)[0],
    "vecdot": lambda a, b: L.vecdot(a, b),
    "vdot": lambda a, b: torch.vdot(a[0, 0], b[0, 0]),
    "dot": lambda a, b: torch.dot(a[0, 0].conj(), b[0, 0]),
    "inner": lambda a, b: torch.inner(a[0].conj(), b[0]),
    "matmul": lambda a, b: a.mH @ b,
    "einsum": lambda a, b: torch.einsum("bij,bik->bjk", a.conj(), b),
    "linear": lambda a, b: torch.nn.functional.linear(a, b[0].conj()),
    "conv1d": lambda a, b: torch.nn.functional.conv1d(a, b.conj()[:, :, :2]),
    "addmm": lambda a, b: torch.addmm(a[0] @ b[0].mH, a[0], b[0].mH),
    "addmv": lambda a, b: torch.addmv(a[0, :, 0], b[0], b[0, 0].conj()),
    "multi_dot": lambda a, b: L.multi_dot([a[0].mH, b[0], a[0].mH]),
    "matrix_power": lambda a, b: L.matrix_power(hermitian(a), -2),
    "matrix_exp": lambda a, b: L.matrix_exp(hermitian(a) / 8),
    "inv": lambda a, b: L.inv(hermitian(a)),
    "det": lambda a, b: L.det(hermitian(a)),
    "slogdet": lambda a, b: L.slogdet(hermitian(a)),
    "solve": lambda a, b: L.solve(hermitian(a), b.conj()),
    "solve from the left": lambda a, b: L.solve(hermitian(a), b.mH, left=False),
    "solve_triangular": lambda a, b: L.solve_triangular(hermitian(a).triu(), b, upper=True),
    "cholesky": lambda a, b: L.cholesky(hermitian(a)),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, L.cholesky(hermitian(a))),
    "cholesky_inverse": lambda a, b: torch.cholesky_inverse(L.cholesky(hermitian(a))),
    "lu": lambda a, b: L.lu(a),
    "lu_solve": lambda a, b: L.lu_solve(*L.lu_factor(hermitian(a)), b, adjoint=True),
    "ldl": lambda a, b: L.ldl_factor(hermitian(a).detach(), hermitian=True)[0],
    "qr": lambda a, b: L.qr(a),
    "householder": lambda a, b: L.householder_product(a / 4, b[:, 0] / 4),
    "ormqr": lambda a, b: torch.ormqr(*torch.geqrf(a.detach()), b, transpose=True),
    "eigh": lambda a, b: L.eigh(hermitian(a))[0],
    "eig": lambda a, b: L.eig(hermitian(a))[0],
    "svd": lambda a, b: L.svd(a, full_matrices=False)[1],
    "matrix_rank": lambda a, b: L.matrix_rank(a),
    "norms": lambda a, b: (L.vector_norm(a, 3), L.matrix_norm(a), L.norm(a), L.matrix_norm(a, 1)),
    "cond": lambda a, b: L.cond(hermitian(a.detach()), p=1),
    "cross": lambda a, b: L.cross(a, b.conj()),
    "tensorsolve": lambda a, b: L.tensorsolve(hermitian(a[0]), b[0, :, 0]),
    "vander": lambda a, b: L.vander(a[0, 0].conj()),
    "kron": lambda a, b: torch.kron(a[0].conj(), b[0]),
    "cov": lambda a, b: torch.cov(a[0]),
    "angles": lambda a, b: (a.conj().angle(), a.conj().abs(), a.sgn(), torch.resolve_conj(b.conj())),
    "parts": lambda a, b: (torch.view_as_real(a.resolve_conj()), a.conj() * 2, -b.conj()),
    "cumprod": lambda a, b: a.conj().cumprod(-1),
    **{
        name: (lambda a, b, name=name: getattr(FFT, name)(a))
        for name in ("fft ifft hfft irfft fft2 ifft2 hfft2 irfft2 fftn ifftn hfftn irfftn fftshift").split()
    },
    "hfft of a conjugate": lambda a, b: FFT.hfft(a.conj()),
    "istft": lambda a, b: torch.istft(a.mT, 4, window=torch.ones(4), center=True),
}
OF_REAL = {
    **{
        f"{name} of real": (lambda a, b, name=name: getattr(FFT, name)(a.real))
        for name in "fft rfft hfft ihfft rfft2 hfft2 ihfft2 rfftn hfftn ihfftn irfft2".split()
    },
    "pinv of real": lambda a, b: L.pinv(a.real),
    "lstsq of real": lambda a, b: L.lstsq(a.real, b.real)[0],
    "imaginary part of a conjugate": lambda a, b: (a.conj().imag + 1, a.conj().imag @ b.imag.mT),
    "stft": lambda a, b: torch.stft(a.real.flatten(), 4, window=torch.ones(4), return_complex=True),
    "eig of real": lambda a, b: L.eig(hermitian(a.real))[0],
}
MODES = {"gradients": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def results(name, mode):
    """What a program returns, and its gradients."""
    torch.manual_seed(0)
    a, b = (torch.randn(2, 4, 3, dtype=COMPLEX).requires_grad_(mode == "gradients") for _ in range(2))
    with MODES[mode]():
        out = {**PROGRAMS, **OF_REAL}[name](a, b)
        out = list(out) if isinstance(out, (tuple, list)) else [out]
        known = [o for o in out if o.requires_grad]
        if known:
            sum((o * torch.arange(1, o.numel() + 1).view_as(o)).abs().sum() for o in known).backward()
        return [t.detach().resolve_conj().resolve_neg().numpy() for t in (*out, a.grad, b.grad) if t is not None]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*PROGRAMS, *OF_REAL])
def test_the_same_counted_and_not(name, mode):
    plain, counted = results(name, mode), []
    with fk.counting():
        counted += results(name, mode)
        counted += results(name, mode)  # a call that is known by then
    for one, other in zip([*plain, *plain], counted, strict=True):
        if name.startswith("lstsq"):  # LAPACK's own last bits differ from call to call
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        else:
            assert one.tobytes() == other.tobytes()


@torch.library.custom_op("same_values::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    """Real in and out, complex inside."""
    z = torch.view_as_complex(x).conj()
    return (z * 1j).real + z.imag * 2


@pytest.mark.parametrize("explained", [False, True])
def test_an_operator_of_somebody_else(explained):
    x = torch.randn(4, 2)
    fk.count(torch.mul, x[:, 1], 2)  # known from a tensor that is nothing's negative
    plain, counted = turned(x), []
    try:
        if explained:
            fk.formula(turned)(lambda x: 0)
        with fk.counting():
            counted += [turned(x), turned(x)]
    finally:
        registry.forget(turned)
    assert all(torch.equal(plain, each) for each in counted)


def first_position(layer):
    """A slice whose rows are not next to each other: what `linear` makes of it depends on whether the weight needs a gradient."""
    return layer(torch.randn(2, 65, 128)[:, :1])


def recurrent(layer):
    gru = torch.nn.GRU(128, 64, batch_first=True)
    return gru(torch.randn(2, 65, 128)[:, :3])[0]


def changed_in_place(layer):
    """How often torch knows the tensors to have changed: by an operator made of others, and by one that is none."""
    torch.dropout_(layer.bias, 0.5, True)
    layer.weight.square_().add_(1)
    return torch.tensor([layer.bias._version, layer.weight._version])


def in_a_fold(layer):
    return torch.matmul(torch.randn(2, 65, 128)[:, :1], layer.weight.t())


@pytest.mark.parametrize("program", [first_position, recurrent, in_a_fold, changed_in_place])
@pytest.mark.parametrize("mode", ["no_grad", "inference"])
def test_the_same_where_parameters_need_gradients(program, mode):
    found = []
    for count in (contextlib.nullcontext, fk.counting, fk.counting):
        torch.manual_seed(0)
        layer = torch.nn.Linear(128, 512)
        with MODES[mode](), count():
            found.append(program(layer))
    assert all(torch.equal(found[0], other) for other in found)


def test_real_numbers_need_no_guard():
    """It would cost a tiny operator a fifth of its time."""
    entered = []

    def seen():
        entered.append(1)
        return contextlib.nullcontext()

    x, layer = torch.ones(4, 4), torch.nn.Linear(4, 4)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        fk.count(lambda: layer(x).add(x).reshape(-1))  # now the calls are known
        patch.setattr(internals, "conjugating", seen)
        patch.setattr(decompose, "conjugating", seen)
        fk.count(lambda: layer(x).add(x).reshape(-1))
        assert not entered
        fk.count(lambda: torch.ones(4, dtype=COMPLEX).add(1))
        assert entered
