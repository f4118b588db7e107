"""Autograd: which node it is differentiating, in which backward pass, and where that node was made.

torch does not publish what tells that; all of its names are here. Autograd numbers the nodes of a thread in the order in which the forward
pass makes them, and a `AutogradTimeline` remembers which place was current at which number.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from flopkit.counter.watch.modules import Scope

__all__ = ["ENGINE", "NEVER", "AutogradTimeline", "current_node", "graph_task", "next_number", "number_of", "will_run"]

current_node: Any = torch._C._current_autograd_node  # None where nothing is being differentiated
graph_task = torch._C._current_graph_task_id  # which backward pass this is; -1 outside of any
next_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]  # of the node that this thread makes next
will_run = torch._C._will_engine_execute_node  # whether the backward pass under way comes to a node
ENGINE = torch.autograd.graph._engine_run_backward.__code__  # every backward pass starts here
NEVER = 1 << 63  # no node has this number, or a higher one, but a leaf

# What is kept of a trail. The work of graphs that are older is still counted, but attributed to no module.
LONGEST_TRAIL = 200_000  # marks
PASSES = 64  # backward passes, of which at least one came back as far


def number_of(node: Any) -> int:
    """The number that autograd gave to *node* when it was made."""
    return int(node._sequence_nr())


class AutogradTimeline:
    """Which place was current when autograd gave out which sequence number, in one thread."""

    __slots__ = ("lowest", "numbers", "passes", "places")

    def __init__(self) -> None:
        self.numbers = array("q")
        self.places: list[Scope] = []
        self.lowest = NEVER  # the oldest node that the backward pass under way came to
        self.passes: deque[int] = deque(maxlen=PASSES)  # and that those before it came to

    def mark(self, number: int, place: Scope) -> None:
        """From sequence number *number* on, nodes belong to *place*."""
        if self.numbers and self.numbers[-1] >= number:
            while len(self.numbers) > 1 and self.numbers[-2] >= number:
                self.numbers.pop()
                self.places.pop()
            self.numbers[-1], self.places[-1] = number, place
            return
        if self.places and self.places[-1] is place:
            return
        self.numbers.append(number)
        self.places.append(place)
        if len(self.numbers) > LONGEST_TRAIL:
            del self.numbers[: LONGEST_TRAIL // 2], self.places[: LONGEST_TRAIL // 2]

    def end_pass(self) -> None:
        """A backward pass is over: forget what none of the last ones came back to."""
        self.passes.append(self.lowest)
        self.lowest = NEVER
        if len(self.passes) == PASSES and len(self.numbers) > 256:
            past = bisect_right(self.numbers, min(self.passes)) - 1
            if past > len(self.numbers) // 4:
                del self.numbers[:past], self.places[:past]

    def at(self, number: int) -> Scope | None:
        """The place that the node of this sequence number belongs to."""
        found = bisect_right(self.numbers, number) - 1
        return self.places[found] if found >= 0 else None
