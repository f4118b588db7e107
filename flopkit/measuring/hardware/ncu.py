"""Nsight Compute: executed FLOPs by number format and bytes of the GPU's memory, from its counters, beside what `flopkit.count` says.

Run on an H200; names of the counters were checked against NVIDIA's own lists for the other capabilities in `TENSOR`. Its times are not
measurements, since each kernel is run several times over with empty caches, so none are read. Copies by the card's copy engines are no
kernels, and ncu does not see them.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flopkit import machine
from flopkit.measuring.hardware.cases import CASES, Program, verdict
from flopkit.measuring.hardware.tiles import whole

__all__ = ["check", "command", "compared", "counters", "kernels"]

# Operations of the tensor cores, by compute capability and the format of the factors. A multiply-add counts as two already.
_T = "sm__ops_path_tensor_src_"
_FP16 = {_T + "fp16_dst_fp32": "fp16", _T + "fp16_dst_fp16": "fp16"}
_AMPERE = {_T + "bf16_dst_fp32": "bf16", _T + "tf32_dst_fp32": "tf32", _T + "int8": "int8", **_FP16}
TENSOR = {
    (7, 5): {_T + "fp16_bf16_tf32_dst_fp32": "fp16", _T + "fp16_dst_fp16": "fp16", _T + "int8": "int8"},
    (8, 0): {**_AMPERE, _T + "fp64": "fp64"},
    (8, 6): _AMPERE,
    (8, 9): {**_AMPERE, _T + "fp8": "fp8"},
    (9, 0): {
        _T + "bf16_dst_fp32": "bf16", _T + "tf32_dst_fp32": "tf32", _T + "int8": "int8", _T + "fp16": "fp16",
        _T + "fp8": "fp8", _T + "fp64": "fp64",
    },
    (10, 0): {**_AMPERE, _T + "fp64": "fp64", _T + "fp4_fp6_fp8_dst_fp32": "fp8", _T + "fp4_dst_fp32": "fp4"},
}  # fmt: skip
# Instructions of the ordinary units, one for each thread: FLOPs of one. Half-precision ones are taken as pairs, which is an upper bound.
_CORES = {
    "fadd": ("fp32", 1), "fmul": ("fp32", 1), "ffma": ("fp32", 2), "dadd": ("fp64", 1), "dmul": ("fp64", 1), "dfma": ("fp64", 2),
    "hadd": ("fp16 vector", 2), "hmul": ("fp16 vector", 2), "hfma": ("fp16 vector", 4),
}  # fmt: skip
MEMORY = ("dram__bytes_read.sum", "dram__bytes_write.sum")
Values = dict[str, float | None]  # of a kernel's counters by name; None: not read
KEPT = 160  # characters of a kernel's name
DELIMITER = "spin_kernel"  # what torch.cuda._sleep launches
FORBIDDEN = (
    "the driver keeps the counters for administrators (ERR_NVGPUCTRPERM): run as root, or set the driver's option "
    "NVreg_RestrictProfilingToAdminUsers=0; a hosted notebook rarely allows either"
)


def counters(capability: tuple[int, int]) -> dict[str, tuple[str, int]]:
    """The counters of arithmetic on a GPU: number format, and FLOPs that one count stands for.

    >>> counters((9, 0))["sm__ops_path_tensor_src_bf16_dst_fp32.sum"]
    ('bf16', 1)
    """
    older = [known for known in TENSOR if known <= tuple(capability)]
    if not older:
        raise ValueError(
            f"capability {tuple(capability)}: the tensor cores of GPUs before 7.5 have no counters we know"
        )
    tensor = {f"{name}.sum": (dtype, 1) for name, dtype in TENSOR[max(older)].items()}
    return tensor | {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": found for op, found in _CORES.items()}


def command(folder: Path, capability: tuple[int, int], program: Sequence[str] = ()) -> list[str]:
    """The command line that writes ``report.ncu-rep`` of a program into *folder*. None named: that of the cases."""
    return [
        "ncu", "--profile-from-start", "off", "--replay-mode", "kernel", "--cache-control", "all", "--clock-control", "none",
        "--metrics", ",".join([*counters(capability), *MEMORY]), "-f", "-o", str(folder / "report"),
        *(program or (sys.executable, "-m", "flopkit.measuring.hardware.cases", str(folder))),
    ]  # fmt: skip


def check(folder: Path) -> dict[str, Any]:
    """Run the cases under Nsight Compute on the CUDA device, keep its files in *folder*, and compare.

    Raises
    ------
    OSError
        Without ``ncu``, without the driver's permission, or if there is no report, with the reason.
    """
    watch(folder)
    return compared(folder)


def watch(folder: Path, program: Sequence[str] = ()) -> None:
    """Run a program under Nsight Compute, and keep its report and its table, ``raw.csv``, in *folder*. None named: the cases.

    Raises
    ------
    OSError
        Without ``ncu``, without the driver's permission, or if there is no report, with the reason.
    """
    import torch

    if shutil.which("ncu") is None:
        raise FileNotFoundError(
            "Nsight Compute's ncu is not on the PATH: it comes with the CUDA toolkit, "
            "or from https://developer.nvidia.com/nsight-compute"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for old in ("report.ncu-rep", "raw.csv", "cases.json"):
        (folder / old).unlink(missing_ok=True)
    _run(command(folder, torch.cuda.get_device_capability(), program), folder)
    shown = ["ncu", "--import", str(folder / "report.ncu-rep"), "--csv", "--page", "raw", "--print-units", "base"]
    (folder / "raw.csv").write_text(_run(shown, folder), "utf-8")


def _run(line: list[str], folder: Path) -> str:
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    said = done.stdout + done.stderr
    if "ERR_NVGPUCTRPERM" in said:
        raise PermissionError(FORBIDDEN)
    if done.returncode or not (folder / "report.ncu-rep").exists():
        lines = [each for each in said.splitlines() if each.strip() and not each.startswith("==PROF==")]
        its, others = ([each for each in lines if each.startswith("==") is own] for own in (True, False))
        raise OSError(f"ncu wrote no report: {' '.join([*its, *others[-1:]]) or 'it said nothing'}")
    return done.stdout


def kernels(text: str) -> list[tuple[str, Values]]:
    """Name and counters of each kernel in what ``ncu --csv --page raw`` prints; None is a counter that was not read.

    Raises
    ------
    ValueError
        If the table is missing, cut off, or holds what is no number.
    """
    if "ERR_NVGPUCTRPERM" in text:
        raise PermissionError(FORBIDDEN)
    start = re.search(r'^"ID",', text, re.M)
    if start is None:
        raise ValueError('this is no table of ncu\'s raw page: no line begins with "ID"')
    if not text.endswith("\n"):
        raise ValueError("ncu's table is cut off: its last line does not end")
    try:
        head, *rows = filter(None, csv.reader(io.StringIO(text[start.start() :]), strict=True))
    except csv.Error as error:
        raise ValueError(f"ncu's table is cut off: {error}") from None
    units = rows.pop(0) if rows and not rows[0][0] else [""] * len(head)
    if "Kernel Name" not in head or any(len(row) != len(head) for row in [units, *rows]):
        raise ValueError("ncu's table is cut off, or has no column Kernel Name: a row has another length than its head")
    # beside the counters, device__… and launch__… describe the card and the launch, in words, too
    wanted = [(i, name) for i, name in enumerate(head) if name.endswith(".sum")]
    named = head.index("Kernel Name")
    return [(row[named], {name: _number(row[i], units[i], name) for i, name in wanted}) for row in rows]


def _number(cell: str, unit: str, name: str) -> float | None:
    if cell.strip() in ("", "n/a", "nan", "(!) n/a"):
        return None
    if not re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?|\d+(\.\d+)?", cell.strip()):
        raise ValueError(f"{name}: {cell!r} is no number as ncu prints it in English")
    return float(cell.replace(",", "")) * {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(unit.strip()[:1], 1)


def groups(text: str) -> list[list[tuple[str, Values]]]:
    """The kernels of a table of ncu, those behind each delimiter."""
    found: list[list[tuple[str, Values]]] = []
    for name, values in kernels(text):
        if DELIMITER in name:
            found.append([])
        elif found:
            found[-1].append((name, values))
    return found


def sums(ran: Iterable[Values], known: Mapping[str, tuple[str, int]]) -> tuple[dict[str, float], float | None]:
    """Executed FLOPs by number format, and bytes of the memory, of some kernels; what a counter did not read is left out, or None."""
    ran = list(ran)
    missing = {name for name in (*known, *MEMORY) for values in ran if values.get(name) is None}
    by_format: dict[str, float] = {}
    for name in known.keys() - missing:
        dtype, weight = known[name]
        by_format[dtype] = by_format.get(dtype, 0) + weight * sum(values[name] or 0 for values in ran)
    moved = None if missing & {*MEMORY} else sum(values[name] or 0 for values in ran for name in MEMORY)
    return {name: flops for name, flops in sorted(by_format.items()) if flops}, moved


def compared(folder: Path) -> dict[str, Any]:
    """Compare what ``raw.csv`` and ``cases.json`` in *folder* hold; no GPU is needed.

    Raises
    ------
    ValueError
        If the two files do not belong together, or one is not whole.
    """
    about = kept(folder)
    try:
        found = groups(machine.text_of(folder / "raw.csv"))
        ran = [each["case"] for each in about["results"] if "error" not in each]
        if unknown := [name for name in ran if name not in CASES]:
            raise ValueError(f"case={unknown[0]!r:.60} is not of this flopkit")
        if len(found) != len(ran) + 1 or found[-1]:
            raise ValueError(f"of {len(ran) + 1} delimiter kernels {len(found)} are there")
        executed, known = dict(zip(ran, found, strict=False)), counters(tuple(about["capability"]))
        rows = [_row(each, executed.get(each["case"], []), known) for each in about["results"]]
        return {"oracle": "Nsight Compute", "device": str(about["device"]), "results": rows}
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise not_whole(folder, error) from error


def kept(folder: Path) -> Any:
    """What ``cases.json`` in *folder* holds."""
    try:
        return json.loads(machine.text_of(folder / "cases.json"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{folder} has no cases.json: name a folder that python -m flopkit counters --out FOLDER has filled"
        ) from None
    except (ValueError, RecursionError):
        raise ValueError(f"{folder / 'cases.json'} is not whole: run the counters again") from None


def not_whole(folder: Path, error: Exception) -> ValueError:
    """What to say of files that do not belong together, are cut off, or of another flopkit."""
    lacks = "lacks " * isinstance(error, KeyError)
    return ValueError(f"{folder} is not whole: {lacks}{error}; run the counters again")


def _row(
    said: Mapping[str, Any], kernels: list[tuple[str, Values]], known: Mapping[str, tuple[str, int]]
) -> dict[str, Any]:
    case, ran = CASES[said["case"]], [values for _, values in kernels]
    row: dict[str, Any] = {"case": case.name, "accepted": case.accepted, "note": case.note}
    if "error" in said:
        return {**row, "verdict": "not run", "note": said["error"]}
    missing = {name for name in (*known, *MEMORY) for values in ran if values.get(name) is None}
    by_format, moved = sums(ran, known)
    each = [{"kernel": name[:KEPT], "executed": sums([values], known)[0]} for name, values in kernels]
    row |= {"counted": said["counted"], "executed": by_format, "kernels": each}
    lost = sorted(name for name in missing if name in MEMORY or known[name][0] == case.dtype)
    if lost or moved is None or not by_format.get(case.dtype):
        why = f"ncu gave no value of {', '.join(lost)}" if lost else f"no counter of {case.dtype} moved"
        return {**row, "verdict": "not counted", "note": why}
    executed, counted = by_format[case.dtype], said["counted"]["flops"]
    row["whole_tiles"] = tiled = _tiled(case, [(each["kernel"], each["executed"]) for each in row["kernels"]])
    if (
        tiled is not None and tiled == executed > counted
    ):  # explained to the last FLOP, so it is judged by what it computes
        counted = tiled
        row["note"] = (
            f"{case.note}{'; ' * bool(case.note)}whole tiles: {tiled / said['counted']['flops'] - 1:.1%} more, as the kernels' names say"
        )
    ratio, share = executed / said["counted"]["flops"], moved / said["counted"]["bytes"]
    agrees = verdict((executed / counted, case.accepted), (share, case.bytes_accepted))
    return {**row, "ratio": ratio, "bytes": moved, "bytes_ratio": share, "verdict": agrees}


def _tiled(case: Program, kernels: list[tuple[str, dict[str, float]]]) -> int | None:
    """FLOPs of the products of a case in whole tiles, by the names of the kernels that ran them; None where a name tells none."""
    names = [name for name, executed in kernels if executed.get(case.dtype)]
    if not case.products or len(names) != len(case.products):
        return None
    each = [whole(name, *sizes) for name, sizes in zip(names, case.products, strict=True)]
    return None if None in each else sum(filter(None, each))
