"""The monitor of a GPU's clock on a stand-in for NVML, and its absence."""

import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

import flopkit as fk
from flopkit.measuring import monitor as module
from flopkit.measuring.monitor import Monitor

CUDA = SimpleNamespace(type="cuda")


class NVMLError(Exception):
    pass


class Nvml:
    """A card whose clock falls while it is watched, for its power; without a thermometer."""

    NVMLError, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = NVMLError, 1, 2, 0

    def __init__(self):
        self.open, self.read = 0, 0

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "GPU-1234":
            raise NVMLError("not found")
        return "card"

    def nvmlDeviceGetClockInfo(self, card, kind):
        if kind == self.NVML_CLOCK_MEM:
            return 2619
        self.read += 1
        return 1980 if self.read <= 2 else 1500

    def nvmlDeviceGetPowerUsage(self, card):
        return 700_000

    def nvmlDeviceGetTemperature(self, card, kind):
        raise NVMLError("not supported")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card):
        return 0 if self.read <= 2 else 0x4 | 0x20


@pytest.fixture
def nvml(monkeypatch):
    made = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    monkeypatch.setattr(module, "EVERY", 0.001)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda where: SimpleNamespace(uuid="1234"))
    return made


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


@pytest.mark.parametrize(
    ("spoil", "note"),
    [
        (lambda m, nvml: m.setitem(sys.modules, "pynvml", None), "pip install nvidia-ml-py"),
        (lambda m, nvml: m.setattr(nvml, "nvmlInit", lambda: (_ for _ in ()).throw(NVMLError("no driver"))), "no driver"),
        (lambda m, nvml: m.setattr(torch.cuda, "get_device_properties", lambda w: SimpleNamespace(uuid="9")), "not found"),
        (lambda m, nvml: m.setattr(torch.cuda, "get_device_properties", lambda w: SimpleNamespace()), "uuid"),
    ],
)  # fmt: skip
def test_what_cannot_be_watched_is_said(nvml, monkeypatch, spoil, note):
    spoil(monkeypatch, nvml)
    with Monitor(CUDA) as watch:
        pass
    assert watch.summary() is None and note in watch.note and nvml.open == 0


def test_a_measurement_has_what_was_seen(nvml, monkeypatch):
    """The call runs on the CPU; the monitor is told that it is a GPU."""
    from flopkit.measuring import running

    monkeypatch.setattr(running, "Monitor", lambda where: Monitor(CUDA))
    found = fk.measure(torch.neg, torch.ones(2), time_budget=0.1)
    assert found.monitor["sm_mhz"]["median"] == 1500 and found.record()["monitor"] == found.monitor
    assert any("held down" in note and "power cap" in note for note in found.notes)
