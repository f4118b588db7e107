"""Fourier transforms: 5·N·log₂N FLOPs each, rounded to the nearest even integer."""

import math

import pytest
import torch
from cases import WAYS, Table, call, g, t
from hypothesis import given, settings, strategies as st
from programs import PLACES, at, count, leaf, row

import flopkit as fk

COMPLEX = torch.complex64


def flops(points):
    """Of one transform; a reading that does not share the counter's arithmetic."""
    exact = 5 * points * math.log(points, 2)
    return min((even for even in range(0, int(exact) + 4, 2)), key=lambda even: abs(even - exact))


def butterflies(points):
    """Real operations of a radix-2 transform: each butterfly is a complex product (6) and two complex sums (4)."""
    if points == 1:
        return 0
    return 2 * butterflies(points // 2) + points // 2 * 10


def test_powers_of_two_are_cooley_and_tukey():
    for points in (1, 2, 4, 64, 1024):
        assert fk.count(torch.fft.fft, torch.ones(points, dtype=COMPLEX)).flops == butterflies(points)


# name: function, shape, dtype, transforms, points of each
TRANSFORMS = {
    "fft": (torch.fft.fft, (3, 12), COMPLEX, 3, 12),
    "fft of real numbers": (torch.fft.fft, (3, 12), torch.float32, 3, 12),
    "ifft": (torch.fft.ifft, (3, 12), COMPLEX, 3, 12),
    "rfft": (torch.fft.rfft, (3, 12), torch.float32, 3, 12),
    "irfft": (torch.fft.irfft, (3, 7), COMPLEX, 3, 12),
    "hfft": (torch.fft.hfft, (3, 7), COMPLEX, 3, 12),
    "ihfft": (torch.fft.ihfft, (3, 12), torch.float32, 3, 12),
    "fft2": (torch.fft.fft2, (3, 12, 8), COMPLEX, 3, 96),
    "rfft2": (torch.fft.rfft2, (3, 12, 8), torch.float32, 3, 96),
    "irfft2": (torch.fft.irfft2, (3, 12, 5), COMPLEX, 3, 96),
    "fftn": (torch.fft.fftn, (3, 4, 5), COMPLEX, 1, 60),
    "n": (lambda x: torch.fft.fft(x, n=20), (3, 12), COMPLEX, 3, 20),
    "cut": (lambda x: torch.fft.rfft(x, n=5), (3, 12), torch.float32, 3, 5),
    "dim": (lambda x: torch.fft.fft(x, dim=0), (3, 12), COMPLEX, 12, 3),
    "dims": (lambda x: torch.fft.fftn(x, dim=(0, 2)), (3, 4, 5), COMPLEX, 4, 15),
    "norm": (lambda x: torch.fft.fft(x, norm="ortho"), (3, 12), COMPLEX, 3, 12),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name, place):
    """Backward is as much as forward: the gradient of a transform is one."""
    fn, shape, dtype, many, points = TRANSFORMS[name]
    with at(place) as device:
        x = leaf(*shape, dtype=dtype, device=device)
        report = count(lambda: fn(x))
    assert (report.forward.flops, report.backward.flops) == (many * flops(points), many * flops(points))


@settings(max_examples=25, deadline=None)
@given(batch=st.integers(1, 4), points=st.integers(1, 300))
def test_linear_in_the_batch_and_rounded_once_for_each(batch, points):
    assert fk.count(torch.fft.fft, torch.ones(batch, points, dtype=COMPLEX)).flops == batch * flops(points)


def test_two_passes_are_one_transform_up_to_rounding():
    x = torch.ones(16, 8, dtype=COMPLEX)
    rows = fk.count(lambda: torch.fft.fft(torch.fft.fft(x, dim=0), dim=1)).flops
    assert rows == fk.count(torch.fft.fft2, x).flops == 5 * 128 * 7


def test_double_precision_is_the_same_and_a_scale_is_element_wise():
    x = torch.ones(3, 12, dtype=torch.complex128)
    report = fk.count(torch.fft.fft, x)
    assert (report.flops, report.vector_flops, report.bytes) == (3 * flops(12), 0, 2 * 16 * 36)
    assert fk.count(lambda: torch.fft.fft(x, norm="ortho")).vector_flops == 36


def test_short_time_transforms():
    x, window = torch.ones(2, 400), torch.ones(64)
    frames = 1 + 400 // 16
    spectrum = torch.stft(x, 64, window=window, return_complex=True)
    report = fk.count(lambda: torch.stft(x, 64, window=window, return_complex=True))
    assert row(report, "_fft_r2c")["flops"] == 2 * frames * flops(64)
    report = fk.count(lambda: torch.istft(spectrum, 64, window=window))
    assert row(report, "_fft_c2r")["flops"] == 2 * frames * flops(64)


# -- a table: 5·N·log₂N each -----------------------------------------------------------------------------------------

TABLE = Table()
case = TABLE.case

# fmt: off
case("fft of 8", lambda: call(torch.fft.fft, t(3, 8, dtype=COMPLEX)), 3 * 5 * 8 * 3)
case("fft of 2", lambda: call(torch.fft.fft, t(3, 2, dtype=COMPLEX)), 3 * 10)  # one butterfly
case("fft of 1", lambda: call(torch.fft.fft, t(3, 1, dtype=COMPLEX)), 0)
case("rfft of 8", lambda: call(torch.fft.rfft, g(3, 8)), 3 * 120, 3 * 120)
case("irfft to 8", lambda: call(torch.fft.irfft, t(3, 5, dtype=COMPLEX)), 3 * 120)
case("fft of 12", lambda: call(torch.fft.fft, t(12, dtype=COMPLEX)), 216)  # 5·12·3.58496… = 215.098: nearest even 216
case("fft of 9", lambda: call(torch.fft.fft, t(9, dtype=COMPLEX)), 142)  # 5·9·3.169925 = 142.65: nearest even 142
case("fft2 of 4 × 8", lambda: call(torch.fft.fft2, t(4, 8, dtype=COMPLEX)), 5 * 32 * 5)
case("fft of padded input", lambda: call(torch.fft.fft, t(3, 5, dtype=COMPLEX), n=8), 3 * 120)
# fmt: on


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TABLE)
def test_flops(name, way):
    TABLE.check(name, way)
