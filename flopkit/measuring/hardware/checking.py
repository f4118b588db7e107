"""The counter beside the hardware's own counters: which oracle this machine has, and a table of what it says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flopkit import machine, units
from flopkit.measuring.hardware import gpm, ncu, processor
from flopkit.measuring.hardware.cases import CASES
from flopkit.tables import Table

__all__ = ["agreed", "against_hardware", "expected", "shown"]


def against_hardware(device: str | None = None, folder: str | Path | None = None) -> list[dict[str, Any]]:
    """Compare counts with counters: on a CUDA device by Nsight Compute, then by GPM; on a CPU by perf.

    Parameters
    ----------
    device : str, optional
        ``"cpu"`` or ``"cuda"``. None: the CUDA device where there is one.
    folder : str | Path, optional
        Where Nsight Compute's files are kept. None: ``counters`` in the folder of the reader's recordings.

    Returns
    -------
    list[dict[str, Any]]
        One entry for each oracle: ``oracle``, ``device`` and ``results``; where one of two cannot count, ``unread`` says why.

    Raises
    ------
    OSError
        Where no oracle can count, with the reasons: the result is never a zero.
    """
    if (device or machine.kind()) == "cpu":
        return [processor.check()]
    if machine.kind() != "cuda":
        raise OSError("torch finds no CUDA device here: Nsight Compute and GPM need one")
    found: list[dict[str, Any]] = []
    kept = Path(folder) if folder else machine.folder() / "counters"
    for oracle, check in (("Nsight Compute", partial(ncu.check, kept)), ("NVML GPM", gpm.check)):
        try:
            found.append(check())
        except (OSError, ValueError, LookupError, RuntimeError) as error:  # the other one may still count
            found.append({"oracle": oracle, "device": machine.title("cuda"), "unread": str(error), "results": []})
    if not any(each["results"] for each in found):
        raise OSError("; ".join(each["unread"] for each in found))
    return found


def agreed(found: list[dict[str, Any]]) -> bool:
    """Whether the first oracle was read, something was judged, and all that was judged agrees."""
    verdicts = {row["verdict"] for each in found for row in each["results"]}
    return "unread" not in found[0] and "agrees" in verdicts and not verdicts & {"differs", "not counted"}


def expected() -> list[dict[str, Any]]:
    """What is accepted of each case on a GPU.

    >>> expected()[0]
    {'case': 'mm_bf16', 'format': 'bf16', 'counted by': 'flops, TORCH', 'executed / counted': '1', 'note': ''}
    """
    return [
        {
            "case": case.name, "format": case.dtype, "counted by": f"{case.kind}, {case.convention}",
            "executed / counted": _interval(case.accepted), "note": case.note,
        }
        for case in CASES.values()
    ]  # fmt: skip


def _interval(accepted: Any) -> str:
    if accepted is None:
        return "shown"
    low, high = accepted
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def shown(found: list[dict[str, Any]]) -> Table:
    """A row for each case and oracle."""
    rows = [_line(each["oracle"], row) for each in found for row in each["results"]]
    unread = "".join(f"; {each['unread']}" for each in found if "unread" in each)
    return Table(rows, caption=f"Executed by {found[0]['device']}, counted by flopkit{unread}")


def _line(oracle: str, row: Mapping[str, Any]) -> dict[str, Any]:
    ratio, share = row.get("ratio"), row.get("bytes_ratio")
    by_format = (f"{name} {units.si(value, 'FLOPs')}" for name, value in row.get("executed", {}).items())
    return {
        "oracle": oracle, "case": row["case"], "verdict": row["verdict"],
        "executed / counted": "" if ratio is None else f"{ratio:.6g}", "accepted": _interval(row["accepted"]),
        "counted": units.si(row["counted"]["flops"], "FLOPs") if "counted" in row else "", "executed": ", ".join(by_format),
        "memory": "" if share is None else f"{units.si(row['bytes'], 'B')}, {share:.3g} of the count", "note": row["note"],
    }  # fmt: skip
