"""Small programs to count: leaves, a backward pass from ones, and the same on each device that needs no GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import flopkit as fk

PLACES = ("cpu", "meta", "fake")


def leaf(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu", grad: bool = True) -> torch.Tensor:
    """A tensor that asks for a gradient."""
    return torch.randn(*shape, dtype=dtype, device=device).requires_grad_(grad)


@contextlib.contextmanager
def at(place: str) -> Iterator[str]:
    """Make tensors on the CPU, on meta, or as fake tensors; gives the device to name."""
    if place == "fake":
        with FakeTensorMode():
            yield "cpu"
    else:
        yield place


def backward(out: Any) -> None:
    """Differentiate whatever asks for it, from gradients of one."""
    outs = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if torch.is_tensor(t) and t.requires_grad]
    torch.autograd.backward(outs, [torch.ones_like(t) for t in outs])


def count(fn: Callable[[], Any]) -> fk.Report:
    """A forward and a backward pass, every operator accounted for."""
    report = fk.count(lambda: backward(fn()))
    assert report.uncounted == []
    return report


def passes(fn: Callable[[], Any]) -> tuple[int, int]:
    """FLOPs of the forward pass and the model's of the backward pass."""
    report = count(fn)
    return report.forward.flops, report.model_flops - report.forward.flops


def row(report: fk.Report, op: str, phase: str = "forward") -> dict[str, Any]:
    """The row of one operator."""
    found = [row for row in report.by_op().rows if row["operator"] == op and row["phase"] == phase]
    assert len(found) == 1, (op, [r["operator"] for r in report.by_op().rows])
    return found[0]


def counting_backend(calls: list[int]) -> Callable[..., Any]:
    """A backend for `torch.compile` that changes nothing; *calls* grows with each call of what it compiled."""

    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            calls.append(1)
            return graph(*args)

        return run

    return backend
