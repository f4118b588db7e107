"""Fit the constants of flopkit.recordings.calibration on two releases of Megatron-Bridge, and write them to flopkit/data/calibration.json.

Least absolute errors as shares of the printed seconds, by weighted least squares; a constant below zero is left out. The releases that judge
are read only afterwards, to print their errors.
"""

import json
from pathlib import Path
from statistics import median

import numpy as np

import flopkit
from flopkit.recordings.calibration import TERMS, calibration, calibration_errors, terms
from flopkit.recordings.gaps import bridge_runs

FITTED = ("25.11", "26.02")
JUDGED = ("25.09", "26.02.01", "26.04")
FILE = Path(flopkit.__file__).parent / "data" / "calibration.json"


def fit(releases=FITTED):
    """The constants, by name."""
    runs = [run for run in bridge_runs() if run.table.removeprefix("megatron_bridge r") in releases]
    A = np.array([[terms(run)[name] / run.seconds for name in TERMS] for run in runs])
    weight, constants = np.ones(len(runs)), np.zeros(len(TERMS))
    for _ in range(60):
        keep = list(range(len(TERMS)))
        while True:
            found = np.linalg.lstsq(A[:, keep] * weight[:, None], weight, rcond=None)[0]
            if (found >= 0).all():
                break
            keep.pop(int(np.argmin(found)))
        constants = np.zeros(len(TERMS))
        constants[keep] = found
        weight = 1 / np.sqrt(np.maximum(np.abs(A @ constants - 1), 0.02))
    return dict(zip(TERMS, (float(f"{each:.3g}") for each in constants), strict=True)), len(runs)


if __name__ == "__main__":
    constants, runs = fit()
    written = {
        "source": "https://github.com/NVIDIA-NeMo/Megatron-Bridge docs/performance-summary-archive.md at commit 067f987d, Apache-2.0",
        "units": "bf16, fp8, fp4, expert, experts, memory: times the seconds at full rate; layers: seconds of a layer and micro-batch",
        "fitted_on": list(FITTED),
        "rows": runs,
        "tried": "12 sets of 5 to 9 terms, compared on the fitted releases alone: five by fitting one of the two and judging the other, seven by leaving out a model on a system. "
        "Of these the set with the least median, 12.6 %, was taken; two of its eight constants (sums of tensor-parallel ranks, memory of dense models) came out as zero "
        "and were dropped. The judged releases were read once, for it alone",
        "constants": constants,
        "claimed": {"26.02.01": 0.10, "26.04": 0.09},
    }
    FILE.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    calibration.cache_clear()
    for release in (*FITTED, *JUDGED):
        print(release, round(median(abs(row["error"]) for row in calibration_errors(release)), 4))
    print(constants)
