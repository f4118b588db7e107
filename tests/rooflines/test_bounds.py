"""The roofline, by hand and in all four readings."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import flopkit as fk
from flopkit.arithmetic import vega
from flopkit.rooflines import bound_by

FIELDS = ("seconds", "attainable_flops_per_s", "intensity", "ridge", "compute_seconds", "memory_seconds")


def work(tokens):
    """A 4096 -> 16384 layer in bf16: inputs, weights, outputs of two bytes each."""
    return SimpleNamespace(flops=tokens * 134217728, bytes=tokens * 40960 + 134217728)


def test_one_token_by_hand():
    # 134,217,728 FLOPs at 989.4 TFLOP/s are 0.1357 µs; 134,258,688 bytes at 3.35 TB/s are 40.08 µs.
    one = fk.roofline(work(1), "h100-sxm")
    assert one.compute_seconds == pytest.approx(0.135656e-6, rel=1e-5)
    assert one.seconds == one.memory_seconds == pytest.approx(40.0772e-6, rel=1e-5)
    assert one.bound == "memory"
    assert one.intensity == pytest.approx(0.999695, rel=1e-6)
    assert one.attainable_flops_per_s == pytest.approx(3.34898e12, rel=1e-5)
    assert one.compute_seconds / one.seconds == pytest.approx(0.0033848, rel=1e-4)  # the arithmetic is 0.34 % busy


def test_many_tokens_by_hand():
    many = fk.roofline(work(65536), "h100-sxm")
    assert many.bound == "compute"
    assert many.seconds == pytest.approx(65536 * 134217728 / 989.4e12)
    assert many.attainable_flops_per_s == 989.4e12


def test_the_ridge_is_where_the_bound_changes():
    device = fk.Device("x", peak={"bf16": 100e12}, bandwidth=1e12)
    at = {n: fk.roofline(SimpleNamespace(flops=n, bytes=1), device).bound for n in (99, 100, 101)}
    assert at == {99: "memory", 100: "compute", 101: "compute"}


def test_the_layer_itself():
    cost = fk.dense(tokens=1, d_in=4096, d_out=16384)
    assert fk.roofline(cost, "h100-sxm") == fk.roofline(work(1), "h100-sxm")


def test_dtype_chooses_the_peak_only():
    bf16, fp8 = (fk.roofline(work(4096), "h100-sxm", dtype=dtype) for dtype in ("bf16", "fp8"))
    assert fp8.compute_seconds == pytest.approx(bf16.compute_seconds * 989.4 / 1978.9)
    assert (fp8.memory_seconds, fp8.intensity) == (bf16.memory_seconds, bf16.intensity)


def test_numpy_reading():
    tokens = np.array([1.0, 256.0, 325.0, 65536.0])
    swept = fk.roofline(work(tokens), "h100-sxm")
    each = [fk.roofline(work(int(n)), "h100-sxm") for n in tokens]
    for name in FIELDS:
        np.testing.assert_allclose(getattr(swept, name), [getattr(one, name) for one in each], rtol=1e-15)
    assert swept.bound.tolist() == [one.bound for one in each] == ["memory", "memory", "compute", "compute"]


def test_sympy_reading():
    sympy = pytest.importorskip("sympy")
    tokens, peak, bandwidth = sympy.symbols("tokens peak bandwidth", positive=True)
    symbolic = fk.roofline(work(tokens), SimpleNamespace(peak=peak, bandwidth=bandwidth))
    for n in (1, 325, 65536):
        numbers = {tokens: n, peak: 989.4e12, bandwidth: 3.35e12}
        plain = fk.roofline(work(n), "h100-sxm")
        for name in FIELDS:
            assert float(getattr(symbolic, name).subs(numbers)) == pytest.approx(getattr(plain, name), rel=1e-12), name
        assert str(symbolic.bound.subs(numbers)) == plain.bound
    crossing = sympy.solve(sympy.Eq(symbolic.compute_seconds, symbolic.memory_seconds), tokens)[0]
    assert float(crossing.subs({peak: 989.4e12, bandwidth: 3.35e12})) == pytest.approx(
        324.6, abs=0.01
    )  # where 134217728 n / peak = (40960 n + 134217728) / bandwidth


def test_altair_reading():
    altair = pytest.importorskip("altair")
    tokens, peak, bandwidth = (altair.param(name=name, value=1) for name in ("tokens", "peak", "bandwidth"))
    page = fk.roofline(work(tokens), SimpleNamespace(peak=peak, bandwidth=bandwidth))
    vega_functions = {"max": max, "min": min, "cond": lambda c, a, b: a if c else b}
    for n in (1, 325, 65536):
        scope = vega_functions | {"tokens": n, "peak": 989.4e12, "bandwidth": 3.35e12}
        plain = fk.roofline(work(n), "h100-sxm")
        for name in (*FIELDS, "bound"):
            expression = vega(getattr(page, name)).replace("if(", "cond(")
            value = eval(expression, {"__builtins__": {}}, scope)
            assert value == (plain.bound if name == "bound" else pytest.approx(getattr(plain, name), rel=1e-12)), name


def test_a_figure_gives_numbers_for_the_device():
    page_device = SimpleNamespace(peak=989.4e12, bandwidth=3.35e12)
    assert (
        fk.roofline(work(7), page_device)
        == fk.roofline(work(7), "h100-sxm")
        == bound_by(work(7).flops, work(7).bytes, 989.4e12, 3.35e12)
    )


def test_nothing_to_do_takes_no_time():
    assert bound_by(0, 0, 1e12, 1e12).seconds == 0
    assert bound_by(0, 10, 1e12, 1e12).bound == "memory"
    assert bound_by(10, 0, 1e12, 1e12).attainable_flops_per_s == 1e12


def test_it_says_what_it_is():
    text = repr(fk.roofline(work(1), "h100-sxm"))
    assert "at least 40.08 µs, bound by memory" in text and "ridge 295.3 FLOP/B" in text


@pytest.mark.parametrize(
    "cost, device, dtype, message",
    [
        (210, "h100-sxm", "bf16", r"cost=210: must have .flops and .bytes"),
        (work(1), "h100", "bf16", "name='h100' is not a device.*h100-sxm"),
        (work(1), "t4", "bf16", "dtype='bf16': t4 has no peak for bf16"),
        (work(1), "t4", "half a byte", "dtype='half a byte' is not a known number format"),
        (work(1), 989e12, "bf16", "device=.*must be a name such as 'h100-sxm'"),
    ],
)
def test_bad_input(cost, device, dtype, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fk.roofline(cost, device, dtype)


def test_a_count_of_multiply_adds_meets_the_peak_as_two():
    """4,096 tokens through 4,096 × 4,096 are 137.4 GFLOPs, or 68.72 G counted once: 138.9 µs on an H100 either way."""
    cost = fk.dense(tokens=4096, d_in=4096, d_out=4096)
    once = fk.roofline(cost.under(fk.conventions.FVCORE), "h100-sxm")
    assert once.seconds == fk.roofline(cost, "h100-sxm").seconds == pytest.approx(137438953472 / 989.4e12)


def test_any_positive_rate_will_do():
    slow = bound_by(3, 2, 0.5, 0.25)
    assert (slow.compute_seconds, slow.memory_seconds, slow.seconds, slow.ridge) == (6, 8, 8, 2)
    for peak, bandwidth, name in (
        (0, 1, "peak"),
        (1, 0, "bandwidth"),
        (-1, 1, "peak"),
        (math.nan, 1, "peak"),
        (1, math.inf, "bandwidth"),
    ):
        with pytest.raises(ValueError, match=f"{name}=.*must be a finite number of (FLOP|bytes)/s above 0"):
            bound_by(3, 2, peak, bandwidth)
    with pytest.raises(ValueError, match="peak contains 0: each must be a finite number of FLOP/s above 0"):
        bound_by(3, 2, np.array([1, 0]), 1)


def test_a_long_formula_is_cut():
    sympy = pytest.importorskip("sympy")
    for letters, shown in ((40, "x" * 40), (41, "x" * 37 + "...")):
        text = repr(bound_by(sympy.Symbol("x" * letters, positive=True), 1, 1, 1))
        assert f"arithmetic {shown} at" in text
