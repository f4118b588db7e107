"""MFU, HFU and MBU: by hand, in every reading, for every kind of work; what no device can do, and what is no input."""

import copy
import json
import math
import pickle
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import altair
import numpy
import pytest
import sympy
import vega

import flopkit as fk
from flopkit.arithmetic import vega as expression_of
from flopkit.derivations import Derivation
from flopkit.utilization import Utilization

EXACT, TORCH, FVCORE = fk.conventions.EXACT, fk.conventions.TORCH, fk.conventions.FVCORE
H100 = "h100-sxm"  # 989.4 TFLOP/s in bf16, 3.35 TB/s
LIMIT = 132 * 4096 * 1980e6  # SMs × FLOP/clock × the highest clock
TOY = fk.Device("toy", peak={"bf16": 100.0, "fp8": 200.0, "fp32": 10.0}, bandwidth=1000.0)  # limit 1.1 × peak
MASKED = fk.attention(batch=1, q=3, kv=3, heads=1, head_dim=8, mask="causal")  # 192 FLOPs, 288 with the hidden pairs


class Step:
    """As a training step: FLOPs of the model and of the hardware, under a convention that can be changed."""

    def __init__(self, convention=EXACT):
        self.convention = convention
        self.model_flops = 60 if convention == EXACT else 66
        self.hardware_flops = 80 if convention == EXACT else 88

    def under(self, convention):
        return Step(convention)


# -- by hand ----------------------------------------------------------------------------------------------------


def test_a_share_by_hand():
    assert fk.mfu(100.0, seconds=2, device=TOY) == fk.hfu(100.0, seconds=2, device=TOY) == 0.5
    assert fk.mfu(100, seconds=2.0, device=TOY, dtype="fp8") == 0.25
    assert fk.mfu(100, seconds=2.0, device=TOY, count=4) == 0.125
    assert fk.mbu(500, seconds=2, device=TOY) == 0.25
    assert fk.mbu(500, seconds=2, device=TOY, count=5) == 0.05
    assert fk.mfu(0, seconds=1, device=TOY) == fk.mbu(0, seconds=1, device=TOY) == 0


@pytest.mark.parametrize(
    "number", [50, 50.0, Fraction(50), Decimal(50), numpy.int64(50), numpy.float32(50), numpy.array(50)]
)
def test_numbers_of_every_type(number):
    for share in (
        fk.mfu(number, seconds=1, device=TOY),
        fk.hfu(2500, seconds=number, device=TOY),
        fk.mbu(number, seconds=0.1, device=TOY),
    ):
        assert share == 0.5 and type(share) is Utilization


def test_a_cost_counts_under_its_convention():
    assert MASKED.flops == 192 and MASKED.under(TORCH).flops == 288
    share = fk.mfu(MASKED, seconds=4, device=TOY)
    assert share == 0.48 and share.convention == EXACT and share.others == {"TORCH": 0.72}
    share = fk.hfu(MASKED.under(TORCH), seconds=4, device=TOY)
    assert share == 0.72 and share.convention == TORCH and share.others == {"EXACT": 0.48}
    assert fk.mbu(MASKED, seconds=1, device=TOY) == MASKED.bytes / 1000 == 0.192


def test_without_a_mask_there_is_one_number():
    assert fk.mfu(fk.matmul(m=1, k=2, n=3), seconds=1, device=TOY).others == {}


def test_a_multiply_add_is_two_flops_where_peaks_are_met():
    """Under FVCORE it counts as one; a peak counts it as two."""
    cost = fk.matmul(m=1, k=2, n=3)
    assert (cost.flops, cost.under(FVCORE).flops) == (12, 6)
    assert fk.mfu(cost.under(FVCORE), seconds=1, device=TOY) == fk.mfu(cost, seconds=1, device=TOY) == 0.12
    assert fk.mfu(cost.under(FVCORE), seconds=1, device=TOY).others == {}


