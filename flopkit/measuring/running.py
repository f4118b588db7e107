"""`flopkit.measure`: count a call, check its result, time it by the protocol, and judge the time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, cast

from tqdm import tqdm

from flopkit.conventions import EXACT
from flopkit.counter.modes import may_use_tf32
from flopkit.counter.running import count
from flopkit.derivations import number_format
from flopkit.measuring import arguments, protocol
from flopkit.measuring.checking import check_result
from flopkit.measuring.judging import Called, Clocked, judge
from flopkit.measuring.measurement import Measurement
from flopkit.measuring.monitor import Monitor
from flopkit.measuring.timers import timer_for
from flopkit.sizes import positive

__all__ = ["measure"]

AGAIN = 0.05  # of all the time: a check that takes less is made once more in the end
# A progress bar: after two seconds of work.
BAR: dict[str, Any] = dict(unit="%", desc="measuring", leave=False, delay=2.0, bar_format="{l_bar}{bar}| {elapsed}")


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
    call = _counted(fn, args, kwargs)
    return judge(call, _clocked(call, fn, args, kwargs, check, time_budget), flops, bytes)


def _counted(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Called:
    """Make the call once: what it executes, and where."""
    import torch

    results: list[Any] = []
    before = arguments.allocated()
    work = count(lambda: results.append(fn(*args, **kwargs))).under(EXACT)
    given = arguments.tensors(args, kwargs)
    touched = [*given, *_held(fn), *arguments.tensors(results.pop())]
    where, whole, format = arguments.place(touched), arguments.storages(touched), _format(touched)
    if not touched:  # such as a step that holds its model and data itself
        where = arguments.used(before) or where
    on_gpu = where.type == "cuda"
    hidden = not (touched or on_gpu) and cast(Any, torch.cuda).is_initialized()
    tf32 = on_gpu and may_use_tf32(work)
    name = getattr(fn, "__name__", type(fn).__name__)
    return Called(name, work, where, arguments.storages(given), whole, format, hidden, tf32)


def _clocked(
    call: Called, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    check: Callable[..., Any] | None, time_budget: float | None,
) -> Clocked:  # fmt: skip
    """Check the result, time the call, and check it once more where that is quick."""
    import torch

    cards = cast(Any, torch.cuda)
    with cards.device(call.where) if call.on_gpu else contextlib.nullcontext():
        started = time.perf_counter()
        checked = check_result(fn, args, kwargs, check, call.tf32)
        checking = time.perf_counter() - started
        sets = arguments.copies((args, kwargs), call.where)
        run = arguments.rotating(fn, sets)
        wait = (lambda: (run(), cards.synchronize())) if call.hidden else run
        timer, how = timer_for(wait, torch, call.on_gpu, len(sets))
        with Monitor(call.where) as watch, tqdm(total=100, **BAR) as bar:
            timing = protocol.timed(timer, time_budget, lambda share: bar.update(int(100 * share) - bar.n))
        if checked.right and checking < AGAIN * (time.perf_counter() - started):
            checked = check_result(fn, args, kwargs, check, call.tf32)
    return Clocked(checked, timing, how, len(sets), timer.launch, watch.summary(timing.warm_up), watch.note)


def _held(fn: Any) -> list[Any]:
    """The parameters of a module."""
    return list(fn.parameters()) if hasattr(fn, "parameters") else []


def _format(found: list[Any]) -> str:
    """The number format of the first of the tensors that may be multiplied: tokens and labels are not."""
    return next((number_format(each.dtype) for each in found if each.is_floating_point()), "fp32")
