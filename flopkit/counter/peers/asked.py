"""Asking the tools themselves: each is called as its own documentation says, and answers with the number that it would print."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flopkit.counter.peers.installed import load, version
from flopkit.counter.peers.recorded import versions
from flopkit.counter.peers.seen import NO_NUMBER

__all__ = ["TOOLS", "Answer", "ask", "sure"]


@dataclass(frozen=True)
class Answer:
    """What a tool said of one forward pass.

    Parameters
    ----------
    tool, version : who; the version is None where the tool is missing.
    value : the number that it prints; None where there is none.
    unit : what the tool calls it.
    fma : FLOPs that it takes a multiply-add for: 2, or 1 where it counts multiply-adds.
    said : why there is no number: "missing", or the error.
    """

    tool: str
    version: str | None
    value: int | None
    unit: str
    fma: int
    said: str = ""

    @property
    def flops(self) -> float | None:
        """The number read as FLOPs, a multiply-add as two, whatever it was called."""
        return None if self.value is None else self.value * 2 / self.fma


def ask(tool: str, model: Any, *inputs: Any) -> Answer:
    """The number that *tool* prints for ``model(*inputs)``.

    It is asked once, quietly, and of a copy: tools leave traces on a model (buffers, modes, hooks).
    """
    name, unit, fma, how = TOOLS[tool]
    module = load(name)
    if module is None:
        return Answer(tool, None, None, unit, fma, "missing")
    try:
        with _quiet(), _put_back():
            value = how(module, copy.deepcopy(model), inputs)
    except Exception as error:  # a tool may fail in any way on a model it was not made for
        return Answer(
            tool,
            version(name),
            None,
            unit,
            fma,
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        )
    if value is None:
        return Answer(tool, version(name), None, unit, fma, NO_NUMBER)
    return Answer(tool, version(name), round(value), unit, fma)


def sure(*tools: str) -> bool:
    """Whether what is written about *tools* can be checked here: each can be imported, in the version that it was written about.

    Where not, it says so.
    """
    good = True
    for tool in tools:
        name = TOOLS[tool][0]
        here, then = None if load(name) is None else version(name), versions()[tool]
        if here is None or here.split("+")[0] != then.split("+")[0]:
            good = False
            print(f"not checked here: {tool} {then} ({'missing' if here is None else f'this is {here}'})")
    return good


def _torch(module: Any, model: Any, inputs: Any) -> Any:
    with module.FlopCounterMode(display=False) as counter:
        model(*inputs)
    return counter.get_total_flops()


def _profiler(module: Any, model: Any, inputs: Any) -> Any:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as found:
        model(*inputs)
    return sum(event.flops for event in found.key_averages())


def _fvcore(module: Any, model: Any, inputs: Any) -> Any:
    counter = module.FlopCountAnalysis(model, tuple(inputs))
    return counter.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none").total()


def _ptflops(module: Any, model: Any, inputs: Any) -> Any:
    [x] = inputs
    found, _ = module.get_model_complexity_info(
        model, (1,), input_constructor=lambda size: x, as_strings=False, print_per_layer_stat=False, verbose=False
    )
    return found


def _thop(module: Any, model: Any, inputs: Any) -> Any:
    return module.profile(model, inputs=tuple(inputs), verbose=False)[0]


def _calflops(module: Any, model: Any, inputs: Any) -> Any:
    found = module.calculate_flops(model, args=list(inputs), print_results=False, output_as_string=False)
    return found[0]


def _torchinfo(module: Any, model: Any, inputs: Any) -> Any:
    return module.summary(model, input_data=list(inputs), verbose=0).total_mult_adds


TOOLS: dict[str, tuple[str, str, int, Any]] = {
    "torch": ("torch", "FLOPs", 2, _torch),
    "torch.profiler": ("torch", "FLOPs", 2, _profiler),
    "fvcore": ("fvcore", "FLOPs", 1, _fvcore),
    "ptflops": ("ptflops", "MACs", 1, _ptflops),
    "thop": ("thop", "MACs", 1, _thop),
    "ultralytics-thop": ("ultralytics-thop", "MACs", 1, _thop),
    "calflops": ("calflops", "FLOPs", 2, _calflops),
    "torchinfo": ("torchinfo", "mult-adds", 1, _torchinfo),
}


@contextlib.contextmanager
def _put_back() -> Iterator[None]:
    """What a tool replaces in torch is put back, also where it failed in between."""
    import torch

    methods = ("matmul", "mm", "bmm", "addmm", "mul", "add")
    kept: list[tuple[Any, str, Any]] = [(torch.Tensor, name, getattr(torch.Tensor, name)) for name in methods]
    kept += [(owner, name, value) for owner in (torch, torch.nn.functional) for name, value in vars(owner).items()]
    try:
        yield
    finally:
        for owner, name, value in kept:
            if getattr(owner, name, value) is not value:
                setattr(owner, name, value)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nothing printed, by Python or beneath it."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        with contextlib.suppress(OSError):  # what is written beneath Python, such as by the profiler's library
            kept = os.dup(2)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 2)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 2)
            os.close(nowhere)
        yield