def test_recompute_is_hardware_s_alone():
    cost = fk.Cost("a step", macs_by_kind={"products": 15, "recompute": 5})
    assert fk.mfu(cost, seconds=1, device=TOY) == 0.3
    assert fk.hfu(cost, seconds=1, device=TOY) == 0.4


def test_a_step_has_both():
    assert fk.mfu(Step(), seconds=1, device=TOY) == 0.6 and fk.mfu(Step(), seconds=1, device=TOY).others == {
        "TORCH": 0.66
    }
    assert fk.hfu(Step(), seconds=1, device=TOY) == 0.8 and fk.hfu(Step(), seconds=1, device=TOY).others == {
        "TORCH": 0.88
    }
    assert fk.mfu(Step(), seconds=1, device=TOY, dtype="fp8") == 0.3
    bare = SimpleNamespace(model_flops=60, hardware_flops=80, convention="torch")  # that cannot be translated
    assert fk.mfu(bare, seconds=1, device=TOY).others == {} and fk.mfu(bare, seconds=1, device=TOY).convention == TORCH


def test_the_current_device_is_asked_for(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    assert fk.mfu(98.95e12, seconds=1, device=fk.device()) == pytest.approx(0.1)


# -- a program that ran -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed():
    """60 FLOPs in fp32 and 120 in bf16, forward; a checkpoint computes the 60 again; backward twice both."""
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    first = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh())
    second = torch.nn.Linear(5, 6, dtype=torch.bfloat16)
    x = torch.ones(2, 3, requires_grad=True)
    with fk.counting() as report:
        second(checkpoint(first, x, use_reentrant=False).bfloat16()).sum().backward()
    return report


def test_a_report_s_flops_by_dtype(mixed):
    assert mixed.flops_by_dtype() == {"fp32": 60 + 120 + 60, "bf16": 120 + 240}
    assert mixed.flops_by_dtype(model=True) == {"fp32": 60 + 120, "bf16": 120 + 240}
    assert sum(mixed.flops_by_dtype().values()) == mixed.hardware_flops
    assert sum(mixed.flops_by_dtype(model=True).values()) == mixed.model_flops
    assert mixed.under(FVCORE).flops_by_dtype() == {"fp32": 120, "bf16": 180}
    assert all(type(flops) is int for flops in mixed.flops_by_dtype().values())


def test_each_operator_meets_the_peak_of_its_own_format(mixed):
    """180 FLOPs at 10 FLOP/s and 360 at 100 take 21.6 s."""
    share = fk.mfu(mixed, seconds=43.2, device=TOY)
    assert share == 0.5 and share.peak == pytest.approx(540 / 21.6)
    assert repr(share) == "MFU 50 % of 25 FLOP/s in fp32 and bf16, toy, TORCH"
    assert fk.hfu(mixed, seconds=55.2, device=TOY) == pytest.approx(0.5)  # 240 and 360: 27.6 s
    assert fk.mfu(mixed.under(FVCORE), seconds=43.2, device=TOY) == 0.5
    assert fk.mbu(mixed, seconds=2, device=TOY) == mixed.bytes / 2000


def test_one_format_for_all_of_a_report(mixed):
    assert fk.mfu(mixed, seconds=10, device=TOY, dtype="bf16") == pytest.approx(0.54)
    assert fk.hfu(mixed, seconds=10, device=TOY, dtype="fp8") == pytest.approx(0.30)
    assert repr(fk.mfu(mixed, seconds=10, device=TOY, dtype="bfloat16")).startswith(
        "MFU 54 % of 100 FLOP/s in bf16, toy"
    )


