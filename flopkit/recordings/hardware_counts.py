"""What a GPU's own counters said of small programs and of training steps, beside what flopkit counted: from Nsight Compute, on a machine of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

__all__ = ["HardwareCounts", "hardware_counts"]


@dataclass(frozen=True, repr=False)
class HardwareCounts:
    """Counts of one device.

    Parameters
    ----------
    whose : str
        Who ran the counters, on what, when.
    device : str
        What the machine calls the device.
    provenance : Mapping[str, Any]
        Driver and versions.
    cases : Mapping[str, Mapping[str, Any]]
        By the name of a program of ``python -m flopkit counters --list``: FLOPs and bytes that flopkit *counted*, FLOPs *executed* by number
        format, *bytes* of the memory, the *kernels*, and the *verdict*. *whole_tiles* has the FLOPs of the tiles that the kernels' names tell.
    steps : Mapping[str, list[Mapping[str, Any]]]
        By the name of a training step: its operators with their shapes, each with its *calls*, and what was counted and executed in one call.
        An operator that was not *watched* has no executed FLOPs.
    programs : list[Mapping[str, Any]]
        Small programs that were counted on the *cpu* and on the *gpu* of that machine, by name and number format: model FLOPs.
    busy : Mapping[str, Any]
        What NVML's GPM said of a product of large matrices: the share of the time in which the tensor cores were *busy*, at which *sm_mhz*.

    Examples
    --------
    >>> found = hardware_counts()
    >>> one = found.cases["mm_bf16"]
    >>> one["executed"]["bf16"] == one["counted"]["flops"] == 2 * 4096**3
    True
    """

    whose: str
    device: str
    provenance: Mapping[str, Any]
    cases: Mapping[str, Mapping[str, Any]]
    steps: Mapping[str, list[Mapping[str, Any]]]
    programs: list[Mapping[str, Any]]
    busy: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{len(self.cases)} programs and {len(self.steps)} training steps under hardware counters, {self.whose}"


def hardware_counts() -> HardwareCounts:
    """The counts that come with flopkit: of an NVIDIA H200, by Nsight Compute.

    >>> found = hardware_counts()
    >>> found.cases["add_fp32"]["ratio"]  # the sum of two arrays executes multiply-adds, x + 1 · y
    2
    """
    kept = json.loads(files("flopkit").joinpath("data/hardware_counts/nvidia-h200.json").read_text("utf-8"))
    by, about = kept["attribution"], kept["provenance"]
    return HardwareCounts(
        f"recorded by {by['who']} on {by['machine']}, {about['when']}", about["device"], about,
        {each["case"]: each for each in kept["cases"]}, {each["step"]: each["results"] for each in kept["steps"]}, kept["programs"], kept["gpm"],
    )  # fmt: skip
