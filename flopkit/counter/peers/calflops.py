"""calflops 0.3.2: functions of torch, replaced while a model runs, and a hook on recurrent layers. Additions of biases count, of
convolutions alone; signs such as ``a @ b`` and ``a + b`` do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from flopkit.counter.peers import ptflops
from flopkit.counter.peers.calls import SHARED, Called, asked, both, called, estimate, is_shape, shared
from flopkit.counter.peers.families import failed, rows_of
from flopkit.counter.peers.lines import lines
from flopkit.counter.peers.seen import Fails, Seen

__all__ = ["seen"]

UNSEEN = "no function that it replaces computes {}: it counts 0"
REALLY = "FLOPs, and operations of norms, activations, pools and biases of convolutions"
BARE = "it fails with StopIteration on a model without parameters, and whether this one has any cannot be told"
_ACTIVATIONS = ("relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu")
_FAMILIES = ("convolution", "dense", "recurrent")
_RECURRENT = ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell")


def seen(source: Any) -> Seen:
    """What ``calculate_flops`` would print of the forward passes that *source* watched."""
    bare = _bare(source)
    try:
        if bare:
            raise Fails("StopIteration: ")
        return _counted(source, [BARE] if bare is None else [])
    except Fails as error:
        return failed(source, "calflops", "FLOPs", REALLY, str(error))


def _bare(source: Any) -> bool | None:
    """Whether the model has no parameters. It asks the model for one, to know its device; None where that cannot be told."""
    ledger = source.ledger()
    alone = {path for path, *_ in ledger.roots} & {layer.path for layer, *_ in ledger.layers}  # that are a layer themselves
    if not ledger.roots or any(layer.parameters for layer, *_ in ledger.layers):
        return False
    return True if len(alone) == len({path for path, *_ in ledger.roots}) else None


def _counted(source: Any, remarks: list[str]) -> Seen:
    flops: Counter[str] = Counter()
    for (layer, given, _), calls in source.ledger().layers.items():
        own = layer.kind.__module__.startswith("torch.nn.modules") and layer.kind.__name__ in _RECURRENT
        if own and given is not None and ".(" not in layer.path:
            for what, each in ptflops.recurrent(layer, given, 2).items():
                flops[what] += calls * each
    for call in called(source):
        for what, each in _function(call).items():
            flops[what] += call.times * each
    mine = {family: flops.pop(family, 0) for family in _FAMILIES}
    total, rows = rows_of(source, mine, flops, UNSEEN)
    remarks += [SHARED] if shared(source) else []
    if any("_transformer_encoder_layer_fwd" in line.group for line in lines(source)):
        remarks.append(ptflops.PACKED)
    value = sum(mine.values()) + sum(flops.values())
    return Seen("calflops", value, "FLOPs", REALLY, total, rows, tuple(remarks))


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
        return {"dense": 2 * prod(call.args[0]) * call.given(1, "other")[-1]}
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
        return {"pools": prod(call.x)}
    if name == "interpolate":
        size = call.given(1, "size")
        return {"upsampling": prod(call.x) if size is None else prod(size) if isinstance(size, tuple) else size}
    if name in ("add", "mul"):
        return {"sums and products": both(call.x, call.given(1, "other"))}
    return {"norms": _norm(call)} if name.endswith("_norm") else {}


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
        return given if isinstance(given, tuple) else (given,) * dims

    groups = call.given(6, "groups") or 1
    dilation = each(7 if transposed else 5, "dilation", 1)
    word = call.given(4, "padding")
    if isinstance(word, str):
        padding: Sequence[int] = [d * (k - 1) // 2 if word == "same" else 0 for d, k in zip(dilation, w[2:], strict=False)]
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
