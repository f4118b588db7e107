"""This computer: what its devices are called, and the folder where flopkit keeps what was measured on it."""

from __future__ import annotations

import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FORM", "folder", "keep_ceilings", "kind", "memory", "place", "read_ceilings", "threads", "title"]

FORM = "flopkit ceilings 1"  # the first line of a file of ceilings: it changes when the file's form does

HELD = {"title": str, "when": str, "threads": int | None, "memory": float | None, "matmul": dict, "traffic": dict}


def folder() -> Path:
    """Where the reader's own measurements are kept: ``$FLOPKIT_RECORDINGS``, else ``~/.flopkit/recordings``."""
    named = os.environ.get("FLOPKIT_RECORDINGS")
    return Path(named).expanduser() if named else Path.home() / ".flopkit" / "recordings"


def kind() -> str:
    """``"cuda"`` where torch finds such a device, else ``"cpu"``."""
    try:
        import torch
    except ModuleNotFoundError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def place(device: Any = None) -> Any:
    """The device of torch that is meant, a CPU or a CUDA device that is here; None: the one that `kind` names.

    Raises
    ------
    ValueError
        For another kind of device, and for a CUDA device where torch finds none.
    """
    import torch

    where = torch.device(kind() if device is None else device)
    if where.type not in ("cpu", "cuda"):
        raise ValueError(f"device={str(device)!r}: must be a CPU or a CUDA device")
    if where.type == "cuda" and kind() != "cuda":
        raise ValueError(f"device={str(device)!r}: torch finds no CUDA device here")
    return where


def title(where: Any = None) -> str:
    """What this machine calls a device, ``"cpu"``, ``"cuda"`` or one of torch's; None: the one that `kind` names."""
    where = kind() if where is None else where
    if str(where).startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(where))
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine() or "CPU"


def memory(where: Any = None) -> float | None:
    """Bytes of a device's main memory; None where the system does not tell them."""
    where = kind() if where is None else where
    if str(where).startswith("cuda"):
        import torch

        return float(torch.cuda.get_device_properties(where).total_memory)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None


def threads(where: Any) -> int | None:
    """Threads with which torch computes on the CPU; None for another device."""
    if str(where).startswith("cuda"):
        return None
    import torch

    return torch.get_num_threads()


def keep_ceilings(found: Mapping[str, Any]) -> Path:
    """Write ceilings where `read_ceilings` finds them; whoever reads meanwhile finds the old file or the new one, whole."""
    path = _path(found["title"])
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, written = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps({"form": FORM, **found}, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        os.replace(written, path)
    except BaseException:
        Path(written).unlink(missing_ok=True)
        raise
    return path


def read_ceilings(where: Any = None) -> dict[str, Any] | None:
    """The ceilings that are kept of a device of this machine, or None.

    Raises
    ------
    ValueError
        If the file is not what `keep_ceilings` wrote, with its path.
    """
    path = _path(title(where))
    try:
        found = json.loads(path.read_text("utf-8"))
        if found.pop("form") != FORM or not all(isinstance(found[name], kind) for name, kind in HELD.items()):
            raise ValueError("not the form of this version")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{path} does not hold ceilings as this version of flopkit writes them ({reason}): "
            "flopkit.ceilings() measures them and writes the file anew"
        ) from None
    return dict(found)


def _path(device: str) -> Path:
    # a folder of its own: the files beside it are recordings
    return folder() / "ceilings" / f"{re.sub(r'[^a-z0-9]+', '-', device.lower()).strip('-')}.json"
