"""Text of a number and back. The oracle for rounding is Python's own decimal arithmetic; the page's twin is compared in tests/browser."""

import decimal
import doctest
import math
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from flopkit import units
from flopkit.units import count, format_value, parse, percent, seconds, si, times


def test_docstring_examples():
    result = doctest.testmod(units)
    assert result.attempted >= 8 and result.failed == 0


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (137438953472, "FLOPs", "137.4 GFLOPs"),
        (2, "FLOPs", "2 FLOPs"),
        (1, "FLOPs", "1 FLOP"),
        (0, "FLOPs", "0 FLOPs"),
        (999, "FLOPs", "999 FLOPs"),
        (1000, "FLOPs", "1 kFLOPs"),
        (999949, "FLOPs", "999.9 kFLOPs"),
        (999950, "FLOPs", "1 MFLOPs"),
        (989.4e12, "FLOP/s", "989.4 TFLOP/s"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (1.5e12, "bytes", "1.5 TB"),
        (131072, "B", "131.1 kB"),
        (6.6e29, "FLOPs", "660 RFLOPs"),
        (1.2e-3, "s", "1.2 ms"),
        (1.5e-6, "seconds", "1.5 µs"),
        (119.99, "s", "120 s"),
        (120, "s", "2 min"),
        (86400, "s", "24 h"),
        (172800, "s", "2 days"),
        (700, "W", "700 W"),
        (1.98e9, "Hz", "1.98 GHz"),
        (295.34328358, "FLOP/B", "295.3 FLOP/B"),
        (4096, "FLOP/B", "4,096 FLOP/B"),
        (4096, "tokens", "4,096 tokens"),
        (1, "tokens", "1 token"),
        (1, "batches", "1 batch"),
        (8030261248, "parameters", "8,030,261,248 parameters"),
        (0.5, "%", "50 %"),
        (0.123449, "%", "12.3 %"),
        (0.0005, "percent", "0.05 %"),
        (12.5, "%", "1,250 %"),
        (0.0512, "+%", "+5.12 %"),
        (-0.0000259, "+%", "0 %"),
        (-0.00005, "+%", "−0.01 %"),
        (1.5, "+%", "+150 %"),
        (math.nan, "+%", "–"),
        (-math.inf, "+%", "−∞ %"),
        (math.inf, "+%", "+∞ %"),
        (13.64, "×", "13.6×"),
        (1234.5, "x", "1,235×"),
        (0.00123456, "", "0.001235"),
        (12345.6, "", "12,346"),
        (-1500, "FLOPs", "−1.5 kFLOPs"),
        (math.inf, "s", "∞ s"),
        (math.nan, "%", "–"),
        ("memory", "", "memory"),
    ],
)
def test_text(value, unit, text):
    assert format_value(value, unit) == text


def test_rounding_is_half_up_on_the_exact_value():
    below_the_tie = 1.0005
    assert decimal.Decimal(below_the_tie) < decimal.Decimal("1.0005") and si(below_the_tie, "s") == "1 s"
    assert count(2.5, "", 1) == "3" and count(3.5, "", 1) == "4" and count(-2.5, "", 1) == "−3"
    assert times(1000.5) == "1,001×" and times(1001.5) == "1,002×"


@given(st.floats(1e-12, 1e29))
def test_si_agrees_with_decimal(value):
    with decimal.localcontext() as context:
        context.prec, context.rounding = 4, decimal.ROUND_HALF_UP
        rounded = +decimal.Decimal(value)
    quantity = parse(si(value, "FLOPs"))
    assert quantity.unit == "FLOPs"
    assert float(quantity.value) == pytest.approx(float(rounded), rel=1e-15)


