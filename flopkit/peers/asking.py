"""Asking other people's counters themselves: one of them about a model, or all of them."""

from __future__ import annotations

import copy
import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flopkit import units
from flopkit.peers import why
from flopkit.peers.installed import load, version
from flopkit.peers.quietly import one_at_a_time, put_back, quiet, same_random_state
from flopkit.peers.tools import TOOLS, tool_name, tool_of
from flopkit.tables import Table

__all__ = ["Answer", "ask", "ask_all", "sure"]

NO_NUMBER = "gave no number"  # of a tool that keeps its errors to itself


@dataclass(frozen=True)
class Answer:
    """A tool's answer for one forward pass.

    Parameters
    ----------
    tool : str
        The tool.
    version : str | None
        Its version; None if the tool is not installed.
    backend : str
        How the tool watches a model, in its own words if it offers a choice.
    value : int | None
        The number that it prints; None if there is none. ``int(answer)`` is the same, and raises ``ValueError`` without
        one.
    unit : str
        What the tool calls the number.
    fma : int
        FLOPs per multiply-add: 2, or 1 if the tool counts multiply-adds, whatever it calls them.
    said : str, optional
        Why there is no number: how to install the tool, or its error.
    """

    tool: str
    version: str | None
    backend: str
    value: int | None
    unit: str
    fma: int
    said: str = ""

    @property
    def flops(self) -> int | None:
        """The number in FLOPs, with a multiply-add as two."""
        return None if self.value is None else self.value * (2 // self.fma)

    def __int__(self) -> int:
        if self.value is None:
            raise ValueError(f"{self.tool} has no number: {self.said}")
        return self.value

    __index__ = __int__

    def __repr__(self) -> str:
        who = " ".join(filter(None, (self.tool, self.version)))
        if self.value is None:
            return f"{who}: {self.said}"
        taken = "" if self.fma == 2 else f", which are multiply-adds: {units.si(self.flops or 0, 'FLOPs')}"
        return f"{who} ({self.backend}) prints {self.value:,} {self.unit}{taken}"

    def _repr_html_(self) -> str:
        return f"<div>{html.escape(repr(self))}</div>"


def ask(tool: str, model: Any, /, *inputs: Any, **named: Any) -> Answer:
    """The number that an installed tool prints for ``model(*inputs, **named)``, one forward pass.

    It is called as its documentation says, quietly, with a copy of the model and its inputs, because tools leave traces on them (buffers,
    modes, hooks, values changed in place); what it replaced in torch is put back, and so is torch's random state. A plain function is not
    copied: what it changes of its own stays changed. Threads ask one after another.

    The model runs on the device it is on. thop, ultralytics-thop and torchinfo run it without gradients; the others record gradients or
    not, as is set here. torch, torch.profiler and fvcore run it in the mode it is in, train or eval; the others switch to eval mode.

    Parameters
    ----------
    tool : str
        ``"torch"`` (its FlopCounterMode), ``"torch.profiler"`` (with_flops=True, on a CPU), ``"fvcore"``, ``"ptflops"``
        (its usual backend), ``"ptflops-aten"`` (its other one), ``"thop"``, ``"ultralytics-thop"``, ``"calflops"`` or
        ``"torchinfo"``.
    model : Any
        A ``torch.nn.Module``; torch's two take any function.
    *inputs : Any
        What the model is called with. ptflops is given several by the names that ``forward`` has for them.
    **named : Any
        What the model is called with, by name. A tool that takes no names is given them in the order of ``forward``.

    Raises
    ------
    ValueError
        For a tool that is not known.
    TypeError
        For a tool that is no name.

    Notes
    -----
    A tool that is missing, or that fails on this model, has no number, and neither has a model that cannot be copied: ``Answer.said`` says
    why.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> layer, x = torch.nn.Linear(16, 32), torch.ones(8, 16)
    >>> answer = fk.ask("torch", layer, x)
    >>> answer.value, answer.unit, int(answer) == answer.flops
    (8192, 'FLOPs', True)
    """
    tool = tool_name(tool)
    with one_at_a_time:
        return _ask(tool, model, inputs, named)


def _ask(tool: str, model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Answer:
    known = tool_of(tool)
    module = load(known.package)
    if module is None:
        return Answer(tool, None, known.backend, None, known.unit, known.fma, f"missing: {known.install}")

    def answer(value: Any, said: str = "") -> Answer:
        return Answer(tool, version(known.package), known.backend, value, known.unit, known.fma, said)

    try:
        with quiet(), put_back(), same_random_state():
            value = known.call(module, *_copied(model, inputs, named))
    except _NoCopy as error:
        return answer(None, str(error))
    except Exception as error:  # a tool may fail in any way on a model it was not made for
        return answer(None, _line(_first_cause(error)))
    return answer(None, NO_NUMBER) if value is None else answer(round(value))


class _NoCopy(ValueError):
    """A model, or what it is called with, that cannot be copied."""


def _copied(model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """All at once, so that a tensor that two of them hold is one tensor in the copies, too."""
    import torch

    computed = [
        x for x in (*inputs, *named.values()) if isinstance(x, torch.Tensor) and not x.is_leaf
    ]  # deepcopy takes leaves of a graph only
    memo: dict[int, Any] = {id(x): x.detach().clone().requires_grad_() for x in computed}
    try:
        copies: tuple[Any, tuple[Any, ...], dict[str, Any]] = copy.deepcopy((model, inputs, named), memo)
    except Exception as error:  # anybody's __deepcopy__
        raise _NoCopy(
            f"{type(model).__name__} and its inputs cannot be copied ({_line(error)}), and each tool is given a copy; what a function "
            'uses is not copied: "torch" and "torch.profiler" can be asked about lambda: model(*inputs)'
        ) from error
    return copies


def _first_cause(error: BaseException) -> BaseException:
    """What a tool raised an error of its own from."""
    seen: set[int] = set()
    while error.__cause__ is not None and id(error) not in seen:  # causes may run in a circle
        seen.add(id(error))
        error = error.__cause__
    return error


def _line(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def ask_all(model: Any, /, *inputs: Any, tools: str | Iterable[str] | None = None, **named: Any) -> Table:
    """Every tool's number for ``model(*inputs, **named)``, one forward pass, beside what really ran.

    One row for each tool, which is asked as `ask` does.

    Parameters
    ----------
    model : Any
        A ``torch.nn.Module``.
    *inputs : Any
        What the model is called with.
    tools : str | Iterable[str], optional
        Names as `ask` has them, or one name; None: all. One that is missing is a row that says how to install it.
    **named : Any
        What the model is called with, by name.

    Raises
    ------
    ValueError
        For a tool that is not known; for a model or inputs that cannot be copied.
    TypeError
        For tools that are no names.
    ImportError
        Without torch.

    Notes
    -----
    Columns: *tool*, *version*, *unit* and *backend* as the tool names them, the number that is *printed*, *flops* (the same with a
    multiply-add as two), *share* of what ran, by `flopkit.count` under the convention TORCH, and *why* it is another number, as far
    as that is known.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> layer, x = torch.nn.Linear(16, 32), torch.ones(8, 16)
    >>> tools = ["torch", "torch.profiler"]
    >>> for row in fk.peers.ask_all(layer, x, tools=tools):
    ...     print(row["tool"], row["printed"], row["share"])
    torch 8192 1.0
    torch.profiler 8192 1.0
    """
    from flopkit.counter.running import counting

    if not isinstance(tools, Iterable | None):
        raise TypeError(f"tools must be names, such as ['torch', 'fvcore'], and not of type {type(tools).__name__}")
    names = [tool_name(name) for name in (TOOLS if tools is None else [tools] if isinstance(tools, str) else tools)]
    with one_at_a_time, quiet(), same_random_state():
        model_copy, inputs_copy, named_copy = _copied(model, inputs, named)
        with counting() as report:
            model_copy(*inputs_copy, **named_copy)
    whole = report.forward.flops
    rows = []
    for name in names:
        found = ask(name, model, *inputs, **named)
        share = None if found.flops is None or not whole else found.flops / whole
        rows.append(
            {
                "tool": name, "version": found.version or "–", "unit": found.unit, "backend": found.backend, "printed": found.value,
                "flops": found.flops, "share": share, "why": found.said or why.reason(found, report),
            }
        )  # fmt: skip
    formats = {"printed": "{:,}".format, "flops": lambda n: units.si(n, "FLOPs"), "share": lambda s: f"{100 * s:.1f} %"}
    return Table(rows, caption=f"{units.si(whole, 'FLOPs')} ran forward, convention TORCH", formats=formats)


def sure(*tools: str) -> bool:
    """Whether what is written about *tools* can be checked here: each can be imported, in a version that does what is written.

    Where not, it says so, and what that version does otherwise, as far as it is known.
    """
    good = True
    for tool in map(tool_name, tools):
        package = tool_of(tool).package
        here, known = None if load(package) is None else version(package), why.blind_spots()[tool]
        if here not in known.unchanged:
            good = False
            changes = "" if here is None else known.changes(here)
            this = "missing" if here is None else f"this is {here}" + (f", which {changes}" if changes else "")
            print(f"not checked here: {tool} {known.unchanged} ({this})")
    return good
