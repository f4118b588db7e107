"""Experiments at toy size, each run once for all tests that look at its records."""

from functools import cache

import pytest

from flopkit.experiments import Bench, cards, experiment


@pytest.fixture(scope="session")
def toy():
    """A function of a name: the experiment, its records at toy size, those that were kept while it ran."""

    @cache
    def run(name):
        if name == "wire" and (why := cards.refused()):
            pytest.skip(why)
        kept = []
        one = experiment(name)
        return one, list(one.run(Bench("cpu", "toy", keep=kept.append))), kept

    return run
