"""Why a tool's number is another one than what ran, as far as that is known: flopkit/data/blind_spots.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from flopkit import units

__all__ = ["NOT_KNOWN", "blind_spots", "reason"]

NOT_KNOWN = "not known"
NEAR = 0.001  # what is left over and needs no word: a thousandth of what ran


@cache
def blind_spots() -> Mapping[str, Any]:
    """By tool: its version, operators that it counts as zero, what else it leaves out, what it adds.

    >>> "mv" in blind_spots()["fvcore"]["zero"]
    True
    """
    found: Mapping[str, Any] = tomllib.loads(files("flopkit").joinpath("data/blind_spots.toml").read_text("utf-8"))
    return found


def reason(answer: Any, report: Any) -> str:
    """Why *answer* is not the forward FLOPs of *report*; "" where it is, "not known" where nobody has said."""
    true = report.forward.flops
    if answer.flops == true:
        return ""
    known = blind_spots().get(answer.tool, {})
    if str(answer.version).split("+")[0] != known.get("version"):
        return f"{NOT_KNOWN} of this version"
    unseen: dict[str, int] = {}
    for row in report.by_op():
        name = f"{row['operator']}, {row['kernel']}" if row["kernel"] else row["operator"]
        if row["phase"] == "forward" and row["flops"] and (name in known["zero"] or row["operator"] in known["zero"]):
            unseen[row["operator"]] = unseen.get(row["operator"], 0) + row["flops"]
    found = [f"{op}: 0 ({units.si(flops, 'FLOPs')})" for op, flops in unseen.items()]
    left = answer.flops - (true - sum(unseen.values()))
    if left < -NEAR * true:
        found.append(known.get("less", NOT_KNOWN))
    elif left > 0:
        found.append(known.get("more", NOT_KNOWN))
    return "; ".join(found) or NOT_KNOWN
