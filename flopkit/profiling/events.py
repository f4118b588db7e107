"""What a profiler saw: events of a trace in Kineto's JSON form, as `torch.profiler` exports it."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

__all__ = ["Event", "Trace", "read_trace"]

# Kineto's categories, by what the joining makes of them; the others (arrows, Python's stack, memory) are left alone.
KINDS = {
    "cpu_op": "operator", "user_annotation": "annotation", "cuda_runtime": "launch", "cuda_driver": "launch",
    "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy",
}  # fmt: skip
ON_DEVICE = ("kernel", "copy")
STEP = "ProfilerStep#"
GRAPH = "## Call CompiledFxGraph"  # of torch.compile
LOADER = "enumerate(DataLoader)"


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

    @cached_property
    def on_gpu(self) -> bool:
        """Whether a kernel or a copy ran on a device."""
        return any(each.kind in ON_DEVICE for each in self.events)

    @property
    def is_compiled(self) -> bool:
        """Whether a graph of torch.compile ran."""
        return any(each.name.startswith(GRAPH) for each in self.events)

    @cached_property
    def loading(self) -> list[tuple[float, float]]:
        """When torch's data loader was asked for a batch."""
        return [(each.start, each.end) for each in self.events if each.kind == "annotation" and LOADER in each.name]

    @cached_property
    def gloo(self) -> list[Event]:
        """The collectives that gloo ran, on threads of its own."""
        return [each for each in self.events if each.kind == "annotation" and each.name.startswith("gloo:")]

    @property
    def steps(self) -> list[tuple[float, float]]:
        """Start and end of each step, by torch's annotation ``ProfilerStep#…``; without any, the trace is one step."""
        found = sorted(
            (each.start, each.end) for each in self.events if each.kind == "annotation" and each.name.startswith(STEP)
        )
        if not found:
            found = [(min(each.start for each in self.events), max(each.end for each in self.events))]
        late = max((each.end for each in self.events if each.kind in ON_DEVICE), default=0.0)
        return [*found[:-1], (found[-1][0], max(found[-1][1], late))]  # nothing waited for the device


def read_trace(path: Any) -> Trace:
    """Read what ``torch.profiler.profile(…).export_chrome_trace(path)`` wrote, packed with gzip or not.

    Parameters
    ----------
    path : Any
        The file.

    Raises
    ------
    ValueError
        For a file that was cut off, is no trace, or holds no operators.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "trace.json")
    >>> file.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 5, "dur": 2, "tid": 1}]}') > 0
    True
    >>> [event.name for event in read_trace(file).events]
    ['aten::mm']
    """
    file = Path(path)
    again = "write it with torch.profiler.profile(...).export_chrome_trace(path), after the profiler's block has ended"
    try:
        raw = file.read_bytes()
        contents = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (EOFError, gzip.BadGzipFile, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"path={str(path)!r}: no whole trace, for it ends or breaks off ({error}); {again}") from None
    entries = contents.get("traceEvents") if isinstance(contents, dict) else None
    if not isinstance(entries, list):
        raise ValueError(f"path={str(path)!r}: JSON without a list of traceEvents is no trace of torch's; {again}")
    try:
        events = [_event(each) for each in entries if each.get("ph") == "X" and each.get("cat") in KINDS]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"path={str(path)!r}: an event without a name, a start or a duration ({error!r}); {again}"
        ) from None
    if not any(each.kind == "operator" for each in events):
        raise ValueError(
            f"path={str(path)!r}: a trace without operators; profile with ProfilerActivity.CPU, and {again}"
        )
    events.sort(key=lambda each: (each.start, -each.end))
    cards = contents.get("deviceProperties") or [{}]
    on_gpu = any(each.kind in ON_DEVICE for each in events)
    return Trace(events, str(cards[0].get("name", "")) if on_gpu else "", contents)


def _event(entry: dict[str, Any]) -> Event:
    kind, args = KINDS[entry["cat"]], entry.get("args") or {}
    if str(entry["name"]).startswith(GRAPH):  # an annotation, at times
        kind = "operator"
    lane = (
        (args.get("device", entry.get("pid")), args.get("stream", entry["tid"])) if kind in ON_DEVICE else entry["tid"]
    )
    start = float(entry["ts"]) * 1e-6
    end = start + float(entry.get("dur", 0)) * 1e-6
    return Event(str(entry["name"]), kind, start, end, lane, args.get("correlation"), entry)
