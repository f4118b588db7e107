"""What a profiler saw: events of a trace in Kineto's JSON form, as `torch.profiler` exports it."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["Event", "Span", "Trace", "read_trace"]

Span = tuple[float, float]  # start and end, s

# Kineto's categories, by what the joining makes of them; the others (arrows, Python's stack, memory) are left alone.
KINDS = {
    "cpu_op": "operator", "user_annotation": "annotation", "cuda_runtime": "launch", "cuda_driver": "launch",
    "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy",
}  # fmt: skip
ON_DEVICE = ("kernel", "copy")
STEP = "ProfilerStep#"
GRAPH = "## Call CompiledFxGraph"  # of torch.compile
LOADER = "enumerate(DataLoader)"
ROUNDED = 1e-6  # s, by which two steps may seem to overlap


@dataclass(eq=False, slots=True)
class Event:
    """An operator or an annotation on a thread of the host, a call of CUDA's runtime, a kernel or a copy on a stream."""

    name: str  # in the trace, such as "aten::mm"
    kind: str  # one of those in `KINDS`
    start: float  # s
    end: float
    lane: Any  # the host's thread, or the device and its stream
    correlation: int | None = None  # what a launch shares with the kernels that it starts, a graph's with many
    source: dict[str, Any] = field(default_factory=dict)  # the entry of the file


@dataclass(eq=False)
class Trace:
    """The events of a trace, and the file's contents."""

    events: list[Event]  # in the order of their starts
    device: str  # the GPU's name; empty where none ran
    contents: dict[str, Any]  # the whole file

    def __post_init__(self) -> None:
        on_device = [each.end for each in self.events if each.kind in ON_DEVICE]
        marks = [each for each in self.events if each.kind == "annotation"]
        self.on_gpu = bool(on_device)
        self.is_compiled = any(each.name.startswith(GRAPH) for each in self.events)
        # When a data loader was asked for a batch; collectives, on threads of gloo's own.
        self.loading = [(each.start, each.end) for each in marks if LOADER in each.name]
        self.gloo = [each for each in marks if each.name.startswith("gloo:")]
        found = sorted((each.start, each.end) for each in marks if each.name.startswith(STEP))
        begin, end = found.pop() if found else (self.events[0].start, max(each.end for each in self.events))
        self.steps = [*found, (begin, max([end, *on_device]))]  # for nothing waited for the device


def read_trace(path: Any) -> Trace:
    """Read what ``torch.profiler.profile(…).export_chrome_trace(path)`` wrote, packed with gzip or not.

    Raises
    ------
    ValueError
        For a file that was cut off, is no trace, or holds no operators, and for steps that overlap or take no time.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "trace.json")
    >>> file.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 5, "dur": 2, "tid": 1}]}') > 0
    True
    >>> [event.name for event in read_trace(file).events]
    ['aten::mm']
    """

    def refusal(why: str) -> ValueError:
        again = (
            "write it with torch.profiler.profile(...).export_chrome_trace(path), after the profiler's block has ended"
        )
        return ValueError(f"path={str(path)!r}: {why}; {again}")

    try:
        raw = Path(path).read_bytes()
        contents = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (EOFError, gzip.BadGzipFile, zlib.error, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refusal(f"no whole trace, for it ends or breaks off ({error})") from None
    entries = contents.get("traceEvents") if isinstance(contents, dict) else None
    if not isinstance(entries, list):
        raise refusal("JSON without a list of traceEvents is no trace of torch's")
    try:
        events = [_event(each) for each in entries if each.get("ph") == "X" and each.get("cat") in KINDS]
        card = str((contents.get("deviceProperties") or [{}])[0].get("name", ""))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise refusal(f"an event without a name, a start or a duration ({error!r})") from None
    if not any(each.kind == "operator" for each in events):
        raise refusal("a trace without operators, which are those of ProfilerActivity.CPU")
    card = card if any(each.kind in ON_DEVICE for each in events) else ""
    trace = Trace(sorted(events, key=lambda each: (each.start, -each.end)), card, contents)
    if any(start >= end for start, end in trace.steps):
        raise refusal("a step takes no time")
    if any(later < end - ROUNDED for (_, end), (later, _) in pairwise(trace.steps)):
        raise refusal("its steps overlap, as those of several ranks in one file do; give each rank's by itself")
    return trace


def _event(entry: dict[str, Any]) -> Event:
    kind, args = KINDS[entry["cat"]], entry.get("args") or {}
    if str(entry["name"]).startswith(GRAPH):  # an annotation, at times
        kind = "operator"
    lane: Any = entry["tid"]
    if kind in ON_DEVICE:
        lane = args.get("device", entry.get("pid")), args.get("stream", lane)
    start, took = float(entry["ts"]) * 1e-6, float(entry["dur"]) * 1e-6
    if not (math.isfinite(start + took) and took >= 0):
        raise ValueError(f"{entry['name']} of {entry['dur']} µs")
    return Event(str(entry["name"]), kind, start, start + took, lane, args.get("correlation"), entry)
