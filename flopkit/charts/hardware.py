"""The devices that a figure offers: an option for each device and number format, with its numbers from the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flopkit import dtypes, units
from flopkit.charts.panel import Control, choice
from flopkit.devices import Device, device

__all__ = ["DEVICES", "device_choice", "peaks_note"]

DEVICES = (
    ("h100-sxm", "bf16"),
    ("h100-sxm", "fp8"),
    ("h200", "bf16"),
    ("b200", "bf16"),
    ("b200", "fp8"),
    ("a100-sxm-80gb", "bf16"),
    ("mi300x", "bf16"),
    ("l4", "bf16"),
    ("t4", "fp16"),
    ("rtx-4090", "bf16"),
)


def device_choice(
    name: str = "device", label: str = "Device and number format", pairs: Sequence[tuple[str, str]] = DEVICES
) -> Control:
    """A drop-down of devices, each with the format its arithmetic runs in.

    A model reads ``device.peak`` (FLOP/s), ``device.lanes`` (FLOP/s of the ordinary lanes in fp32, for work that finds no
    tensor cores), ``device.bandwidth`` (bytes/s), ``device.memory`` (bytes), ``device.usable`` (those that programs can
    allocate), ``device.watts`` (at most), ``device.limit`` (FLOP/s that no
    run can pass), ``device.ridge`` (FLOPs per byte) and ``device.bits`` (of one number), so
    the option itself serves as the ``dtype`` of a formula.
    """
    options: dict[str, dict[str, Any]] = {}
    for key, dtype in pairs:
        known = device(key)
        options[f"{_short(known)}, {dtype}"] = {
            "peak": known.peak(dtype),
            "lanes": known.peak("fp32"),
            "bandwidth": known.bandwidth,
            "memory": known.memory,
            "usable": known.available,
            "watts": known.watts,
            "limit": known.limit(dtype),
            "ridge": known.ridge(dtype),
            "bits": dtypes.bits(dtype),
        }
    return choice(name, label, options)


def _short(known: Device) -> str:
    """A title that fits a phone: without the maker's name."""
    return known.title.removeprefix("NVIDIA ").removeprefix("AMD ").removeprefix("GeForce ").removeprefix("Instinct ")


def peaks_note(pairs: Sequence[tuple[str, str]] = DEVICES) -> str:
    """A caption's sentences on where the peaks are from: whose were read in a document of the maker, and whose were not.

    >>> peaks_note([("a100-sxm-80gb", "bf16"), ("t4", "fp16")])
    'Peaks are dense. A100 SXM4 80 GB: from a document of the maker; the others: from public tables that copy such documents. fk.device(…).source names each.'
    """
    known = [device(name) for name in dict.fromkeys(name for name, _ in pairs)]
    read = ", ".join(_short(one) for one in known if one.vendor in one.source)
    others = "from public tables that copy the makers' documents"
    if read:
        others = f"{read}: from a document of the maker; the others: from public tables that copy such documents"
    return f"Peaks are dense{'. ' if read else ', '}{others}. fk.device(…).source names each."


def source_note(pairs: Sequence[tuple[str, str]] = DEVICES) -> str:
    """`peaks_note`, and the ridge of the first of them."""
    first = device(pairs[0][0])
    ridge = units.format_value(first.ridge(pairs[0][1]), "FLOP/B")
    return f"{peaks_note(pairs)} The ridge of the {first.title} in {pairs[0][1]} is {ridge}."
