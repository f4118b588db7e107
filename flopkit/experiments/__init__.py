"""Measured experiments, one a file: a prediction, and what a device then did. Used by
chapters and by ``python -m flopkit record``."""

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.catalogue import NAMES, Experiment, experiment
from flopkit.experiments.own import here, short_run
from flopkit.experiments.suite import Suite, record

__all__ = ["Bench", "Experiment", "NAMES", "Record", "Suite", "experiment", "here", "record", "short_run"]
