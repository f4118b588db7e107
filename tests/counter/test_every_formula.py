"""A formula that no test calls could be anything: it goes red here, and not in tools/mutations.py alone."""

from pathlib import Path

import pytest

from flopkit.counter.registry import FORMULAS


def test_every_formula_is_called_by_a_test(request, called):
    """The last of all, in the process that ran all the others of this folder."""
    files = {item.path for item in request.session.items if item.path.parent == Path(__file__).parent}
    if called is None or files != set(Path(__file__).parent.glob("test_*.py")):
        pytest.skip("only some of the counter's tests run")
    there = {f"{each.__module__}.{each.__qualname__}" for each in FORMULAS.values()}
    assert there - called == set(), "no test calls these formulas: see An operator in CONTRIBUTING.md"
