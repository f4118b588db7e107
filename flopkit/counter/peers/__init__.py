"""What other people's counters would print of a program: their silent zeros, and each gap with its reason.

Each file here says what one tool makes of a run that flopkit has watched. The tool itself is not needed for that, and not called;
the tests call it, and compare. `asked` runs the tools themselves, where they are installed.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from flopkit.counter.peers.apart import PACKED, apart, packed
from flopkit.counter.peers.families import failed
from flopkit.counter.peers.seen import Fails, Row, Seen

__all__ = ["TOOLS", "Row", "Seen", "seen_by"]

TOOLS = {
    "torch": "dispatch",
    "fvcore": "fvcore",
    "ptflops": "ptflops",
    "thop": "thop",
    "ultralytics-thop": "ultralytics",
    "calflops": "calflops",
    "torchinfo": "torchinfo",
    "torch.profiler": "profiler",
}


def seen_by(tool: str, source: Any) -> Seen:
    """What *tool* would print of the run that *source*, a watcher, has seen."""
    if tool not in TOOLS:
        near = get_close_matches(str(tool).lower(), TOOLS, n=1, cutoff=0.5)
        raise ValueError(
            f"tool={tool!r} is not known{f' (did you mean {near[0]!r}?)' if near else ''}; known: {', '.join(map(repr, TOOLS))}"
        )
    room = importlib.import_module(f"flopkit.counter.peers.{TOOLS[tool]}")
    if tool in ("torch", "torch.profiler"):  # which hang no hooks to modules, and do not fail
        found: Seen = room.seen(source)
        return found
    source = apart(source)
    try:
        found = room.seen(source)
    except Fails as error:
        found = failed(source, tool, room.UNIT, room.REALLY, str(error))
    return replace(found, remarks=(*found.remarks, PACKED)) if packed(source) else found
