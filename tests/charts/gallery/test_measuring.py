"""The figure of stopping rules: each of its settings shows the clock and the rule that it names."""

import random

import pytest

from flopkit.charts import stopping_rules
from flopkit.charts.gallery.measuring import CLOCKS, RULE_NAMES, VALUES
from flopkit.measuring.simulation import RULES, Clock, clocks, recorded

FIGURE = stopping_rules()
DRIFTS = {"none": 0.0, "4 % slow at first": 0.04, "8 % slow at first": 0.08, "8 % fast at first": -0.08}
SETTLES = {"in 0.1 s": 0.1, "in 0.5 s": 0.5, "in 2 s": 2.0}
STATES = {"none": (0.0, 0.1), "± 1 % for 0.1 s": (0.01, 0.1), "± 1 % for 1 s": (0.01, 1.0)}
SPIKES = {"none": False, "1 call in 100, 3×": True}


def test_it_has_every_clock_and_every_rule_once():
    assert len(CLOCKS) == len(clocks()) == 60 and set(CLOCKS.values()) == set(clocks())
    assert set(RULE_NAMES.values()) == set(RULES)


@pytest.mark.parametrize("seed", range(25))
def test_a_setting_shows_the_clock_that_it_names(seed):
    draw = random.Random(seed)
    drift, settles, states, spikes = (draw.choice(list(each)) for each in (DRIFTS, SETTLES, STATES, SPIKES))
    settings = {"drift": drift, "settles": settles, "states": states, "spikes": spikes}
    clock = Clock(DRIFTS[drift], SETTLES[settles] if DRIFTS[drift] else 0.5, *STATES[states], SPIKES[spikes])
    for row in FIGURE.rows(**settings):
        kept = recorded()[clock, RULE_NAMES[row["rule"]]]
        assert {value: row[value] for value in VALUES} == {value: kept[value] for value in VALUES}
        assert {value: FIGURE.at(**settings, rule=row["rule"])[value] for value in VALUES} == {
            value: kept[value] for value in VALUES
        }


def test_what_the_rows_are_called_is_what_was_simulated():
    """Of the same calls the interval over calls is narrower where the clock has states; drift takes longest to be seen."""
    settings = {"drift": "none", "states": "± 1 % for 0.1 s"}
    calls, rounds = (FIGURE.at(**settings, rule=f"flopkit, over {what}") for what in ("calls", "rounds"))
    assert calls["bias"] == rounds["bias"] and calls["half"] < rounds["half"] / 5
    assert (
        FIGURE.at(rule="torch adaptive_autorange")["seconds"]
        < 0.05
        < FIGURE.at(rule="torch blocked_autorange")["seconds"]
    )
