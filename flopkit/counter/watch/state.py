"""What a watcher knows of one thread: where it is, and what it has seen."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import torch

from flopkit.counter.ledger import Ledger
from flopkit.counter.watch.autograd import (
    ENGINE,
    NEVER,
    AutogradTimeline,
    current_node,
    graph_task,
    next_number,
    number_of,
)
from flopkit.counter.watch.modes import dispatch_modes
from flopkit.counter.watch.modules import OUTSIDE, Scope
from flopkit.counter.watch.phases import backward_or_recompute, is_on_stack

if TYPE_CHECKING:
    from flopkit.counter.watch.mode import Watcher

__all__ = ["ThreadState", "custom_backwards", "heres", "local"]

local = threading.local()
_grad_enabled = torch.is_grad_enabled

SEVERAL_THREADS = (
    "forward passes ran in several threads, and autograd's numbers do not say whose a node is: of the backward pass, what could be "
    "another module's belongs to none"
)
MOST_PASSES = 10_000  # within one another, or without any forward pass between


def heres() -> tuple[ThreadState, ...]:
    """Who watches this thread."""
    found: tuple[ThreadState, ...] = getattr(local, "heres", ())
    if not found and graph_task() != -1:  # autograd's own thread, which no one entered: the modes came along
        modes: Any = dispatch_modes()
        return tuple([mode.here for mode in modes if getattr(mode, "keeps_heres", False) and not mode.closed])
    return found


def custom_backwards() -> list[tuple[int, bool]]:
    """The backward passes of custom functions that this thread is in: in which graph task, and whether with gradients on."""
    found: list[tuple[int, bool]] | None = getattr(local, "custom", None)
    if found is None:
        found = local.custom = []
    return found


class ThreadState:
    """What one watcher knows of one thread: where it is, and what it has seen."""

    __slots__ = (
        "again", "arithmetic", "began", "busy", "depth", "entered", "ledger", "nodes", "optimizers",
        "place", "stack", "trail", "watcher",
    )  # fmt: skip

    def __init__(self, watcher: Watcher, base: Scope) -> None:
        self.watcher = watcher
        self.place = base
        self.stack: list[tuple[Scope, int]] = []  # the places around, and the graph task in which each was entered
        self.trail = AutogradTimeline()
        self.trail.mark(next_number(), base)
        self.ledger = Ledger()
        self.busy = 0  # in a kernel, or where torch makes up shapes: nothing counts
        self.entered = False
        self.nodes = 0  # autograd's next number when last looked at
        self.began: dict[int, int] = {}  # and when each of the backward passes under way came to this thread
        self.again = False  # whether one of them made nodes that another may differentiate
        self.arithmetic = 0  # operators that do some: tells whether any ran inside of an unknown one
        self.optimizers: list[Any] = []
        self.depth = 0  # operators around that were opened, and whose inside a dispatcher would not show

    def enter(self, place: Scope) -> None:
        """Go into an attention call."""
        self.stack.append((self.place, graph_task()))
        self.place = place
        self.trail.mark(next_number(), place)

    def leave(self) -> None:
        """Go back to where it was entered from."""
        place, _ = self.stack.pop()
        self.place = place
        number, trail = next_number(), self.trail
        if trail.numbers[-1] == number:
            trail.places[-1] = place
        else:
            trail.mark(number, place)

    def call_module(self, module: Any) -> None:
        """Go into *module*."""
        task, place, stack = graph_task(), self.place, self.stack
        under = place if task == -1 or (stack and stack[-1][1] == task) else self.of_node()
        found = under.inside.get(id(module)) if under.inside else None
        if found is None or found.module is None or found.module() is not module:
            found = self.watcher.modules.place(module, under, again=task != -1)
        stack.append((place, task))
        self.place = found
        number, trail = next_number(), self.trail
        if trail.numbers[-1] == number:  # no node was made since: as `mark` does, without a call
            trail.places[-1] = found
        else:
            trail.mark(number, found)

    def of_node(self) -> Scope:
        """The place whose work autograd is now differentiating."""
        node = current_node()
        if node is None:
            return OUTSIDE
        number = number_of(node)
        if number >= NEVER:  # a leaf: it only accumulates
            return OUTSIDE
        task = graph_task()
        if task not in self.began:
            self.begin(task)
        threads = self.watcher.threads()
        if len(threads) == 1:
            if number < self.trail.lowest:
                self.trail.lowest = number
            return self.trail.at(number) or OUTSIDE
        found: Scope | None = None
        if (custom := custom_backwards()) and (around := custom[-1][0]) != task:
            # A custom function differentiates, in its own backward pass, what it made there (checkpointing).
            if self.began.get(around, NEVER) <= number < self.began[task]:
                threads = [self]
        # The forward pass may have run in another thread, as it does for every backward pass on a GPU. Each thread has numbers of its own.
        for here in threads:
            there = here.made(number, task)
            if there is None:
                continue
            if number < here.trail.lowest:
                here.trail.lowest = number
            if found is not None and (found.path, found.region) != (there.path, there.region):
                self.watcher.notes.add(SEVERAL_THREADS)
                return OUTSIDE
            found = there
        return found or OUTSIDE

    def made(self, number: int, task: int) -> Scope | None:
        """The place of the node with this number, if this thread made one that the backward pass *task* can come to."""
        trail = self.trail
        made = self.began.get(task)  # a backward pass comes to nothing that is made after it began
        if made is None:
            made = max(self.nodes, trail.numbers[-1])
        return trail.at(number) if number < made else None

    def begin(self, task: int) -> None:
        """A backward pass comes to this thread for the first time."""
        number = next_number()
        if not self.entered and not _is_nested(
            sys._getframe(1)
        ):  # a thread of autograd's own, which is done with those before
            self.began.clear()
            if not self.again:  # what it recomputed was for them
                trail = AutogradTimeline()
                trail.mark(number, OUTSIDE)
                self.trail = trail
        if len(self.began) >= MOST_PASSES:
            del self.began[next(iter(self.began))]
        self.began[task] = number

    def where(self, depth: int) -> tuple[str, Scope]:
        """Phase and place of the operator that is running now, whose caller is *depth* frames up."""
        task = graph_task()
        optimizing = bool(self.optimizers) and self.in_optimizer()
        if task == -1:
            self.nodes = next_number()
            if self.began:
                self.began.clear()
            if self.trail.lowest != NEVER:
                self.trail.end_pass()
            return ("optimizer" if optimizing else "forward"), self.place
        if optimizing:
            return "optimizer", self.place if self.stack else OUTSIDE
        phase = backward_or_recompute(sys._getframe(depth + 1))
        if phase == "backward" and _grad_enabled() and (task, False) in custom_backwards()[-1:]:
            # A custom function turned gradients on in its own backward pass: it runs something in order to differentiate it.
            phase = "recompute"
        place = self.place if self.stack and self.stack[-1][1] == task else self.of_node()
        if (
            _grad_enabled() and (nodes := next_number()) > self.nodes
        ):  # what was made for this operator will be differentiated, too
            self.nodes = nodes
            self.trail.mark(nodes - 1, place)
            self.again = self.again or phase == "backward"
        return phase, place

    def in_optimizer(self) -> bool:
        """Whether an optimiser's step is what asks for work now."""
        while self.optimizers:
            frame = self.optimizers[-1]
            if frame is None:  # inside of a closure, which has the phases of any other program
                return False
            if is_on_stack(frame):
                return True
            self.optimizers.pop()  # that step ended by an exception
        return False


def _is_nested(frame: Any) -> bool:
    """Whether a caller of *frame* started a backward pass: in a thread of autograd's own, one that runs within another."""
    while frame is not None and frame.f_code is not ENGINE:
        frame = frame.f_back
    return frame is not None
