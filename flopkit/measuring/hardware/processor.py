"""perf on Linux: the floating-point operations that a CPU's own counters saw in a matrix product, beside what `flopkit.count` says.

As a program, ``python -m flopkit.measuring.hardware.processor CALLS``, it multiplies, and perf watches it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from flopkit import machine
from flopkit.counter.running import count
from flopkit.measuring.hardware.cases import verdict

__all__ = ["check", "events", "flops_seen"]

N = 1024  # rows and columns of the matrices
CALLS = (2, 12)  # of two runs: what starting Python and torch computes is in both, and goes out in their difference
ACCEPTED = (0.999, 1.02)  # a kernel that handles edges or scales its result does some more
# Intel counts instructions by width, and an FMA twice, so a count is worth its lanes. AMD counts operations.
INTEL = {"scalar_single": 1, "128b_packed_single": 4, "256b_packed_single": 8, "512b_packed_single": 16}
AMD = {"fp_ret_sse_avx_ops.all:u": 1}


def events(cpuinfo: str) -> dict[str, int]:
    """The events of fp32 arithmetic and the FLOPs of one, for the processor that ``/proc/cpuinfo`` describes.

    >>> events("vendor_id : AuthenticAMD")
    {'fp_ret_sse_avx_ops.all:u': 1}
    """
    if "GenuineIntel" in cpuinfo:
        wide = " avx512f" in cpuinfo  # without it perf knows no event of that width
        return {f"fp_arith_inst_retired.{name}:u": lanes for name, lanes in INTEL.items() if wide or lanes < 16}
    if "AuthenticAMD" in cpuinfo:
        return AMD
    raise OSError(
        "no event is known here that counts this processor's floating-point operations: Intel and AMD have one"
    )


def check() -> dict[str, Any]:
    """Count a matrix product by perf, and compare.

    Raises
    ------
    OSError
        Without perf, the kernel's permission or the processor's counters, with the reason.
    """
    import torch

    if shutil.which("perf") is None:
        raise FileNotFoundError("perf is not on the PATH: it belongs to Linux (apt install linux-perf, or linux-tools)")
    wanted = events(Path("/proc/cpuinfo").read_text("utf-8"))
    few, many = (_watched(calls, wanted) for calls in CALLS)
    executed, report = (many - few) / (CALLS[1] - CALLS[0]), count(torch.mm, torch.ones(N, N), torch.ones(N, N))
    ratio = executed / report.flops
    row = {
        "case": f"mm_fp32, n={N}", "accepted": ACCEPTED, "note": "", "counted": {"flops": report.flops, "bytes": report.bytes},
        "executed": {"fp32": executed}, "ratio": ratio, "verdict": verdict((ratio, ACCEPTED)),
    }  # fmt: skip
    return {"oracle": "perf stat", "device": machine.title("cpu"), "results": [row]}


def _watched(calls: int, wanted: dict[str, int]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perf.csv"
        done = subprocess.run(
            ["perf", "stat", "-x", ",", "-o", str(path), "-e", ",".join(wanted), "--",
             sys.executable, "-m", "flopkit.measuring.hardware.processor", str(calls)],
            capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        said = " ".join(done.stderr.split())
        if re.search("perf_event_paranoid|[Pp]ermission|not permitted|observability operations is limited", said):
            raise PermissionError(
                "the kernel does not let this user read the processor's counters: sysctl kernel.perf_event_paranoid=2 "
                "allows it, outside of a container that forbids it"
            )
        if re.search("parser error|unknown event|Bad event name|syntax error", said):
            raise OSError(
                f"perf offers no event {next(iter(wanted))} here: the processor is too old for it, or hidden, as in most virtual machines"
            )
        if done.returncode:
            raise OSError(f"perf stat failed: {said[-300:] or f'exit code {done.returncode}'}")
        return flops_seen(path.read_text("utf-8"), wanted)


def flops_seen(text: str, wanted: dict[str, int]) -> float:
    """FLOPs in what ``perf stat -x ,`` prints.

    Raises
    ------
    OSError
        If an event is missing or was not counted all the time.

    Examples
    --------
    >>> flops_seen("268435456,,fp_ret_sse_avx_ops.all:u,5000,100.00,,", AMD)
    268435456
    """
    total: float = 0
    lines = [line.split(",") for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for event, lanes in wanted.items():
        # a processor with two kinds of cores has a line of each: cpu_core/name/u and cpu_atom/name/u
        found = [line for line in lines if len(line) > 4 and event.removesuffix(":u") in line[2]]
        if not found:
            raise OSError(f"perf printed no line of {event}: its output is cut off")
        seen = [line for line in found if line[0].isdigit()]
        if not seen:
            raise OSError(
                f"perf says {found[0][0]} of {event}: the processor's counters are hidden, as in most virtual machines"
            )
        if any(float(line[4]) < 100 for line in seen):
            raise OSError(
                f"{event} was counted only {seen[0][4]} % of the time: another program uses the counters, try again"
            )
        total += lanes * sum(int(line[0]) for line in seen)
    return total


def run_products(calls: int) -> None:
    """What perf watches."""
    import torch

    a, b = torch.rand(N, N), torch.rand(N, N)
    for _ in range(calls):
        torch.mm(a, b)


if __name__ == "__main__":
    run_products(int(sys.argv[1]))
