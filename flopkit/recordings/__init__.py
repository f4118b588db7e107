"""Measurements with their source: the reader's own, those that come with flopkit, and what others published; found, judged and compared."""

from flopkit.recordings.cases import OWNERS, Case, recordings, records, shown_records
from flopkit.recordings.comparison import Comparison, Outcome, compare
from flopkit.recordings.hardware_counts import HardwareCounts, hardware_counts
from flopkit.recordings.plausibility import VERDICTS
from flopkit.recordings.published_data import MEASURED_KINDS, Dataset, dataset
from flopkit.recordings.recording import Recording
from flopkit.recordings.search import datasets, find
from flopkit.recordings.traces import Sample, Trace, traces

__all__ = [
    "MEASURED_KINDS", "OWNERS", "VERDICTS", "Case", "Comparison", "Dataset", "HardwareCounts", "Outcome", "Recording", "Sample", "Trace", "compare", "dataset", "datasets", "find",
    "hardware_counts", "recordings", "records", "shown_records", "traces",
]  # fmt: skip
