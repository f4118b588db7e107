"""Tables of small programs, each beside what it costs by hand: how a row is made, run and compared."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import flopkit as fk

WAYS = ("cpu", "no_grad", "inference", "meta", "fake")
REAL = ("cpu", "no_grad", "inference")
_UNLEARNED = {"no_grad": torch.no_grad, "inference": torch.inference_mode}

U = 2 * 4 * 8 * 8  # one product: a batch of 4 through 8 × 8


def g(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor that wants a gradient."""
    return torch.rand(shape, dtype=dtype, requires_grad=True)


def t(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """One that does not."""
    return torch.rand(shape, dtype=dtype)


def call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """The call, to be made later."""
    return lambda: fn(*args, **kwargs)


def learns(way: str) -> bool:
    """Whether gradients are recorded."""
    return way not in _UNLEARNED


@contextlib.contextmanager
def made(way: str) -> Iterator[None]:
    """Make tensors where a program is to run: on the CPU, on meta, or as fake tensors."""
    torch.manual_seed(0)
    with torch.device("meta") if way == "meta" else FakeTensorMode() if way == "fake" else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def counted(way: str) -> Iterator[fk.Report]:
    """Count what runs, with or without gradients."""
    with _UNLEARNED.get(way, contextlib.nullcontext)(), fk.counting() as report:
        yield report


class Passes(NamedTuple):
    build: Callable[[], Callable[[], Any]]
    forward: int
    backward: int
    ways: tuple[str, ...]
    executed: float


class Table(dict[str, Passes]):
    """Programs by name, each with what its forward and its backward pass take."""

    def case(
        self,
        name: str,
        build: Callable[[], Callable[[], Any]],
        forward: int,
        backward: int = 0,
        ways: tuple[str, ...] = WAYS,
        executed: float = 1,
    ) -> None:
        """A row: *build* makes a program, to be run afterwards. *executed*: the share of its FLOPs that torch carries out."""
        assert name not in self
        self[name] = Passes(build, forward, backward, ways, executed)

    def check(self, name: str, way: str) -> None:
        """Make the program in one of `WAYS`, count it, and compare."""
        build, forward, backward, ways, executed = self[name]
        if way not in ways:
            pytest.skip("torch cannot, or the result depends on the data")
        with made(way):
            run = build()
            with counted(way) as report:
                result = run()
                if learns(way):
                    _differentiate(result)
        assert report.uncounted == [] and report.coverage == 1
        whole = forward + backward * learns(way)
        assert report.model_flops == whole
        assert (report.forward.flops, report.backward.flops) == (forward * executed, (whole - forward) * executed)
        assert report.hardware_flops == report.forward.flops + report.backward.flops + report.recompute.flops
        assert type(report.model_flops) is int and report.macs * 2 == report.flops
        exact = report.under(fk.conventions.EXACT)
        assert (exact.model_flops, exact.hardware_flops) == (report.model_flops, report.hardware_flops)


def _floats(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [x for part in result for x in _floats(part)]


def _differentiate(result: Any) -> None:
    wanted = [x for x in _floats(result) if x.requires_grad]
    if wanted:
        sum((torch.view_as_real(x) if x.is_complex() else x).sum() for x in wanted).backward()


def x(grad: bool = False, rows: int = 4) -> torch.Tensor:
    """The batch that goes through `linear`; `U` FLOPs each time."""
    return torch.ones(rows, 8, requires_grad=grad)


def linear(**kwargs: Any) -> nn.Linear:
    return nn.Linear(8, 8, **kwargs)


def mlp() -> nn.Sequential:
    return nn.Sequential(linear(), nn.GELU(), linear())


class Step(NamedTuple):
    build: Callable[[], Callable[[], Any]]
    phases: tuple[float | None, ...]  # forward, backward, recompute, optimizer, in units of `U`; None: not looked at
    model: float


class Steps(dict[str, Step]):
    """Programs by name, each with what it costs by phase."""

    def case(
        self, name: str, forward: Any = 0, backward: Any = 0, recompute: Any = 0, optimizer: Any = 0, model: Any = None
    ) -> Callable[[Any], Any]:
        """Register a program that gives what is to be run, and what it costs in units of `U`."""

        def register(build: Any) -> Any:
            assert name not in self
            whole = forward + backward if model is None else model
            self[name] = Step(build, (forward, backward, recompute, optimizer), whole)
            return build

        return register

    def check(self, name: str) -> None:
        """Count the program, twice, and compare."""
        step = self[name]
        torch.manual_seed(0)
        run = step.build()
        gc.disable()
        try:
            report = fk.count(run)
        finally:
            gc.enable()
        found = [getattr(report, phase).flops / U for phase in ("forward", "backward", "recompute", "optimizer")]
        assert report.uncounted == []
        assert [n for n, true in zip(found, step.phases, strict=True) if true is not None] == [
            n for n in step.phases if n is not None
        ]
        assert report.model_flops == step.model * U
        assert report.flops == report.hardware_flops == sum(found) * U
        again = fk.count(step.build())
        assert (again.model_flops, again.hardware_flops) == (report.model_flops, report.hardware_flops)


class Product(torch.autograd.Function):
    """A product with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g
