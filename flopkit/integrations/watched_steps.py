"""One step of a program that is not ours, counted from the end of one step of its optimiser to the end of the next."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Collection, Sequence
from typing import Any

from flopkit import units
from flopkit.arithmetic import ratio

__all__ = ["WatchedStep", "cannot_begin", "differences", "has_compiled", "shown_cycle"]

_SHOWN = {1: 4, 2: 6, 3: 9}  # by the length of a cycle, the counted steps that show it where the first two differ

_WRAPPERS = {  # by the attribute that holds what they wrap
    **dict.fromkeys(
        ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine"), "module"
    ),
    "OptimizedModule": "_orig_mod",
}


class WatchedStep:
    """The counter at work, from when this is made to `stop`: FLOPs, the models that are called, and what they are fed.

    Notes
    -----
    Tokens are the whole numbers that the first embedding of a trained model looks up, with gradients and not in the backward pass, where a
    checkpoint calls it again. They are known where the embedding gets a tensor of two dimensions or more. Samples are the first dimension of
    the first input of the trained model. Neither is known where the model runs several times on one and the same batch: a benchmark that
    gathers micro-batches may mean several batches by that, and a program with two losses one.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 10))
    >>> optimizer = torch.optim.SGD(model.parameters())
    >>> step = WatchedStep([optimizer])
    >>> model(torch.ones(2, 3, dtype=torch.int64)).sum().backward()
    >>> step.stop()
    >>> step.facts()["model_flops"], step.tokens, step.samples
    (1440, 6, 2)
    """

    def __init__(self, optimizers: Collection[Any], convention: str = "TORCH") -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook

        from flopkit.counter.running import counting
        from flopkit.counter.watch.autograd import graph_task

        self._convention, self._graph_task = convention, graph_task
        groups = (group for optimizer in optimizers for group in optimizer.param_groups)
        self._trained = {id(each) for group in groups for each in group["params"]}
        self._roots: list[weakref.ref[Any]] = []
        self._trains: set[int] = set()  # modules below the roots that are trained
        self._below: set[int] = set()  # all modules below roots
        self._embedding: Any = None
        self._first: Any = None
        self._fed: dict[str, list[tuple[Any, int]]] = {"tokens": [], "samples": []}
        self.calls = 0  # of the trained model, with gradients
        self.tokens: int | None = None
        self.samples: int | None = None
        self.twice_fed: set[str] = set()
        self.models: list[dict[str, Any]] = []
        self.thread, self.pid, self.open = threading.get_ident(), os.getpid(), True
        self._block = counting()
        self.report = self._block.__enter__()
        self._hook = register_module_forward_pre_hook(self._called)

    def stop(self) -> None:
        """Nothing is counted any more, and nothing is left behind."""
        if not self.open:
            return
        self.open = False
        self._hook.remove()
        self._block.__exit__(None, None, None)
        roots = [root() for root in self._roots]
        self.models = [_about(root, self._trained) for root in roots if root is not None]
        self._embedding = self._first = None
        self._fed = {}
        self._trained, self._trains, self._below, self._roots = set(), set(), set(), []

    def _called(self, module: Any, args: Any) -> None:
        """A module is about to run."""
        if id(module) not in self._below:
            self._roots.append(weakref.ref(module))
            below = {id(each) for each in module.modules()}
            self._below |= below
            if any(id(each) in self._trained for each in module.parameters()):
                self._trains |= below
                if self._first is None:
                    self._first = module
        if id(module) not in self._trains or not args or self._graph_task() != -1:
            return
        import torch

        fed = args[0]
        if not torch.is_grad_enabled() or not isinstance(fed, torch.Tensor):
            return
        if module is self._first:
            self.calls += 1
            if fed.ndim:
                self._feed("samples", fed, fed.shape[0])
        if fed.dtype in (torch.int64, torch.int32) and fed.ndim >= 2 and self._embedding in (None, module):
            if any(each.ndim == 2 for each in module.parameters(recurse=False)):
                self._embedding = module
                self._feed("tokens", fed, fed.numel())

    def _feed(self, items: str, fed: Any, number: int) -> None:
        """A tensor of so many tokens or samples goes in. What is fed a second time, unchanged, may or may not be another batch."""
        if items in self.twice_fed:
            return
        before = self._fed[items]
        if any(each() is fed and version == fed._version for each, version in before):
            self.twice_fed.add(items)
            setattr(self, items, None)
            return
        before.append((weakref.ref(fed), fed._version))
        setattr(self, items, (getattr(self, items) or 0) + number)

    def facts(self) -> dict[str, Any]:
        """FLOPs by phase, and what was not counted, under the convention."""
        report = self.report.under(self._convention)
        phases = {phase: getattr(report, phase).flops for phase in ("forward", "backward", "recompute", "optimizer")}
        return {
            "convention": str(report.convention), "model_flops": report.model_flops, "hardware_flops": report.hardware_flops,
            **{f"{phase}_flops": flops for phase, flops in phases.items()}, "uncounted": report.uncounted, "notes": report.notes,
        }  # fmt: skip


def cannot_begin(uncompiled: bool) -> str:
    """Why no step can be counted here and now, without changing what the program computes; empty where one can."""
    from flopkit.counter.watch.autograd import graph_task
    from flopkit.counter.watch.internals import dispatch_modes

    if graph_task() != -1:
        return "the optimiser steps inside of the backward pass, so no moment lies between two steps"
    if modes := dispatch_modes():
        return f"the program itself is at work in a {type(modes[-1]).__name__}, which sees the operators before the counter does"
    if not has_compiled():
        return ""
    if not uncompiled:
        return (
            "the program runs compiled functions (torch.compile), and the counter cannot look inside of them: they would run uncompiled in "
            "the counted steps, whose results are rounded otherwise; --uncompiled allows that"
        )
    frames = sys.modules.get("torch._C._dynamo.eval_frame")
    if frames is not None and frames.get_eval_frame_callback() is not None:
        return "the optimiser steps inside of a compiled function"
    return ""


def has_compiled() -> bool:
    """Whether torch has compiled something in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters.get("stats", {}).get("unique_graphs"))


