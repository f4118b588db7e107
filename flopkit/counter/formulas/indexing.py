"""Numbers that are picked from, or put into, places that a tensor names."""

from __future__ import annotations

from math import prod

from flopkit.counter.calls import OpCall, extent, numel, tensors
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, elementwise, free
from flopkit.macs import broadcast

# What the arguments that say where are called.
PLACES = ("index", "indices", "mask")


def _read_places(call: OpCall) -> int:
    places = {id(t): t for name in PLACES for t in tensors(call.get(name))}
    return sum(map(extent, places.values()))


# -- reading --------------------------------------------------------------------------------------------------


@explains(
    "embedding index _unsafe_index index_select gather take take_along_dim masked_scatter_backward _unsafe_masked_index"
)
def gathered(call: OpCall) -> Work:
    """Reads as much as comes out, and the indices; the rest of the source stays where it is."""
    return free(2 * sum(map(extent, call.outputs)) + _read_places(call))


@explains("_embedding_bag _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward")
def embedding_bag(call: OpCall) -> Work:
    """Sum, mean or maximum of rows: an add or a compare for each number read, a multiplication with weights of samples, a division in a mean.

    Of the gradient of those weights a multiply and an add for each number.
    """
    weight, result = call["weight"], call.outputs[0]
    read = numel(call["indices"]) * int(weight.shape[1])
    two = "backward" in call.name or call["per_sample_weights"] is not None
    means = 0 if "backward" in call.name else numel(result) * (call["mode"] == 1)
    rest = sum(extent(t) for t in (*call.inputs, *call.outputs) if t is not weight)
    return elementwise(read * (1 + two) + means, read * weight.element_size() + rest)


# -- writing --------------------------------------------------------------------------------------------------

_ADDING = "scatter_add index_add scatter_reduce index_reduce _unsafe_masked_index_put_accumulate".split()
_PUTTING = "scatter index_put _index_put_impl _unsafe_index_put index_copy index_fill masked_scatter put".split()


@explains(*(f"{name} {name}_" for name in (*_ADDING, *_PUTTING)))
def scattered(call: OpCall) -> Work:
    """Reads the source and the indices and writes as many numbers as are named; where it adds, reads those, too: one FLOP each.

    The form that returns a new tensor copies the old one first. A mask of bools is taken to name every place that it covers.
    """
    name = call.name.removeprefix("aten::").removesuffix("_")
    adds = name in _ADDING or bool(call.get("accumulate", False)) or call.get("reduce") is not None
    target = call["self"]
    source = next((call.get(n) for n in ("src", "source", "values", "value") if hasattr(call.get(n), "numel")), None)
    named = _named(call, name)
    copy = 0 if call.name.endswith("_") else extent(target) + sum(map(extent, call.outputs))
    moved = copy + named * target.element_size() * (1 + adds) + _read_places(call)
    if source is not None:
        moved += min(extent(source), named * source.element_size())
    scale = call.get("alpha", 1) not in (None, 1)
    return elementwise(named * (1 + scale), moved) if adds else free(moved)


def _named(call: OpCall, name: str) -> int:
    """How many numbers of the target are named."""
    target = call["self"]
    if name == "masked_scatter":
        return max(numel(call["mask"]), numel(target))
    if name == "put" or name.startswith("scatter"):
        return numel(call["index"])
    if "dim" in call.named:  # index_add, index_copy, index_fill
        rows = max(int(target.shape[int(call["dim"])]), 1) if target.dim() else 1
        return numel(target) // rows * numel(call["index"])
    # Places are broadcast against each other; a mask of bools covers as many dimensions as it has; what no index is given for is written whole.
    given = [(t, t is not None and str(t.dtype) in ("torch.bool", "torch.uint8")) for t in call["indices"]]
    rest, place = 1, 0
    for index, masks in given:
        rest *= int(target.shape[place]) if index is None else 1
        place += index.dim() if masks else 1
    rest *= prod(map(int, target.shape[place:]))
    masks_cover = prod(numel(index) for index, masks in given if masks)
    return rest * masks_cover * broadcast(*(t.shape for t, masks in given if t is not None and not masks))


@explains("embedding_dense_backward _embedding_bag_dense_backward _embedding_bag_backward")
def spread(call: OpCall) -> Work:
    """A table of zeros is written, and the gradient's rows are added to it."""
    gradient = call.get("grad_output", call.get("grad"))
    weighed = call.get("per_sample_weights") is not None or call.get("mode") == 1
    return elementwise(numel(call["indices"]) * int(gradient.shape[-1]) * (1 + weighed), call.bytes())


_TAKEN = [f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)]
_TAKEN += ["max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"]


@explains(*(f"{name}_backward" for name in _TAKEN))
def returned(call: OpCall) -> Work:
    """Each gradient is added where its number came from, inside of a border or at a maximum. The input is not read: its shape is enough."""
    gradient = call["grad_output"]
    return elementwise(numel(gradient), extent(gradient) + _read_places(call) + sum(map(extent, call.outputs)))
