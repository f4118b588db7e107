"""``record``: the experiments on this machine, kept in a file."""

from __future__ import annotations

import argparse
import re
from typing import Any

from flopkit import machine
from flopkit.cli import options
from flopkit.experiments import experiment, record
from flopkit.experiments.bench import SCALES
from flopkit.experiments.suite import chosen
from flopkit.tables import Table

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "record --list",
    "record --only matmul_sizes --scale toy --out mine.json",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What ``record`` takes."""
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="file of the recording (default: one in the folder where the book looks for yours)",
    )
    parser.add_argument("--only", metavar="A,B", help="experiments to run (default: all)")
    parser.add_argument(
        "--list", action="store_true", help="list the experiments and their predictions; measure nothing"
    )
    for option, text in (
        ("who", "who measured"),
        ("machine", "what the machine is called"),
        ("licence", "the licence"),
    ):
        parser.add_argument(f"--{option}", help=f"{text}, for a recording that others will see")
    options.on_this_machine(parser, scales=tuple(SCALES))


def run(asked: argparse.Namespace) -> tuple[Any, Table]:
    """Run what the recording lacks, or list the experiments."""
    wanted = chosen(None if asked.only is None else asked.only.split(","))
    if asked.list:
        listed = [
            {"experiment": name, "title": (one := experiment(name)).title, "predicted": one.prediction}
            for name in wanted
        ]
        return listed, Table(listed, caption=f"{len(listed)} experiments")
    about = {name: text for name in ("who", "machine", "licence") if (text := getattr(asked, name)) is not None}
    how = {"device": asked.device, "scale": asked.scale, "time_budget": asked.time_budget}
    device = machine.title(machine.place(asked.device))
    path = (
        options.path("out", asked.out) or machine.folder() / f"{'-'.join(re.findall('[a-z0-9]+', device.lower()))}.json"
    )
    suite = record(path, only=wanted, attribution=about, **how)
    rows: list[dict[str, Any]] = [
        {
            "experiment": name,
            "cases": len(cases := [each for each in suite.recording.results if each["experiment"] == name]),
            "refused": sum(each["verdict"] != "ok" for each in cases),
            "failed": suite.failed.get(name, ""),
        }
        for name in wanted
    ]
    asked.failed = bool(suite.failed)
    said = {"file": str(path), "device": suite.recording.device, "new": suite.new, "experiments": rows}
    return said, Table(rows, caption=f"{path}: {suite.recording!r}; {suite.new} of them new")
