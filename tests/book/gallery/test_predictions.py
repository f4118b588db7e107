"""The figure of all predictions: a row for each tested part, whose dot lies where its value does."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from flopkit.book.explanations import MACHINES
from flopkit.book.gallery import predictions_held
from flopkit.book.gallery.predictions import LEFT, RIGHT, WIDTH, deciding, place
from flopkit.experiments import NAMES, experiment
from flopkit.experiments.expectations import Confirmation, Expectation, Finding
from flopkit.experiments.pairs import Span

STEADY, SHAKY = {"notes": [], "steady": True}, {"notes": [], "steady": False}


@pytest.fixture(scope="module")
def figure():
    return predictions_held()


def test_each_tested_part_of_each_machine_is_a_row(figure):
    rows = iter(figure.rows())
    for name in NAMES:
        for machine in MACHINES:
            for part in machine.findings(name):
                row = next(rows)
                assert (row["experiment"], row["says"]) == (experiment(name).title, part.expected.says)
                assert row["machine"].lower() == machine.name.lower()
                assert f"{row['of']}: {row['seen']}" == part.seen and row["word"] == part.confirmation
    assert next(rows, None) is None


def test_a_dot_is_inside_the_band_only_where_its_value_is_and_hollow_ones_never_failed(figure):
    """What held lies in the band with its interval; what failed lies outside with all of it, on cases that are sure."""
    seen = set()
    for row in figure.rows():
        start = WIDTH * (row["machine"] != "One H200")
        low, mean, high = (row[end] - start for end in ("low", "mean", "high"))
        assert LEFT <= low <= mean <= high <= RIGHT
        seen.add((row["word"], row["weak"] != ""))
        if row["word"] == "held":
            assert 0 <= low and high <= 1
        elif row["word"] == "failed":
            assert (high < 0 or low > 1) and row["weak"] == ""
        elif "missed" in row["verdict"]:
            assert (high < 0 or low > 1) and row["weak"]
        else:
            assert low < 0 < high or low < 1 < high
    assert seen == {("held", True), ("held", False), ("failed", False), ("not clear", True), ("not clear", False)}


def test_no_two_rows_of_a_half_share_a_line(figure):
    """Machines of one scale share a half."""
    lines = [(row["left"] > LEFT, row["line"]) for row in figure.rows()]
    assert len(set(lines)) == len(lines) and {half for half, _ in lines} == {False, True}
    for half in (False, True):
        own = [line for each, line in lines if each == half]
        assert own == sorted(own) and min(b - a for a, b in pairwise(own)) >= 1 - 1e-9


@pytest.mark.parametrize(
    ("limits", "value", "where"),
    [
        ((2, 4), 2, 0), ((2, 4), 3, 0.5), ((2, 4), 4, 1), ((2, 4), 8, 1.5), ((2, 4), 0.5, -1), ((0, 1), 0.25, 0.25), ((0, 1), 16, 3),
        ((3, math.inf), 3, 0), ((3, math.inf), 6, 0.5), ((3, math.inf), 1.5, -0.5), ((3, math.inf), math.inf, 1), ((2, 4), 0, -math.inf),
    ],
)  # fmt: skip
def test_where_a_value_lies(limits, value, where):
    assert place(Expectation("says", limits, "of", lambda of: []), value) == pytest.approx(where)


@pytest.mark.parametrize(
    ("values", "chosen", "word"),
    [
        ([(1.5, 1.4, 1.6, STEADY), (1.8, 1.7, 1.9, STEADY)], 1, "held"),
        ([(1.5, 1.1, 1.9, STEADY), (1.5, 0.5, 1.6, SHAKY)], 1, "not clear"),
        ([(9, 9, 9, SHAKY), (3, 3, 3, STEADY)], 1, "failed"),
        ([(9, 9, 9, SHAKY), (1.5, 0.1, 20, STEADY)], 0, "not clear"),
        ([(0.9, 0.9, 0.9, STEADY), (0.1, 0.1, 0.1, STEADY)], 1, "failed"),
    ],
)
def test_the_value_that_decides(values, chosen, word):
    spans = tuple(Span(mean, low, high, (case,)) for mean, low, high, case in values)
    found = Finding(Expectation("says", (1, 2), "of", lambda of: []), "of", spans, ())
    assert found.confirmation == Confirmation(word) and deciding(found) is spans[chosen]


def test_the_description_counts_what_the_table_lists(figure):
    words = [(row["machine"], row["word"]) for row in figure.rows()]
    for machine in ("One H200", "Two cores of a Xeon", "Two cores of an EPYC"):
        counts = ", ".join(f"{words.count((machine, word))} {word}" for word in ("held", "failed", "not clear"))
        assert f"on {machine[0].lower()}{machine[1:]} {counts}" in figure.description()
    assert figure.title.startswith(f"{len(words)} parts")
