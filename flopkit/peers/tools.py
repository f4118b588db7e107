"""The tools that can be asked: what each is called, what its number means, and how its documentation says to call it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from flopkit.names import find
from flopkit.peers.installed import APART

__all__ = ["TOOLS", "Tool", "tool_name", "tool_of"]


@dataclass(frozen=True)
class Tool:
    """A counter of somebody else's.

    Parameters
    ----------
    package : str
        Its name on PyPI.
    unit : str
        What it calls its number.
    fma : int
        FLOPs that a multiply-add is in that number: 2, or 1 where it counts multiply-adds.
    backend : str
        At which level it watches, in its own words where it has a choice.
    call : Callable[..., Any]
        What gives the number, from the tool's module, a model, its inputs and those by name.
    """

    package: str
    unit: str
    fma: int
    backend: str
    call: Callable[..., Any]

    @property
    def install(self) -> str:
        """The command that installs it."""
        if self.package == "ultralytics-thop":  # which has the same module name as thop
            return f'pip install --no-deps --target "{APART}" ultralytics-thop'
        return f"pip install {self.package}"


def tool_of(name: str) -> Tool:
    """The tool of this name.

    Raises
    ------
    ValueError
        For one that is not known, with those that are spelt alike.
    TypeError
        For what is no text.

    Examples
    --------
    >>> tool_of("thop").unit
    'MACs'
    """
    return TOOLS[tool_name(name)]


def tool_name(name: Any) -> str:
    """The name of the tool that *name* is a spelling of; raises what `tool_of` does.

    >>> tool_name("FVCore"), tool_name("ptflops_aten")
    ('fvcore', 'ptflops-aten')
    """
    if not isinstance(name, str):  # perhaps a whole model, which no message should print
        raise TypeError(f"tool must be a name, such as 'torch', and not of type {type(name).__name__}")
    return find(name, TOOLS, "a known tool", argument="tool")


def _in_order(model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """All inputs by position, for a tool that takes no names."""
    if not named:
        return inputs
    bound = inspect.signature(model.forward).bind(*inputs, **named)
    bound.apply_defaults()
    rest = {
        p.name for p in bound.signature.parameters.values() if p.kind is p.VAR_KEYWORD and not bound.kwargs.get(p.name)
    }
    if set(bound.kwargs) - rest:
        raise TypeError(f"this tool takes inputs by position, and {', '.join(bound.kwargs)} can be given by name only")
    return bound.args


def _uncompiled() -> Any:
    """Around a tool that is a dispatch mode: under one nothing compiled runs, and the compiler would remember for good that it did not."""
    import torch

    return torch.compiler.set_stance("force_eager")


def _torch(module: Any, model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    with _uncompiled(), module.FlopCounterMode(display=False) as counter:
        model(*inputs, **named)
    return counter.get_total_flops()


def _profiler(module: Any, model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as found:
        model(*inputs, **named)
    return sum(event.flops for event in found.key_averages())


def _fvcore(module: Any, model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    counter = module.FlopCountAnalysis(model, _in_order(model, inputs, named))
    return counter.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none").total()


def _ptflops(backend: str) -> Callable[..., Any]:
    def call(module: Any, model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        given: Any = inputs[0] if len(inputs) == 1 and not named else None
        if given is None:  # several go by name
            given = dict(zip(inspect.signature(model.forward).parameters, inputs, strict=False)) | named
        with _uncompiled() if backend == "aten" else contextlib.nullcontext():
            return module.get_model_complexity_info(
                # equivalent: 1 -> 2 (the size is asked for, and not used)
                model, (1,), input_constructor=lambda size: given, as_strings=False, print_per_layer_stat=False,
                verbose=False, backend=backend,
            )[0]  # fmt: skip

    return call


def _thop(module: Any, model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return module.profile(model, inputs=_in_order(model, inputs, named), verbose=False)[0]


def _calflops(module: Any, model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return module.calculate_flops(
        model, args=list(inputs), kwargs=dict(named), print_results=False, output_as_string=False
    )[0]


def _torchinfo(module: Any, model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    # equivalent: 0 -> 1 (what a tool writes is held back)
    return module.summary(model, input_data=list(_in_order(model, inputs, named)), verbose=0).total_mult_adds


TOOLS: Mapping[str, Tool] = MappingProxyType(
    {
        "torch": Tool("torch", "FLOPs", 2, "dispatcher", _torch),
        "torch.profiler": Tool("torch", "FLOPs", 2, "profiler on the CPU", _profiler),
        "fvcore": Tool("fvcore", "FLOPs", 1, "trace", _fvcore),
        "ptflops": Tool("ptflops", "MACs", 1, "pytorch", _ptflops("pytorch")),
        "ptflops-aten": Tool("ptflops", "MACs", 1, "aten", _ptflops("aten")),
        "thop": Tool("thop", "MACs", 1, "hooks", _thop),
        "ultralytics-thop": Tool("ultralytics-thop", "MACs", 1, "hooks and functions", _thop),
        "calflops": Tool("calflops", "FLOPs", 2, "hooks and functions", _calflops),
        "torchinfo": Tool("torchinfo", "mult-adds", 1, "hooks", _torchinfo),
    }
)
