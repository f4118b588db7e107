"""Declarations around a chart: what they accept, and what they say when they do not."""

import doctest
import itertools
import math

import pytest

from flopkit.charts import panel
from flopkit.charts.panel import along, choice, column, readout, slider, steps, switch


def test_docstring_examples():
    result = doctest.testmod(panel)
    assert result.attempted and not result.failed


@pytest.mark.parametrize("per_octave", [1, 2, 4])
def test_steps_are_round_and_even(per_octave):
    ladder = steps(1, 2**20, per_octave)
    assert ladder[0] == 1 and ladder[-1] == 2**20 and ladder == sorted(set(ladder))
    for low, high in itertools.pairwise(ladder):
        assert high <= 2 * low, "never more than an octave"
        if low >= 4:
            assert high / low == pytest.approx(2 ** (1 / per_octave), rel=0.07)
    assert len([step for step in ladder if 2**10 <= step < 2**11]) == per_octave


def test_steps_keep_odd_ends():
    assert steps(3, 100) == [3, 4, 8, 16, 32, 64, 100]


@pytest.mark.parametrize("bad", [(0, 8), (8, 8), (8, 4), (1.5, 4), (1, 8, 3)])
def test_steps_refuse(bad):
    with pytest.raises(ValueError, match="steps"):
        steps(*bad)


def test_a_start_value_joins_the_ladder():
    assert slider("d", "Width", steps(64, 256), value=100).options == (64, 100, 128, 256)
    assert slider("d", "Width", steps(64, 256)).value == 128


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "4", None, [4]])
def test_a_slider_takes_numbers_only(value):
    with pytest.raises(ValueError, match=r"d=.*give a number, such as 64"):
        slider("d", "Width", [32, 64], value=64).check(value)


def test_a_choice_offers_near_names():
    device = choice("device", "Device", {"H100 SXM": {"peak": 1}, "H200": {"peak": 2}})
    assert device.value == "H100 SXM" and device.read("H200").peak == 2 and device.read("H200").name == "H200"
    with pytest.raises(ValueError, match=r"device='H100'.*not an option; did you mean H100 SXM\?"):
        device.check("H100")
    with pytest.raises(ValueError, match="not an option"):
        device.check(["H200"])


def test_a_choice_needs_like_options():
    with pytest.raises(ValueError, match="same fields"):
        choice("device", "Device", {"a": {"peak": 1}, "b": {"bandwidth": 1}})
    with pytest.raises(ValueError, match="list of options"):
        choice("mask", "Mask", "causal")


def test_a_switch_is_true_or_false():
    assert switch("causal", "Causal", True).text(True) == "on"
    for bad in (1, "yes"):
        with pytest.raises(ValueError, match="True or False"):
            switch("causal", "Causal", bad)
    with pytest.raises(ValueError, match="not an option"):
        switch("causal", "Causal").check("on")


@pytest.mark.parametrize("name", ["width", "datum", "E", "PI", "now", "rows", "two words", "d-model", ""])
def test_names_that_vega_would_misread(name):
    for make in (
        lambda n: slider(n, "X", [1, 2]),
        lambda n: readout(n, "X"),
        lambda n: column(n, "X"),
        lambda n: switch(n, "X"),
    ):
        with pytest.raises(ValueError, match=r"Vega uses this name|Python identifier"):
            make(name)


def test_text_of_a_readout():
    assert readout("flops", "Arithmetic", "FLOPs").format(2e9) == "2 GFLOPs"
    assert readout("fits", "Fits", text={True: "yes", False: "no"}).format(False) == "no"
    with pytest.raises(ValueError, match=r"no text for 'neither'; known: compute"):
        readout("bound", "Bound", text={"compute": "arithmetic"}).format("neither")
    with pytest.raises(TypeError, match="words"):
        readout("fits", "Fits").format(True)


def test_a_sweep_with_its_own_model_needs_values():
    with pytest.raises(ValueError, match="needs values"):
        along("x", model=print)
