"""What the tools answered: flopkit/data/counters.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from flopkit.peers.releases import Releases

__all__ = ["Recorded", "recorded", "releases", "versions"]

OF_TORCH = ("torch", "torch.profiler")  # whose version is torch's


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
def recorded(torch: str | None = None) -> Mapping[str, Recorded]:
    """The recorded answers, by program: of the versions that were asked, or of the version *torch* of torch.

    A tool of which nothing is known in that version is left out.

    >>> recorded()["ViT-B/16"].printed["torch"], recorded()["ViT-B/16"].flops
    (33697001472, 35127656448)
    >>> recorded(torch="2.15.0")["ViT-B/16"].printed["torch"]
    35127656448
    """
    known, programs = _data()
    if torch is not None and torch not in known["torch"]:
        raise ValueError(f"torch={torch!r}: answers are recorded of torch {known['torch']}")
    return MappingProxyType(
        {name: _answers(name, it, known, torch or known["torch"].since) for name, it in programs.items()}
    )


def _answers(name: str, it: Any, known: Mapping[str, Releases], torch: str) -> Recorded:
    """One program's, with this version of torch."""
    printed, reasons = dict(it["printed"]), dict(it.get("reasons", {}))
    for tool, later in it.get("later", {}).items():
        if torch in Releases(later["since"], known[tool].until):
            printed[tool], reasons[tool] = later["printed"], later.get("reason")
    for tool in OF_TORCH:
        if torch not in known[tool]:
            printed.pop(tool, None)
    reasons = {tool: reason for tool, reason in reasons.items() if reason and tool in printed}
    return Recorded(name, it["about"], it["flops"], MappingProxyType(printed), MappingProxyType(reasons))


def versions() -> Mapping[str, str]:
    """The versions of the tools that were asked."""
    return MappingProxyType({tool: known.since for tool, known in releases().items()})


def releases() -> Mapping[str, Releases]:
    """The versions of the tools of which the answers are known: those that were asked, and later ones."""
    return _data()[0]


@cache
def _data() -> tuple[Mapping[str, Releases], Mapping[str, Any]]:
    return read(files("flopkit").joinpath("data/counters.toml").read_text(encoding="utf-8"))


def read(text: str) -> tuple[Mapping[str, Releases], Mapping[str, Any]]:
    """The versions and the programs of a file such as flopkit/data/counters.toml."""
    data = tomllib.loads(text)
    known = MappingProxyType({tool: Releases(**given) for tool, given in data["versions"].items()})
    for name, it in data["programs"].items():
        for tool, later in it.get("later", {}).items():
            if tool not in OF_TORCH or later.keys() - {"since", "printed", "reason"}:
                raise ValueError(f'programs."{name}".later."{tool}": must be of {OF_TORCH}: since, printed and reason')
            if later["since"] not in known[tool]:
                raise ValueError(f'programs."{name}".later."{tool}": since={later["since"]!r} is not {known[tool]}')
    return known, data["programs"]
