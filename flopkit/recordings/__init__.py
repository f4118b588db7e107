"""Measurements with their source: the reader's own, those that come with flopkit, and what others published; found, judged and compared."""

from flopkit.recordings.bridge import megatron_bridge
from flopkit.recordings.calibration import calibrated_seconds, calibration, calibration_errors
from flopkit.recordings.cases import OWNERS, Case, recordings, records, shown_records
from flopkit.recordings.comparison import Comparison, Outcome, compare
from flopkit.recordings.gaps import bridge_runs, published_gaps
from flopkit.recordings.hardware_counts import HardwareCounts, hardware_counts
from flopkit.recordings.plausibility import VERDICTS
from flopkit.recordings.published_data import MEASURED_KINDS, Dataset, dataset
from flopkit.recordings.recording import Recording
from flopkit.recordings.search import datasets, find
from flopkit.recordings.traces import Sample, Trace, traces

__all__ = [
    "MEASURED_KINDS", "OWNERS", "VERDICTS", "Case", "Comparison", "Dataset", "HardwareCounts", "Outcome", "Recording", "Sample", "Trace", "bridge_runs", "calibrated_seconds", "calibration", "calibration_errors", "compare", "dataset", "datasets", "find",
    "hardware_counts", "megatron_bridge", "published_gaps", "recordings", "records", "shown_records", "traces",
]  # fmt: skip
