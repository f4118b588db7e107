"""Numbers that are picked from, or put into, places that a tensor names."""

from __future__ import annotations

from math import prod
from typing import Any

from flopkit.counter.calls import OpCall, extent, numel, tensors
from flopkit.counter.formulas.memory import changed
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise, free

__all__ = ["PLACES"]

# What the arguments that say where are called.
PLACES = ("index", "indices", "mask")


def _places(call: OpCall) -> list[Any]:
    return [t for name in PLACES for t in tensors(call.get(name))]


def _read_places(call: OpCall) -> int:
    return sum(map(extent, {id(t): t for t in _places(call)}.values()))


# -- reading --------------------------------------------------------------------------------------------------


@explains("aten::embedding", "aten::index", "aten::_unsafe_index", "aten::index_select", "aten::gather", "aten::take",
          "aten::take_along_dim", "aten::masked_scatter_backward", "aten::_unsafe_masked_index")  # fmt: skip
def gathered(call: OpCall) -> Work:
    """Reads as much as comes out, and the indices; the rest of the source stays where it is."""
    return free(2 * sum(map(extent, call.outputs)) + _read_places(call))


@explains("aten::embedding_renorm_", "aten::embedding_renorm")
def renormed(call: OpCall) -> Work:
    """The norm of each row that is named (power, add), and a multiplication; the rows are read and written."""
    rows = numel(call["indices"]) * int(call["self"].shape[-1])
    width = call["self"].element_size()
    whole = 0 if changed(call) else 2 * extent(call["self"])
    return elementwise(3 * rows, 2 * rows * width + whole + extent(call["indices"]))


@explains("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(call: OpCall) -> Work:
    """Sum, mean or maximum of rows: an add or a compare for each number read, a multiplication with weights of samples, a division in a mean."""
    weight, indices, result = call["weight"], call["indices"], call.outputs[0]
    read = numel(indices) * int(weight.shape[1])
    samples = call["per_sample_weights"]
    flops = read * (1 + (samples is not None)) + numel(result) * (call["mode"] == 1)
    rest = [t for t in call.inputs if t is not weight]
    return elementwise(flops, read * weight.element_size() + sum(map(extent, [*rest, *call.outputs])))


# -- writing --------------------------------------------------------------------------------------------------

_ADDING = {"aten::scatter_add", "aten::scatter_add_", "aten::index_add", "aten::index_add_", "aten::scatter_reduce", "aten::scatter_reduce_",
           "aten::index_reduce", "aten::index_reduce_", "aten::_unsafe_masked_index_put_accumulate"}  # fmt: skip
_PUTTING = ("aten::scatter", "aten::scatter_", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_index_put_impl",
            "aten::_unsafe_index_put", "aten::index_copy", "aten::index_copy_", "aten::index_fill", "aten::index_fill_",
            "aten::masked_scatter", "aten::masked_scatter_", "aten::put", "aten::put_")  # fmt: skip


@explains(*_ADDING, *_PUTTING)
def scattered(call: OpCall) -> Work:
    """Reads the source and the indices and writes as many numbers as are named; where it adds, reads those, too: one FLOP each.

    The form that returns a new tensor copies the old one first. A mask of bools is taken to name every place that it covers.
    """
    adds = call.name in _ADDING or bool(call.get("accumulate", False)) or call.get("reduce") is not None
    target = call["self"]
    source = next((call.get(n) for n in ("src", "source", "values", "value") if hasattr(call.get(n), "numel")), None)
    named = _named(call, target)
    copy = 0 if changed(call) else extent(target) + sum(map(extent, call.outputs))
    moved = copy + named * target.element_size() * (1 + adds) + _read_places(call)
    if source is not None:
        moved += min(extent(source), named * source.element_size())
    scale = call.get("alpha", 1) not in (None, 1)
    return elementwise(named * (1 + scale), moved) if adds else free(moved)


def _named(call: OpCall, target: Any) -> int:
    """How many numbers of *target* are named."""
    name = call.name
    if "scatter" in name and "masked" not in name:
        return numel(call["index"])
    if "masked_scatter" in name:
        return max(numel(call["mask"]), numel(target))
    if "put" in name and "index" not in name:  # put_
        return numel(call["index"])
    if "dim" in call.named:  # index_add, index_copy, index_fill
        rows = max(int(target.shape[int(call["dim"])]), 1) if target.dim() else 1
        return numel(target) // rows * numel(call["index"])
    indices = call["indices"]
    shapes = [tuple(int(n) for n in t.shape) for t in indices if t is not None and t.dtype not in _bools()]
    covered = sum(t.dim() if t.dtype in _bools() else 1 for t in indices if t is not None)
    masks = [prod(int(n) for n in t.shape) for t in indices if t is not None and t.dtype in _bools()]
    rest = 1
    place = 0
    for index in indices:
        if index is None:
            rest *= int(target.shape[place])
        place += index.dim() if index is not None and index.dtype in _bools() else 1
    for size in target.shape[max(place, covered) :]:
        rest *= int(size)
    return rest * _broadcast(shapes) * prod(masks)


def _bools() -> Any:
    import torch

    return (torch.bool, torch.uint8)


def _broadcast(shapes: list[tuple[int, ...]]) -> int:
    """Numbers in the shape that *shapes* broadcast to."""
    # equivalent: 0 -> 1 (without shapes there is nothing to pad)
    width = max(map(len, shapes), default=0)
    padded = [(1,) * (width - len(shape)) + shape for shape in shapes]
    return prod(max(sizes) if min(sizes) else 0 for sizes in zip(*padded, strict=True))


@explains("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward", "aten::_embedding_bag_backward")
def spread(call: OpCall) -> Work:
    """A table of zeros is written, and the gradient's rows are added to it."""
    gradient = call.get("grad_output") if call.get("grad_output") is not None else call["grad"]
    width = int(gradient.shape[-1])
    added = numel(call["indices"]) * width
    weighed = call.get("per_sample_weights") is not None or call.get("mode") == 1
    return elementwise(added * (1 + weighed), call.bytes())


@explains("aten::_embedding_bag_per_sample_weights_backward")
def sample_weights(call: OpCall) -> Work:
    """A multiply and an add for each number of a row."""
    read = numel(call["indices"]) * int(call["weight"].shape[1])
    rest = [t for t in call.inputs if t is not call["weight"]]
    return elementwise(2 * read, read * call["weight"].element_size() + sum(map(extent, [*rest, *call.outputs])))


_BORDERS = [f"aten::{kind}_pad{n}d_backward" for kind in ("reflection", "replication") for n in (1, 2, 3)]


@explains(*_BORDERS)
def padding_backward(call: OpCall) -> Work:
    """An add for each gradient; the input is not read: its shape is enough."""
    gradient = call["grad_output"]
    return elementwise(numel(gradient), extent(gradient) + sum(map(extent, call.outputs)))
