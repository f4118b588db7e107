"""This computer: what its devices are called, and the folder where flopkit keeps what was measured on it."""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "EARLY", "FORM", "folder", "keep_ceilings", "kind", "memory", "place", "read_ceilings", "text_of", "threads", "title", "write_whole",
]  # fmt: skip

EARLY = 0.98  # of the least time that a call can take: it may be so much faster by the resolution of the clock

FORM = "flopkit ceilings 1"  # the first line of a file of ceilings: it changes when the file's form does

HELD = {"title": str, "when": str, "threads": int | None, "memory": float | None, "matmul": dict, "traffic": dict}


def folder() -> Path:
    """Where the reader's own measurements are kept: ``$FLOPKIT_RECORDINGS``, else ``~/.flopkit/recordings``.

    Raises
    ------
    ValueError
        Where the variable names what is no folder.
    """
    named = os.environ.get("FLOPKIT_RECORDINGS")
    try:
        found = Path(named or "~/.flopkit/recordings").expanduser()
    except RuntimeError as error:  # ~somebody who is not known here, or no home
        raise ValueError(f"FLOPKIT_RECORDINGS={named!r}: {error}; let it name a folder") from None
    if found.exists() and not found.is_dir():
        raise ValueError(f"FLOPKIT_RECORDINGS={named!r}: {found} is no folder; let it name one, existing or not")
    return found


def text_of(path: Path) -> str:
    """The text of a file. A pipe or a device, which may have no end, is not opened.

    Raises
    ------
    OSError
        Where there is no such file, or something else.
    ValueError
        For what is no UTF-8, with its path.
    """
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is no file, but a folder, a pipe or a device: name a file")
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text: {error}") from None


def write_whole(path: Path, text: str) -> None:
    """Write a file, all or nothing: whoever reads it, or ends this program, meets the old one or the new one. A link stays one.

    It is written under a name that nobody can know before, and takes the permissions of the old one.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with written.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            written.chmod(path.stat().st_mode & 0o777)
        os.replace(written, path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


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
    write_whole(path, json.dumps({"form": FORM, **found}, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
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
        found = json.loads(text_of(path))
        if found.pop("form") != FORM or not all(isinstance(found[name], kind) for name, kind in HELD.items()):
            raise ValueError("not the form of this version")
        for rate, roofs in (("flops_per_s", found["matmul"]), ("bytes_per_s", found["traffic"])):
            if odd := [
                name for name, roof in roofs.items() if not (isinstance(roof["verdict"], str) and 0 < roof[rate] < 1e30)
            ]:
                raise ValueError(f"{odd[0]} has no verdict or no {rate}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{path} does not hold ceilings as this version of flopkit writes them ({reason}): "
            "flopkit.ceilings() measures them and writes the file anew"
        ) from None
    return dict(found)


def _path(device: str) -> Path:
    # a folder of its own: the files beside it are recordings
    return folder() / "ceilings" / f"{re.sub(r'[^a-z0-9]+', '-', device.lower()).strip('-')}.json"
