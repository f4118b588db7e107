"""A trace and a count, joined: whose each second of a step is, and what the device waited for.

Every instant of a step belongs to one row, or in equal parts to those that run at once, so the rows sum to the step. On a GPU what
counts is what ran on the device; a kernel that communicates has only the time in which no other kernel runs, and so has on a CPU what gloo runs on
threads of its own.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from flopkit.counter.ledger import Entry
from flopkit.counter.work import FREE, UNKNOWN
from flopkit.profiling.events import ON_DEVICE, Event, Span, Trace
from flopkit.profiling.matching import Call, Key, Node, calls_of, forest, match, name_compiled, own

__all__ = ["LOADING", "NOT_JOINED", "Gap", "Joined", "Row", "inside", "join"]

NOT_JOINED: Key = ("(not joined)", "", "")
LOADING: Key = ("(data loader)", "", "")
EQUAL = 1e-9  # s: a trace has nanoseconds
COLLECTIVES = ("c10d::", "_c10d_functional::")  # operators that ask for communication, or wait for it
SYNCHRONISES = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


class Gap(NamedTuple):
    """A stretch in which nothing ran: on the device or, without one, in any operator."""

    start: float
    seconds: float
    step: int
    reason: str  # why, such as "host-bound"
    before: str  # what ended before it
    after: str  # what began after it
    key: Key | None  # the row of that
    during: str  # what the host was doing: a synchronising call and its operator


@dataclass(eq=False)
class Row:
    """What is known of one operator in one module and phase; seconds are of each step."""

    key: Key
    seconds: list[float]
    launches: int = 0  # of all steps: kernels and copies, on a CPU calls
    entries: list[Entry] = field(default_factory=list)  # the counter's calls, of one step
    waited: float = 0.0  # a step, before its kernels, for the host to launch them
    communication: float = 0.0  # a step, in which its kernels communicate, hidden or not
    hidden: float = 0.0


@dataclass(eq=False)
class Joined:
    """A trace and a count, joined."""

    rows: dict[Key, Row]
    steps: list[float]
    gaps: list[Gap]
    strangers: dict[str, tuple[float, float]]  # what was not joined, by name: seconds and number, a step
    kernels: dict[str, float]  # seconds of each kernel a step, as the device has it
    owners: list[tuple[Event, Key]]
    on_gpu: bool
    uneven: int  # calls that ran in some of the steps only
    loading: float  # seconds a step in which the host asked a data loader for a batch
    at_once: bool  # whether operators of several threads ran at once


class _Piece(NamedTuple):
    start: float
    end: float
    key: Key
    event: Event  # that it is, or a part of


def join(trace: Trace, report: Any) -> Joined:
    """Join the events of *trace* with the calls of *report*, which was counted by `flopkit.counter.running.in_order`."""
    calls, steps, on_gpu = calls_of(report), trace.steps, trace.on_gpu
    spans: defaultdict[Any, list[Span]] = defaultdict(list)  # of gloo, whose is what it calls
    for event in trace.gloo:
        spans[event.lane].append((event.start, event.end))
    nodes = [node for node in forest(trace.events) if not inside(node.event.start, spans[node.event.lane])]
    match(nodes, calls, steps)
    whose = name_compiled(nodes, calls, steps)
    loading = Call(LOADING)
    for node in (node for node in nodes if inside(node.event.start, trace.loading)):
        if node.parent is None or not inside(node.parent.event.start, trace.loading):
            node.owner = loading
        if node.call is not None:
            node.call.key = (node.call.key[0], LOADING[0], "")
    own(nodes)
    count = len(steps)
    rows: dict[Key, Row] = {}

    def row(key: Key) -> Row:
        return rows.setdefault(key, Row(key, [0.0] * count))

    pieces = _on_device(trace.events, nodes) if on_gpu else [*_on_host(nodes), *_by_gloo(trace.gloo, nodes)]
    quiet = _share(pieces, steps, row)
    strangers: defaultdict[str, Any] = defaultdict(Counter)  # seconds of each event, which is in pieces
    kernels: defaultdict[str, float] = defaultdict(float)
    for piece in (piece for piece in pieces if inside(piece.start, steps)):
        name, length = piece.event.name, (piece.end - piece.start) / count
        if on_gpu:
            row(piece.key).launches += 1
            kernels[name] += length
        if piece.key == NOT_JOINED:
            strangers[name][id(piece.event)] += length
    ran = Counter(node.call for node in nodes if node.call)
    for call, times in ran.items():
        row(call.key).launches += 0 if on_gpu else times
    _enter_work(row, calls, ran, whose)
    gaps = _explained(quiet, trace, nodes, pieces)
    for gap in gaps:
        row((f"({gap.reason})", "", "")).seconds[gap.step] += gap.seconds
        if gap.reason == "host-bound" and gap.key is not None:
            row(gap.key).waited += gap.seconds / count
    owners = [(node.event, node.owner.key if node.owner else NOT_JOINED) for node in nodes]
    owners += [(piece.event, piece.key) for piece in pieces if on_gpu or piece.event.kind == "annotation"]
    loaded = sum(max(0.0, min(end, to) - max(start, at)) for start, end in steps for at, to in trace.loading) / count
    uneven = sum(0 < ran[call] < count for call in calls)
    took = [end - start for start, end in steps]
    strange = {name: (sum(took.values()), len(took) / count) for name, took in strangers.items()}
    outer = [node.event for node in nodes if node.parent is None and node.event.kind == "operator"]
    at_once = any(a.lane != b.lane and b.start < a.end for a, b in pairwise(outer))
    return Joined(rows, took, gaps, strange, kernels, owners, on_gpu, uneven, loaded, at_once)


def _enter_work(row: Any, calls: Sequence[Call], matched: Container[Call], compiled: dict[Call, Key]) -> None:
    """Enter each call's work in its row; where none of the trace's operators is that call, in the row of what it was
    compiled to, or of what was not joined.
    """
    attention = {call.key for call in calls if call.entry is None and call in matched}
    after: Call | None = None  # the call outside, which ends after what it opened
    for call in reversed(calls):
        joined = call in matched or (call.entry is not None and call.key in attention)
        if not call.is_inside:
            opened = call.entry is not None and call.entry.work.status == UNKNOWN
            after = call if opened and call in matched else None
        around = after if call.is_inside and not joined else None
        key = call.key if joined else around.key if around else compiled.get(call, NOT_JOINED)
        if call.entry is not None and (joined or call.entry.work.status != FREE or call.entry.work.bytes):
            row(key).entries.append(call.entry)


def _on_host(nodes: Sequence[Node]) -> list[_Piece]:
    """The own time of each operator: that in which none of those that it calls runs."""
    found = []
    for node in (node for node in nodes if node.event.kind == "operator"):
        key, at = node.owner.key if node.owner else NOT_JOINED, node.event.start
        inside = [(child.event.start, child.event.end) for child in node.children if child.event.kind == "operator"]
        for start, end in [*inside, (node.event.end, node.event.end)]:
            if start > at:
                found.append(_Piece(at, start, key, node.event))
            at = max(at, end)
    return found


def _by_gloo(ran: Sequence[Event], nodes: Sequence[Node]) -> list[_Piece]:
    """Collectives that gloo ran on its own threads: the first belongs to the first operator that asked for one, and so on.

    Where the trace has more of one than of the other, or one that runs before it is asked for, nobody can tell whose each is.
    """
    asked = [node for node in nodes if _communicates(node.event) and "wait_tensor" not in node.event.name
             and not (node.parent and _communicates(node.parent.event))]  # fmt: skip
    told = len(asked) == len(ran) and all(a.event.start <= b.start for a, b in zip(asked, ran, strict=True))
    owners = [node.owner for node in asked] if told else [None] * len(ran)
    return [_Piece(event.start, event.end, owner.key if owner else NOT_JOINED, event)
            for event, owner in zip(ran, owners, strict=True)]  # fmt: skip


def _communicates(event: Event) -> bool:
    """Whether an event is NCCL's kernel, a collective of gloo, or the operator that asks for one."""
    if event.kind in ON_DEVICE:
        return "nccl" in event.name.lower()
    return event.name.startswith("gloo:" if event.kind == "annotation" else COLLECTIVES)


