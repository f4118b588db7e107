"""Which call of the counter each operator of a trace is: matched by name, in order, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flopkit.counter.breakdown import module_names
from flopkit.counter.calls import name_of
from flopkit.counter.ledger import Entry
from flopkit.profiling.events import Event

__all__ = ["Call", "Key", "Node", "calls_of", "forest", "match"]

Key = tuple[str, str, str]  # operator, module, phase
WHOLE = "(the model)"
ATTENTION = "scaled_dot_product_attention"
REACH = 40  # operators that are looked at where two sequences part


@dataclass(eq=False, slots=True)
class Call:
    """One call that the counter saw."""

    key: Key  # the row that it belongs to
    entry: Entry | None  # its work; None where another call has it
    name: str  # in a trace, such as "aten::mm"; empty where no operator ran
    is_inside: bool  # of an operator that the counter opened


@dataclass(eq=False, slots=True)
class Node:
    """An operator or a launch of a trace, below the operator that called it."""

    event: Event
    parent: Node | None
    children: list[Node] = field(default_factory=list)
    call: Call | None = None  # of the counter, that it is
    owner: Call | None = (
        None  # whose row its own time belongs to: itself, what is around it, or the longest inside of it
    )


def calls_of(report: Any) -> list[Call]:
    """The calls of a report that was counted in order.

    A call of attention in the forward pass is one, whatever ran inside of it; its work stands in a line of its own, after it.
    """
    names = module_names({where.path for _, where, _ in report.order})
    found: list[Call] = []
    for entry, where, is_inside in report.order:
        module, name = names[where.path] or WHOLE, "" if entry.func is None else name_of(entry.func)
        if name.startswith("profiler::"):
            continue
        if not where.in_attention:
            found.append(Call((entry.op, module, where.phase), entry, name, is_inside))
            continue
        key = (ATTENTION, module, where.phase)
        if where.phase == "backward":
            found.append(Call(key, None, name, is_inside))
        elif not (found and found[-1].key == key and found[-1].entry is None):
            found.append(Call(key, None, f"aten::{ATTENTION}", is_inside))
    return found


def forest(events: Iterable[Event]) -> list[Node]:
    """Operators and launches, each below what it ran inside of on its thread, in the order of their starts.

    >>> outer, inner = Event("aten::linear", "operator", 0.0, 3.0, 1), Event("aten::addmm", "operator", 1.0, 2.0, 1)
    >>> [node.parent and node.parent.event.name for node in forest([outer, inner])]
    [None, 'aten::linear']
    """
    stacks: dict[Any, list[Node]] = {}
    found = []
    for event in events:
        if event.kind not in ("operator", "launch"):
            continue
        stack = stacks.setdefault(event.lane, [])
        while stack and stack[-1].event.end <= event.start:
            stack.pop()
        node = Node(event, stack[-1] if stack else None)
        if stack:
            stack[-1].children.append(node)
        found.append(node)
        if event.kind == "operator":
            stack.append(node)
    return found


def match(nodes: Sequence[Node], calls: Sequence[Call], steps: Sequence[tuple[float, float]]) -> None:
    """Give each operator of a trace the call that it is, and each node its owner.

    Of the operators of a step those are compared whose name the counter knows, the outermost of each branch: what they call the
    counter has not seen, nor what calls them (``aten::linear`` around ``aten::addmm``).
    """
    wanted = [call for call in calls if call.name]
    names = {_plain(call.name) for call in wanted}
    known: set[Node] = set()  # and what is below them
    by_step: list[list[Node]] = [[] for _ in steps]
    place = 0
    for node in nodes:
        while place < len(steps) - 1 and node.event.start >= steps[place][1]:
            place += 1
        if node.parent in known:
            known.add(node)
        elif node.event.kind == "operator" and _plain(node.event.name) in names:
            known.add(node)
            if steps[place][0] <= node.event.start < steps[place][1]:
                by_step[place].append(node)
    seen: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    ours = [_plain(call.name) for call in wanted]
    for found in by_step:
        theirs = tuple(_plain(node.event.name) for node in found)
        if theirs not in seen:
            seen[theirs] = align(ours, theirs)
        for i, j in seen[theirs]:
            found[j].call = wanted[i]
    _own(nodes)


def _plain(name: str) -> str:
    """An operator's name without the mark of one in place: autograd adds gradients in place, and not so while somebody watches."""
    return name.rstrip("_")


def align(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of places at which two sequences agree, in order; where they part, they meet again where most of
    the next operators agree.

    >>> align(["t", "addmm", "detach", "relu"], ["t", "addmm", "fill", "fill", "relu"])
    [(0, 0), (1, 1), (3, 4)]
    """
    pairs, i, j = [], 0, 0
    while i < len(ours) and j < len(theirs):
        if ours[i] != theirs[j]:
            di, dj = _apart(ours, theirs, i, j)
            i, j = i + di, j + dj
            continue
        pairs.append((i, j))
        i, j = i + 1, j + 1
    return pairs


def _apart(ours: Sequence[str], theirs: Sequence[str], i: int, j: int) -> tuple[int, int]:
    """How many to pass over on either side, from two places that differ, so that most of what follows agrees."""
    mine, others = ours[i : i + REACH], theirs[j : j + REACH]
    common = [[0] * (len(others) + 1) for _ in range(len(mine) + 1)]  # of what is left of both
    for a in reversed(range(len(mine))):
        for b in reversed(range(len(others))):
            common[a][b] = 1 + common[a + 1][b + 1] if mine[a] == others[b] else max(common[a + 1][b], common[a][b + 1])
    a = b = 0
    while a < len(mine) and b < len(others) and mine[a] != others[b]:
        if common[a + 1][b] >= common[a][b + 1]:
            a += 1
        else:
            b += 1
    return (a, b) if common[0][0] else (len(mine), len(others))


def _own(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.owner = node.call or (node.parent.owner if node.parent else None)
    longest: dict[Node, tuple[float, Call]] = {}
    for node in reversed(nodes):
        around = node.parent
        best = (node.event.end - node.event.start, node.call) if node.call else longest.get(node)
        if node.owner is None and best:
            node.owner = best[1]
        if around is not None and best and best[0] > longest.get(around, (-1.0,))[0]:
            longest[around] = best
