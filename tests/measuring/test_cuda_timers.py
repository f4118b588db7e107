"""The timers of CUDA devices on a stand-in for `torch.cuda`: a device that works off a queue, while the host launches."""

import contextlib
import warnings
from types import SimpleNamespace

import pytest

from flopkit.measuring import timers
from flopkit.measuring.timers import UNROLLED, CudaEvents, CudaGraph, timer_for

LAUNCH = 5e-6  # s that the host needs for a launch
CLOCK = 1.98e6  # kHz


class Card:
    """A queue: work begins when it was launched and what is before it has ended."""

    def __init__(self, capturable=True):
        self.host = self.device = 0.0
        self.capturing, self.capturable, self.synchronised = None, capturable, 0
        self.stream, self.mode, self.asked = "the caller's", "default", []
        card = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = card.launch(0.0)

            def elapsed_time(self, other):
                return (other.at - self.at) * 1e3

        class CUDAGraph:
            kernels = ()

            def replay(self):
                card.host += LAUNCH
                for seconds in self.kernels:
                    card.device = max(card.device, card.host) + seconds

        class graph:
            def __init__(self, made):
                self.made = made

            def __enter__(self):
                card.stream, card.capturing = "the capture's", []

            def __exit__(self, *error):
                self.made.kernels, card.capturing = card.capturing, None
                if not card.capturable:
                    raise RuntimeError("operation failed due to a previous error during capture")
                card.stream = "the caller's"

        @contextlib.contextmanager
        def stream(chosen):
            before, card.stream = card.stream, chosen
            try:
                yield
            finally:
                card.stream = before

        def set_mode(mode):
            warnings.warn(
                "Synchronization debug mode is a prototype feature", UserWarning, stacklevel=2
            )  # as torch does
            card.asked.append(mode)
            card.mode = mode

        self.cuda = SimpleNamespace(
            Event=Event, CUDAGraph=CUDAGraph, graph=graph, synchronize=self.synchronize, current_device=lambda: 0,
            stream=stream, current_stream=lambda: self.stream, get_sync_debug_mode=lambda: self.mode, set_sync_debug_mode=set_mode,
            get_device_properties=lambda index: SimpleNamespace(clock_rate=CLOCK), _sleep=lambda cycles: self.launch(cycles / CLOCK / 1e3),
        )  # fmt: skip

    def launch(self, seconds):
        if self.capturing is not None:
            self.capturing.append(seconds)
            return None
        self.host += LAUNCH
        self.device = max(self.device, self.host) + seconds
        return self.device

    def synchronize(self):
        self.synchronised += 1
        self.host = max(self.host, self.device)


@pytest.mark.parametrize("seconds", [1e-6, 3e-5, 2e-3])
def test_the_host_is_never_waited_for(seconds):
    """A kernel that is shorter than its launch is timed as it is, since the launches queue behind the sleep."""
    card = Card()
    found = CudaEvents(lambda: card.launch(seconds), card).calls(50)
    assert found == pytest.approx([seconds] * 50) and card.synchronised == 2


def test_a_round_that_outlasts_the_sleep_is_bound_by_the_host():
    """What the sleep is for: without it, each short kernel would wait for its launch."""
    card = Card()
    card.cuda._sleep = lambda cycles: None
    found = CudaEvents(lambda: card.launch(1e-6), card).calls(50)
    assert min(found[1:]) >= LAUNCH


@pytest.mark.parametrize(("launches", "seconds"), [(1, 2e-3), (40, 1e-6)])
def test_the_time_of_a_launch(monkeypatch, launches, seconds):
    """Two events and the kernels, whatever these take; a graph has one launch for all of its calls."""
    card = Card()
    monkeypatch.setattr(timers.time, "perf_counter", lambda: card.host)
    timer = CudaEvents(lambda: [card.launch(seconds) for _ in range(launches)], card)
    timer.calls(10)
    assert timer.launch == pytest.approx((2 + launches) * LAUNCH)
    graph = CudaGraph(lambda: card.launch(1e-6), card, 1)
    graph.calls(40)
    assert graph.launch == pytest.approx(3 * LAUNCH / UNROLLED)


def test_short_kernels_are_timed_in_a_graph():
    card = Card()
    timer, name = timer_for(lambda: card.launch(1e-6), card, True)
    assert isinstance(timer, CudaGraph) and name == f"CUDA graph of {UNROLLED} calls"
    assert timer.calls(30) == pytest.approx([1e-6] * 30)
    assert card.stream == "the caller's" and card.asked == ["error", "default"]


@pytest.mark.parametrize(("sets", "calls"), [(1, 20), (3, 21), (16, 32), (40, 40)])
def test_a_graph_takes_each_set_of_arguments_equally_often(sets, calls):
    """Else a replay begins with arguments that the one before it has just left in the cache."""
    card = Card()
    timer, name = timer_for(lambda: card.launch(1e-6), card, True, sets)
    assert name == f"CUDA graph of {calls} calls" and timer.calls(7) == pytest.approx([1e-6] * 7)


def test_what_waits_for_the_device_is_not_captured():
    """torch says so, if it is asked, before a capture fails: that would leave its random numbers unusable."""
    card = Card()

    def run():
        if card.mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        assert card.capturing is None
        card.launch(1e-6)

    timer, _ = timer_for(run, card, True)
    assert type(timer) is CudaEvents and card.mode == "default"


def test_long_kernels_and_what_cannot_be_captured_are_timed_by_events():
    for card, seconds in ((Card(), 1e-3), (Card(capturable=False), 1e-6)):
        timer, name = timer_for(lambda card=card, seconds=seconds: card.launch(seconds), card, True)
        assert type(timer) is CudaEvents and name == "CUDA events behind a sleep"
        assert timer.calls(3) == pytest.approx([seconds] * 3) and card.stream == "the caller's"