def test_a_report_that_hides_a_mask_shows_both():
    torch = pytest.importorskip("torch")
    q = torch.ones(1, 1, 3, 8)
    report = fk.count(torch.nn.functional.scaled_dot_product_attention, q, q, q, is_causal=True)
    share = fk.mfu(report, seconds=100, device=TOY)
    assert share == pytest.approx(0.288) and share.others == pytest.approx({"EXACT": 0.192})
    assert fk.mfu(report.under("EXACT"), seconds=100, device=TOY).others == pytest.approx({"TORCH": 0.288})
    with pytest.raises(ValueError, match=r"hidden pairs are counted, .*\.under\('EXACT'\) makes it 96 %"):
        fk.mfu(report, seconds=20, device=TOY)


def test_the_fastest_way_of_a_format_is_met():
    """torch multiplies float64 by an A100's matrix units, as report.roofline has it; a number says its own format."""
    torch = pytest.importorskip("torch")
    x = torch.ones(8, 8, dtype=torch.float64)
    report = fk.count(torch.mm, x, x)
    share = fk.mfu(report, seconds=1e-9, device="a100-sxm-80gb")
    assert share.peak == 19.5e12 and "in fp64_tensor" in repr(share)
    assert fk.mfu(1e12, seconds=1, device="a100-sxm-80gb", dtype="fp64").peak == 9.7e12


@pytest.fixture
def lacking():
    """A report of a product and of two operators that nobody explained."""
    torch = pytest.importorskip("torch")

    @torch.library.custom_op("shares::halved", mutates_args=())
    def halved(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() / 2)

    return fk.count(lambda x: halved(halved(x @ x)), torch.ones(4, 4))


def test_no_share_of_a_report_that_lacks_operators(lacking):
    """As `flopkit run` has it: what it does not know may be most of the work."""
    for ask in (fk.mfu, fk.hfu, fk.mbu):
        with pytest.raises(
            ValueError, match=rf"^not counted: shares.halved .2 calls., so no {ask.__name__.upper()}: flopkit.formula"
        ):
            ask(lacking, seconds=100, device=TOY)
    with pytest.raises(ValueError, match="so no MFU: .* pass the report's model_flops, a number"):
        fk.Meter(lacking, device=TOY)
    with pytest.raises(ValueError, match="so no HFU"):
        fk.Meter(100, device=TOY, hardware_flops=lacking)
    assert fk.mfu(lacking.model_flops, seconds=100, device=TOY) == 2 * 4**3 / 100 / TOY.peak("bf16")


def test_a_report_without_flops_has_no_format():
    torch = pytest.importorskip("torch")
    report = fk.count(torch.neg, torch.ones(3))
    with pytest.raises(ValueError, match=r"counted no FLOPs.*pass dtype="):
        fk.mfu(report, seconds=1, device=TOY)
    assert fk.mfu(report, seconds=1, device=TOY, dtype="bf16") == 0


# -- a float ----------------------------------------------------------------------------------------------------


def test_it_is_a_float():
    share = fk.mfu(MASKED, seconds=4, device=TOY)
    assert (
        isinstance(share, float)
        and share + 0.02 == 0.5
        and type(2 * share) is float
        and share < 0.5
        and hash(share) == hash(0.48)
    )
    assert (str(share), f"{share}", f"{share:.1%}", format(share, ".2f"), f"{share:.3g}") == (
        "0.48",
        "0.48",
        "48.0%",
        "0.48",
        "0.48",
    )
    assert json.dumps({"mfu": share}) == '{"mfu": 0.48}' and json.dumps([share], indent=1) == "[\n 0.48\n]"
    assert round(share, 1) == 0.5 and math.isclose(share, 0.48) and {0.48: "found"}[share]
    assert numpy.array([share]).dtype == "float64" and float(share).__class__ is float


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_says_the_same(copied):
    share = fk.mfu(MASKED, seconds=4, device=TOY, count=2)
    twin = copied(share)
    assert twin == share and type(twin) is type(share) and repr(twin) == repr(share)
    assert (twin.peak, twin.convention, twin.others) == (200, EXACT, {"TORCH": 0.36})


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (lambda: fk.mfu(MASKED, seconds=4, device=TOY), "MFU 48 % of 100 FLOP/s in bf16, toy, EXACT; 72 % under TORCH"),
        (
            lambda: fk.hfu(Step(TORCH), seconds=1, device=TOY),
            "HFU 88 % of 100 FLOP/s in bf16, toy, TORCH; 80 % under EXACT",
        ),
        (
            lambda: fk.mfu(2.5e18, seconds=2, device=H100, count=2048, dtype="fp8"),
            "MFU 30.8 % of 2,048 × 1.979 PFLOP/s in fp8, NVIDIA H100 SXM5 80 GB, FLOPs as given",
        ),
        (lambda: fk.mbu(1e12, seconds=1, device=H100, count=2), "MBU 14.9 % of 2 × 3.35 TB/s, NVIDIA H100 SXM5 80 GB"),
    ],
)
def test_it_says_what_it_is_a_share_of(share, says):
    assert repr(share()) == says
    assert share()._repr_html_() == f"<div>{says.replace(' %', '&nbsp;%')}</div>"


