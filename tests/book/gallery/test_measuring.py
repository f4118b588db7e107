"""The figures of the chapter on measuring: each setting shows the clock, the rule or the part of a trace that it names."""

import itertools
import math
import random

import pytest

from flopkit.book.gallery import rate_and_clock, stopping_rules
from flopkit.book.gallery.measuring import CLOCKS, RULE_NAMES, VALUES
from flopkit.book.gallery.trace import LONG, WARM, readings
from flopkit.book.simulation import RULES, Clock, clocks, recorded
from flopkit.recordings.traces import traces

FIGURE = stopping_rules()
DRIFTS = {"none": 0.0, "4 % slow at first": 0.04, "8 % slow at first": 0.08, "8 % fast at first": -0.08}
SETTLES = {"in 0.1 s": 0.1, "in 0.5 s": 0.5, "in 2 s": 2.0}
STATES = {"none": (0.0, 0.1), "± 1 % for 0.1 s": (0.01, 0.1), "± 1 % for 1 s": (0.01, 1.0)}
SPIKES = {"none": False, "1 call in 100, 3×": True}
TIME = {"each rule its own": False, "4.5 s for every rule": True}


def test_it_has_every_clock_and_every_rule_once():
    assert len(CLOCKS) == len(clocks()) == 60 and set(CLOCKS.values()) == set(clocks())
    assert set(RULE_NAMES.values()) == set(RULES)


@pytest.mark.parametrize("seed", range(25))
def test_a_setting_shows_the_clock_that_it_names(seed):
    draw = random.Random(seed)
    drift, settles, states, spikes, time = (draw.choice(list(each)) for each in (DRIFTS, SETTLES, STATES, SPIKES, TIME))
    settings = {"drift": drift, "settles": settles, "states": states, "spikes": spikes, "time": time}
    clock = Clock(DRIFTS[drift], SETTLES[settles] if DRIFTS[drift] else 0.5, *STATES[states], SPIKES[spikes])
    for row in FIGURE.rows(**settings):
        kept = recorded(TIME[time])[clock, RULE_NAMES[row["rule"]]]
        assert {value: row[value] for value in VALUES} == {value: kept[value] for value in VALUES}
        assert {value: FIGURE.at(**settings, rule=row["rule"])[value] for value in VALUES} == {
            value: kept[value] for value in VALUES
        }


def test_what_the_rows_are_called_is_what_was_simulated():
    """Of the same calls the interval over calls is narrower where the clock has states; drift takes longest to be seen."""
    settings = {"drift": "none", "states": "± 1 % for 0.1 s"}
    calls, rounds = (FIGURE.at(**settings, rule=f"flopkit, over {what}") for what in ("calls", "rounds"))
    assert calls["bias"] == rounds["bias"] and calls["half"] < rounds["half"] / 5
    drifting = FIGURE.presets["Drift"]
    assert (
        FIGURE.at(**drifting, rule="torch adaptive_autorange")["seconds"]
        < 0.05
        < FIGURE.at(**drifting, rule="torch blocked_autorange")["seconds"]
    )


def test_it_opens_on_states_where_all_get_the_same_time_and_a_preset_gives_each_its_own():
    assert FIGURE.rows() == FIGURE.rows(**FIGURE.presets["States, the same time"])
    assert all(4.1 < row["seconds"] < 4.9 for row in FIGURE.rows())
    of_its_own = {row["rule"]: row["seconds"] for row in FIGURE.rows(**FIGURE.presets["Drift"])}
    assert min(of_its_own.values()) < 0.02 and of_its_own["flopkit, over rounds"] == max(of_its_own.values()) > 4
    assert all(4.1 < row["seconds"] < 4.9 for row in FIGURE.rows(**FIGURE.presets["Drift, the same time"]))


def test_errors_of_tenths_of_a_per_cent_have_a_width():
    """The axis is stretched around zero: what flopkit's bar covers is no dot there, a twentieth of what the largest error is away."""
    pytest.importorskip("altair")
    scale = FIGURE.spec()["layer"][1]["encoding"]["x"]["scale"]
    assert scale["type"] == "symlog"

    def place(error):
        return math.copysign(math.log1p(abs(error) / scale["constant"]), error)

    [row] = [row for row in FIGURE.rows(**FIGURE.presets["Drift"]) if row["rule"] == "flopkit, over rounds"]
    assert place(row["high"]) - place(row["low"]) > 0.05 * place(0.08)


# -- the recorded trace -----------------------------------------------------------------------------------------

TRACE = rate_and_clock()
[NORMAL], [ZEROS] = (traces(n=6144, data=data) for data in ("normal", "zeros"))


@pytest.mark.parametrize(("warm", "long"), list(itertools.product(WARM, LONG)))
def test_a_window_is_averaged_call_by_call(warm, long):
    """The calls that end after the warm-up and until the window is over, one after the other."""
    at, part = 0.0, []
    for seconds in NORMAL.seconds:
        at += seconds
        if WARM[warm] < at <= WARM[warm] + LONG[long]:
            part.append(seconds)
    found = TRACE.at(warm=warm, long=long)
    assert found["begins"] == WARM[warm] and found["behind"] == pytest.approx(WARM[warm] + LONG[long])
    assert found["told"] == pytest.approx(2 * 6144**3 * len(part) / sum(part))
    assert found["error"] == pytest.approx(sum(part) / len(part) / (sum(NORMAL.seconds) / 10_000) - 1)


def test_readings_are_what_nvml_had_read_anew():
    for one in (NORMAL, ZEROS):
        found = list(readings(one))
        told = [(each.sm_mhz, each.watts, each.celsius) for each, _ in found]
        assert all(a != b for a, b in itertools.pairwise(told))
        assert all(0 <= each.at <= sum(one.seconds) for each, _ in found)
        before = [(s.sm_mhz, s.watts, s.celsius) for s in one.samples if s.at < 0][-1:]
        during = {(s.sm_mhz, s.watts, s.celsius) for s in one.samples if 0 <= s.at <= sum(one.seconds)}
        assert during - set(told) <= set(before)  # what NVML had read before the first call is no news
    rows = TRACE.rows()
    assert len(rows) == sum(len(list(readings(one))) for one in (NORMAL, ZEROS))
    assert {row["clock"] for row in rows if row["of"] == "zeros" and row["at"] > 0.2} == {1770e6}
    assert min(row["clock"] for row in rows) == 1125e6


def test_the_trace_is_as_its_description_says():
    rates = [(at, done / 1e12) for at, done in NORMAL.rates(0.02)]
    assert round(rates[0][1]) == 774 and {round(done) for at, done in rates if 0.15 < at < 0.25} <= {670, 671}
    later = [done for at, done in rates if at > 0.8]
    assert (round(min(later)), round(max(later))) == (528, 671)
    assert {round(done / 1e12) for at, done in ZEROS.rates(0.02) if at > 0.2} <= {802, 803}
    clocks = {each.sm_mhz for each, _ in readings(NORMAL) if each.at > 0.2}
    assert (min(clocks), max(clocks)) == (1125, 1470)
    shares = [done / (132 * 4096e6) / each.sm_mhz for each, done in readings(NORMAL) if each.at > 0.2]
    middle = sum(shares) / len(shares)
    assert all(abs(share / middle - 1) < 0.03 for share in shares) and f"{100 * middle:.1f} %" in TRACE.caption
