"""What the tools answered: flopkit/data/counters.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

__all__ = ["Recorded", "recorded", "versions"]


@dataclass(frozen=True)
class Recorded:
    """What one program executes, what each tool printed of it, and why that is another number.

    Parameters
    ----------
    program : str
        Its name.
    about : str
        What it is in words: size, batch, mode.
    flops : int
        What was executed, convention TORCH.
    printed : Mapping[str, int]
        What each tool printed.
    reasons : Mapping[str, str]
        Why it is another number, by tool; empty where the tool is right.
    """

    program: str
    about: str
    flops: int
    printed: Mapping[str, int]
    reasons: Mapping[str, str]


@cache
def recorded() -> Mapping[str, Recorded]:
    """The recorded answers, by program.

    >>> recorded()["ViT-B/16"].printed["torch"], recorded()["ViT-B/16"].flops
    (33697001472, 35127656448)
    """
    found = {
        name: Recorded(name, it["about"], it["flops"], it["printed"], it.get("reasons", {}))
        for name, it in _data()["programs"].items()
    }
    return MappingProxyType(found)


def versions() -> Mapping[str, str]:
    """The versions of the tools that the answers are from."""
    return MappingProxyType(dict(_data()["versions"]))


@cache
def _data() -> Any:
    return tomllib.loads(files("flopkit").joinpath("data/counters.toml").read_text(encoding="utf-8"))