def test_html_is_escaped():
    card = fk.Device("<b>", peak={"bf16": 10}, bandwidth=1)
    assert "&lt;b&gt;" in fk.mfu(1, seconds=1, device=card)._repr_html_()


def test_the_peak_is_that_of_all_devices():
    assert fk.mfu(1, seconds=1, device=TOY, count=3).peak == 300
    assert fk.mbu(1, seconds=1, device=TOY, count=3).peak == 3000
    assert fk.mbu(1, seconds=1, device=TOY).convention is None


# -- sweeps, symbols, sliders -----------------------------------------------------------------------------------


def test_a_sweep_is_an_array():
    flops, seconds = numpy.array([10, 20, 30]), numpy.array([1.0, 2.0, 0.5])
    for share, right in (
        (fk.mfu(flops, seconds=seconds, device=TOY), [0.1, 0.1, 0.6]),
        (fk.hfu(flops, seconds=1, device=TOY), [0.1, 0.2, 0.3]),
        (fk.hfu(numpy.array([0, 0.5]), seconds=1, device=TOY), [0, 0.005]),
        (fk.mfu(10**20, seconds=1e18 * seconds, device=TOY, count=2), [0.5, 0.25, 1.0]),
        (fk.mbu(10 * flops, seconds=seconds, device=TOY), [0.1, 0.1, 0.6]),
        (fk.mfu(30, seconds=1, device=TOY, count=numpy.array([1, 2, 3])), [0.3, 0.15, 0.1]),
        (fk.mfu(fk.matmul(m=flops, k=1, n=1), seconds=4 * seconds, device=TOY), [0.05, 0.05, 0.3]),
    ):
        assert type(share) is numpy.ndarray
        numpy.testing.assert_allclose(share, right, rtol=1e-15)


def test_a_sweep_is_checked_at_every_point():
    seconds = numpy.array([[4.0, 2.0], [0.5, 0.1]])
    with pytest.raises(
        ValueError,
        match=r"MFU is impossible at position 2 of the sweep: 200 FLOP/s on each toy is above its limit of 110 FLOP/s",
    ):
        fk.mfu(100, seconds=seconds, device=TOY)
    with pytest.raises(
        ValueError, match=r"MBU is impossible at position 1 of the sweep: 1\.2 kB/s .* limit of 1\.02 kB/s"
    ):
        fk.mbu(numpy.array([10, 1200]), seconds=1, device=TOY)
    with pytest.raises(ValueError, match="impossible at position 0") as caught:
        fk.mfu(MASKED.under(TORCH), seconds=numpy.array([2.0, 4.0]), device=TOY)
    assert "under('EXACT')" not in str(caught.value)  # the shares of one point would stand for all


