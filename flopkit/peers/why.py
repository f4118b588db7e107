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
    ran = [row for row in report.by_op() if row["phase"] == "forward"]
    for row in ran:
        name = f"{row['operator']}, {row['kernel']}" if row["kernel"] else row["operator"]
        if row["flops"] and (name in known["zero"] or row["operator"] in known["zero"]):
            unseen[row["operator"]] = unseen.get(row["operator"], 0) + row["flops"]
    found = [f"{op}: 0 ({units.si(flops, 'FLOPs')})" for op, flops in unseen.items()]
    left = answer.flops - (true - sum(unseen.values()))
    if left < -NEAR * true:
        found.append(_fitting("less", known, _is_missed(known, ran)))
    elif left > 0:
        found.append(_fitting("more", known, left <= _added_at_most(answer, known, report)))
    return "; ".join(found) or NOT_KNOWN


def _fitting(which: str, known: Mapping[str, Any], fits: bool) -> str:
    return str(known.get(which, NOT_KNOWN)) if fits else NOT_KNOWN


def _is_missed(known: Mapping[str, Any], ran: list[Any]) -> bool:
    """Whether what a tool leaves out may have been in the program: a convolution is a layer to each of them."""
    said = known.get("less", "")
    return (
        {row["operator"] for row in ran if row["flops"]} != {"convolution"} or "convolution" in said or "batch" in said
    )


def _added_at_most(answer: Any, known: Mapping[str, Any], report: Any) -> float:
    """What a tool may add: no more for each element-wise FLOP that ran than one of its units; a table's parameters without a bound."""
    if "embedding" in known.get("more", "") and any(row["operator"] == "embedding" for row in report.by_op()):
        return float("inf")
    return float(2 // answer.fma * report.forward.vector_flops)
