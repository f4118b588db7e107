"""Which call of the counter each operator of a trace is: matched by name, in order, step by step; and what torch.compile made kernels of.

A trace has one event for each call of a compiled graph and, inside of it, the operators that the compiler left as they
were. The kernels that it generated are the rest of that event: on a CPU they have events of their own only if
``torch._inductor.config.cpp.enable_kernel_profile`` was set before compiling. The calls that they stand for ran uncompiled in the count.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from flopkit.counter.breakdown import module_names
from flopkit.counter.calls import name_of
from flopkit.counter.ledger import Entry
from flopkit.counter.work import FREE
from flopkit.profiling.events import GRAPH, Event, Span

__all__ = ["COMPILED", "Call", "Key", "Node", "calls_of", "forest", "match", "name_compiled", "own", "shapes"]

Key = tuple[str, str, str]  # operator, module, phase
WHOLE = "(the model)"
NO_MODULE = "(no module)"
ATTENTION = "scaled_dot_product_attention"
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
REACH = 40  # operators that are looked at where two sequences part
COMPILED = "compiled: "
AROUND = re.compile(r"Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|\bCompiledFunction|## Call")
KERNEL = re.compile(r"(?:cpp|triton_[a-z]+)_fused_\w+")
BACKWARD = ("backward", "recompute")
SHOWN = 4  # operators in a row's name


@dataclass(eq=False, slots=True)
class Call:
    """One call that the counter saw, or a row of what it did not see."""

    key: Key  # the row that it belongs to
    entry: Entry | None = None  # its work; None where another call has it
    name: str = ""  # in a trace, such as "aten::mm"; empty where no operator ran
    is_inside: bool = False  # of an operator that the counter opened


@dataclass(eq=False, slots=True)
class Node:
    """An operator or a launch of a trace, below the operator that called it."""

    event: Event
    parent: Node | None
    children: list[Node] = field(default_factory=list)
    call: Call | None = None  # of the counter, that it is
    owner: Call | None = None  # whose row has its own time: itself, what is around it, or the longest inside of it


def calls_of(report: Any) -> list[Call]:
    """The calls of a report that was counted in order.

    A call of attention in the forward pass is one, whatever ran inside of it; its work stands in a line of its own, after it.
    """
    names = module_names({where.path for _, where, _ in report.order})
    found: list[Call] = []
    for entry, where, is_inside in report.order:
        module, name = names[where.path] or WHOLE, "" if entry.func is None else name_of(entry.func)
        key = (ATTENTION, module, where.phase)
        if name.startswith("profiler::"):
            continue
        if not where.in_attention:
            found.append(Call((entry.op, module, where.phase), entry, name, is_inside))
        elif where.phase == "backward":
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


def match(nodes: Sequence[Node], calls: Sequence[Call], steps: Sequence[Span]) -> None:
    """Give each operator of a trace the call that it is.

    Of the operators of a step those are compared whose name the counter knows, the outermost of each branch: what they call the
    counter has not seen, nor what calls them (``aten::linear`` around ``aten::addmm``).
    """
    wanted = [call for call in calls if call.name]
    compiled = any(node.event.name.startswith((GRAPH, "CompiledFunction")) for node in nodes)
    shaped = compiled and any("Input Dims" in (node.event.source.get("args") or {}) for node in nodes)
    seen: dict[Any, list[tuple[int, Call]]] = {}
    for found in _by_step(nodes, {_plain(call.name) for call in wanted}, steps):
        theirs = [_token(node, shaped) for node in found]
        # Other code adds up gradients as they come, compiled code at its end.
        late = [compiled and node.parent is not None and node.parent.event.name.endswith("AccumulateGrad") for node in found]  # fmt: skip
        key = (*theirs, *late)
        if key not in seen:
            seen[key], left = [], wanted
            for part in (False, True):
                places = [j for j, is_late in enumerate(late) if is_late == part]
                there = [theirs[j] for j in places]
                known = set(there)
                ours = [call for call in left if _token(call, shaped) in known and part <= (call.key[1:] == (NO_MODULE, "backward"))]  # fmt: skip
                pairs = align([_token(call, shaped) for call in ours], there)
                seen[key] += [(places[j], ours[i]) for i, j in pairs]
                taken = {ours[i] for i, _ in pairs}
                left = [call for call in left if call not in taken]
        for j, call in seen[key]:
            found[j].call = call
        _end_recomputing(found)


def _by_step(nodes: Sequence[Node], names: set[str], steps: Sequence[Span]) -> list[list[Node]]:
    """The outermost operators of these names, step by step."""
    inside: set[Node] = set()  # those found, and what is below them
    found: list[list[Node]] = [[] for _ in steps]
    place = 0
    for node in nodes:
        while place < len(steps) - 1 and node.event.start >= steps[place][1]:
            place += 1
        if node.parent in inside:
            inside.add(node)
        elif node.event.kind == "operator" and _plain(node.event.name) in names:
            inside.add(node)
            if steps[place][0] <= node.event.start < steps[place][1]:
                found[place].append(node)
    return found


def _end_recomputing(found: Sequence[Node]) -> None:
    """What a checkpoint computes again ends with an exception, within an operator that the counter does not see."""
    last: Call | None = None
    for node in found:
        if node.call is None and last is not None and last.key[2] == "recompute":
            node.owner = Call((node.event.name.split("::")[-1], NO_MODULE, "recompute"))
        last = node.call


def _token(what: Node | Call, shaped: bool) -> Any:
    """What an operator and its call have in common: their name, and of products the sizes, where the trace has them."""
    name = _plain(what.event.name if isinstance(what, Node) else what.name)
    if not shaped or name.removeprefix("aten::") not in PRODUCTS:
        return name
    if isinstance(what, Call):
        return (name, *shapes(what.entry)[-2:]) if what.entry else name
    first = "add" in name  # the operand that is added
    return (name, *(tuple(each) for each in (what.event.source["args"].get("Input Dims") or [])[first : first + 2]))


def shapes(entry: Entry) -> list[tuple[int, ...]]:
    """The shapes of a call's tensors, in order; none of a view, of which the counter keeps no key."""
    import torch

    def walk(part: Any) -> list[tuple[int, ...]]:
        if isinstance(part, torch.Size):
            return [tuple(part)]
        return [shape for each in part for shape in walk(each)] if isinstance(part, tuple) else []

    return walk(entry.key)


