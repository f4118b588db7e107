"""The clock of a program's steps: a mean over all, a mean for each line, and a device that is rarely waited for."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

__all__ = ["StepClock"]


class StepClock:
    """Times steps from `start` on.

    A device is waited for at the steps 1, 2, 4, 8, … after that, and where a line is due. A CPU is never waited for.
    """

    def __init__(self, every: float) -> None:
        self._every = every  # s, from line to line
        self.due, self.next_wait = math.inf, 0
        self.no_waiting = False
        self.seconds: list[float] = []  # a step, line by line
        # When the timed steps began, and the line; the steps at these times.
        self._began = self._since = 0.0
        self._base = self._since_step = 0
        # When all the work of a step was last known to be over, and of which step.
        self.mark, self.marked_step = 0.0, 0

    def start(self, step: int, device_type: str) -> None:
        """Time what comes after *step*."""
        self._device_type = device_type
        self.no_waiting = device_type == "cpu"
        self._wait()
        self._began = self._since = self.mark = time.perf_counter()
        self._base = self._since_step = self.marked_step = step
        self.due = self._began + self._every
        self.next_wait = 0 if self.no_waiting else step + 1

    def tick(self, step: int, now: float) -> dict[str, Any] | None:
        """A step is over; the steps and the seconds of one since the last line, where a line is due."""
        due = now >= self.due
        if step == self.next_wait:
            self.next_wait = self._base + 2 * (step - self._base)
        elif not due and not self.no_waiting:
            return None
        if not self.no_waiting:
            self._wait()
            now = time.perf_counter()
        self.mark, self.marked_step = now, step
        if not due:
            return None
        steps = step - self._since_step
        seconds = (now - self._since) / steps
        self.seconds.append(seconds)
        self._since, self._since_step, self.due = now, step, now + self._every
        return {"steps": steps, "seconds": seconds}

    @property
    def timed(self) -> int:
        """Steps that were timed, up to the last time when the device was waited for."""
        return self.marked_step - self._base

    @property
    def mean_seconds(self) -> float:
        """Seconds of a step, the mean over them."""
        return (self.mark - self._began) / self.timed

    def _wait(self) -> None:
        """Until the device has done what it was given."""
        torch = sys.modules.get("torch")
        part: Any = getattr(torch, self._device_type, None)
        if self.no_waiting or torch is None or not hasattr(part, "synchronize"):
            return
        if self._device_type == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        part.synchronize()
