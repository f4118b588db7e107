"""What a measured time says: the rates that it makes, whether it is possible, and what a reader of it should know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flopkit import devices, machine
from flopkit.counter.modes import convolves, flops_by_mode
from flopkit.counter.report import Report
from flopkit.devices import fastest_mode
from flopkit.measuring import arguments, protocol
from flopkit.measuring.checking import Checked
from flopkit.measuring.measurement import Judgement, Measurement

__all__ = ["Called", "Clocked", "at_rates", "floor", "judge", "known"]

HELD_DOWN = 0.1  # of the samples: fewer are no matter
LAUNCHED = 0.9  # of a call's time: a host that needs as long to launch it as the device to run it sets the pace
ABOVE = 1.02  # of a ceiling: more than that is not noise
NONE = 2.0  # of a ceiling: what is exceeded by so much is none, and nothing is said as a share of it
MASKS = ("the mask", "the block mask")  # how the counter's notes on masks that it could not read begin
CONVOLUTIONS = (
    "a convolution may take an algorithm with fewer FLOPs (Winograd, FFT), so the time was not judged by its arithmetic"
)


@dataclass(frozen=True)
class Called:
    """A call that was counted, before it is timed.

    Parameters
    ----------
    name : str
        What was called.
    work : Report
        What it executes, under EXACT.
    where : Any
        The torch device that it runs on.
    given, whole : int
        Bytes of its arguments, and of all tensors that it touches.
    format : str
        The number format that its FLOPs are in, where the caller gives them.
    hidden : bool
        Whether it may use a GPU of which neither tensors nor allocations tell.
    tf32 : bool
        Whether its products of fp32 may be rounded to tf32.
    """

    name: str
    work: Report
    where: Any
    given: int
    whole: int
    format: str
    hidden: bool
    tf32: bool

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on a CUDA device."""
        return bool(self.where.type == "cuda")

    def flops_by_mode(self, model: bool = False) -> Mapping[str, float]:
        """FLOPs by the arithmetic that does them: a GPU may round some of those in fp32 to tf32.

        Parameters
        ----------
        model : bool, optional
            The FLOPs that the mathematics asks for, in place of those that were executed.
        """
        return flops_by_mode(self.work, model) if self.on_gpu else self.work.flops_by_dtype(model)


@dataclass(frozen=True)
class Clocked:
    """What the check, the clock and the monitor found of a call.

    Parameters
    ----------
    checked : Checked
        Its result against the reference.
    timing : protocol.Timing
        Seconds of each call.
    timer : str
        How these were taken.
    sets : int
        Copies of the arguments that were rotated.
    launch : float
        Seconds that the host needs to launch a call; 0 on a CPU.
    monitor : dict[str, Any] | None
        Clock, power and temperature, where they can be read.
    unread : str
        Why they cannot.
    """

    checked: Checked
    timing: protocol.Timing
    timer: str
    sets: int
    launch: float
    monitor: dict[str, Any] | None
    unread: str


def judge(call: Called, clocked: Clocked, flops: float | None = None, bytes: float | None = None) -> Measurement:
    """The measurement: rates, shares of peak and ceilings, the verdict and the notes. *flops* and *bytes* stand for those that were counted."""
    work, timing, checked = call.work, clocked.timing, clocked.checked
    done = work.hardware_flops if flops is None else flops
    moved = work.bytes if bytes is None else bytes
    formats = call.flops_by_mode()
    if flops is not None:
        formats = {"tf32" if call.tf32 and call.format == "fp32" else call.format: flops}
    notes = [
        checked.note,
        clocked.unread,
        *_held_down(clocked.monitor),
        *timing.unsteady,
        *_of_the_clock(call, clocked),
    ]
    if flops is None:
        notes += _of_the_count(work)
    verdict = Judgement.OK
    if timing.fastest <= 0:
        verdict = Judgement.IMPOSSIBLE
        notes.append(f"the fastest call took {timing.fastest:.3g} s: the clock stood still or went back; measure again")
    of_flops = of_bytes = mfu = mbu = least = None
    if (kept := _own(call.where, notes)) is not None:
        of_bytes = moved / kept.bandwidth / timing.mean
        if known(kept, formats):
            of_flops = at_rates(kept, formats, kept.peak) / timing.mean or None
        if of_flops and of_flops > ABOVE:
            notes.append(
                f"faster than the ceiling that was measured ({kept.source}): measure it again with flopkit.ceilings()"
            )
            of_flops = None if of_flops > NONE else of_flops
    if (device := _device(call.where)) is None:
        notes.append(f"the peak of {machine.title(call.where)} is not known: no MFU, and no time is called impossible")
    else:
        # of a table whose rows are looked up, the counted bytes are the smaller ones; of fused operators, the call's own
        moving = min(_least_bytes(call.given, call.whole, clocked.sets, call.where), work.bytes)
        notes += (unknown := _unknown(work))
        least, bound = floor(device, {} if unknown else formats, moving)
        if timing.fastest < machine.EARLY * least:
            verdict = Judgement.IMPOSSIBLE
            notes.append(f"the fastest call took {timing.fastest:.3g} s, and {bound} needs {least:.3g} s at least")
        model = call.flops_by_mode(model=True) if flops is None else formats
        mfu = at_rates(device, model, device.peak) / timing.mean or None
        mbu = moved / device.bandwidth / timing.mean
    if verdict is Judgement.OK and max(of_bytes or 0.0, mbu or 0.0) > ABOVE:
        notes.append("more bytes/s than the memory moves: a cache serves some of them")
    if verdict is Judgement.OK and timing.disturbed:
        verdict = Judgement.DISTURBED
        notes.append(
            f"the mean is {timing.mean / timing.median:.2g} times the median: something else held up a few calls; close other programs and measure again"
        )
    if checked.right is False:
        verdict = Judgement.WRONG
        notes.append(checked.note or f"the result is off by {checked.error:.2g} of its size")
    return Measurement(
        name=call.name, device=machine.title(call.where) if device is None else device.title,
        flops=done, bytes=moved, mfu=mfu, mbu=mbu, verdict=verdict, error=checked.error, notes=tuple(filter(None, dict.fromkeys(notes))),
        protocol={"timer": clocked.timer, "warm_up_s": timing.warm_up, "argument_sets": clocked.sets}, floor=least,
        of_ceiling_flops=of_flops, of_ceiling_bytes=of_bytes, monitor=clocked.monitor, **timing.statistics(),
    )  # fmt: skip


