"""One case over another: the ratios by hand, their interval at its widest, and what is not compared."""

import math

import pytest

from flopkit.experiments.pairs import over, with_interval


def record(mean, half, flops=6, moved=2, verdict="ok"):
    seconds = {"mean": mean, "low": mean - half, "high": mean + half}
    return {"case": "n=1", "verdict": verdict, "counted": {"flops": flops, "bytes": moved}, "seconds": seconds}


def test_ratios_by_hand():
    found = over(record(6, 2, flops=12, moved=8), record(3, 1))
    assert found == {"flops": 2, "bytes": 4, "seconds": 2, "low": 4 / 4, "high": 8 / 2}


def test_the_interval_holds_the_ratio_of_any_two_times_within():
    one, other = record(5, 1), record(4, 2)
    found = over(one, other)
    for a in (4, 5, 6):
        for b in (2, 4, 6):
            assert found["low"] <= a / b <= found["high"]


def test_a_time_that_may_be_nothing_leaves_the_ratio_open():
    found = over(record(1, 2), record(1, 2))
    assert (found["seconds"], found["low"], found["high"]) == (1, 0, math.inf)
    assert with_interval(found) == "1.00 (too noisy for an interval)"
    assert with_interval(over(record(1, 2), record(2, 1))) == "0.50 (too noisy for an interval)"


@pytest.mark.parametrize("refused", [0, 1])
def test_what_was_refused_is_not_compared(refused):
    pair = [record(1, 0), record(1, 0)]
    pair[refused] = record(1, 0, verdict="impossible")
    with pytest.raises(ValueError, match="impossible and is not compared: n=1"):
        over(*pair)
