"""What a count knows of one thread: where it is, in which phase, and what it has seen."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from flopkit.counter.ledger import Entry, Ledger
from flopkit.counter.watch import autograd
from flopkit.counter.watch.autograd import ENGINE, NEVER, AutogradTimeline, graph_task, next_number
from flopkit.counter.watch.internals import dispatch_modes, in_compiled_backward
from flopkit.counter.watch.modules import OUTSIDE, Scope
from flopkit.counter.watch.origins import Origins
from flopkit.counter.watch.session import Session
from flopkit.counter.work import Work

SEVERAL_THREADS = "forward passes ran in several threads: backward work that may be of two modules is given to none"

COMPILED_BACKWARD = "compiled autograd ran a backward pass as one graph: its work is given to no module"


class _Local(threading.local):
    """Of one thread: what each count knows of it, and the backward passes of custom functions that it is in (graph task, gradients on)."""

    def __init__(self) -> None:
        self.states: tuple[ThreadState, ...] = ()
        self.custom_backwards: list[tuple[int, bool]] = []


local = _Local()


def thread_states() -> tuple[ThreadState, ...]:
    """What each count knows of this thread."""
    found = local.states
    if graph_task() != -1 and all(state.session.closed for state in found):
        # autograd's own thread, which no one entered: the modes came along
        sessions = [getattr(mode, "session", None) for mode in dispatch_modes()]
        return tuple([state_of(each) for each in sessions if isinstance(each, Session) and not each.closed])
    return found


def state_of(session: Session) -> ThreadState:
    """What *session* knows of this thread."""
    found: ThreadState | None = getattr(session.local, "state", None)
    if found is None:
        found = session.local.state = ThreadState(session, OUTSIDE)
        session.states.append(found)
        local.states = (*(state for state in local.states if not state.session.closed), found)
    return found


def counting_states() -> list[ThreadState]:
    """Those of `thread_states` that count what is called now."""
    return [state for state in thread_states() if not state.session.closed and not state.busy]


@contextlib.contextmanager
def busy(states: Iterable[ThreadState]) -> Iterator[None]:
    """Inside, nothing counts: what runs is part of one call, or no work of the program's."""
    for state in states:
        state.busy += 1
    try:
        yield
    finally:
        for state in states:
            state.busy -= 1


