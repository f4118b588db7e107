"""Where a tool that counts by layers stands beside the operators that ran: work by family, filled up operator by operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.counter.peers.lines import ATTENTION, lines, truth
from flopkit.counter.peers.seen import Row, Seen

__all__ = ["FORWARD_ONLY", "failed", "family_of", "rows_of"]

FORWARD_ONLY = "it knows forward passes only"
_RECURRENT = ("rnn", "lstm", "gru")
_DENSE = ("linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "mv", "addmv", "einsum")


def family_of(operator: str) -> str:
    """``"convolution"``, ``"recurrent"``, ``"attention"``, ``"dense"``, or the operator itself."""
    if operator == ATTENTION or "attention" in operator:
        return "attention"
    if "conv" in operator:
        return "convolution"
    if any(part in operator for part in _RECURRENT):
        return "recurrent"
    return "dense" if operator in _DENSE else operator


def rows_of(source: Any, seen: Mapping[str, int], added: Mapping[str, int], unseen: str) -> tuple[int, list[Row]]:
    """FLOPs that were executed, and the rows of a tool that counts forward passes by layers.

    Parameters
    ----------
    seen : FLOPs that the tool finds in layers of each family, a multiply-add as two.
    added : what else is in its number, by name, read the same way.
    unseen : the reason for a zero.
    """
    true: dict[tuple[str, bool], list[int]] = {}
    for line in lines(source):
        flops = truth(line)
        if flops:
            row = true.setdefault((line.group, line.phase == "forward"), [0, 0])
            row[0] += line.calls
            row[1] += flops
    left = dict(seen)
    found = []
    forward = sorted((op for op, ahead in true if ahead), key=lambda op: _DENSE.index(op) if op in _DENSE else -1)
    for op in forward:
        calls, flops = true[op, True]
        family = family_of(op)
        told = min(flops, left.get(family, 0))
        left[family] = left.get(family, 0) - told
        found.append(Row(op, calls, flops, told, "" if told == flops else unseen.format(op)))
    for (op, ahead), (calls, flops) in true.items():
        if not ahead:
            found.append(Row(f"{op}, not forward", calls, flops, 0, FORWARD_ONLY))
    more = {f"{family} layers": flops for family, flops in left.items() if flops}
    found += [Row(name, 0, 0, flops, f"it adds {name}") for name, flops in {**more, **added}.items() if flops]
    return sum(flops for _, flops in true.values()), found


def failed(source: Any, tool: str, unit: str, really: str, error: str) -> Seen:
    """What there is to say of a tool that raises *error*: no number, and nothing seen of what was executed."""
    total, rows = rows_of(source, {}, {}, "")
    return Seen(tool, None, unit, really, total, rows, (), error)
