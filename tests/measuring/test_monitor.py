"""The monitor of a GPU's clock on a stand-in for NVML, and its absence."""

import threading
import time
from types import SimpleNamespace

import pytest
import torch

import flopkit as fk
from flopkit.measuring import monitor as module
from flopkit.measuring.monitor import Monitor

CUDA = SimpleNamespace(type="cuda")


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.001)


def watched(nvml, samples):
    with Monitor(CUDA) as watch:
        end = time.monotonic() + 30
        while len(watch._samples) < samples and time.monotonic() < end:
            time.sleep(0.001)
    return watch


def test_what_was_seen(nvml):
    watch = watched(nvml, 6)
    found = watch.summary()
    n = found["samples"]
    assert n >= 6 and found["sm_mhz"] == {"median": 1500, "low": 1500, "high": 1980}
    assert found["memory_mhz"]["median"] == 2619 and found["watts"]["high"] == 700.0 and found["celsius"] is None
    assert found["held_down_by"] == {"power cap": (n - 2) / n, "thermal, by software": (n - 2) / n}
    assert (
        nvml.open == 0 and watch.note == "" and "flopkit monitor" not in {each.name for each in threading.enumerate()}
    )


def test_the_warm_up_is_left_out(nvml):
    watch = watched(nvml, 6)
    assert watch.summary(watch._samples[2][0])["sm_mhz"]["high"] == 1500
    assert watch.summary(1e9)["samples"] == 1  # a measurement that was shorter than a sample has the last one


def test_the_thread_ends_when_the_measurement_fails(nvml):
    with pytest.raises(ZeroDivisionError), Monitor(CUDA):
        1 / 0
    assert nvml.open == 0 and "flopkit monitor" not in {each.name for each in threading.enumerate()}


def test_a_cpu_is_not_watched(nvml):
    with Monitor(torch.device("cpu")) as watch:
        pass
    assert watch.summary() is None and watch.note == "" and nvml.read == 0
    assert fk.measure(torch.neg, torch.ones(2), time_budget=0.05).monitor is None


def test_what_cannot_be_watched_is_said(unreadable):
    nvml, says = unreadable
    with Monitor(CUDA) as watch:
        pass
    assert watch.summary() is None and says in watch.note and nvml.open == 0


def test_a_measurement_has_what_was_seen(nvml, monkeypatch):
    """The call runs on the CPU; the monitor is told that it is a GPU."""
    from flopkit.measuring import running

    monkeypatch.setattr(running, "Monitor", lambda where: Monitor(CUDA))
    found = fk.measure(torch.neg, torch.ones(2), time_budget=0.1)
    assert found.monitor["sm_mhz"]["median"] == 1500 and found.record()["monitor"] == found.monitor
    assert any("held down" in note and "power cap" in note for note in found.notes)
