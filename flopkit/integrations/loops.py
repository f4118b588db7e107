"""A meter that gives what a logger wants: numbers by name, over the steps since it was last asked."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from flopkit.sizes import number
from flopkit.utilization.meters import Meter

__all__ = ["LoopMeter", "wait_for_device"]


class LoopMeter:
    """MFU, HFU, step time and tokens/s of a training loop, by name, for any logger.

    Call `step` after each step of the optimiser, and `metrics` when you log.

    Parameters
    ----------
    work : Any
        The work of one step of the optimiser on all *count* devices: a training step, ``model.train_step(seq=…, batch=…)`` with the global
        batch, or a number of FLOPs.
    device : Any
        As in `flopkit.Meter`.
    dtype, count, hardware_flops : Any, optional
        As in `flopkit.Meter`.
    tokens : Any, optional
        Tokens of one step on all devices together, for tokens/s. None: those of *work*, where it is a training step.
    prefix : str, optional
        What every name begins with, such as ``"train/"``.
    wait : Callable[[], None], optional
        What waits for the device before the clock is read, in `metrics`. None: torch's ``accelerator.synchronize()``, where torch is loaded
        and has a device. For JAX give a function that calls ``jax.block_until_ready`` on the last result.
    clock : Callable[[], float], optional
        Seconds, never going back.

    Raises
    ------
    ValueError or TypeError
        As `flopkit.Meter`.

    Notes
    -----
    Metrics: ``step_seconds``, ``mfu``, ``hfu`` (where hardware FLOPs are known), ``tokens_per_second`` (all devices) and
    ``tokens_per_second_per_device``: means over the steps since the last call. Where the time is shorter than the device can take, and in the
    call after that, there is ``step_seconds`` alone, and a warning says why. Between two calls of `metrics` nothing waits for the device.

    Not counted: what stands between `pause` and `resume`, evaluation and checkpoints.

    Examples
    --------
    >>> import flopkit as fk
    >>> ticks = iter([0.0, 4.0])  # a clock for this example; leave it out
    >>> step = fk.load("llama-3-8b").train_step(seq=8192, batch=8)
    >>> meter = fk.integrations.LoopMeter(step, device="h100-sxm", count=8, clock=lambda: next(ticks))
    >>> for _ in range(4):
    ...     meter.step()
    >>> {name: round(value, 3) for name, value in meter.metrics().items()}
    {'step_seconds': 1.0, 'mfu': 0.426, 'hfu': 0.435, 'tokens_per_second': 65536.0, 'tokens_per_second_per_device': 8192.0}
    """

    def __init__(
        self, work: Any, *, device: Any, dtype: Any = None, count: Any = 1, hardware_flops: Any = None, tokens: Any = None,
        prefix: str = "", wait: Callable[[], None] | None = None, clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self._clock, self._left_out, self._paused = clock, 0.0, math.nan
        self._wait = wait_for_device if wait is None else wait
        about = {"device": device, "dtype": dtype, "count": count, "hardware_flops": hardware_flops}
        self.meter = Meter(work, **about, warm_up=0, clock=self._time)
        self.count, self.prefix, self._steps, self._counts = number("count", count), prefix, 0, False
        self.tokens = getattr(work, "tokens", None) if tokens is None else number("tokens", tokens)
        self._fed: deque[tuple[Any, int]] = deque(
            maxlen=50
        )  # tokens of steps, and how many: as far back as the meter's means

    def _time(self) -> float:
        return self._clock() - self._left_out

    def step(self, steps: int = 1) -> None:
        """One step of the optimiser is over, or *steps* of them."""
        self._steps += number("steps", steps)

    def pause(self) -> None:
        """What follows, until `resume`, is in no step."""
        if math.isnan(self._paused):
            self._wait()
            self._paused = self._clock()

    def resume(self) -> None:
        """Training goes on."""
        if not math.isnan(self._paused):
            self._left_out += self._clock() - self._paused
            self._paused = math.nan

    def start(self) -> None:
        """Start anew: what was since the last `metrics` is in no step."""
        self._steps, self._counts = 0, False
        self.resume()
        self.meter.start()

    @property
    def pending(self) -> int:
        """Steps since the last `metrics`."""
        return self._steps

    def metrics(self, lengths: Any = None) -> dict[str, float]:
        """Means over the steps since the last call; empty where there was none.

        Parameters
        ----------
        lengths : Any, optional
            The tokens of each sequence that went through these steps, on all devices, as in `Meter.step`. None: the usual ones.
        """
        self.resume()
        if not self._steps:
            return {}
        self._wait()
        steps, self._steps = self._steps, 0
        refused = self.meter.refused
        one = self.meter.step(steps, lengths=lengths)
        tokens = self.tokens if lengths is None or self.tokens is None else sum(lengths) / steps
        counts = not any(map(math.isnan, one))
        if counts:
            self._fed.append((tokens, steps))
        elif self.meter.refused > refused and self._counts:  # and so the call before is in no mean any more
            self._fed.pop()
        self._counts = counts
        return self._named(one, tokens if counts else None)

    def mean(self) -> dict[str, float]:
        """The same, over the meter's window."""
        tokens = self.tokens
        if tokens is not None and self._fed:
            tokens = sum(each * steps for each, steps in self._fed) / sum(steps for _, steps in self._fed)
        return self._named(self.meter.mean, tokens)

    def _named(self, one: Any, tokens: Any) -> dict[str, float]:
        found = {"step_seconds": one.seconds, "mfu": float(one.mfu)}
        if one.hfu is not None:
            found["hfu"] = float(one.hfu)
        if tokens is not None and one.seconds > 0:
            found["tokens_per_second"] = tokens / one.seconds
            found["tokens_per_second_per_device"] = tokens / one.seconds / self.count
        return {self.prefix + name: value for name, value in found.items() if not math.isnan(value)}


def wait_for_device() -> None:
    """Wait until the accelerator of a torch that is loaded has done what it was given."""
    torch = sys.modules.get("torch")
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None and accelerator.is_available():
        accelerator.synchronize()
