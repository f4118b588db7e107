"""Traces of thousands of calls: what ships, and how it is read."""

import itertools
import math
import statistics

import pytest

from flopkit.devices import device
from flopkit.recordings import traces


@pytest.fixture(scope="module")
def normal():
    [one] = traces(n=6144, data="normal")
    return one


def test_those_that_ship():
    found = {(one.n, one.data): one for one in traces()}
    assert {key: len(one.seconds) for key, one in found.items()} == {
        (6144, "normal"): 10000, (6144, "zeros"): 3000, (1024, "normal"): 10000,
    }  # fmt: skip
    for one in found.values():
        assert "virtual machine" in one.whose and one.device == "NVIDIA H200" and one.dtype == "bf16"
        assert all(a.at < b.at for a, b in itertools.pairwise(one.samples))
        assert one.samples[0].at < 0 < one.ends[-1] <= one.samples[-1].at
        assert one.flops / min(one.seconds) < device("h200-sxm").limit("bf16")


def test_rates_take_in_every_call(normal):
    """The mean over stretches, weighed by their FLOPs, is the mean over calls."""
    for every in (1e-9, 0.02, 0.5, 100.0):
        found = list(normal.rates(every))
        assert all(a < b for (a, _), (b, _) in itertools.pairwise(found))
        if every < 1e-3:
            assert [rate for _, rate in found] == pytest.approx([normal.flops / s for s in normal.seconds])
        if every == 100.0:
            [(middle, rate)] = found
            assert rate == pytest.approx(normal.flops * len(normal.seconds) / math.fsum(normal.seconds))
            assert middle == pytest.approx(normal.ends[-1] / 2)


@pytest.mark.parametrize("every", [0, -1, math.nan])
def test_stretches_without_a_length(normal, every):
    with pytest.raises(ValueError, match="every="):
        list(normal.rates(every))


def test_the_power_limit_holds_the_clock_down(normal):
    """As the card says itself: before the first call it does not, and soon after it does."""
    assert not any(sample.capped for sample in normal.samples if sample.at < 0)
    late = [sample for sample in normal.samples if sample.at > 0.2]
    assert all(sample.capped and sample.sm_mhz < 1500 for sample in late)
    assert statistics.median(s.sm_mhz for s in late) == pytest.approx(1440, abs=30)


def test_one_that_does_not_exist():
    with pytest.raises(ValueError, match="6144, zeros"):
        traces(n=7)