def _on_device(events: Sequence[Event], nodes: Sequence[Node]) -> list[_Piece]:
    """Kernels and copies: each belongs to the operator in which it was launched."""
    launched = {node.event.correlation: node.owner for node in nodes if node.event.kind == "launch"}
    launched.pop(None, None)
    found = []
    for event in (event for event in events if event.kind in ON_DEVICE):
        owner = launched.get(event.correlation)
        found.append(_Piece(event.start, event.end, owner.key if owner else NOT_JOINED, event))
    return found


def _share(
    pieces: Sequence[_Piece], steps: Sequence[Span], row: Callable[[Key], Row]
) -> list[tuple[float, float, int]]:
    """Give each row its seconds, those of communication, and what of these hides behind other work; the stretches of each step in which nothing ran."""
    marks: list[tuple[float, int, int]] = []  # at one instant, what ends before what begins
    for i, piece in enumerate(pieces):
        if piece.end > piece.start:
            marks += [(piece.end, 0, i), (piece.start, 3, i)]
    for k, (start, end) in enumerate(steps):
        marks += [(end, 1, k), (start, 2, k)]
    quiet: list[tuple[float, float, int]] = []
    working: dict[int, Key] = {}
    sending: dict[int, Key] = {}
    lane = [sending if _communicates(piece.event) else working for piece in pieces]
    step, last = -1, 0.0
    for time, what, which in sorted(marks):
        if time > last and step >= 0:
            running = working or sending
            for key in running.values():
                row(key).seconds[step] += (time - last) / len(running)
            for key in sending.values():
                share = (time - last) / len(sending) / len(steps)
                row(key).communication += share
                row(key).hidden += share * bool(working)
            if not running and quiet and quiet[-1][1:] == (last, step):
                quiet[-1] = (quiet[-1][0], time, step)
            elif not running:
                quiet.append((last, time, step))
        last = time
        if what == 0:
            lane[which].pop(which)
        elif what == 3:
            lane[which][which] = pieces[which].key
        elif what == 2 or step == which:
            step = which if what == 2 else -1
    return quiet


