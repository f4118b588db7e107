"""Traces in Kineto's JSON form, written by hand: microseconds, on one thread of the host and the streams of one GPU."""

import json


class Kineto:
    """Entries of a trace; each method adds one and gives the builder back."""

    def __init__(self, card="NVIDIA H100 80GB HBM3"):
        self.entries, self.card = [], card

    def add(self, category, name, start, end, tid=1, **args):
        self.entries.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 1,
                "tid": tid,
                "ts": start,
                "dur": end - start,
                "args": args,
            }
        )
        return self

    def step(self, number, start, end):
        return self.add("user_annotation", f"ProfilerStep#{number}", start, end)

    def op(self, name, start, end, tid=1):
        return self.add("cpu_op", name, start, end, tid)

    def runtime(self, name, start, end, correlation, tid=1):
        return self.add("cuda_runtime", name, start, end, tid, correlation=correlation)

    def kernel(self, name, start, end, correlation, stream=7):
        return self.add("kernel", name, start, end, stream, correlation=correlation, device=0, stream=stream)

    def launched(self, op, at, start, end, name="", stream=7):
        """An operator of 4 µs, and the kernel that it launches in its second microsecond."""
        correlation = len(self.entries)
        self.op(op, at, at + 4).runtime("cudaLaunchKernel", at + 1, at + 2, correlation)
        return self.kernel(name or f"kernel of {op}", start, end, correlation, stream)

    def write(self, folder, name="trace.json"):
        path = folder / name
        cards = [{"id": 0, "name": self.card}] if self.card else []
        path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": cards, "traceEvents": self.entries}))
        return path
