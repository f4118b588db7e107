"""What torch.compile made kernels of: whose its seconds are, and for which calls of the counter, which ran uncompiled, they stand.

A trace has one event for each call of a compiled graph and, inside of it, the operators that the compiler left as they
were. The kernels that it generated are the rest of that event: on a CPU they have events of their own only if
``torch._inductor.config.cpp.enable_kernel_profile`` was set before compiling.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from flopkit.counter.work import FREE
from flopkit.profiling.events import GRAPH, Span
from flopkit.profiling.matching import WHOLE, Call, Key, Node, token

__all__ = ["COMPILED", "name_compiled"]

COMPILED = "compiled: "
AROUND = re.compile(r"Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|\bCompiledFunction|## Call")
KERNEL = re.compile(r"(?:cpp|triton_[a-z]+)_fused_\w+")
BACKWARD = ("backward", "recompute")
SHOWN = 4  # operators in a row's name


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
            here = token(node, True)
            same = (call for call in self.calls if isinstance(here, tuple) and token(call, True) == here)
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
