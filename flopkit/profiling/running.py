"""`flopkit.profile`: time a step, profile it, count it, and join the two."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from flopkit.counter.running import in_order
from flopkit.measuring.protocol import BUDGET
from flopkit.measuring.running import measure
from flopkit.profiling.comparing import Program
from flopkit.profiling.matching import ATTENTION
from flopkit.profiling.profile import Profile
from flopkit.profiling.tracing import profiler_runs, trace_of
from flopkit.sizes import positive

__all__ = ["profile"]

STEPS = (3, 10)  # at least, at most
ALONE = "run equally many steps on each under torch.profiler, and join: flopkit.profiling.Profile.from_trace(path, flopkit.profiling.in_order(step))"


def profile(fn: Callable[..., Any], *args: Any, time_budget: float | None = None, **kwargs: Any) -> Profile:
    """Profile ``fn(*args, **kwargs)``: seconds, FLOPs, bytes and bounds of each operator, module and phase, idle time, and advice.

    `flopkit.measure` times the step as it is, ``torch.profiler`` sees several of them, and `flopkit.count` counts one. The events of the profiler
    are joined with the calls of the counter by name and order. On a CPU a row has its operators' own time, on CUDA that of the kernels that
    they launch.

    Parameters
    ----------
    fn : Callable[..., Any]
        A step: a model, or a function that runs forward, backward and the optimiser.
    *args : Any
        What it is called with.
    time_budget : float, optional
        Seconds for timing and profiling together. None: about ten.
    **kwargs : Any
        What it is called with, by name.

    Raises
    ------
    TypeError
        If *fn* cannot be called or only makes a generator or a coroutine, or the budget is no number.
    ValueError
        For a budget that is not positive, a function that runs no operator, or communicates with other ranks, while another of torch's
        profilers runs, for whatever `flopkit.measure` refuses, and where an old torch sees nothing of a function that runs all in threads.

    Notes
    -----
    Profiling lengthens a step, the more the shorter its operators: `flopkit.profiling.Profile.overhead` says by how much. Short rows are too long by a
    microsecond or two a call. The step is called a few times for each of the three; what it changes, such as weights, changes each time.
    What it runs in threads of its own is seen; operators that run at once share the time. The profile keeps *fn* and its arguments, and so
    their memory, for `flopkit.profiling.Profile.compare`.

    Functions that were compiled run uncompiled while they are counted. What torch.compile made of them has rows of its own:
    ``compiled: add + relu`` is what it fused, named by the operators that left no event. It has their FLOPs but no bytes,
    which nobody knows, and its time includes the Python code around the kernels, unless the kernels have events of their own
    (``torch._inductor.config.cpp.enable_kernel_profile``). ``(torch.compile)`` is guards and wrappers. Kernels of CUDA graphs
    stay in the row ``(not joined)``. Joining on CUDA has been tested on traces only, not on a GPU.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU())
    >>> found = fk.profile(model, torch.randn(128, 256), time_budget=0.2)
    >>> [row["operator"] for row in found.table() if row["module"] == "1"]
    ['relu']
    >>> abs(sum(row["seconds"] for row in found.by_op()) / found.seconds - 1) < 1e-6
    True
    """
    import torch

    if not callable(fn):
        raise TypeError(f"fn={fn!r}: must be a function or a module; pass its arguments after it, profile(fn, x)")
    budget = BUDGET if time_budget is None else positive("time_budget", time_budget, "seconds")
    name = str(getattr(fn, "__name__", type(fn).__name__))
    for is_late, way in ((inspect.isgeneratorfunction, "list"), (inspect.iscoroutinefunction, "asyncio.run")):
        if is_late(fn):
            raise TypeError(f"fn={name}: a call of it runs nothing yet; pass lambda: {way}({name}(…))")
    if profiler_runs():
        raise ValueError("torch's profiler is running, and only one can: call fk.profile outside of its block")
    group: Any = torch.distributed
    has_peers = group.is_available() and group.is_initialized() and group.get_world_size() > 1
    if has_peers and in_order(fn, *args, **kwargs).communication.rows:  # one rank would wait for ever
        why = "it communicates with other ranks, and ranks that run it by their own clocks lose step"
        raise ValueError(f"fn={name}: {why}; {ALONE}")
    plain = measure(fn, *args, time_budget=budget / 2, **kwargs)
    report = in_order(fn, *args, **kwargs)
    if not report.order:
        raise ValueError(f"fn={name}: no operator of torch ran in it; pass a step that runs some")
    steps = max(STEPS[0], min(STEPS[1], int(budget / 2 / plain.seconds)))
    program = Program(fn, args, kwargs)
    run = program.run()
    turns = [(contextlib.nullcontext, run)]
    trace = trace_of(turns, [0] * steps, name)
    if trace.is_compiled:  # and products may be in another order, so their sizes are asked for, too
        trace = trace_of(turns, [0] * steps, name, record_shapes=True)
    masks = _causal_masks()
    if any(entry.op == ATTENTION for entry, *_ in report.order):
        with masks:
            run()
    return Profile(trace, report, plain, causal_masks=masks.found, program=program)


def _causal_masks() -> Any:
    """A mode that finds calls of attention whose mask is a tensor and lets through what ``is_causal=True`` would."""
    import torch
    from torch.overrides import TorchFunctionMode

    def is_causal(mask: Any) -> bool:
        if not isinstance(mask, torch.Tensor) or mask.device.type == "meta" or mask.dim() < 2:
            return False
        lower = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
        is_bool = mask.dtype is torch.bool
        seen, hidden = (mask, ~mask) if is_bool else (mask == 0, mask <= torch.finfo(mask.dtype).min)
        return bool(((seen == lower) & (hidden == ~lower)).all())

    class Masks(TorchFunctionMode):
        found = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.nn.functional.scaled_dot_product_attention:
                self.found += is_causal((kwargs or {}).get("attn_mask", args[3] if len(args) > 3 else None))
            return func(*args, **(kwargs or {}))

    return Masks()
