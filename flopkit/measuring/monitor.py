"""Clock, power and temperature of a GPU while it is timed, by NVML. They are read and never set."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["Monitor", "nvml_card"]

EVERY = 0.05  # s between two samples; a power reading is a mean over up to a second
# NVML's bits for what holds the clock down.
REASONS = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "thermal, by software",
    0x40: "thermal, by hardware", 0x80: "power brake", 0x100: "display clock",
}  # fmt: skip


@contextlib.contextmanager
def nvml_card(where: Any) -> Iterator[tuple[Any, Any]]:
    """NVML and its handle of a CUDA device; what goes wrong with them, in the ``with`` block too, is an OSError that says why."""
    import torch

    try:
        import pynvml
    except ModuleNotFoundError:
        raise OSError("that needs nvidia-ml-py (pip install nvidia-ml-py)") from None
    try:
        pynvml.nvmlInit()
        try:
            # by its number torch may mean another card than NVML: CUDA_VISIBLE_DEVICES renumbers them
            yield pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(where).uuid}")
        finally:
            pynvml.nvmlShutdown()
    except (AttributeError, pynvml.NVMLError) as error:
        raise OSError(str(error)) from None


class Monitor:
    """A thread that samples a CUDA device while the ``with`` block runs. On a CPU, or without nvidia-ml-py, it does nothing.

    Parameters
    ----------
    where : Any
        A device of torch.
    """

    def __init__(self, where: Any) -> None:
        self.where, self.note = where, ""
        self._samples: list[tuple[float, dict[str, float | None], int | None]] = []
        self._opened, self._ended = contextlib.ExitStack(), threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Monitor:
        if self.where.type == "cuda":
            try:
                card = self._opened.enter_context(nvml_card(self.where))
            except OSError as error:
                self.note = f"clock, power and temperature were not watched: {error}"
            else:
                self._began = time.perf_counter()
                self._thread = threading.Thread(target=self._watch, args=card, name="flopkit monitor", daemon=True)
                self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
        self._opened.close()

    def _watch(self, nvml: Any, card: Any) -> None:
        def read(call: Any, *kind: int) -> Any:
            try:
                return call(card, *kind)
            except nvml.NVMLError:  # a card need not have every sensor
                return None

        while True:
            power = read(nvml.nvmlDeviceGetPowerUsage)
            values = {
                "sm_mhz": read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
                "memory_mhz": read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
                "watts": None if power is None else power / 1000,
                "celsius": read(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            }
            self._samples.append(
                (time.perf_counter() - self._began, values, read(nvml.nvmlDeviceGetCurrentClocksThrottleReasons))
            )
            if self._ended.wait(EVERY):
                return

    def summary(self, after: float = 0.0) -> dict[str, Any] | None:
        """Median, least and most of each quantity, and the share of samples in which each reason held the clock down.

        Parameters
        ----------
        after : float, optional
            Seconds from the beginning that are left out, such as a warm-up.
        """
        kept = [sample for sample in self._samples if sample[0] >= after] or self._samples[-1:]
        if not kept:
            return None
        found: dict[str, Any] = {"samples": len(kept)}
        for name in kept[0][1]:
            values = [value for _, sample, _ in kept if (value := sample[name]) is not None]
            found[name] = (
                {"median": statistics.median(values), "low": min(values), "high": max(values)} if values else None
            )
        masks = [mask for _, _, mask in kept if mask is not None]
        shares = {name: sum(bool(mask & bit) for mask in masks) / len(masks) for bit, name in REASONS.items() if masks}
        found["held_down_by"] = {name: share for name, share in shares.items() if share} if masks else None
        return found
