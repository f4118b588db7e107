"""calflops 0.3.2: functions of torch, replaced while a model runs, and a hook on recurrent layers. Additions of biases count, of
convolutions alone; signs such as ``a @ b`` and ``a + b`` do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from flopkit.counter.peers import ptflops
from flopkit.counter.peers.calls import Called, Hooked, asked, both, called, estimate, hooked, is_shape, scripted
from flopkit.counter.peers.families import rows_of
from flopkit.counter.peers.seen import Fails, Seen
from flopkit.counter.told import Listed

__all__ = ["seen"]

UNSEEN = "no function that it replaces computes {}: it counts 0"
UNIT = "FLOPs"
REALLY = "FLOPs, and operations of norms, activations, pools and biases of convolutions"
_ACTIVATIONS = ("relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu")
_LISTS = {
    "stride": "TypeError: unsupported operand type(s) for //: 'int' and 'list'",
    "dilation": 'TypeError: can only concatenate list (not "int") to list',
    "padding": "",
}
_FAMILIES = ("convolution", "dense", "recurrent")
_RECURRENT = ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell")


def seen(source: Any) -> Seen:
    """What ``calculate_flops`` would print of the forward passes that *source* watched."""
    if scripted(source):
        raise Fails("RuntimeError: register_forward_pre_hook is not supported on ScriptModules")
    roots = source.ledger().roots
    if roots and not any(full for *_, full in roots):  # it asks the model for a parameter, to know its device
        raise Fails("StopIteration: ")
    flops: Counter[str] = Counter()
    for hook in hooked(source):
        own = hook.layer.kind.__module__.startswith("torch.nn.modules") and hook.layer.kind.__name__ in _RECURRENT
        if own and hook.given is not None:
            for what, each in _recurrent(hook).items():
                flops[what] += hook.times * hook.layer.times * each
    for call in called(source):
        for what, each in _function(call).items():
            flops[what] += (
                call.times * call.ways * each
            )  # what modules call that parents share is added up for each way to them
    mine = {family: flops.pop(family, 0) for family in _FAMILIES}
    total, rows = rows_of(source, mine, flops, UNSEEN)
    value = sum(mine.values()) + sum(flops.values())
    return Seen("calflops", value, UNIT, REALLY, total, rows)


def _recurrent(hook: Hooked) -> dict[str, int]:
    """Its hooks are told what was given by position, and ask for two sizes of it."""
    if hook.placed and not is_shape(hook.given):
        raise Fails("AttributeError: 'PackedSequence' object has no attribute 'shape'")
    if not hook.placed or len(hook.given) < 2:
        raise Fails("IndexError: tuple index out of range")
    return ptflops.recurrent(hook.layer, hook.given, 2)


def _function(call: Called) -> dict[str, int]:
    name = call.name
    if name == "multi_head_attention_forward":
        it = asked(call)
        found = {"dense": 2 * it.projections}
        if it.weights:
            found["softmax"] = it.scores
            if it.mask is not None:  # the one product of attention that it knows is that which adds a mask
                found |= {"dense": 2 * (it.projections + it.scores * it.head), "masks": it.mask}
        return found
    if name == "linear":
        return {"dense": 2 * prod(call.x) * call.given(1, "weight")[0]}
    if name == "matmul":
        return {"dense": 2 * prod(call.x) * call.given(1, "other")[-1]}
    if name in ("addmm", "baddbmm"):
        batch = "batch" if name == "baddbmm" else "mat"
        first, second = call.given(1, f"{batch}1"), call.given(2, f"{batch}2")
        return {"dense": 2 * prod(first) * second[-1], "sums": prod(call.x)}
    if name.startswith("conv"):
        return _convolution(call, "transpose" in name)
    if name == "einsum":
        return {"dense": _einsum(call.args)}
    if name in _ACTIVATIONS:
        return {"activations": prod(call.x)}
    if name == "softmax":
        return {"softmax": prod(call.x)}
    if "_pool" in name:
        if "output_size" in call.named:
            raise Fails("TypeError: _pool_flops_compute() got an unexpected keyword argument 'output_size'")
        return {"pools": prod(call.x)}
    if name in ("interpolate", "upsample"):
        return {"upsampling": _resized(call)}
    if name in ("add", "mul"):
        return {"sums and products": both(call.x, call.given(1, "other"))}
    return {"norms": _norm(call)} if name.endswith("_norm") else {}


def _resized(call: Called) -> int:
    """The size that was asked for, by itself; else the input's numbers, however many times larger it becomes."""
    size, factor = call.given(1, "size"), call.given(2, "scale_factor")
    if size is not None:
        return prod(size) if isinstance(size, tuple) else size
    if isinstance(factor, tuple) and (
        isinstance(factor, Listed) or len(factor) != call.x[0]
    ):  # it takes the batch for the dimensions
        kind = "list" if isinstance(factor, Listed) else "tuple"
        raise Fails(f"TypeError: unsupported operand type(s) for ** or pow(): '{kind}' and 'int'")
    return prod(call.x)


def _norm(call: Called) -> int:
    name = call.name
    scaled = call.given({"batch_norm": 3, "instance_norm": 3}.get(name, 2), "weight") is not None
    if name != "batch_norm":
        return int(prod(call.x) * (4 + scaled))
    # It puts the model into evaluation: a layer that keeps statistics is normalised by them.
    layer = any(each.__name__ == "_BatchNorm" for each in getattr(call.within, "__mro__", ()))
    live = call.given(1, "running_mean") is None if layer else bool(call.given(5, "training"))
    return int(prod(call.x) * ((4 if live else 1) + scaled))


def _convolution(call: Called, transposed: bool) -> dict[str, int]:
    x, w = call.x, call.given(1, "weight")
    dims = len(x) - 2  # without a batch one too few, and channels that are none

    def each(place: int, key: str, usual: int) -> Sequence[Any]:
        given = call.given(place, key)
        given = usual if given is None else given
        if isinstance(given, Listed):
            raise Fails(_LISTS[key])
        return given if isinstance(given, tuple) else (given,) * dims

    groups = call.given(6, "groups") or 1
    word = call.given(4, "padding")
    if isinstance(word, Listed):  # of what is no tuple it makes a tuple of such
        raise Fails("TypeError: unsupported operand type(s) for +: 'int' and 'list'")
    dilation = each(7 if transposed else 5, "dilation", 1)
    if isinstance(word, str):
        padding: Sequence[int] = [
            d * (k - 1) // 2 if word == "same" else 0 for d, k in zip(dilation, w[2:], strict=False)
        ]
    else:
        padding = each(4, "padding", 0)
    if not transposed and w[1] * groups != x[1]:
        raise Fails("AssertionError: ")
    # The same for a transposed one, whose own output is larger.
    places = prod(
        (size + 2 * p - (d * (k - 1) + 1)) // s + 1
        for size, p, d, k, s in zip(x[2:], padding, dilation, w[2:], each(3, "stride", 1), strict=False)
    )
    channels = w[1] if transposed else w[0]
    kernel = prod(w[2:]) * x[1] * (channels // groups)
    biases = channels * x[0] * places if call.given(2, "bias") is not None else 0
    return {"convolution": 2 * kernel * x[0] * (prod(x[2:]) if transposed else places), "biases": biases}


def _einsum(args: Any) -> int:
    """What numpy says of the best order; operands that come as one list have no shape for it to read."""
    equation, *shapes = args
    if not all(map(is_shape, shapes)):
        raise Fails("AttributeError: 'list' object has no attribute 'shape'")
    return int(estimate(equation, shapes))
