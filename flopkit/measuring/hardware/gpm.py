"""NVML's GPM on Hopper and newer: which share of the time the tensor cores and the memory were busy. It needs no root and replays nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from flopkit import devices
from flopkit.counter.running import count
from flopkit.measuring.hardware.cases import verdict
from flopkit.measuring.monitor import Monitor, nvml_card

__all__ = ["busy", "check"]

METRICS = {"tensor": "NVML_GPM_METRIC_ANY_TENSOR_UTIL", "memory": "NVML_GPM_METRIC_DRAM_BW_UTIL"}
ACCEPTED = (0.9, 1.1)  # for a reading of percentages and of a clock
SECONDS = 2.0
CALLS = 20  # between two looks at the clock: the queue stays full


def busy(run: Callable[[], object], where: Any) -> dict[str, float | None]:
    """Shares of the time of *run* in which parts of the card were busy, for other programs too. *run* synchronises the device at its end.

    Raises
    ------
    OSError
        Where GPM cannot be read, with the reason.
    """
    try:
        with nvml_card(where) as (nvml, card):
            return _read(nvml, card, run)
    except OSError as error:
        raise OSError(f"GPM was not read: {error}") from None


def _read(nvml: Any, card: Any, run: Callable[[], object]) -> dict[str, float | None]:
    if not nvml.nvmlGpmQueryDeviceSupport(card).isSupportedDevice:
        raise OSError("it needs a GPU of the Hopper generation or newer")
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
    asked.sample1, asked.sample2 = samples = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
    for i, name in enumerate(METRICS.values()):
        asked.metrics[i].metricId = getattr(nvml, name)
    nvml.nvmlGpmSampleGet(card, samples[0])
    run()
    nvml.nvmlGpmSampleGet(card, samples[1])
    nvml.nvmlGpmMetricsGet(asked)
    for sample in samples:
        nvml.nvmlGpmSampleFree(sample)
    read = {name: asked.metrics[i] for i, name in enumerate(METRICS)}
    return {name: each.value / 100 if each.nvmlReturn == 0 else None for name, each in read.items()}


def check(where: Any = "cuda", n: int = 8192) -> dict[str, Any]:
    """Multiply bf16 matrices for two seconds: the tensor cores' share of the time, at the clock that was seen, gives FLOPs too.

    Raises
    ------
    OSError
        Where GPM cannot be read, with the reason.
    """
    import torch

    where, card = torch.device(where), devices.device()
    a, b = (torch.randn(n, n, device=where).to(torch.bfloat16) for _ in range(2))
    flops, passed = count(torch.mm, a, b).flops, [0.0]

    def run() -> None:
        torch.cuda.synchronize()
        start = time.perf_counter()
        while passed[-1] < SECONDS:
            for _ in range(CALLS):
                torch.mm(a, b)
            torch.cuda.synchronize()
            passed.append(time.perf_counter() - start)

    with Monitor(where) as monitor:
        shares = busy(run, where)
    clock = ((monitor.summary(SECONDS / 2) or {}).get("sm_mhz") or {}).get("median")
    made, counted = card.derivation, flops * CALLS * (len(passed) - 1)
    row = {"case": f"mm_bf16, n={n}", "accepted": ACCEPTED, "counted": {"flops": counted}, "shares": shares}
    if shares["tensor"] is None or clock is None or made is None or "bf16" not in made.flops_per_clock:
        lost = "GPM's share, the clock, or what the peak is made of is not known"
        row |= {"verdict": "not counted", "note": f"{lost} {monitor.note}".strip()}
    else:
        executed = shares["tensor"] * made.peak("bf16", clock * 1e6) * passed[-1]
        ratio, note = executed / counted, f"tensor cores busy {shares['tensor']:.1%} of the time at {clock:.0f} MHz"
        row |= {"executed": {"bf16": executed}, "ratio": ratio, "verdict": verdict((ratio, ACCEPTED)), "note": note}
    return {"oracle": "NVML GPM", "device": card.title, "results": [row]}
