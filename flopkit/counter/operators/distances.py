"""Distances between rows: 2·P·R·M FLOPs for P rows against R rows of M numbers, whatever the norm."""

from __future__ import annotations

from typing import Any

from flopkit.counter.calls import Call, numel
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted

__all__: list[str] = []


def _macs(distances: Any, rows: Any) -> int:
    return numel(distances) * int(rows.shape[-1])


@explains("aten::_cdist_forward", "aten::_euclidean_dist")
def distances(call: Call) -> Work:
    """A difference and a sum for each number of each pair of rows; the root of each pair is element-wise work.

    Above 25 rows torch takes ``|x|² + |y|² - 2·x·y`` by one product, which is 2·P·R·M, too; the norms that it appends to the rows
    (two more columns) are in neither number.
    """
    return counted(_macs(call.outputs[0], call["x1"]), call.bytes(), vector=numel(call.outputs[0]))


@explains("aten::_cdist_backward")
def distances_backward(call: Call) -> Work:
    """As much for the gradient of one side; torch calls it once for each."""
    return counted(_macs(call["grad"], call["x1"]), call.bytes(), vector=numel(call["grad"]))


@explains("aten::_pdist_forward")
def own_distances(call: Call) -> Work:
    """The distances of rows among themselves: N·(N-1)/2 pairs."""
    return counted(_macs(call.outputs[0], call["self"]), call.bytes(), vector=numel(call.outputs[0]))


@explains("aten::_pdist_backward")
def own_distances_backward(call: Call) -> Work:
    """Each pair adds to the gradients of both of its rows."""
    return counted(2 * _macs(call["grad"], call["self"]), call.bytes(), vector=numel(call["grad"]))
