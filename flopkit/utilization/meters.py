"""A meter for training loops: the time and the utilisation of each step, and their running mean."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

from flopkit import units
from flopkit.arithmetic import reading
from flopkit.sizes import number, short
from flopkit.tables import Table
from flopkit.utilization.gauges import Gauge, is_bare, of_flops, under_both
from flopkit.utilization.packing import Amounts

__all__ = ["Meter", "StepTime"]

_Work: TypeAlias = tuple[Any, ...] | None
"""FLOPs of a step, for each gauge under both conventions; None: those that the meter was made with."""


@dataclass(frozen=True)
class StepTime:
    """What `Meter.step` gives; ``seconds, mfu = meter.step()`` takes it apart (and ``seconds, mfu, hfu`` where there is an HFU).

    Attributes
    ----------
    seconds : float
        The time of one step.
    mfu : float
        Its MFU; NaN where the time is shorter than the device can take, and of the next call, in whose time that work may have been done.
    hfu : float | None
        Its HFU; None where the meter knows of no hardware FLOPs.
    warm_up : bool
        Whether it was one of the first steps, which no mean takes in.
    """

    seconds: float
    mfu: float
    hfu: float | None = None
    warm_up: bool = False

    def __iter__(self) -> Iterator[float]:
        return iter((self.seconds, self.mfu) if self.hfu is None else (self.seconds, self.mfu, self.hfu))


class Meter:
    """The time and the MFU of each step of a training loop, and their mean over the last ones.

    Call `step` at the end of each step. The first interval begins when the meter is made. Callbacks for Hugging Face's ``Trainer`` and for
    Lightning that do so are in ``flopkit.integrations``.

    Parameters
    ----------
    flops_per_step : Any
        The work of one step on *count* devices, as `mfu` takes it. Where the documents of each step are given to `step`, a
        training step of their model over any lengths.
    device : Any
        As in `mfu`.
    dtype, count : Any, optional
        As in `mfu`.
    hardware_flops : Any, optional
        What is executed in a step, as `hfu` takes it, for HFU. None: what *flops_per_step* says, where that is a training
        step or a `Report`.
    warm_up : int, optional
        How many calls of `step` at the beginning no mean takes in: compilation, and caches that fill.
    window : int, optional
        Over how many calls of `step` the running mean goes.
    clock : Callable[[], float], optional
        Seconds, never going back.

    Raises
    ------
    ValueError or TypeError
        As `mfu`, except for a step that is too short to be true: that would end the training. Such a step has the MFU
        NaN, and the first one gives a `RuntimeWarning` that names the usual causes.

    Notes
    -----
    A GPU works on when ``step()`` of an optimiser has returned, so a single time is only right after
    ``torch.cuda.synchronize()`` (JAX: ``jax.block_until_ready``). Calling that in each step costs little where steps take long;
    otherwise call it, and ``meter.step(steps=N)``, after every N steps.

    A step that is too short to be true is in no mean, and ``refused`` counts it. Its work was done in the time of another step, nobody knows
    which, so the calls right before and after it are in no mean either: ``beside`` counts their steps. Where every second call returns before
    the device has finished, there is no mean at all. Wait for the device, or call ``meter.step(steps=N)`` when you do.

    Not counted: evaluation and checkpoints that stand between `start` and the next `step`.

    Examples
    --------
    >>> import flopkit as fk
    >>> ticks = iter([0.0, 9.0, 9.5, 10.0])  # a clock for this example; leave it out
    >>> meter = fk.Meter(flops_per_step=200e12, device="h100-sxm", clock=lambda: next(ticks))
    >>> for _ in range(3):
    ...     seconds, mfu = meter.step()
    >>> seconds, mfu
    (0.5, MFU 40.4 % of 989.4 TFLOP/s in bf16, NVIDIA H100 SXM5 80 GB, FLOPs as given)
    >>> print(meter)
    step 3, 500 ms (mean of 2): MFU 40.4 % of 989.4 TFLOP/s in bf16, NVIDIA H100 SXM5 80 GB, FLOPs as given

    Packed documents: the FLOPs of a step are those of the lengths that it had.

    >>> ticks = iter([0.0, 1.0, 2.0])
    >>> step = fk.load("llama-3-8b").train_step(seq=8192)
    >>> meter = fk.Meter(step, device="h100-sxm", clock=lambda: next(ticks))
    >>> one, other = meter.step(lengths=[8192]), meter.step(lengths=[512, 3584, 4096])
    >>> round(one.mfu, 3), round(other.mfu, 3)
    (0.426, 0.397)
    """

    def __init__(
        self,
        flops_per_step: Any,
        *,
        device: Any,
        dtype: Any = None,
        count: Any = 1,
        hardware_flops: Any = None,
        warm_up: int = 1,
        window: int = 50,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if hardware_flops is None and not is_bare(flops_per_step) and hasattr(flops_per_step, "hardware_flops"):
            hardware_flops = flops_per_step
        self._gauges = [of_flops("MFU", "model_flops", flops_per_step, device, dtype, count)]
        if hardware_flops is not None:
            self._gauges.append(of_flops("HFU", "hardware_flops", hardware_flops, device, dtype, count))
        for gauge, argument in zip(self._gauges, ("flops_per_step", "hardware_flops"), strict=False):
            if reading(gauge.at_peak) != "plain":
                raise TypeError(f"{argument}, device and count: a meter takes numbers, no sweep and no symbol")
        self._works = [flops_per_step] if hardware_flops is None else [flops_per_step, hardware_flops]
        self._amounts: Amounts | None = None
        self._warm_up = number("warm_up", warm_up, minimum=0)
        self._recent: deque[tuple[float, int, _Work]] = deque(maxlen=number("window", window))
        self._calls, self._all_steps, self._all_seconds = 0, 0, 0.0
        self._all_usual, self._all_work = 0, list[Any]()  # steps of the usual FLOPs, and the FLOPs of all others
        self._problem, self._warned = "", False
        self.steps = self.refused = self.beside = 0
        self._unclear, self._kept = False, False  # whether the last call was refused, and whether a mean has it
        self.last: StepTime | None = None
        self._clock = clock
        self.start()

    def start(self) -> None:
        """Start the clock anew, after an evaluation or a checkpoint: the time until now is in no step."""
        self._since = self._clock()
        self._unclear = self._kept = False

    def step(self, steps: int = 1, *, lengths: Any = None) -> StepTime:
        """A step is over, or *steps* of them since the last call: their mean time, MFU and HFU.

        Parameters
        ----------
        steps : int, optional
            How many steps have passed.
        lengths : Any, optional
            The tokens of each document that went through these steps, on all *count* devices, as `Model.train_step` takes them.
            The FLOPs are those of these documents. None: those that the meter was made with.

        Raises
        ------
        TypeError
            For *lengths*, where the meter was made with something else than a training step of a model of text.
        """
        steps = number("steps", steps)
        now = self._clock()
        work = None if lengths is None else self._work(lengths, steps)
        elapsed, self._since = now - self._since, now
        warm_up = self._calls < self._warm_up
        self._calls += 1
        self.steps += steps
        self.last = self._at(elapsed / steps, warm_up, work)
        short = math.isnan(self.last.mfu) or (self.last.hfu is not None and math.isnan(self.last.hfu))
        if short:
            self.refused += steps
            if self._kept:
                before = self._recent.pop()
                self._add(*before, sign=-1)
                self.beside += before[1]
        elif self._unclear:
            self.beside += steps
            self.last = StepTime(self.last.seconds, math.nan, None if self.last.hfu is None else math.nan, warm_up)
        elif not warm_up:
            self._recent.append((elapsed, steps, work))
            self._add(elapsed, steps, work)
        self._kept = not (short or self._unclear or warm_up)
        self._unclear = short
        if self._problem and not self._warned:
            self._warned = True
            warnings.warn(self._problem, RuntimeWarning, stacklevel=2)
        return self.last

    def _add(self, elapsed: float, steps: int, work: _Work, sign: int = 1) -> None:
        """To the sums over all steps after the warm-up."""
        self._all_usual, self._all_work = _added(self._all_usual, self._all_work, sign * steps, work)
        self._all_seconds += sign * elapsed
        self._all_steps += sign * steps

    @property
    def mean(self) -> StepTime:
        """The mean over the window: the FLOPs of all its steps, divided by their time, without those that were refused and those
        beside them. NaN before there is one."""
        steps = sum(steps for _, steps, _ in self._recent)
        if not steps:
            return self._at(math.nan)
        usual, others = 0, list[Any]()
        for _, n, work in self._recent:
            usual, others = _added(usual, others, n, work)
        return self._at(
            sum(seconds for seconds, _, _ in self._recent) / steps, work=self._mean_of(steps, usual, others)
        )

    @property
    def seconds(self) -> float:
        """Seconds a step, the mean over the window."""
        return self.mean.seconds

    @property
    def mfu(self) -> float:
        """The MFU of `mean`."""
        return self.mean.mfu

    @property
    def hfu(self) -> float | None:
        """The HFU of `mean`; None where no hardware FLOPs are known."""
        return self.mean.hfu

    def _at(self, seconds: float, warm_up: bool = False, work: _Work = None) -> StepTime:
        gauges = self._gauges
        if work is not None:
            gauges = [
                gauge.at_work(own, dict.fromkeys(gauge.others, other))
                for gauge, own, other in zip(gauges, work[::2], work[1::2], strict=True)
            ]
        mfu, *hfu = (self._share(gauge, seconds) for gauge in gauges)
        return StepTime(seconds, mfu, hfu[0] if hfu else None, warm_up)

    def _work(self, lengths: Any, steps: int) -> _Work:
        """FLOPs of one of *steps* over these documents together."""
        if self._amounts is None:
            for argument, each in zip(("flops_per_step", "hardware_flops"), self._works, strict=False):
                if getattr(each, "over", None) is None:
                    raise TypeError(
                        f"lengths={short(lengths)}: {argument}={short(each)} does not say what other documents would take; "
                        "give flops_per_step=model.train_step(seq=…) of a model of text"
                    )
            self._amounts = Amounts(self._of_documents)
        amounts = self._amounts(lengths)
        return tuple(amounts if steps == 1 else [each / steps for each in amounts])

    def _of_documents(self, lengths: Any) -> Iterator[Any]:
        for which, each in zip(("model_flops", "hardware_flops"), self._works, strict=False):
            yield from under_both(each.packed(lengths), which).values()

    def _mean_of(self, steps: int, usual: int, work: list[Any]) -> _Work:
        """FLOPs of a step, the mean over *steps*, of which *usual* did the usual."""
        if not work:
            return None
        return tuple((usual * one + others) / steps for one, others in zip(self._usual, work, strict=True))

    @cached_property
    def _usual(self) -> tuple[Any, ...]:
        """FLOPs of the step that the meter was made with."""
        names = ("model_flops", "hardware_flops")
        return tuple(n for name, each in zip(names, self._works, strict=False) for n in under_both(each, name).values())

    def _share(self, gauge: Gauge, seconds: float) -> float:
        if math.isnan(seconds):
            return math.nan
        try:
            share: float = gauge.share(seconds)
        except ValueError as error:
            self._problem = self._problem or str(error)
            return math.nan
        return share

    def summary(self) -> Table:
        """The last step, the mean over the window, and the mean of all steps after the warm-up.

        Notes
        -----
        Columns: *what*, how many *steps*, *seconds* a step, *MFU*, and *HFU* where hardware FLOPs are known.
        """
        everything = self._at(
            self._all_seconds / self._all_steps if self._all_steps else math.nan,
            work=self._mean_of(self._all_steps, self._all_usual, self._all_work),
        )
        in_window = sum(steps for _, steps, _ in self._recent)
        lines = [
            ("last step", 1, self.last),
            ("running mean", in_window, self.mean),
            ("after warm-up", self._all_steps, everything),
        ]
        rows = [
            {"what": what, "steps": steps, "seconds": one.seconds, "MFU": one.mfu, "HFU": one.hfu}
            for what, steps, one in lines
            if one
        ]
        columns = ["what", "steps", "seconds", "MFU", "HFU"][: 3 + len(self._gauges)]
        percent = partial(units.format_value, unit="%")
        formats: Any = {"seconds": units.seconds, "MFU": percent, "HFU": percent}
        return Table(rows, caption=f"a step on {self._gauges[0].of()}", columns=columns, formats=formats)

    def __repr__(self) -> str:
        mean, in_window = self.mean, sum(steps for _, steps, _ in self._recent)
        if not in_window:
            return f"step {self.steps}: no time yet after the warm-up{self._refused()}"
        shares = [f"MFU {units.format_value(mean.mfu, '%')}" if math.isnan(mean.mfu) else repr(mean.mfu)]
        shares += [f"HFU {units.format_value(mean.hfu, '%')}"] if mean.hfu is not None else []
        return f"step {self.steps}, {units.seconds(mean.seconds)} (mean of {in_window}{self._refused()}): {'; '.join(shares)}"

    def _refused(self) -> str:
        beside = f", {self.beside} beside them" if self.beside else ""
        return f", {self.refused} refused{beside}" if self.refused else ""

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def _added(usual: int, work: list[Any], steps: int, more: _Work) -> tuple[int, list[Any]]:
    """How many steps did the usual, and the FLOPs of all others, with some *steps* more."""
    if more is None:
        return usual + steps, work
    return usual, [one + steps * each for one, each in zip(work or [0] * len(more), more, strict=True)]