@pytest.mark.parametrize("function", [fk.mfu, fk.hfu])
def test_symbols(function):
    m, t, n = sympy.symbols("m t n", positive=True, integer=True)
    formula = function(fk.matmul(m=m, k=5, n=5), seconds=t, device=TOY, count=n)
    assert float(formula.subs({m: 4, t: 2, n: 8})) == function(200, seconds=2, device=TOY, count=8) == 0.125
    assert float(function(m, seconds=2, device=TOY).subs(m, 50)) == 0.25
    assert float(fk.mbu(m, seconds=t, device=TOY, count=n).subs({m: 400, t: 2, n: 2})) == 0.1


def test_sliders():
    m, t, n, peak, bandwidth = (altair.param(name=name, value=1) for name in ("m", "t", "n", "peak", "bandwidth"))
    signals = {"m": 4, "t": 2, "n": 8, "peak": 100.0, "bandwidth": 1000.0}
    chosen = SimpleNamespace(peak=peak, bandwidth=bandwidth)  # as a figure has it whose device is a control
    for share, right in (
        (fk.mfu(fk.matmul(m=m, k=5, n=5), seconds=t, device=TOY, count=n), 0.125),
        (fk.mfu(MASKED * m, seconds=t, device=chosen), 192 * 4 / 200),
        (fk.hfu(m, seconds=2, device=TOY), 0.02),
        (fk.mfu(50, seconds=t, device=TOY), 0.25),
        (fk.mfu(50, seconds=2, device=chosen, count=n), 0.25 / 8),
        (fk.mbu(m, seconds=t, device=chosen, count=n), 4 / 2 / 8 / 1000),
    ):
        assert vega.evaluate(expression_of(share), signals) == pytest.approx(right, rel=1e-15)


def test_a_device_of_a_figure_gives_numbers_too():
    share = fk.mfu(50, seconds=1, device=SimpleNamespace(peak=100))
    assert share == 0.5 and repr(share) == "MFU 50 % of 100 FLOP/s in bf16, device, FLOPs as given"
    assert fk.mfu(150, seconds=1, device=SimpleNamespace(peak=100)) == 1.5  # which has no limit


def test_kinds_do_not_mix():
    with pytest.raises(TypeError, match="cannot mix"):
        fk.mfu(numpy.array([1, 2]), seconds=sympy.Symbol("t"), device=TOY)


# -- what no device can do --------------------------------------------------------------------------------------


def test_the_limit_is_physics_and_not_the_peak():
    """An H100 that boosts to 1,980 MHz passes its printed peak, which belongs to 1,830 MHz."""
    share = fk.mfu(0.9999 * LIMIT, seconds=1, device=H100)
    assert share == pytest.approx(1.0819, abs=1e-4)
    with pytest.raises(ValueError) as caught:
        fk.mfu(1.0001 * LIMIT, seconds=1, device=H100)
    assert str(caught.value) == (
        "MFU is impossible: 1.071 PFLOP/s on each NVIDIA H100 SXM5 80 GB is above its limit of 1.071 PFLOP/s "
        "(bf16: 132 SM × 4,096 FLOP/clock × 1,980 MHz = 1.071 PFLOP/s). Usual causes:\n"
        "- The clock was read before the device had finished: call torch.cuda.synchronize() first.\n"
        "- FLOPs of several devices, steps or batches beside the time of one; count= is the number of devices.\n"
        "- Another device or number format than the one that ran: fp32 runs as tf32 where that is allowed.\n"
        "- All experts in N, of which a token uses a few."
    )


def test_at_the_limit_itself_a_time_is_possible():
    made_of = Derivation(unit="SM", units=1, clock=1.0, flops_per_clock={"bf16": 128}, highest_clock=2.0)
    card = fk.Device("twice as fast as it says", peak={"bf16": 128}, bandwidth=1, derivation=made_of)
    assert fk.mfu(256, seconds=1, device=card) == 2
    assert fk.mfu(256, seconds=numpy.array([1.0]), device=card).tolist() == [2]
    for seconds in (0.999, numpy.array([0.999]), numpy.array([1.0, 0.999])):
        with pytest.raises(ValueError, match="1 SM × 128 FLOP/clock"):
            fk.mfu(256, seconds=seconds, device=card)


