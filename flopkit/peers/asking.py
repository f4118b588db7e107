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
from flopkit.peers.quietly import put_back, quiet
from flopkit.peers.tools import TOOLS, tool_of
from flopkit.tables import Table

__all__ = ["Answer", "ask", "ask_all", "sure"]

NO_NUMBER = "gave no number"  # of a tool that keeps its errors to itself


@dataclass(frozen=True)
class Answer:
    """What a tool said of one forward pass.

    Parameters
    ----------
    tool : str
        Who was asked.
    version : str | None
        Its version; None where the tool is missing.
    backend : str
        At which level it watched, in its own words where it has a choice.
    value : int | None
        The number that it prints; None where there is none. ``int(answer)`` is the same, and raises ``ValueError`` without
        one.
    unit : str
        What the tool calls it.
    fma : int
        FLOPs that it takes a multiply-add for: 2, or 1 where it counts multiply-adds, whatever it calls them.
    said : str, optional
        Why there is no number: that it is missing and how to install it, or its error.
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
        """The number read as FLOPs, a multiply-add as two, whatever it was called."""
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


def ask(tool: str, model: Any, *inputs: Any) -> Answer:
    """The number that an installed tool prints for ``model(*inputs)``, one forward pass.

    It is called as its documentation says, quietly, with a copy of the model, because tools leave traces on one (buffers, modes, hooks);
    what it replaced in torch is put back. The model runs on the device it is on, with gradients recorded or not, as they are here.

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

    Raises
    ------
    ValueError
        For a tool that is not known.

    Notes
    -----
    A tool that is missing, or that fails on this model, has no number: ``Answer.said`` says why.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> answer = fk.ask("torch", torch.nn.Linear(16, 32), torch.ones(8, 16))
    >>> answer.value, answer.unit, int(answer) == answer.flops
    (8192, 'FLOPs', True)
    """
    known = tool_of(tool)
    module = load(known.package)
    if module is None:
        return Answer(tool, None, known.backend, None, known.unit, known.fma, f"missing: {known.install}")

    def answer(value: Any, said: str = "") -> Answer:
        return Answer(tool, version(known.package), known.backend, value, known.unit, known.fma, said)

    try:
        with quiet(), put_back():
            value = known.call(module, copy.deepcopy(model), inputs)
    except Exception as error:  # a tool may fail in any way on a model it was not made for
        first: BaseException = error
        while first.__cause__ is not None:  # of a tool that raises an error of its own from it
            first = first.__cause__
        lines = str(first).splitlines() or [""]
        return answer(None, f"{type(first).__name__}: {lines[0]}")
    return answer(None, NO_NUMBER) if value is None else answer(round(value))


def ask_all(model: Any, *inputs: Any, tools: Iterable[str] | None = None) -> Table:
    """Every tool's number for ``model(*inputs)``, one forward pass, beside what really ran.

    One row for each tool: tool, version, unit, backend, printed, flops (the same with a multiply-add as two), share (of what ran, by
    `flopkit.count` under the convention TORCH), and why it is another number, as far as that is known. Each is asked as `ask` does.

    Parameters
    ----------
    model : Any
        A ``torch.nn.Module``.
    *inputs : Any
        What the model is called with.
    tools : Iterable[str], optional
        Names as `ask` has them; None: all. One that is missing is a row that says how to install it.

    Raises
    ------
    ValueError
        For a tool that is not known.
    ImportError
        Without torch.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> table = fk.ask_all(torch.nn.Linear(16, 32), torch.ones(8, 16), tools=["torch", "torch.profiler"])
    >>> [(row["tool"], row["printed"], row["share"], row["why"]) for row in table]
    [('torch', 8192, 1.0, ''), ('torch.profiler', 8192, 1.0, '')]
    """
    from flopkit.counter.running import count

    names = list(TOOLS if tools is None else tools)
    for name in names:
        tool_of(name)
    with quiet():
        report = count(copy.deepcopy(model), *inputs)
    whole = report.forward.flops
    rows = []
    for name in names:
        found = ask(name, model, *inputs)
        share = None if found.flops is None or not whole else found.flops / whole
        rows.append(
            {
                "tool": name, "version": found.version or "–", "unit": found.unit, "backend": found.backend, "printed": found.value,
                "flops": found.flops, "share": share, "why": found.said or why.reason(found, report),
            }
        )  # fmt: skip
    formats = {"printed": "{:,}".format, "flops": lambda n: units.si(n, "FLOPs"), "share": lambda s: f"{s:.1%}"}
    return Table(rows, caption=f"{units.si(whole, 'FLOPs')} ran forward, convention TORCH", formats=formats)


def sure(*tools: str) -> bool:
    """Whether what is written about *tools* can be checked here: each can be imported, in the version that it was written about.

    Where not, it says so.
    """
    good = True
    for tool in tools:
        package = tool_of(tool).package
        here, then = None if load(package) is None else version(package), why.blind_spots()[tool]["version"]
        if here is None or here.split("+")[0] != then.split("+")[0]:
            good = False
            print(f"not checked here: {tool} {then} ({'missing' if here is None else f'this is {here}'})")
    return good