def _plain(name: str) -> str:
    """An operator's name without the mark of one in place: autograd adds gradients in place, and not so while somebody watches.

    Compiled code calls a kernel of attention without the operator around it.
    """
    if name.startswith("aten::_scaled_dot_product") and not name.endswith("_backward"):
        return f"aten::{ATTENTION}"
    return name.rstrip("_")


def align(ours: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of places at which two sequences agree, in order; where they part, they meet again where most of
    the next operators agree.

    >>> align(["t", "addmm", "detach", "relu"], ["t", "addmm", "fill", "fill", "relu"])
    [(0, 0), (1, 1), (3, 4)]
    """
    pairs, i, j = [], 0, 0
    while i < len(ours) and j < len(theirs):
        if ours[i] == theirs[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        else:
            a, b = _apart(ours[i : i + REACH], theirs[j : j + REACH])
            i, j = i + a, j + b
    return pairs


def _apart(mine: Sequence[Any], others: Sequence[Any]) -> tuple[int, int]:
    """How many to pass over on either side, of two sequences that begin differently, so that most of what follows agrees."""
    common = [[0] * (len(others) + 1) for _ in range(len(mine) + 1)]  # of what is left of both
    for a in reversed(range(len(mine))):
        for b in reversed(range(len(others))):
            common[a][b] = 1 + common[a + 1][b + 1] if mine[a] == others[b] else max(common[a + 1][b], common[a][b + 1])
    a = b = 0
    while a < len(mine) and b < len(others) and mine[a] != others[b]:
        a, b = (a + 1, b) if common[a + 1][b] >= common[a][b + 1] else (a, b + 1)
    return (a, b) if common[0][0] else (len(mine), len(others))


def own(nodes: Sequence[Node]) -> None:
    """Give each node its owner, where it has none yet."""
    for node in nodes:
        node.owner = node.call or node.owner or (node.parent.owner if node.parent else None)
    longest: dict[Node, tuple[float, Call]] = {}
    for node in reversed(nodes):
        best = (node.event.end - node.event.start, node.call) if node.call else longest.get(node)
        if best and node.owner is None:
            node.owner = best[1]
        if best and node.parent and best[0] > longest.get(node.parent, (-1.0,))[0]:
            longest[node.parent] = best


@dataclass(eq=False)
class _Region:
    """A graph, or several where it is not known which call ran in which."""

    graphs: list[Node]
    calls: list[Call] = field(default_factory=list)

    @property
    def is_backward(self) -> bool:
        around = self.graphs[0].parent
        return around is not None and "Backward" in around.event.name

    def take(self, other: _Region) -> None:
        self.graphs += other.graphs
        self.calls += other.calls

    def match_in_any_order(self) -> None:
        """Products that the compiler moved have their sizes to be known by."""
        for node in (each for graph in self.graphs for each in graph.children if each.call is None):
            here = _token(node, True)
            same = (call for call in self.calls if isinstance(here, tuple) and _token(call, True) == here)
            node.call = next(same, None)
            self.calls = [call for call in self.calls if call is not node.call]

    def name(self) -> Key | None:
        """Give its kernels their rows, or its graphs where no kernel has an event; the row of all, if it is one."""
        paths = zip(*(call.key[1].split(".") for call in self.calls), strict=False)
        module = ".".join(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, paths)) or WHOLE
        phases = Counter(call.key[2] for call in self.calls) or Counter(
            [BACKWARD[0] if self.is_backward else "forward"]
        )
        names = list(dict.fromkeys(call.key[0] for call in self.calls))
        title = " + ".join(names[:SHOWN]) + f" + {len(names) - SHOWN} more" * (len(names) > SHOWN)
        inside = [(node, KERNEL.search(node.event.name)) for graph in self.graphs for node in graph.children]
        kernels = [(node, found[0]) for node, found in inside if found]
        keys = set()
        for node, name in kernels or [(node, title) for node in self.graphs if title]:
            node.call = Call((COMPILED + name, module, phases.most_common(1)[0][0]))
            keys.add(node.call.key)
        return keys.pop() if len(keys) == 1 else None


def name_compiled(nodes: Sequence[Node], calls: Sequence[Call], steps: Sequence[Span]) -> dict[Call, Key]:
    """Give compiled graphs, their kernels and what is around them rows; the row that has the work of each call.

    Calls between two that are matched, and that are not matched themselves, ran in the compiled graph that ran there.
    """
    around = [node for node in nodes if AROUND.search(node.event.name)]
    guards = Call(("(torch.compile)", "", ""))  # and wrappers: what runs around the graphs
    for each in around:
        each.owner = guards
    whose: dict[Call, Key] = {}
    starts, place = [node.event.start for node in nodes], {call: i for i, call in enumerate(calls)}
    matched = {node.call for node in nodes if node.call}
    attention = {call.key for call in matched if call.entry is None}
    hidden = [  # calls that may have run in a graph
        call not in matched and call.key not in attention and not call.is_inside
        and call.entry is not None and call.entry.work.status != FREE
        for call in calls
    ]  # fmt: skip
    for begin, end in steps if around else ():
        regions: dict[Node, _Region] = {}
        touched: list[Node] = []  # the graphs that ran, if only in part, since the last matched call
        last = -1
        found: list[Node | None] = [*nodes[bisect_left(starts, begin) : bisect_left(starts, end)], None]
        for node in found:
            if node is not None and node.event.name.startswith(GRAPH):
                regions[node] = _Region([node])
                touched.append(node)
            if node is not None and node.call is None:
                continue
            at = place[node.call] if node is not None and node.call is not None else len(calls)
            for i in (i for i in range(last + 1, at) if hidden[i]):
                is_backward = calls[i].key[2] in BACKWARD
                ran = dict.fromkeys(regions[graph] for graph in touched if regions[graph].is_backward == is_backward)
                if ran:
                    first, *others = ran
                    for other in others:
                        first.take(other)
                        regions.update(dict.fromkeys(other.graphs, first))
                    first.calls.append(calls[i])
            if at > last:  # a gradient that is added late comes with the calls of long ago
                last, touched = at, [graph for graph in touched if node and graph.event.end > node.event.start]
        for region in set(regions.values()):
            region.match_in_any_order()
            key = region.name()
            whose.update(dict.fromkeys(region.calls, key) if key else {})
    return whose