def test_where_no_limit_is_known_it_is_a_margin_above_the_peak():
    assert fk.hfu(109, seconds=1, device=TOY) == 1.09
    with pytest.raises(
        ValueError,
        match=r"HFU is impossible: 111 FLOP/s on each toy .* \(bf16: 1\.1 × peak: the highest clock is not known\)",
    ):
        fk.hfu(111, seconds=1, device=TOY)
    assert fk.hfu(219, seconds=1, device=TOY, count=2) == 1.095
    with pytest.raises(ValueError, match="110.5 FLOP/s on each toy"):
        fk.hfu(221, seconds=1, device=TOY, count=2)


def test_a_bandwidth_may_be_passed_by_what_its_print_rounds_away():
    assert fk.mbu(1019, seconds=1, device=TOY) == 1.019
    with pytest.raises(
        ValueError,
        match=r"MBU is impossible: 1\.021 kB/s on each toy is above its limit of 1\.02 kB/s \(1\.02 × the printed",
    ) as caught:
        fk.mbu(1021, seconds=1, device=TOY)
    assert "cache" in str(caught.value) and "count= is" in str(caught.value) and "synchronize" in str(caught.value)
    assert "clocked higher" in str(caught.value)


def test_the_convention_may_be_the_cause():
    scores = MASKED.under(TORCH)
    with pytest.raises(ValueError, match=r"\.under\('EXACT'\) makes it 96 %\.\n- The clock") as caught:
        fk.mfu(scores, seconds=2, device=TOY)
    assert "experts" not in str(caught.value)  # whose number is ours
    with pytest.raises(ValueError) as caught:
        fk.mfu(MASKED, seconds=1, device=TOY)
    assert "under(" not in str(caught.value)
    with pytest.raises(ValueError) as caught:
        fk.mfu(fk.matmul(m=9, k=9, n=9).under(TORCH), seconds=1, device=TOY)
    assert "under(" not in str(caught.value)
    more = replace(EXACT, name="MINE", hidden=1, head=1)  # where TORCH says less, a mask is not why
    cost = fk.Cost(macs_by_kind={"embedding": 60, "products": 40}, convention=replace(more, embedding=1))
    with pytest.raises(ValueError) as caught:
        fk.mfu(cost, seconds=1, device=TOY)
    assert "under(" not in str(caught.value)


def test_formats_have_limits_of_their_own(mixed):
    """At their limits, 1.1 × each peak, 21.6 s are 19.64 s."""
    assert fk.mfu(mixed, seconds=19.7, device=TOY) > 1.09
    with pytest.raises(ValueError, match=r"limit of 27\.5 FLOP/s \(fp32: 1\.1 × peak.*; bf16: 1\.1 × peak"):
        fk.mfu(mixed, seconds=19.6, device=TOY)


