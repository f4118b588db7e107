"""``measure``: one experiment, or the ceilings, of this machine."""

from __future__ import annotations

import argparse
from typing import Any

from tqdm import tqdm

from flopkit import machine, names
from flopkit.cli import options
from flopkit.experiments import NAMES, Bench, experiment
from flopkit.experiments.bench import SCALES
from flopkit.measuring.ceilings import ceilings
from flopkit.recordings import shown_records

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "measure matmul_sizes --scale toy",
    "measure matmul_sizes --scale toy --json",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What ``measure`` takes."""
    parser.add_argument("experiment", help=f"ceilings, or one of {', '.join(NAMES)}")
    options.on_this_machine(parser, scales=tuple(SCALES))


def run(asked: argparse.Namespace) -> tuple[Any, Any]:
    """Run the experiment, or measure the ceilings."""
    if names.find(asked.experiment, (*NAMES, "ceilings"), "an experiment", argument="experiment") == "ceilings":
        if asked.scale is not None:
            raise ValueError("--scale goes with an experiment: it does not apply to ceilings")
        roof = ceilings(asked.device, time_budget=asked.time_budget)
        return roof.record(), roof
    one = experiment(asked.experiment)
    bench = Bench(asked.device, asked.scale, time_budget=asked.time_budget)
    found = list(tqdm(one.run(bench), desc=one.name, unit="case", leave=False, disable=None))
    caption = f"{one.title}, on {machine.title(bench.device)}. Predicted: {one.prediction}"
    return {"experiment": one.name, "prediction": one.prediction, "results": found}, shown_records(found, caption)
