"""``devices``: peaks and bandwidths of accelerators."""

from __future__ import annotations

import argparse
from typing import Any

from flopkit import units
from flopkit.devices import device, device_names
from flopkit.tables import Table

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "devices",
    "devices h100-sxm",
    "devices h200 --json",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What ``devices`` takes."""
    parser.add_argument("name", nargs="?", help="one device, with its number formats and its source; without it, all")


def run(asked: argparse.Namespace) -> tuple[Any, Table]:
    """One device, or all of them."""
    if asked.name is not None:
        card = device(asked.name)
        rows = {
            dtype: {"peak": card.peak(dtype), "ridge": card.ridge(dtype), "limit": float(card.limit(dtype))}
            for dtype in card.dtypes
        }
        about = {"name": card.name, "title": card.title, "bandwidth": card.bandwidth, "memory": card.memory}
        return {**about, "formats": rows, "source": card.source, "notes": card.notes}, card.table()
    peaks = ("fp16", "bf16", "fp8")
    found = [
        {"name": card.name}
        | {dtype: card.peak(dtype) if dtype in card.dtypes else None for dtype in peaks}
        | {"bandwidth": card.bandwidth, "memory": card.memory}
        for card in map(device, device_names())
    ]
    rate = {name: lambda value: units.si(value, "FLOP/s") for name in peaks}
    formats = {**rate, "bandwidth": lambda value: units.si(value, "B/s"), "memory": lambda value: units.si(value, "B")}
    return found, Table(found, caption="Dense peaks, bandwidths and memories", formats=formats)
