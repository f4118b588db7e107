"""A calibrated time of a training step: six constants, fitted on some releases of Megatron-Bridge and judged on others, in two generations of the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from statistics import median
from typing import Any

from flopkit import units
from flopkit.models import Experts
from flopkit.parallel.clusters import cluster
from flopkit.parallel.gaps import interleaved, traffic
from flopkit.parallel.steps import step
from flopkit.published.parallel_runs import ParallelRun
from flopkit.recordings.gaps import bridge_runs
from flopkit.sizes import choice
from flopkit.tables import Table
from flopkit.utilization.products import by_product

__all__ = ["GENERATIONS", "calibrated_seconds", "calibration", "calibration_errors", "terms"]

TERMS = {
    "bf16": "products in bf16, at the peak",
    "fp8": "products in fp8, at the peak",
    "fp4": "products in fp4, at the peak",
    "expert": "tokens on their way to experts and back, at the rate of links and network",
    "experts, memory": "operators without products and the optimiser's states of a mixture of experts, at the bandwidth",
    "layers": "layers of a rank times micro-batches: seconds of each",
}
"""What the constants multiply. Each is lengthened by the pipeline's bubble."""


GENERATIONS = ("25.09", "26.06")
"""The releases from which on a set of constants holds. Between 26.04.01 and 26.06 mixtures of experts became faster by a quarter to two thirds, with the same layouts."""


@cache
def calibration(since: str = GENERATIONS[0]) -> Mapping[str, Any]:
    """The constants, what they were fitted on, and what was tried.

    Parameters
    ----------
    since : str, optional
        The release from which on they hold: ``"25.09"`` or ``"26.06"``.

    Raises
    ------
    ValueError
        For another one.

    Examples
    --------
    >>> sorted(calibration()["constants"])
    ['bf16', 'expert', 'experts, memory', 'fp4', 'fp8', 'layers']
    >>> [calibration(since)["constants"]["experts, memory"] for since in GENERATIONS]  # kernels were fused
    [10.3, 1.71]
    """
    choice("since", since, GENERATIONS)
    found: dict[str, Any] = json.loads((files("flopkit") / "data" / "calibration.json").read_text("utf-8"))
    known: Mapping[str, Any] = found[since]
    return known


def _generation(run: ParallelRun) -> str:
    """The last that is not later than the release of a run; of other programs the first."""
    release = run.table.removeprefix("megatron_bridge r")
    return GENERATIONS[1] if release != run.table and release >= GENERATIONS[1] else GENERATIONS[0]


def terms(run: ParallelRun) -> dict[str, float]:
    """What the constants multiply in a run, in seconds at the peak and at full rates; *layers* is a number.

    Parameters
    ----------
    run : ParallelRun
        With its model, layout and cluster; its rate is not used.

    Examples
    --------
    >>> from flopkit.published import parallel_runs
    >>> run = parallel_runs()[0]
    >>> terms(run)["expert"]  # a dense model
    0.0
    """
    place = cluster(run.cluster)
    peak = place.device.peak
    narrow = run.dtype["linear"] if isinstance(run.dtype, Mapping) else run.dtype
    asked: dict[str, Any] = {
        "seq": run.seq,
        "batch": run.batch,
        "precision": run.precision,
        "dtype": narrow,
        "expert_nodes": run.expert_nodes,
    }
    found = interleaved(step(run.model, run.layout, place, overlap=(), **asked), run.uneven)
    whole = run.model.train_step(seq=run.seq, batch=run.batch)
    formats = run.dtype if isinstance(run.dtype, Mapping) else {"rest": run.dtype}
    flops = {name: float(each) / run.layout.ranks for name, each in by_product(whole, "model_flops", formats).items()}
    slowest = found.parts["arithmetic"] * float(peak(narrow)) / sum(flops.values())
    working = found.seconds - found.parts["bubble"] - found.parts["data"]
    longer = 1 + found.parts["bubble"] / working
    experts = any(isinstance(block.mlp, Experts) for block, _ in run.model.blocks)
    layers = (sum(count for _, count in run.model.blocks) + (run.model.mtp is not None)) / run.layout.pipeline
    terms = {
        name: flops.get(name, 0.0) / float(peak(name)) * slowest if name in flops else 0.0
        for name in ("bf16", "fp8", "fp4")
    }
    terms["expert"] = found.parts["expert"]
    memory = traffic(run.model, run.layout, found, run.precision) / float(place.device.bandwidth)
    terms["experts, memory"] = memory if experts else 0.0
    terms["layers"] = layers * run.layout.micro_batches(run.batch)
    return {name: seconds * longer for name, seconds in terms.items()}


def calibrated_seconds(run: ParallelRun) -> float:
    """The time of a step by six constants: not a bound, and no law.

    The constants stand for Megatron-Bridge on H100, B200, B300, GB200 and GB300: those of its releases from 26.06 on for a run of these, else those of the releases
    before. The one of layers gathers what a layer does beside products, and sums of tensor-parallel ranks with it: the fit gives these no constant of their own.

    Parameters
    ----------
    run : ParallelRun
        With its model, layout and cluster; its rate is not used.

    Notes
    -----
    Most rows of the releases that judge it repeat a layout of those it was fitted on; where they do, that row's own earlier time is nearer than
    this one. For a model and a system that it had not seen, half of the errors were below 9.1 %; of 26.06 below 14.1 %. Constants do not outlive a rewrite:
    those of the releases up to 26.04 are off by half of the time for mixtures of experts of 26.06.01 and 26.08. Ten times the least time of a mixture's operators
    without products stands for what nobody has taken apart. It does not carry over to other programs than Megatron-Bridge: half of its errors are
    above 14 % on BLOOM's sweep and above 40 % on MegaScale's and torchtitan's rows.

    Examples
    --------
    >>> run = bridge_runs()[0]
    >>> round(calibrated_seconds(run) / run.seconds, 1)
    1.2
    """
    constants = calibration(_generation(run))["constants"]
    return float(sum(constants[name] * value for name, value in terms(run).items()))


def calibration_errors(release: str) -> Table:
    """Calibrated and published seconds of each row of a release.

    Parameters
    ----------
    release : str
        Such as ``"26.04"`` or ``"26.08"``, on which nothing was fitted.

    Returns
    -------
    Table
        Columns: *run*, *printed* and *calibrated* seconds, *error* as a share of the printed.

    Raises
    ------
    ValueError
        For a release that is not in the data.

    Examples
    --------
    >>> rows = calibration_errors("26.04")
    >>> len(rows), median(abs(row["error"]) for row in rows) < 0.1
    (32, True)
    """
    runs = [run for run in bridge_runs() if run.table == f"megatron_bridge r{release}"]
    if not runs:
        known = dict.fromkeys(run.table.removeprefix("megatron_bridge r") for run in bridge_runs())
        raise ValueError(f"release={release!r}: the releases are {', '.join(sorted(known))}")
    rows: list[dict[str, Any]] = []
    for run in runs:
        printed, ours = run.seconds, calibrated_seconds(run)
        rows.append({"run": run.run, "printed": printed, "calibrated": ours, "error": ours / printed - 1})
    middle = median(abs(row["error"]) for row in rows)
    formats = {"printed": units.seconds, "calibrated": units.seconds, "error": units.difference}
    return Table(rows, caption=f"Release {release}: half of the errors are below {middle:.1%}", formats=formats)