def shown_cycle(steps: Sequence[WatchedStep]) -> list[WatchedStep]:
    """The counted steps that all others repeat; empty while that is not shown.

    Two steps of the same FLOPs at the beginning show a cycle of one step. Where the first two differ, four in a row show it, and three
    repetitions a cycle of two or three steps, such as of a loop that evaluates after every second one.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> short, long = (SimpleNamespace(report=SimpleNamespace(model_flops=n, hardware_flops=n)) for n in (8, 64))
    >>> [len(shown_cycle(steps)) for steps in ([short, short], [short, long, short], [short, long] * 3, [short, *[long] * 4])]
    [1, 0, 2, 1]
    """
    figures = [(step.report.model_flops, step.report.hardware_flops) for step in steps]
    if len(figures) == 2 and figures[0] == figures[1]:
        return [steps[1]]
    for length, wanted in _SHOWN.items():
        last = figures[-wanted:]
        if len(last) == wanted and last[length:] == last[:-length]:
            return list(steps[-length:])
    return []


def differences(steps: Sequence[WatchedStep], first: int) -> str:
    """What steps did that did not do the same."""
    facts = [step.facts() for step in steps]
    each = [f"step {first + place} {units.si(fact['model_flops'], 'FLOPs')}" for place, fact in enumerate(facts)]
    backward = {fact["backward_flops"] for fact in facts}
    if len({step.calls for step in steps}) > 1:
        why = "the model ran another number of times, as where an optimiser such as LBFGS calls a closure, or the last batches are fewer"
    elif len(backward) == 1 and backward != {0}:
        why = "their backward passes are the same, so an evaluation, a generation or a logging pass ran in some"
    else:
        times = ratio(max(fact["model_flops"] for fact in facts), max(1, min(fact["model_flops"] for fact in facts)))
        why = f"their sizes differ, by {times:.3g} × at most, as with batches or texts of other lengths"
    return f"{', '.join(each)}: {why}"


def _about(root: Any, trained: set[int]) -> dict[str, Any]:
    """A model by its class, and its parameters."""
    inner, around = root, []
    while (kept := getattr(inner, _WRAPPERS.get(type(inner).__name__, ""), None)) is not None:
        around.append(type(inner).__name__)
        inner = kept
    parameters = list({id(each): each for each in root.parameters()}.values())
    held = [each for each in parameters if id(each) in trained]
    dtypes = sorted({str(each.dtype).removeprefix("torch.") for each in parameters})
    return {
        "class": f"{type(inner).__module__}.{type(inner).__qualname__}", "in": around, "dtypes": dtypes,
        "parameters": sum(each.numel() for each in parameters), "trained": sum(each.numel() for each in held),
        "sharded": "FullyShardedDataParallel" in around,
    }  # fmt: skip