@given(st.integers(0, 10**18), st.sampled_from(["FLOPs", "FLOP/s", "B", "B/s", "MACs", "FLOP/B", "tokens", "%", "×"]))
def test_text_reads_back_within_half_a_digit(value, unit):
    quantity = parse(format_value(value, unit))
    assert quantity.unit.rstrip("s") == unit.rstrip("s") or quantity.unit == unit
    assert abs(quantity.value - value) <= max(5e-4 * value, quantity.half_ulp) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("text", "value", "unit", "half"),
    [
        ("137.4 GFLOPs", 137_400_000_000, "FLOPs", 50_000_000),
        ("1 FLOP", 1, "FLOPs", 0.5),
        ("12 FLOPs/token", 12, "FLOPs/token", 0.5),
        ("6 FLOPs per byte", 6, "FLOP/B", 0.5),
        ("989.4 TFLOP/s", 989_400_000_000_000, "FLOP/s", 50_000_000_000),
        ("1.07e15 FLOP/s", 1_070_000_000_000_000, "FLOP/s", 5 * 10**12),
        ("3.4 × 10^8 FLOPs", 340_000_000, "FLOPs", 5_000_000),
        ("3,200 FLOPs", 3200, "FLOPs", 0.5),
        ("8.03 billion parameters", 8_030_000_000, "parameters", 5_000_000),
        ("80 GiB", 80 * 2**30, "B", 2**29),
        ("16 gigabytes", 16 * 10**9, "B", 5 * 10**8),
        ("512 bytes", 512, "B", 0.5),
        ("1.2 ms", 0.0012, "s", 0.00005),
        ("34.7 days", 2998080, "s", 4320),
        ("2 min", 120, "s", 30),
        ("0.2 %", 0.002, "%", 0.0005),
        ("7.28×", 7.28, "×", 0.005),
        ("2.5x", 2.5, "×", 0.05),
        ("−3 kB", -3000, "B", 500),
        ("4,096", 4096, "", 0.5),
    ],
)
def test_parse(text, value, unit, half):
    quantity = parse(text)
    assert quantity.unit == unit
    assert quantity.value == pytest.approx(value, rel=1e-15) and quantity.half_ulp == pytest.approx(half, rel=1e-15)
    if isinstance(value, int):
        assert isinstance(quantity.value, int)


def test_parse_refuses():
    with pytest.raises(ValueError, match="no number"):
        parse("a few GFLOPs")
    with pytest.raises(ValueError, match=r"FLOPs for a count, FLOP/s for a rate"):
        parse("312 TFLOPS")


def test_truth_values_need_words():
    with pytest.raises(TypeError, match="words"):
        format_value(True, "")


def test_special_functions_agree_with_the_dispatch():
    assert (percent(0.5), times(2), seconds(90), si(4e9, "B"), count(7, "heads")) == (
        "50 %",
        "2×",
        "90 s",
        "4 GB",
        "7 heads",
    )


def test_needs_no_numpy():
    code = "import sys; import flopkit.units; assert not {'numpy', 'sympy', 'altair', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("text", ["1,2 B", "12,5%", "1_000 B", "1.2.3 B", "1,0000 tokens"])
def test_what_goes_on_after_a_number_is_not_a_unit(text):
    with pytest.raises(ValueError, match="no number at the start"):
        units.parse(text)


@pytest.mark.parametrize(
    "value, text",
    [(119, "119 s"), (120, "2 min"), (5400, "90 min"), (100_000, "27.78 h"), (172_800, "2 days")],
)
def test_a_time_is_told_in_the_largest_unit_of_which_there_are_two(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(
    "text, value",
    [("3 thousand FLOPs", 3e3), ("3 million FLOPs", 3e6), ("3 billion FLOPs", 3e9), ("3 trillion FLOPs", 3e12)],
)
def test_a_word_scales(text, value):
    assert parse(text).value == value


def test_counts_too_long_to_be_told_to_the_unit():
    assert count(1.23456e21, "tokens") == "1,235,000,000,000,000,000,000 tokens"
    assert count(1e24, "tokens") == "1" + ",000" * 8 + " tokens"


def test_one_of_something():
    assert (count(1, "SMs"), count(1, "tokens"), count(1, "s"), count(2, "SMs")) == ("1 SM", "1 token", "1 s", "2 SMs")


@pytest.mark.parametrize("power, prefix", list(enumerate(["Ki", "Mi", "Gi", "Ti", "Pi"], 1)))
def test_binary_prefixes(power, prefix):
    assert parse(f"3 {prefix}B").value == 3 * 1024**power


@pytest.mark.parametrize(
    "text, length",
    [
        ("2 minutes", 120),
        ("1 minute", 60),
        ("2 hours", 7200),
        ("1 hour", 3600),
        ("1 h", 3600),
        ("1 d", 86400),
        ("1 day", 86400),
    ],
)
def test_times_in_words(text, length):
    assert parse(text).value == length


def test_a_large_k_is_a_thousand():
    assert parse("3 KB").value == 3000 and parse("3 kilobytes").value == 3000
