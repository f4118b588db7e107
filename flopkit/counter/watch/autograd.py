"""Autograd: which node it is differentiating, in which backward pass, and which module made that node.

torch does not publish what tells that; all of its names are here. Autograd numbers the nodes of a thread in the order in which the forward
pass makes them, and an `AutogradTimeline` remembers which scope was current at which number.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from flopkit.counter.watch.modules import Scope

current_node: Any = torch._C._current_autograd_node  # None where nothing is being differentiated
graph_task = torch._C._current_graph_task_id  # which backward pass this is; -1 outside of any
next_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]  # of the node that this thread makes next
will_run = torch._C._will_engine_execute_node  # whether the backward pass under way comes to a node
ENGINE = torch.autograd.graph._engine_run_backward.__code__  # every backward pass starts with it
NEVER = 1 << 63  # no node has this number, or a higher one, but a leaf

# The work of graphs that are older than this is still counted, but attributed to no module.
LONGEST_TIMELINE = 200_000  # marks
PASSES = 64  # backward passes, of which at least one came back as far


def number_of(node: Any) -> int:
    """The number that autograd gave to *node* when it was made."""
    return int(node._sequence_nr())


class AutogradTimeline:
    """Which scope was current when autograd gave out which sequence number, in one thread."""

    def __init__(self, number: int, scope: Scope) -> None:
        self.numbers = array("q", [number])
        self.scopes: list[Scope] = [scope]
        self.lowest = NEVER  # the oldest node that the backward pass under way came to
        self.passes: deque[int] = deque(maxlen=PASSES)  # and that those before it came to

    def mark(self, number: int, scope: Scope) -> None:
        """From sequence number *number* on, nodes belong to *scope*."""
        numbers, scopes = self.numbers, self.scopes
        if numbers[-1] >= number:
            while len(numbers) > 1 and numbers[-2] >= number:
                numbers.pop()
                scopes.pop()
            numbers[-1], scopes[-1] = number, scope
        elif scopes[-1] is not scope:
            numbers.append(number)
            scopes.append(scope)
            if len(numbers) > LONGEST_TIMELINE:
                del numbers[: LONGEST_TIMELINE // 2], scopes[: LONGEST_TIMELINE // 2]

    def end_pass(self) -> None:
        """A backward pass is over: forget what none of the last ones came back to."""
        self.passes.append(self.lowest)
        self.lowest = NEVER
        if len(self.passes) == PASSES and len(self.numbers) > 256:
            past = bisect_right(self.numbers, min(self.passes)) - 1
            if past > len(self.numbers) // 4:
                del self.numbers[:past], self.scopes[:past]

    def at(self, number: int) -> Scope | None:
        """The scope that the node of this sequence number belongs to."""
        found = bisect_right(self.numbers, number) - 1
        return self.scopes[found] if found >= 0 else None