class ThreadState:
    """What one count knows of one thread."""

    def __init__(self, session: Session, base: Scope) -> None:
        self.session = session
        self.scope = base
        self.stack: list[tuple[Scope, int]] = []  # the scopes around, and the graph task in which each was entered
        self.timeline = AutogradTimeline(next_number(), base)
        self.ledger = Ledger(order=session.order)
        self.busy = 0  # in a kernel, or where torch makes up shapes: nothing counts
        self.entered = False
        self.last_number = 0  # autograd's next number when last looked at
        self.began: dict[int, int] = {}  # the same when each of the backward passes under way came to this thread
        self.recomputed = False  # whether one of them made nodes that another may differentiate
        self.calculations = 0  # operators with arithmetic so far: compared before and after an unknown one, it tells whether any ran inside
        self.optimizers: list[Any] = []  # frames of the steps under way; None: inside of a closure
        self.hidden_depth = 0  # operators around that were opened, and whose inside a dispatcher would not show
        self.origins: list[Origins] = []  # of these, what was seen inside of those that somebody else wrote

    @contextlib.contextmanager
    def hidden(self, origins: Origins | None) -> Iterator[None]:
        """Inside of an operator that was opened; *origins* is told what runs there."""
        self.hidden_depth += 1
        self.origins += [origins] if origins is not None else []
        try:
            yield
        finally:
            self.hidden_depth -= 1
            if origins is not None:
                self.origins.pop()

    def add(self, entry: Entry) -> Any:
        """List a call, so that what it ran inside of need not be."""
        phase, scope = self.phase_and_scope()
        self.calculations += 1
        where = scope.where(phase)
        self.ledger.add(entry, where)
        return where

    def add_without_operator(self, op: str, work: Work, by_torch: int | None = 0) -> None:
        """List a call that no dispatcher shows, such as a Triton kernel that was launched directly."""
        entry = self.session.entries.setdefault((op, repr(work), by_torch), Entry(op, work, by_torch=by_torch))
        where = self.add(entry)
        if self.hidden_depth:
            self.ledger.hide(entry, where)
            for origins in self.origins:
                origins.launches = True

    def enter(self, scope: Scope, task: int) -> None:
        """Go into a module or an attention call."""
        self.stack.append((self.scope, task))
        self.scope = scope
        self.timeline.mark(next_number(), scope)

    def leave(self) -> None:
        """Go back to where it was entered from."""
        self.scope, _ = self.stack.pop()
        self.timeline.mark(next_number(), self.scope)

    def call_module(self, module: Any) -> None:
        """Go into *module*."""
        task, stack = graph_task(), self.stack
        if task != -1 and in_compiled_backward():  # the graph is a module of the compiler's
            self.session.notes.add(COMPILED_BACKWARD)
            return self.enter(OUTSIDE, task)
        under = self.scope if task == -1 or (stack and stack[-1][1] == task) else self.of_node()
        found = under.children.get(id(module)) if under.children else None
        if found is None or not found.holds(module):
            found = self.session.modules.scope_of(module, under, recomputed=task != -1)
        self.enter(found, task)

    def of_node(self) -> Scope:
        """The scope whose work autograd is now differentiating."""
        node = autograd.current_node()
        number = NEVER if node is None else autograd.number_of(node)
        if number >= NEVER:  # a leaf: it only accumulates
            return OUTSIDE
        task = graph_task()
        if task not in self.began:
            self.begin(task)
        threads = tuple(self.session.states)
        if len(threads) == 1:
            self.timeline.lowest = min(self.timeline.lowest, number)
            return self.timeline.at(number) or OUTSIDE
        found: Scope | None = None
        if (custom := local.custom_backwards) and (around := custom[-1][0]) != task:
            # A custom function differentiates, in its own backward pass, what it made there (checkpointing).
            if self.began.get(around, NEVER) <= number < self.began[task]:
                threads = (self,)
        # The forward pass may have run in another thread, as it does for every backward pass on a GPU. Each thread has numbers of its own.
        for state in threads:
            made = state.scope_if_made_here(number, task)
            if made is None:
                continue
            state.timeline.lowest = min(state.timeline.lowest, number)
            if found is not None and (found.path, found.region) != (made.path, made.region):
                self.session.notes.add(SEVERAL_THREADS)
                return OUTSIDE
            found = made
        return found or OUTSIDE

    def scope_if_made_here(self, number: int, task: int) -> Scope | None:
        """The scope of the node with this number, if this thread made one that the backward pass *task* can come to."""
        # A backward pass comes to nothing that is made after it began.
        until = self.began.get(task, max(self.last_number, self.timeline.numbers[-1]))
        return self.timeline.at(number) if number < until else None

    def begin(self, task: int) -> None:
        """A backward pass comes to this thread for the first time."""
        number = next_number()
        # One of autograd's own threads, and not nested: the passes before are over.
        if not self.entered and not _is_nested(sys._getframe(1)):
            self.began.clear()
            if not self.recomputed:  # what it recomputed was for them
                self.timeline = AutogradTimeline(number, OUTSIDE)
        self.began[task] = number

    def phase_and_scope(self) -> tuple[str, Scope]:
        """Phase and scope of the operator that is running now; notes, too, that a backward pass began or ended."""
        task = graph_task()
        optimizing = bool(self.optimizers) and self.in_optimizer()
        if task == -1:
            self.last_number = next_number()
            if self.began:
                self.began.clear()
            if self.timeline.lowest != NEVER:
                self.timeline.end_pass()
            return ("optimizer" if optimizing else "forward"), self.scope
        if optimizing:
            return "optimizer", self.scope if self.stack else OUTSIDE
        phase = _backward_or_recompute(sys._getframe(1).f_back)  # a thread of autograd's own has no Python below
        if phase == "backward" and torch.is_grad_enabled() and (task, False) in local.custom_backwards[-1:]:
            # A custom function turned gradients on in its own backward pass: it runs something in order to differentiate it.
            phase = "recompute"
        scope = self.scope if self.stack and self.stack[-1][1] == task else self.of_node()
        if torch.is_grad_enabled() and (nodes := next_number()) > self.last_number:
            # What was made for this operator will be differentiated, too.
            self.last_number = nodes
            self.timeline.mark(nodes - 1, scope)
            self.recomputed = self.recomputed or phase == "backward"
        return phase, scope

    def in_optimizer(self) -> bool:
        """Whether an optimiser's step is what asks for work now."""
        while self.optimizers:
            frame = self.optimizers[-1]
            if frame is None:  # inside of a closure, which has the phases of any other program
                return False
            if _is_on_stack(frame):
                return True
            self.optimizers.pop()  # that step ended by an exception
        return False


# -- what the Python stack tells -------------------------------------------------------------------------------------

_CHECKPOINT = re.compile(r"Checkpoint(er|\w*Function)?\.backward$|\b_?recompute_fn$")
_verdicts: dict[CodeType, str] = {}


def _backward_or_recompute(frame: FrameType | None) -> str:
    """Whether an operator in a backward pass is part of it (``"backward"``) or forward work that is done once more (``"recompute"``).

    Autograd calls most operators from C++: the nearest Python frame is then the one that started the engine. Python code in between is a
    hook, the backward of a custom function, or a checkpoint, which is known by name: `torch.utils.checkpoint`, and the
    ``backward`` of a ``Checkpoint``, ``Checkpointer`` or ``Checkpoint…Function`` of other libraries.
    """
    while frame is not None:
        code = frame.f_code
        verdict = _verdicts.get(code)
        if verdict is None:
            if len(_verdicts) > 10_000:  # code that is made on the way, such as traced graphs
                _verdicts.clear()
            verdict = _verdicts[code] = _judge(code)
        if verdict:
            return verdict
        frame = frame.f_back
    return "backward"


def _judge(code: CodeType) -> str:
    if code is ENGINE:
        return "backward"
    if _CHECKPOINT.search(code.co_qualname) and "checkpoint" in (code.co_qualname + code.co_filename).lower():
        return "recompute"
    return ""


def _is_on_stack(wanted: FrameType | CodeType, frame: Any = None) -> bool:
    """Whether *wanted* is among this thread's frames, or is the code of one."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if frame is wanted or frame.f_code is wanted:
            return True
        frame = frame.f_back
    return False


def _is_nested(frame: Any) -> bool:
    """Whether a caller of *frame* started a backward pass: in a thread of autograd's own, one that runs within another."""
    return _is_on_stack(ENGINE, frame)
