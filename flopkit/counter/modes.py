"""The arithmetic in which a GPU does a program's FLOPs: torch may round products, or convolutions, of float32 to tf32."""

from __future__ import annotations

from typing import Any

from flopkit.counter import breakdown
from flopkit.counter.report import Report
from flopkit.counter.work import settled
from flopkit.dtypes import format_of

__all__ = ["convolves", "flops_by_mode", "may_use_tf32", "tf32_switches"]


def tf32_switches() -> tuple[bool, bool]:
    """Whether products, and whether convolutions, of float32 may be rounded to tf32. Torch forbids the first and allows the second, if
    nobody says otherwise."""
    import torch

    backends: Any = torch.backends
    if hasattr(backends.cudnn, "conv"):  # since 2.9: what was set by this name cannot be read by the older one
        return backends.cuda.matmul.fp32_precision == "tf32", backends.cudnn.conv.fp32_precision == "tf32"
    return backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32


def convolves(operator: str) -> bool:
    """Whether an operator is a convolution, or the backward pass of one.

    Parameters
    ----------
    operator : str
        As a report names it.
    """
    return "convolution" in operator


def may_use_tf32(work: Report) -> bool:
    """Whether products of fp32 in it may be rounded to tf32, on a GPU that has it.

    Parameters
    ----------
    work : Report
        What was counted.
    """
    return "tf32" in flops_by_mode(work)


def flops_by_mode(work: Report, model: bool = False) -> dict[str, Any]:
    """FLOPs by number format, as `Report.flops_by_dtype`, but those in float32 that torch may now round to tf32 under ``"tf32"``.

    Torch has a switch for products and one for convolutions. If nobody says otherwise, convolutions are rounded and products are not.

    Parameters
    ----------
    work : Report
        What was counted.
    model : bool, optional
        The FLOPs that the mathematics asks for, in place of those that were executed.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> work = fk.count(torch.nn.Linear(3, 5), torch.ones(2, 3))
    >>> flops_by_mode(work)  # torch rounds products only where it is told to
    {'fp32': 60}
    """
    products, convolutions = tf32_switches()

    def mode(part: breakdown.Line) -> str:
        format = format_of(part.entry.work.dtype)
        allowed = convolutions if convolves(part.entry.op) else products
        return "tf32" if format == "fp32" and allowed else format

    found: dict[str, Any] = {}
    for name, each in breakdown.sums(work, mode).items():
        if flops := work.convention.flops(each.model if model else each.macs):
            found[name] = settled(flops)
    return found
