"""``run``: a training program that is not yours, with its FLOPs counted and its MFU said, and not a line of it edited."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flopkit.cli import options
from flopkit.conventions import of_programs
from flopkit.derivations import number_format
from flopkit.devices import device

__all__ = ["EXAMPLES", "JSON", "arguments", "run"]

EXAMPLES = (
    "run -- python train.py --lr 3e-4",
    "run --json run.jsonl --passport my-run -- torchrun --nproc-per-node 8 train.py",
    "run --device h100-sxm --convention EXACT -- python -m my.trainer",
)
JSON = "write one JSON object per line to FILE, and print only the last line"

HOOKS = Path(__file__).parents[1] / "integrations" / "on_path"
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")

# A process of its own, that no wait of the command's finds: it reads until the command, and what that started, has ended.
_WATCH = """
import os, sys
if os.fork():
    os._exit(0)
sys.stdin.buffer.read()
try:
    os.unlink(sys.argv[1])
    print(sys.argv[2], file=sys.stderr)
except OSError:
    pass
"""
_NOT_SEEN = (
    "flopkit: {} started no Python that flopkit could enter, so no step was seen and nothing was counted. Put the command that trains behind --, "
    "such as python -m flopkit run -- python train.py; where it trains in a container or on another machine, call flopkit there"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What ``run`` takes; the command comes after ``--``."""
    parser.usage = "python -m flopkit run [options] -- command"
    parser.add_argument(
        "--passport", metavar="NAME", help="at the end, write NAME.json and NAME.md: what ran, on what, at which MFU"
    )
    parser.add_argument(
        "--steps",
        type=options.number,
        default=4,
        metavar="N",
        help="the optimiser step to count, and the one after it as a check (default 4, after three to warm up)",
    )
    parser.add_argument("--every", type=float, default=5, metavar="S", help="seconds between printed lines (default 5)")
    parser.add_argument(
        "--device", help="the device whose peak MFU divides by, such as h100-sxm (default: the CUDA device that trains)"
    )
    parser.add_argument("--peak", type=options.amount, help="peak FLOP/s per device, such as 989T, instead of --device")
    parser.add_argument("--dtype", help="number format of that peak (default: that of each matmul's operands)")
    parser.add_argument(
        "--convention", default="TORCH", help="TORCH (default), or EXACT, which follows the program's own masks"
    )
    parser.add_argument(
        "--uncompiled",
        action="store_true",
        help="also count a program with compiled functions; they run uncompiled in the counted steps, which therefore round differently",
    )


def run(asked: argparse.Namespace) -> tuple[Any, Any]:
    """Become the command: it has this process, its streams, its signals and its exit code."""
    command = list(asked.command or ())
    if not command:
        raise ValueError("there is no command: write it after --, such as python -m flopkit run -- python train.py")
    program = shutil.which(command[0])
    if program is None:
        there = Path(command[0]).is_file() and command[0].endswith(".py")
        raise ValueError(
            f"{command[0]}: "
            + (f"write python {command[0]}" if there else "there is no program of that name on the PATH")
        )
    _check_python(command)
    told = _told(asked)
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HOOKS), environment.get("PYTHONPATH"))))
    environment["FLOPKIT_RUN"] = json.dumps({**told, "command": command})
    environment.pop("FLOPKIT_RUN_FOLDER", None)
    sys.stdout.flush()
    sys.stderr.flush()
    unseen = "" if _is_python(command) else _leave_mark(environment)
    if os.name == "nt":  # pragma: no cover (there a program cannot become another one)
        code = subprocess.call([program, *command[1:]], env=environment)
        if unseen and Path(unseen).exists():
            Path(unseen).unlink()
            print(_NOT_SEEN.format(command[0]), file=sys.stderr)
        raise SystemExit(code)
    if unseen:
        _watch(unseen, command[0])
    os.execve(program, command, environment)


def _is_python(command: Sequence[str]) -> bool:
    return Path(command[0]).name.lower().startswith("python")


def _leave_mark(environment: dict[str, str]) -> str:
    """A file that the first Python with flopkit's hook takes away."""
    handle, path = tempfile.mkstemp(prefix="flopkit-run-")
    os.close(handle)
    environment["FLOPKIT_RUN_UNSEEN"] = path
    return path


def _watch(unseen: str, name: str) -> None:
    """Have it said at the end of the command if that file is still there."""
    end, held = os.pipe()
    os.set_inheritable(held, True)  # by the command, and by what it starts
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", _WATCH, unseen, _NOT_SEEN.format(name)],
        stdin=end, stdout=subprocess.DEVNULL, start_new_session=True, check=True,
    )  # fmt: skip
    os.close(end)


def _told(asked: argparse.Namespace) -> dict[str, Any]:
    """What the command's processes are told, after all of it was checked."""
    if asked.steps < 2:
        raise ValueError(
            f"--steps {asked.steps}: must be at least 2, for the first step has begun when its optimiser is first seen"
        )
    if not (asked.every > 0 and math.isfinite(asked.every)):
        raise ValueError(f"--every {asked.every:g}: must be a number of seconds")
    of_programs(asked.convention)
    if asked.peak is not None and asked.device is not None:
        raise ValueError(f"--peak and --device {asked.device}: give one of them")
    if asked.peak is not None and not (asked.peak > 0 and math.isfinite(asked.peak)):
        raise ValueError(f"--peak {asked.peak:g}: must be FLOP/s, such as 989T")
    if asked.dtype is not None:
        number_format(asked.dtype)
    if asked.device is not None:
        card = device(asked.device)
        if asked.dtype is not None:
            card.peak(asked.dtype)
    file, passport = options.path("json", asked.json), options.path("passport", asked.passport)
    for option, path in (("json", file), ("passport", passport)):
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise ValueError(f"--{option} {path}: there is no folder {Path(path).absolute().parent}")
    if file is not None:
        Path(file).write_text("", "utf-8")
    return {
        **{
            name: getattr(asked, name)
            for name in ("steps", "every", "device", "peak", "dtype", "convention", "uncompiled")
        },
        "json": None if file is None else str(Path(file).absolute()),
        "passport": None if passport is None else str(Path(passport).absolute()),
        "flopkit": str(Path(__file__).parents[2]),
    }


def _check_python(command: Sequence[str]) -> None:
    """Where the command is Python: that it lets flopkit in, and that its script is there."""
    if not _is_python(command):
        return
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            if word != "-" and not Path(word).exists():
                raise ValueError(f"{word}: there is no such script")
            return
        if word.startswith("--") or word in _WITH_VALUE:
            if word in _WITH_VALUE:
                next(words, None)
            continue
        for letter in word[1:]:
            if letter in "IES":
                raise ValueError(
                    f"{command[0]} {word}: -{letter} has Python pass over PYTHONPATH or its site, by which flopkit comes in; "
                    "leave it away"
                )
            if letter in "cm":
                return
            if letter in "WX":  # the rest is its value
                break
