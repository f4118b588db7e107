"""What runs calls and times them: the wall clock of a CPU, and on a CUDA device events behind a sleep, or a graph for short kernels."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["CudaEvents", "CudaGraph", "WallClock", "timer_for"]

SAMPLE = 1e-4  # s: reading the wall clock takes some 1e-7 s, so a sample of that length is off by a thousandth
SHORT = 2e-5  # s: a launch takes some microseconds, which a graph saves a kernel of that length
UNROLLED = 20  # calls in a graph, at least
USUAL_CLOCK = 2e6  # kHz, where torch does not tell it
ASLEEP = 0.01  # s in which the launches of a round queue up


class WallClock:
    """Calls on a CPU. Short calls are timed several at once, and each is said to take the same."""

    launch = 0.0  # s: it is the call

    def __init__(self, run: Callable[[], object]) -> None:
        self.run = run
        self._grouped = 1
        self._grouped = max(1, math.ceil(SAMPLE / max(min(self.calls(3)), 1e-9)))

    def now(self) -> float:
        return time.perf_counter()

    def calls(self, count: int) -> list[float]:
        run, clock = self.run, time.perf_counter_ns
        found: list[float] = []
        while len(found) < count:
            many = min(self._grouped, count - len(found))
            start = clock()
            for _ in range(many):
                run()
            found += [(clock() - start) / many / 1e9] * many
        return found


class CudaEvents:
    """Calls on the current stream of a CUDA device, each between two events. A sleeping kernel goes first, so that launches queue behind it
    and the device does not wait for the host, unless launching a call takes longer than running it: then its time is that of the launches.

    ``launch`` has the seconds that the host needs to launch a call, where *run* makes so many *together*.
    """

    def __init__(self, run: Callable[[], object], torch: Any, together: int = 1) -> None:
        self.run, self.torch, self.together, self.launch = run, torch, together, math.inf
        card = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._cycles = int(ASLEEP * getattr(card, "clock_rate", USUAL_CLOCK) * 1e3)

    def now(self) -> float:
        self.torch.cuda.synchronize()
        return time.perf_counter()

    def calls(self, count: int) -> list[float]:
        cuda = self.torch.cuda
        pairs = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(count)]
        cuda.synchronize()
        cuda._sleep(self._cycles)
        began = time.perf_counter()
        for start, end in pairs:
            start.record()
            self.run()
            end.record()
        # the least of all: where the queue of launches is full, the host waits for the device
        self.launch = min(self.launch, (time.perf_counter() - began) / count / self.together)
        cuda.synchronize()
        return [start.elapsed_time(end) / 1e3 for start, end in pairs]


class CudaGraph(CudaEvents):
    """A graph of several calls, replayed: for kernels that are shorter than their launch. A call takes its part of the replay.

    It takes each of *sets* of arguments equally often, so that a replay does not begin with those that the one before it ended with.
    """

    def __init__(self, run: Callable[[], object], torch: Any, sets: int) -> None:
        self.unrolled = sets * math.ceil(UNROLLED / sets)
        cuda, graph = torch.cuda, torch.cuda.CUDAGraph()
        asked = cuda.get_sync_debug_mode()
        with warnings.catch_warnings():  # torch calls this switch a prototype, each time that it is set
            warnings.filterwarnings("ignore", "Synchronization debug mode", UserWarning)
            try:
                # What waits for the device cannot be captured, and a capture that fails leaves torch's random numbers unusable.
                cuda.set_sync_debug_mode("error")
                run()
            finally:
                cuda.set_sync_debug_mode(asked)
        with (
            cuda.stream(cuda.current_stream()),
            cuda.graph(graph),
        ):  # the first: a capture that fails leaves its own stream behind
            for _ in range(self.unrolled):
                run()
        super().__init__(graph.replay, torch, self.unrolled)

    def calls(self, count: int) -> list[float]:
        replays = super().calls(math.ceil(count / self.unrolled))
        return [seconds / self.unrolled for seconds in replays for _ in range(self.unrolled)][:count]


def timer_for(run: Callable[[], object], torch: Any, cuda: bool, sets: int = 1) -> tuple[WallClock | CudaEvents, str]:
    """The timer for calls of *run*, which rotates through *sets* of arguments, and what it is called in a record."""
    if not cuda:
        return WallClock(run), "wall clock"
    events = CudaEvents(run, torch)
    if min(events.calls(5)) < SHORT:
        try:
            graph = CudaGraph(run, torch, sets)
        except RuntimeError:  # what synchronises or allocates in a way of its own cannot be captured
            torch.cuda.synchronize()
        else:
            return graph, f"CUDA graph of {graph.unrolled} calls"
    return events, "CUDA events behind a sleep"