def inside(time: float, spans: Sequence[Span]) -> bool:
    """Whether a moment is in one of *spans*, which are in order."""
    last = bisect_right(spans, (time, math.inf)) - 1
    return last >= 0 and time < spans[last][1]


def _explained(
    quiet: Sequence[tuple[float, float, int]], trace: Trace, nodes: Sequence[Node], pieces: Sequence[_Piece]
) -> list[Gap]:
    """Why nothing ran."""
    launches = [node for node in nodes if node.event.kind == "launch"]
    launched = {node.event.correlation: node.event.end for node in launches}
    waits = [node for node in launches if node.event.name in SYNCHRONISES]
    by_start, by_end = sorted(pieces, key=lambda piece: piece.start), sorted(pieces, key=lambda piece: piece.end)
    starts, ends = [piece.start for piece in by_start], [piece.end for piece in by_end]
    waited_for = []  # whether the profile waited for the device, between two steps
    for begin, close in trace.steps:
        last = next((node.event.name for node in reversed(launches) if begin <= node.event.start < close), "")
        waited_for.append(last == "cudaDeviceSynchronize")
    found = []
    for start, end, step in quiet:
        begin, close = trace.steps[step]
        i, j = bisect_left(starts, end - EQUAL), bisect_left(ends, start + EQUAL) - 1
        is_there = i < len(starts) and (starts[i] < close or (trace.on_gpu and not waited_for[step]))
        after = by_start[i] if is_there else None
        before = by_end[j].event.name if j >= 0 and ends[j] >= begin else "(start of the step)"
        wait = next((each for each in waits if start - EQUAL <= each.event.end <= end + EQUAL), None)
        during = ""
        if any(min(end, to) - max(start, at) > (end - start) / 2 for at, to in trace.loading):
            reason = "data loader"
        elif not trace.on_gpu:
            reason = "Python"
        elif waited_for[step] and start <= begin + EQUAL:
            reason = "start of step"
        elif after is None:
            reason = "end of step"
        elif wait is not None:
            reason, during = "synchronised", _chain(wait)
        else:
            reason = "host-bound" if launched.get(after.event.correlation, start) > start else "waiting"
        name, key = (after.event.name, after.key) if after else ("(end of the step)", None)
        found.append(Gap(start, end - start, step, reason, before, name, key, during))
    return found


def _chain(wait: Node) -> str:
    """A call that waits, and the operator in which it does."""
    node = wait
    while node.parent is not None:
        node = node.parent
    return wait.event.name + (f" in {node.event.name}" if node.event.kind == "operator" else "")
