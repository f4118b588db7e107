"""What several commands ask for, and how they read it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

__all__ = ["PLACES", "amount", "by_name", "number", "on_this_machine", "path", "share", "whole"]

PLACES = (
    "a model that flopkit knows (llama-3-8b); a Hub id (org/name), of which only the config.json is downloaded; or a path: a "
    "config.json, a folder that has one, Meta's or Mistral's params.json, a GGUF file"
)


def on_this_machine(parser: argparse.ArgumentParser, scales: Sequence[str] = ()) -> None:
    """Where a command measures; with *scales*, how large its cases are and how long one may take."""
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the CUDA device where there is one")
    if scales:
        parser.add_argument("--scale", choices=scales, help="size of the cases (default: as the device asks)")
        parser.add_argument(
            "--time-budget", type=float, metavar="S", help="seconds per case (default: as the scale asks)"
        )


def share(text: str) -> float:
    """A share as it is typed: 0.4 or 40%."""
    try:
        value = float(text.rstrip(" %")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: write 0.4 or 40%") from None
    if not text.endswith("%") and 1 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is more than all: write {value / 100:g} or {text}%")
    return value


def amount(text: str) -> float:
    """A number as it is typed or printed: 15e12, 15T, 1.46M or 1,000,000."""
    from flopkit.diagnosis.figures import figure  # which loads more than the command line needs

    try:
        return float(text)
    except ValueError:
        pass
    try:
        return figure("number", text).value
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number: write 15e12, 15T or 1,000,000") from None


def number(text: str) -> int:
    """A whole number that is an option by itself."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number: write it in digits, such as 8192") from None


def by_name(option: str, text: str) -> dict[str, str]:
    """What an option says by name: ``tp=4,cp=2``."""
    pairs = [each.partition("=") for each in text.split(",")]
    if not all(name.strip() and value.strip() for name, _, value in pairs):
        raise ValueError(
            f"--{option} {text!r}: write names and values, such as {'tp=4,cp=2' if option == 'parallel' else 'linear=fp8,rest=bf16'}"
        )
    return {name.strip(): value.strip() for name, _, value in pairs}


def whole(option: str, text: str) -> int:
    """A whole number that is a part of an option."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--{option}: {text!r} is not a whole number") from None


def path(option: str, path: str | None) -> str | None:
    """A path that an option names; nothing is no path, as where a variable of the shell is not set."""
    if path is not None and not path.strip():
        raise ValueError(f"--{option} {path!r}: names no file or folder")
    return path
