"""``counters``: counted FLOPs beside what the hardware's own counters saw."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flopkit import machine
from flopkit.cli import options
from flopkit.experiments import under_counters
from flopkit.measuring.hardware import checking, ncu
from flopkit.tables import Table

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "counters --list",
    "counters --list --json",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What ``counters`` takes."""
    parser.add_argument(
        "--list", action="store_true", help="list the cases on a GPU and the accepted ratios; run nothing"
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="folder for Nsight Compute's files (default: beside your recordings)"
    )
    parser.add_argument(
        "--step",
        choices=tuple(under_counters.STEPS),
        help="a training step, operator by operator, instead of the cases; ncu takes about half a second per operator",
    )
    parser.add_argument("--read", metavar="FOLDER", help="compare files that an earlier run left; needs no GPU")
    options.on_this_machine(parser)


def run(asked: argparse.Namespace) -> tuple[Any, Table]:
    """The cases or a training step, counted twice; or the list of cases."""
    if asked.list:
        cases = checking.expected()
        return cases, Table(
            cases, caption=f"{len(cases)} cases on a GPU: executed by its counters / counted by flopkit"
        )
    for option in ("read", "out"):
        options.path(option, getattr(asked, option))
    if asked.step or (asked.read and under_counters.is_step(Path(asked.read))):
        kept = Path(asked.read or asked.out or machine.folder() / "counters" / asked.step)
        step = under_counters.compared(kept) if asked.read else under_counters.check(kept, asked.step)
        return step, under_counters.shown(step)
    found = [ncu.compared(Path(asked.read))] if asked.read else checking.against_hardware(asked.device, asked.out)
    asked.failed = not checking.agreed(found)
    return found, checking.shown(found)