def _of_the_clock(call: Called, clocked: Clocked) -> list[str]:
    """What to know of the time."""
    timing, rounds = clocked.timing, len(clocked.timing.rounds)
    told = {
        f"{rounds} rounds only: do not trust the interval; give a larger time_budget": rounds < protocol.ROUNDS[0],
        "mean and median differ by more than 2 %: the calls are not all of one kind": not timing.disturbed
        and abs(timing.mean / timing.median - 1) > 0.02,
        f"launching a call takes the host {clocked.launch:.3g} s: the device waits for that": clocked.launch
        > LAUNCHED * timing.median,
        "no tensor goes in or out: if a GPU ran, the time is that of the wall clock, launches included": call.hidden,
    }
    return [note for note, holds in told.items() if holds]


def _of_the_count(work: Report) -> list[str]:
    """What to know of the FLOPs."""
    names = ", ".join(row["operator"] for row in work.uncounted)
    notes = [f"not counted, so no part of the FLOPs: {names}"] if names else []
    return notes if work.lines() else [*notes, "no operator of torch ran, and nothing else is counted"]


def _held_down(seen: Mapping[str, Any] | None) -> list[str]:
    """A note, where something kept the clock from its full speed."""
    shares = ((seen or {}).get("held_down_by") or {}).items()
    said = [f"{name} in {share:.0%} of the samples" for name, share in shares if name != "idle" and share > HELD_DOWN]
    return [f"the clock was held down: {', '.join(said)}"] if said else []


def _least_bytes(given: int, whole: int, sets: int, where: Any) -> int:
    """Bytes that main memory must move: arguments that rotate past the cache, and of weights and outputs what the cache cannot hold."""
    cache = arguments.cache_bytes(where)
    cold = given if (sets - 1) * given >= cache else 0
    return cold + max(0, whole - cold - cache)


def _unknown(work: Report) -> list[str]:
    """What the counted FLOPs may be too many by, so that they are no lower bound: masks in tensors, algorithms of convolutions."""
    masks = [f"the time was not judged by its arithmetic: {note}" for note in work.notes if note.startswith(MASKS)]
    return masks + [CONVOLUTIONS] * any(convolves(row["operator"]) for row in work.by_op())


def _device(where: Any) -> Any:
    """The device in flopkit's table, or None."""
    try:
        return devices.device(machine.title(where)) if where.type == "cuda" else None
    except ValueError:
        return None


def _own(where: Any, notes: list[str]) -> Any:
    """The device of the ceilings that are kept of this one, or None; *notes* say why they are not used."""
    try:
        kept, threads = machine.read_ceilings(where), machine.threads(where)
        if kept is None:
            return None
        if kept["threads"] != threads:
            raise ValueError(f"they were measured with {kept['threads']} threads, this with {threads}")
        return devices.measured_device(kept)
    except ValueError as error:
        notes.append(f"not compared with the ceilings that are kept: {error}")
        return None


def _mode(device: Any, format: str) -> str:
    """The fastest arithmetic that *device* has for numbers of a format, as its table calls it; without tf32 none is rounded to it."""
    return "fp32" if format == "tf32" and "tf32" not in device.dtypes else fastest_mode(device, format)


def known(device: Any, flops: Mapping[str, float]) -> bool:
    """Whether *device* has a peak for every format."""
    return {_mode(device, format) for format in flops} <= set(device.dtypes)


def at_rates(device: Any, flops: Mapping[str, float], rate: Callable[[str], float]) -> float:
    """Seconds that so many FLOPs take at *rate*, the device's `peak` or `limit`; formats without one are left out."""
    modes = {format: _mode(device, format) for format in flops}
    return sum(n / rate(modes[format]) for format, n in flops.items() if modes[format] in device.dtypes)


def floor(device: Any, flops: Mapping[str, float], bytes: float) -> tuple[float, str]:
    """Seconds that so much work takes at least on *device*, and what bounds it: arithmetic at its `limit`, or its memory."""
    arithmetic, memory = at_rates(device, flops, device.limit), bytes / device.bandwidth
    return (arithmetic, "arithmetic") if arithmetic >= memory else (memory, "memory")
