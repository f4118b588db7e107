"""Where a measurement was made: device, clocks, driver, versions, and the switches that change times."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flopkit import machine
from flopkit.__about__ import __version__

__all__ = ["provenance"]

VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)  # fmt: skip


def provenance(device: Any = "cpu") -> dict[str, Any]:
    """What a recording keeps of the place and the hour, as plain values; what cannot be read is None.

    Parameters
    ----------
    device : Any, optional
        A device of torch, or its name.

    Examples
    --------
    >>> found = provenance("cpu")
    >>> found["type"], found["cuda"], found["driver"]
    ('cpu', None, None)
    """
    import torch

    where = torch.device(device)
    driver, clocks = _card(where) if where.type == "cuda" else (None, {"core": _core_clock()})
    flags = {
        "threads": torch.get_num_threads(), "cores": os.cpu_count(),
        "float32_matmul_precision": _precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(), "cudnn_benchmark": torch.backends.cudnn.benchmark,
        **{name: os.environ[name] for name in VARIABLES if name in os.environ},
    }  # fmt: skip
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"), "device": machine.title(where), "type": where.type,
        "clocks": clocks, "driver": driver, "torch": str(torch.__version__), "cuda": torch.version.cuda if where.type == "cuda" else None,
        "python": platform.python_version(), "platform": platform.platform(), "flags": flags, "commit": _commit(),
        "flopkit": __version__,
    }  # fmt: skip


def _precision() -> str:
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # it was set by the name that torch has for it since 2.9
        return str(torch.backends.cuda.matmul.fp32_precision)


def _card(where: Any) -> tuple[str | None, dict[str, float | None]]:
    """The driver and the highest clocks in MHz, as nvidia-smi tells them; None where that tool is missing."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(where), "uuid", None)
    chosen = [] if uuid is None else ["-i", f"GPU-{uuid}"]
    wanted = "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem"
    text = _said("nvidia-smi", *chosen, wanted, "--format=csv,noheader,nounits")
    cells = [cell.strip() for cell in text.partition("\n")[0].split(",")]
    driver, sm, memory = cells if len(cells) == 3 else (None, "", "")
    return driver, {name: float(mhz) if mhz.isdigit() else None for name, mhz in (("sm", sm), ("memory", memory))}


def _core_clock() -> float | None:
    """The highest clock of a core in MHz, where the system tells it."""
    try:
        return int(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text("ascii")) / 1000
    except (OSError, ValueError):
        return None


def _commit() -> str | None:
    """The commit of the checkout that flopkit runs from, with -dirty where files differ; None for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    return _said("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12").strip() or None


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
