"""The page of predictions: each part can hold and can fail, and the page says of each which of the two it did."""

import copy
import itertools
import sys
from pathlib import Path

import pytest

import flopkit as fk
from flopkit.experiments import NAMES

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))
import foretold

sys.path.pop(0)


def flips(name, part, cases):
    """Whether other times, or other counts, of one case or of all that share a parameter would have turned the part's word."""
    shared = {(key, str(value)) for each in cases for key, value in each["params"].items()}
    groups = [{place} for place in range(len(cases))]
    groups += [
        {i for i, each in enumerate(cases) if str(each["params"].get(key)) == value} for key, value in sorted(shared)
    ]
    for group in groups:
        for where, factor in itertools.product(("seconds", "counted", "extra"), (0.05, 0.5, 0.9, 1.2, 2, 20)):
            others = list(cases)
            for place in group:
                others[place] = copy.deepcopy(cases[place])
                for key, value in cases[place][where].items():
                    if isinstance(value, int | float) and key != "model_flops":  # what another count stands beside
                        others[place][where][key] = value * factor
            if foretold.parts_of(name, others)[part].word != foretold.parts_of(name, cases)[part].word:
                return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_each_part_can_hold_and_can_fail(name):
    cases = fk.recordings.records(name, owner="ours")
    parts = foretold.parts_of(name)
    assert parts and all(flips(name, number, cases) for number in range(len(parts)))


def test_the_page_has_every_experiment_and_every_part():
    page, found = foretold.results(), [part for name in NAMES for part in foretold.parts_of(name)]
    for name in NAMES:
        asked = fk.experiments.experiment(name)
        assert f"### {asked.title}" in page and asked.prediction in page
    assert [page.count(f"| {word} |") for word in foretold.WORDS] == [
        sum(part.word == word for part in found) for word in foretold.WORDS
    ]
    assert f"We tested {len(found)} parts" in foretold.tally()
    failed = {name for name in NAMES for part in foretold.parts_of(name) if part.word == foretold.WORDS[2]}
    assert failed == set(foretold.why()), "each experiment with a part that failed has its explanation, and no other"


@pytest.mark.parametrize(
    ("low", "high", "word"), [(1, 2, 0), (0.5, 1.5, 1), (1.5, 2.5, 1), (0, 9, 1), (2.1, 3, 2), (0, 0.9, 2)]
)
def test_an_interval_decides(low, high, word):
    part = foretold.Part("says", "of", (foretold.exactly(1.5), foretold.Span((low + high) / 2, low, high)), 1, 2)
    assert part.word == foretold.WORDS[word]


def test_a_quotient_is_as_unsure_as_its_parts():
    assert foretold.Span(4, 2, 6) / foretold.Span(2, 1, 4) == foretold.Span(2, 0.5, 6)
