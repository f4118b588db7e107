"""Notes which operators' formulas the tests call, so that one without a test is told at the end."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import flopkit.counter.formulas  # noqa: F401  (its files register them)
from flopkit.counter.registry import FORMULAS, RULES

CALLED: set[str] = set()
RAN: set[str] = set()  # tests of this folder, by this process
PASSED_OVER: set[str] = set()  # those that do not run
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
    items.sort(key=lambda item: item.nodeid.endswith(LAST))


def pytest_deselected(items):
    """With ``-k``, ``-m`` and ``--fast`` not all tests run."""
    PASSED_OVER.update(item.nodeid for item in items if item.path.parent.name == "counter")


@pytest.hookimpl(tryfirst=True)  # before one that is skipped says so
def pytest_runtest_setup(item):
    RAN.add(item.nodeid)


@pytest.fixture
def called(request):
    """The names of the operators whose formulas were called so far; None where this process did not run all other tests of this folder."""
    here = [item for item in request.session.items if item.path.parent == Path(__file__).parent]
    whole = {item.path for item in here} == set(Path(__file__).parent.glob("test_*.py")) and not PASSED_OVER
    return CALLED if whole and {item.nodeid for item in here} <= RAN else None