# -- what is no input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [fk.mfu, fk.hfu, fk.mbu])
@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"seconds": 0}, ValueError, "seconds=0: must be a finite number of seconds above 0"),
        ({"seconds": -1.5}, ValueError, "seconds=-1.5: must be a finite number of seconds above 0"),
        ({"seconds": math.nan}, ValueError, "seconds=nan: must be a finite"),
        ({"seconds": math.inf}, ValueError, "seconds=inf: .*finite"),
        ({"seconds": "1 s"}, TypeError, "seconds='1 s': must be a number of seconds"),
        ({"seconds": True}, TypeError, "seconds=True: must be a number"),
        ({"seconds": None}, TypeError, "seconds=None: must be a number"),
        ({"seconds": [1.0, 2.0]}, TypeError, r"seconds=\[1.0, 2.0\]: must be a number"),
        (
            {"seconds": numpy.array([1.0, 0.0])},
            ValueError,
            "seconds contains 0: each must be a finite number of seconds above 0",
        ),
        ({"seconds": numpy.array([1.0, math.nan])}, ValueError, "seconds contains nan: each"),
        ({"seconds": numpy.array([1.0, math.inf])}, ValueError, "seconds contains inf: each"),
        ({"seconds": numpy.array(["1"])}, TypeError, "seconds has dtype <U1: must be an array of numbers"),
        ({"work": -1}, ValueError, "=-1: must be a finite number of .* of at least 0"),
        ({"work": math.nan}, ValueError, "=nan: must be a finite"),
        ({"work": numpy.array([-1.0])}, ValueError, " contains -1: each must be a finite number of .* of at least 0"),
        ({"work": numpy.array([math.inf])}, ValueError, " contains inf: each must be a finite"),
        ({"work": "1e12"}, TypeError, "='1e12': must be a number of"),
        ({"work": None}, TypeError, "=None: must be a number of"),
        ({"work": 1j}, TypeError, "=1j: must be a number of"),
        ({"work": [1]}, TypeError, r"=\[1\]: must be a number of"),
        ({"device": "h100"}, ValueError, "name='h100' is not a device in the data; did you mean h100"),
        ({"device": 989e12}, TypeError, "is not a device in the data"),
        ({"count": 0}, ValueError, "count=0"),
        ({"count": -8}, ValueError, "count=-8"),
        ({"count": 1.5}, TypeError, "count=1.5"),
        ({"count": True}, TypeError, "count=True"),
        ({"count": None}, TypeError, "count=None"),
    ],
)
def test_wrong_input(function, wrong, error, says):
    given = {"work": 1, "seconds": 1, "device": TOY, "count": 1} | wrong
    with pytest.raises(error, match=says):
        function(given.pop("work"), **given)


@pytest.mark.parametrize("function", [fk.mfu, fk.hfu])
@pytest.mark.parametrize(
    ("device", "dtype", "says"),
    [
        ("a100-sxm-80gb", "fp8", "dtype='fp8': a100-sxm-80gb has no peak for fp8; it has fp64"),
        ("t4", None, "dtype='bf16': t4 has no peak for bf16"),
        (TOY, "bf61", "dtype='bf61' is not a known number format; did you mean bf16"),
    ],
)
def test_a_format_that_the_device_lacks(function, device, dtype, says):
    with pytest.raises(ValueError, match=re.escape(says).replace(r"\ ", " ")):
        function(1, seconds=1, device=device, dtype=dtype)


def test_work_without_the_flops_that_are_asked_for():
    with pytest.raises(TypeError, match=r"flops\.hardware_flops=namespace.*must be a number of FLOPs"):
        fk.hfu(SimpleNamespace(model_flops=1, convention=EXACT), seconds=1, device=TOY)
    with pytest.raises(TypeError, match="must be a number of FLOPs, a Cost, a training step or a Report"):
        fk.mfu(SimpleNamespace(model_flops=1), seconds=1, device=TOY)


def test_sizes_are_by_name():
    with pytest.raises(TypeError):
        fk.mfu(1, 1, TOY)


def test_a_whole_model_s_step():
    """The two numerators of a step under full recompute, one peak; its convention and the other one beside it."""
    step = fk.load("llama-3-8b").train_step(seq=8192, recompute="full")
    share, hardware = (function(step, seconds=1, device=H100) for function in (fk.mfu, fk.hfu))
    assert share == pytest.approx(step.model_flops / 989.4e12) and share.convention == EXACT
    assert hardware == pytest.approx(step.hardware_flops / 989.4e12) and hardware > 1.3 * share
    assert share.others == {"TORCH": pytest.approx(step.under(TORCH).model_flops / 989.4e12)}
    assert fk.mfu(step.under("SIX_N"), seconds=1, device=H100) == pytest.approx(
        step.under("SIX_N").model_flops / 989.4e12
    )
    meter = fk.Meter(step, device=H100, clock=iter([0.0, 1.0]).__next__)
    assert meter.step().hfu == hardware
