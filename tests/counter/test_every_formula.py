"""An operator whose formula no test calls could cost anything: it goes red here, and not in tools/mutations.py alone."""

from collections import defaultdict
from pathlib import Path

import pytest

from flopkit.counter.registry import FORMULAS

LIST = Path(__file__).parents[1] / "data" / "uncalled_operators.txt"
LISTED = {line for line in LIST.read_text("utf8").splitlines() if not line.startswith("#")}


def without_a_test(called):
    """The formulas of which no operator was called, and the operators that were not; relu_ is called where relu is."""
    shared = defaultdict(set)
    for name, formula in FORMULAS.items():
        shared[formula].add(name)
    names = {name.removesuffix("_") for name in FORMULAS} - {name.removesuffix("_") for name in called}
    return {formula.__name__ for formula, its in shared.items() if not its & called}, names


def test_every_formula_is_called_by_a_test(called):
    """The last of all, in the process that ran all the others of this folder."""
    if called is None:
        pytest.skip("this process ran only some of the counter's tests: pytest tests/counter")
    formulas, names = without_a_test(called)
    assert formulas == set(), "no test calls these formulas: see An operator in CONTRIBUTING.md"
    assert names <= LISTED, "no test calls these operators: see An operator in CONTRIBUTING.md"


def test_what_is_not_called_is_told(monkeypatch):
    every = set(FORMULAS)
    assert without_a_test(every) == (set(), set())
    assert without_a_test(every - {"aten::cdist", "aten::_cdist_forward"})[1] >= {"aten::_cdist_forward"}
    monkeypatch.setitem(FORMULAS, "aten::of_tomorrow", lambda call: None)
    assert without_a_test(every) == ({"<lambda>"}, {"aten::of_tomorrow"})
    assert {name.removesuffix("_") for name in FORMULAS} >= LISTED, "a listed operator has no formula any more"
