"""A stand-in for NVML: one card, and a library that says when it was opened and closed."""

import sys
from types import SimpleNamespace

import pytest
import torch


class NVMLError(Exception):
    pass


class Nvml:
    """A card whose clock falls while it is watched, for its power; without a thermometer. GPM tells shares of the time between two samples."""

    NVMLError, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = NVMLError, 1, 2, 0
    NVML_GPM_METRICS_GET_VERSION, NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 1, 5, 10

    def __init__(self):
        self.open, self.read = 0, 0
        self.samples, self.able, self.returns, self.percent = [], 1, 0, {5: 80.0, 10: 25.0}

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

    def nvmlGpmQueryDeviceSupport(self, card):
        return SimpleNamespace(isSupportedDevice=self.able)

    def c_nvmlGpmMetricsGet_t(self):
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(333)])

    def nvmlGpmSampleAlloc(self):
        self.samples.append(SimpleNamespace(taken=False))
        return self.samples[-1]

    def nvmlGpmSampleGet(self, card, sample):
        sample.taken = True

    def nvmlGpmMetricsGet(self, asked):
        assert asked.version == 1 and asked.sample1.taken and asked.sample2.taken and asked.sample1 is not asked.sample2
        for each in asked.metrics[: asked.numMetrics]:
            each.value, each.nvmlReturn = self.percent[each.metricId], self.returns

    def nvmlGpmSampleFree(self, sample):
        self.samples.remove(sample)


def without_driver(monkeypatch, nvml):
    monkeypatch.setattr(nvml, "nvmlInit", lambda: (_ for _ in ()).throw(NVMLError("no driver")))


# What keeps NVML from being read, and what is said of it.
UNREADABLE = [
    (lambda m, nvml: m.setitem(sys.modules, "pynvml", None), "pip install nvidia-ml-py"),
    (without_driver, "no driver"),
    (lambda m, nvml: m.setattr(torch.cuda, "get_device_properties", lambda w: SimpleNamespace(uuid="9")), "not found"),
    (lambda m, nvml: m.setattr(torch.cuda, "get_device_properties", lambda w: SimpleNamespace()), "uuid"),
]


@pytest.fixture
def nvml(monkeypatch):
    made = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda where: SimpleNamespace(uuid="1234"))
    return made


@pytest.fixture(params=UNREADABLE, ids=[says for _, says in UNREADABLE])
def unreadable(request, nvml, monkeypatch):
    """NVML that cannot be read, in each way that there is: the stand-in, and a word of the reason."""
    spoil, says = request.param
    spoil(monkeypatch, nvml)
    return nvml, says
