"""Measurements with their source: what others published, found by workload and device, and judged."""

from flopkit.recordings.collected import KINDS, Dataset, dataset
from flopkit.recordings.search import datasets, find
from flopkit.recordings.verdicts import VERDICTS

__all__ = ["KINDS", "VERDICTS", "Dataset", "dataset", "datasets", "find"]
