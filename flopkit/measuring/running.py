"""`flopkit.measure`: count a call, check its result, time it by the protocol, and judge the time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from tqdm import tqdm

from flopkit import devices, machine
from flopkit.conventions import EXACT
from flopkit.counter.report import Report
from flopkit.counter.running import count
from flopkit.derivations import number_format
from flopkit.measuring import arguments, judging, protocol
from flopkit.measuring.measurement import Measurement
from flopkit.measuring.monitor import Monitor
from flopkit.measuring.timers import timer_for
from flopkit.measuring.workloads import tf32_switches
from flopkit.sizes import positive

__all__ = ["measure"]

HELD_DOWN = 0.1  # of the samples: fewer are no matter
LAUNCHED = 0.9  # of a call's time: a host that needs as long to launch it as the device to run it sets the pace
AGAIN = 0.05  # of all the time: a check that takes less is made once more in the end
ABOVE = 1.02  # of a ceiling: more than that is not noise
# A progress bar: after two seconds of work.
BAR: dict[str, Any] = dict(unit="%", desc="measuring", leave=False, delay=2.0, bar_format="{l_bar}{bar}| {elapsed}")
MASKS = ("the mask", "the block mask")  # how the counter's notes on masks that it could not read begin
CONVOLUTIONS = (
    "a convolution may take an algorithm with fewer FLOPs (Winograd, FFT), so the time was not judged by its arithmetic"
)


def measure(
    fn: Callable[..., Any], *args: Any, time_budget: float | None = None, flops: float | None = None,
    bytes: float | None = None, check: Callable[..., Any] | None = None, **kwargs: Any,
) -> Measurement:  # fmt: skip
    """Time ``fn(*args, **kwargs)``: a sustained mean with its interval, the rates that it makes, and a verdict.

    The call is counted first and its result checked against float64, and once more in the end where that is quick. In between it runs until
    the clock is steady, and in rounds until the 95 % interval of the mean is within ±0.5 % or the budget is used up. Arguments are rotated
    through copies, so that a cache does not serve them. On a CUDA device, that of any of its tensors, calls are timed by events or, where they
    are short, in a CUDA graph; on a CPU by the wall clock. A call that neither takes nor gives a tensor, such as a step that holds its model
    and data itself, runs on the device where it allocates memory.

    Parameters
    ----------
    fn : Callable[..., Any]
        What is timed. Tensors that it holds itself, such as a module's weights, are not rotated.
    *args : Any
        What it is called with.
    time_budget : float, optional
        Seconds for warm-up and timing together. None: about ten, or eight rounds of one call if they take longer.
    flops : float, optional
        FLOPs of a call. None: `flopkit.count` counts them, under EXACT.
    bytes : float, optional
        Bytes of a call, for the rate. None: the compulsory traffic of each operator, as `flopkit.count` has it.
    check : Callable[..., Any], optional
        A function of the same arguments that gives the right result. None: *fn* itself on float64 copies, where it allows that.
    **kwargs : Any
        What it is called with, by name.

    Returns
    -------
    Measurement
        With ``seconds``, ``seconds_ci``, ``flops_per_s``, ``mfu``, ``of_ceiling_flops``, ``verdict`` and ``notes``. The verdict is ``"wrong"`` where the result
        is, ``"disturbed"`` where the mean is more than 1.2 times the median, and ``"impossible"`` where the fastest call took less than the device needs for a lower bound of the work: the FLOPs at the
        highest rate that the silicon can have, or the bytes of the call's own inputs and outputs, those that it touches and no cache can hold.

    Raises
    ------
    TypeError
        If *fn* cannot be called, or a number is no number.
    ValueError
        For a budget, FLOPs or bytes that are not positive and finite, and for tensors on several CUDA devices or on other kinds of devices.

    Notes
    -----
    Where the device is not in flopkit's table, as CPUs are not, its peak is not known: there is no MFU, and no time above 0 is impossible.
    What runs on another stream than the current one is not timed.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> a = torch.randn(256, 256)
    >>> found = fk.measure(torch.mm, a, a, time_budget=0.2)
    >>> found.verdict, found.flops
    ('ok', 33554432)
    """
    import torch

    if not callable(fn):
        raise TypeError(f"fn={fn!r}: must be a function or a module; pass its arguments after it, measure(fn, x)")
    if check is not None and not callable(check):
        raise TypeError(f"check={check!r}: must be a function of the same arguments")
    for name, value, unit in (
        ("time_budget", time_budget, "seconds"),
        ("flops", flops, "FLOPs"),
        ("bytes", bytes, "bytes"),
    ):
        if value is not None:
            positive(name, value, unit)
    results: list[Any] = []
    before = arguments.allocated()
    work = count(lambda: results.append(fn(*args, **kwargs))).under(EXACT)
    given = arguments.tensors(args, kwargs)
    touched = [*given, *_held(fn), *arguments.tensors(results.pop())]
    where, whole, format = arguments.place(touched), arguments.storages(touched), _format(touched)
    cuda, cards = where.type == "cuda", cast(Any, torch.cuda)
    if not touched:  # such as a step that holds its model and data itself
        where = arguments.used(before) or where
        cuda = where.type == "cuda"
    hidden = (
        not (touched or cuda) and cards.is_initialized()
    )  # it may use a GPU, of which neither tensors nor allocations tell
    del touched  # the result needs memory
    tf32 = cuda and _tf32(work)
    with cards.device(where) if cuda else contextlib.nullcontext():
        started = time.perf_counter()
        checked = judging.check_result(fn, args, kwargs, check, tf32)
        checking = time.perf_counter() - started
        sets = arguments.copies((args, kwargs), where)
        run = arguments.rotating(fn, sets)
        timer, how = timer_for((lambda: (run(), cards.synchronize())) if hidden else run, torch, cuda, len(sets))
        with Monitor(where) as watch, tqdm(total=100, **BAR) as bar:
            timing = protocol.timed(timer, time_budget, lambda share: bar.update(int(100 * share) - bar.n))
        if checked.right and checking < AGAIN * (time.perf_counter() - started):
            checked = judging.check_result(fn, args, kwargs, check, tf32)
    seen = watch.summary(timing.warm_up)
    notes = [checked.note, watch.note, *_held_down(seen), *timing.unsteady]
    if len(timing.rounds) < protocol.ROUNDS[0]:
        notes.append(f"{len(timing.rounds)} rounds only: do not trust the interval; give a larger time_budget")
    if not timing.disturbed and abs(timing.mean / timing.median - 1) > 0.02:
        notes.append("mean and median differ by more than 2 %: the calls are not all of one kind")
    if cuda and timer.launch > LAUNCHED * timing.median:
        notes.append(f"launching a call takes the host {timer.launch:.3g} s: the device waits for that")
    if hidden:
        notes.append("no tensor goes in or out: if a GPU ran, the time is that of the wall clock, launches included")
    done = work.hardware_flops if flops is None else flops
    moved = work.bytes if bytes is None else bytes
    formats = work.flops_by_dtype() if flops is None else {format: flops}
    if flops is None and work.uncounted:
        notes.append(f"not counted, so no part of the FLOPs: {', '.join(row['operator'] for row in work.uncounted)}")
    if flops is None and not work.lines():
        notes.append("no operator of torch ran, and nothing else is counted")
    verdict = "ok"
    if timing.fastest <= 0:
        verdict = "impossible"
        notes.append(f"the fastest call took {timing.fastest:.3g} s: the clock stood still or went back; measure again")
    of_flops = of_bytes = mfu = mbu = least = None
    if (kept := _own(where, notes)) is not None:
        of_bytes = moved / kept.bandwidth / timing.mean
        if judging.known(kept, formats, tf32):
            of_flops = judging.at_rates(kept, formats, tf32, kept.peak) / timing.mean or None
        if of_flops and of_flops > ABOVE:
            notes.append(
                f"faster than the ceiling that was measured ({kept.source}): measure it again with flopkit.ceilings()"
            )
    if (device := _device(where)) is None:
        notes.append(f"the peak of {machine.title(where)} is not known: no MFU, and no time is called impossible")
    else:
        # of a table whose rows are looked up, the counted bytes are the smaller ones; of fused operators, the call's own
        moving = min(_least_bytes(arguments.storages(given), whole, len(sets), where), work.bytes)
        notes += (unknown := _unknown(work))
        least, bound = judging.floor(device, {} if unknown else formats, moving, tf32)
        if timing.fastest < machine.EARLY * least:
            verdict = "impossible"
            notes.append(f"the fastest call took {timing.fastest:.3g} s, and {bound} needs {least:.3g} s at least")
        model = work.flops_by_dtype(model=True) if flops is None else formats
        mfu = judging.at_rates(device, model, tf32, device.peak) / timing.mean or None
        mbu = moved / device.bandwidth / timing.mean
    if verdict == "ok" and max(of_bytes or 0.0, mbu or 0.0) > ABOVE:
        notes.append("more bytes/s than the memory moves: a cache serves some of them")
    if verdict == "ok" and timing.disturbed:
        verdict = "disturbed"
        notes.append(
            f"the mean is {timing.mean / timing.median:.2g} times the median: something else held up a few calls; close other programs and measure again"
        )
    if checked.right is False:
        verdict = "wrong"
        notes.append(checked.note or f"the result is off by {checked.error:.2g} of its size")
    return Measurement(
        name=getattr(fn, "__name__", type(fn).__name__), device=machine.title(where) if device is None else device.title,
        flops=done, bytes=moved, mfu=mfu, mbu=mbu, verdict=verdict, error=checked.error, notes=tuple(filter(None, dict.fromkeys(notes))),
        protocol={"timer": how, "warm_up_s": timing.warm_up, "argument_sets": len(sets)}, floor=least, of_ceiling_flops=of_flops,
        of_ceiling_bytes=of_bytes, monitor=seen, **timing.statistics(),
    )  # fmt: skip


def _held_down(seen: Mapping[str, Any] | None) -> list[str]:
    """A note, where something kept the clock from its full speed."""
    shares = ((seen or {}).get("held_down_by") or {}).items()
    said = [f"{name} in {share:.0%} of the samples" for name, share in shares if name != "idle" and share > HELD_DOWN]
    return [f"the clock was held down: {', '.join(said)}"] if said else []


def _held(fn: Any) -> list[Any]:
    """The parameters of a module."""
    return list(fn.parameters()) if hasattr(fn, "parameters") else []


def _least_bytes(given: int, whole: int, sets: int, where: Any) -> int:
    """Bytes that main memory must move: arguments that rotate past the cache, and of weights and outputs what the cache cannot hold."""
    cache = arguments.cache_bytes(where)
    cold = given if (sets - 1) * given >= cache else 0
    return cold + max(0, whole - cold - cache)


def _format(found: list[Any]) -> str:
    """The number format of the first of the tensors that may be multiplied: tokens and labels are not."""
    return next((number_format(each.dtype) for each in found if each.is_floating_point()), "fp32")


def _convolves(work: Report) -> bool:
    return any("convolution" in row["operator"] for row in work.by_op())


def _tf32(work: Report) -> bool:
    """Whether products of fp32 in it may be rounded to tf32, on a GPU that has it."""
    products, convolutions = tf32_switches()
    return products or (convolutions and _convolves(work))


def _unknown(work: Report) -> list[str]:
    """What the counted FLOPs may be too many by, so that they are no lower bound: masks in tensors, algorithms of convolutions."""
    masks = [f"the time was not judged by its arithmetic: {note}" for note in work.notes if note.startswith(MASKS)]
    return masks + [CONVOLUTIONS] * _convolves(work)


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
