"""Notes which operators' formulas the tests call, so that one without a test is told at the end."""

from __future__ import annotations

import functools

import pytest

import flopkit.counter.formulas  # noqa: F401  (its files register them)
from flopkit.counter.registry import FORMULAS, RULES

CALLED: set[str] = set()
PASSED_OVER: set[str] = set()  # tests of this folder that do not run
LAST = "::test_every_formula_is_called_by_a_test"


def _noted(formula):
    """The same formula; CALLED has the names of the operators for which it was called."""

    @functools.wraps(formula)
    def noted(call):
        CALLED.add(call.name)
        return formula(call)

    return noted


for _formula in set(FORMULAS.values()):
    _same = _noted(_formula)
    FORMULAS.update({name: _same for name, each in FORMULAS.items() if each is _formula})
RULES.clear()  # what was asked for before this file was read


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.nodeid.partition("@")[0].endswith(LAST))


def pytest_deselected(items):
    """With ``-k``, ``-m`` and ``--fast`` not all tests run."""
    PASSED_OVER.update(item.nodeid for item in items if item.path.parent.name == "counter")


@pytest.fixture
def called():
    """The names of the operators whose formulas were called so far; None where some tests of this folder are passed over."""
    return None if PASSED_OVER else CALLED
