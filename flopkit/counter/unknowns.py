"""What a report cannot know, and says: operators without a formula, masks in tensors, other ranks, conventions that ask for a model."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flopkit.conventions import EXACT, Convention
from flopkit.counter.work import UNKNOWN

__all__ = ["BY_ITS_INSIDE", "LOCAL", "notes", "of_rank", "refuse", "uncounted"]

BY_ITS_INSIDE = (
    "counted by the operators of torch that ran inside it; arithmetic that it does besides, in NumPy or in a kernel of its own, is not "
    "seen (@fk.formula counts it)"
)
LOCAL = "DTensor: what is counted is this rank's local work"
WRITTEN_OUT = (
    "softmax beside batched products: if that is attention written out, its mask is not seen, and every position counts"
)


def of_rank() -> str:
    """That what is counted is one process's work, where there are several; else ""."""
    import torch

    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return ""
    return f"rank {distributed.get_rank()} of {distributed.get_world_size()}: what is counted is this rank's local work"


def uncounted(report: Any) -> list[dict[str, Any]]:
    """Operators without a formula, their calls and bytes."""
    rows: dict[str, dict[str, Any]] = {}
    for entry, _, calls in report.lines():
        if entry.work.status == UNKNOWN:
            row = rows.setdefault(entry.op, {"operator": entry.op, "calls": 0, "bytes": 0})
            row["calls"] += calls
            row["bytes"] += calls * entry.work.bytes
    return sorted(rows.values(), key=lambda row: -row["bytes"])


def notes(report: Any) -> list[str]:
    """What single calls left unsaid, each with how many there were."""
    hidden: dict[str, int] = {}
    for entry, where, calls in report.lines():
        if entry.work.note and (where.phase == "forward" or entry.work.status == UNKNOWN):
            hidden[entry.work.note] = hidden.get(entry.work.note, 0) + calls
    if report.convention.hidden != report.convention.scores and (calls := _written_out(report)):
        hidden[WRITTEN_OUT] = calls
    return [f"{note} ({calls} call{'s' * (calls != 1)})" for note, calls in hidden.items()]


def _written_out(report: Any) -> int:
    """Calls of softmax beside batched products, less those of attention calls whose two products were counted by themselves."""
    batched: set[str] = set()
    softmaxes, of_calls = Counter[str](), Counter[str]()
    for entry, where, calls in report.lines():
        if where.phase != "forward":
            continue
        if entry.op in ("_softmax", "_safe_softmax"):
            softmaxes[where.path] += calls
        elif entry.op in ("bmm", "baddbmm") and "scores" in entry.work.model:
            of_calls[where.path] += calls
        elif entry.op in ("bmm", "baddbmm"):
            batched.add(where.path)
    return sum(
        max(calls - of_calls[path] // 2, 0)
        for path, calls in softmaxes.items()
        if {path, path.rpartition(".")[0]} & batched
    )


def refuse(convention: Convention) -> None:
    """Raise an error for a convention that asks for what a running program does not show."""
    asks = [kind for kind in ("router", "head", "embedding") if convention.share(kind) != EXACT.share(kind)]
    use = "use a model's formula, fk.load(name), under that convention"
    if convention.of_models:
        raise ValueError(
            f"{convention} counts a model's parameters for each token, and a running program does not say which those are; {use}"
        )
    if asks:
        raise ValueError(
            f"{convention} asks for the {' and the '.join(asks)}, and a running program does not say which of its operators that is; {use}"
        )
