"""The tools that can be asked: what each is called, what its number means, and how its documentation says to call it."""

from __future__ import annotations

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
    call : Callable[[Any, Any, tuple[Any, ...]], Any]
        What gives the number, from the tool's module, a model and its inputs.
    """

    package: str
    unit: str
    fma: int
    backend: str
    call: Callable[[Any, Any, tuple[Any, ...]], Any]

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


def _torch(module: Any, model: Any, inputs: tuple[Any, ...]) -> Any:
    with module.FlopCounterMode(display=False) as counter:
        model(*inputs)
    return counter.get_total_flops()


def _profiler(module: Any, model: Any, inputs: tuple[Any, ...]) -> Any:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as found:
        model(*inputs)
    return sum(event.flops for event in found.key_averages())


def _fvcore(module: Any, model: Any, inputs: tuple[Any, ...]) -> Any:
    counter = module.FlopCountAnalysis(model, inputs)
    return counter.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none").total()


def _ptflops(backend: str) -> Callable[[Any, Any, tuple[Any, ...]], Any]:
    def call(module: Any, model: Any, inputs: tuple[Any, ...]) -> Any:
        given: Any = inputs[0] if len(inputs) == 1 else None
        if given is None:  # several go by name
            given = dict(zip(inspect.signature(model.forward).parameters, inputs, strict=False))
        return module.get_model_complexity_info(
            # equivalent: 1 -> 2 (the size is asked for, and not used)
            model, (1,), input_constructor=lambda size: given, as_strings=False, print_per_layer_stat=False,
            verbose=False, backend=backend,
        )[0]  # fmt: skip

    return call


def _thop(module: Any, model: Any, inputs: tuple[Any, ...]) -> Any:
    return module.profile(model, inputs=inputs, verbose=False)[0]


def _calflops(module: Any, model: Any, inputs: tuple[Any, ...]) -> Any:
    return module.calculate_flops(model, args=list(inputs), print_results=False, output_as_string=False)[0]


def _torchinfo(module: Any, model: Any, inputs: tuple[Any, ...]) -> Any:
    # equivalent: 0 -> 1 (what a tool writes is held back)
    return module.summary(model, input_data=list(inputs), verbose=0).total_mult_adds


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
