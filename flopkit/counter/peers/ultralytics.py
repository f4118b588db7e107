"""ultralytics-thop 2.2: hooks on layers, classes derived from known ones included, and products of functions outside of those layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from flopkit.counter.peers import thop
from flopkit.counter.peers.calls import Called, Hooked, asked, functions, hooked, is_shape
from flopkit.counter.peers.families import family_of, rows_of
from flopkit.counter.peers.lines import ATTENTION, lines, truth
from flopkit.counter.peers.seen import Seen
from flopkit.counter.told import Packed

__all__ = ["seen"]

UNSEEN = "it has no rule for {}, and counts 0"
_WITH_RULE = (
    "Linear", "Bilinear", "MultiheadAttention", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "_ConvNd", "_NormBase",
    "LayerNorm", "GroupNorm", "RMSNorm",
)  # fmt: skip
_SOFTMAX = ("Softmax", "LogSoftmax", "Softmin", "Softmax2d")
_UPSAMPLE = {"linear": 5, "bilinear": 11, "bicubic": 259, "trilinear": 31}


def seen(source: Any) -> Seen:
    """What ultralytics-thop's ``thop.profile`` would print of the forward passes that *source* watched."""
    macs: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for hook in hooked(source):
        family, each = _layer(hook)
        (macs if family in ("convolution", "dense", "recurrent", "attention") else added)[family] += hook.times * each
        if family == "attention":  # a softmax stands in the same rule
            added["softmax"] += hook.times * _softmax(*_sizes(hook), hook.layer.settings["num_heads"])
    for call in functions(source):
        if call.elsewhere or any(name in _WITH_RULE for kind in call.around for name in _ancestors(kind)):
            continue  # its function mode is of the thread that it was entered in, and does not look below a layer that has a rule
        macs["dense"] += call.times * _product(call)
        if call.name == "multi_head_attention_forward":
            it = asked(call)
            added["softmax"] += call.times * (3 * it.scores - prod(call.args[0][:-1]) * call.args[4])
    _attend(source, macs)
    total, rows = rows_of(source, {f: 2 * n for f, n in macs.items()}, {f: 2 * n for f, n in added.items()}, UNSEEN)
    value = sum(macs.values()) + sum(added.values())
    return Seen("ultralytics-thop", value, "MACs", "multiply-adds, and operations of norms and pools", total, rows)


def _attend(source: Any, macs: Counter[str]) -> None:
    """Calls of attention outside of attention layers count by themselves; inside, what their rule counts is projections, too."""
    layers = [layer.path for layer, *_ in source.ledger().layers if "MultiheadAttention" in _ancestors(layer.kind)]
    rule, inner, outer, apart = macs["attention"], 0, 0, True
    for line in lines(source):
        apart = apart and not (truth(line) and family_of(line.group) == "attention")
        if line.group == ATTENTION and line.phase == "forward" and not line.inside:
            pairs = line.calls * round(sum(line.entry.work.model.values()))
            if any(line.path == path or line.path.startswith(f"{path}.") for path in layers):
                inner += pairs
            elif line.hidden != "thread":
                outer += pairs
    if inner:
        macs["dense"] += rule - inner
    elif apart:  # it ran as products like any other
        macs["dense"] += rule
        rule = 0
    macs["attention"] = (inner or rule) + outer


def _ancestors(kind: Any) -> Sequence[str]:
    return [each.__name__ for each in kind.__mro__ if each.__module__.startswith("torch.nn.modules")]


def _layer(hook: Hooked) -> tuple[str, int]:
    layer, given, out = hook.layer, hook.given, hook.out
    names, it = _ancestors(layer.kind), layer.settings
    if given is None or out is None:
        return "nothing", 0
    if "MultiheadAttention" in names:
        return "attention", _attention(*_sizes(hook), it)
    if "_ConvNd" in names:
        kernel = layer.parameters["weight"]
        volume, channels = (given, out) if "_ConvTransposeNd" in names else (out, given)
        return "convolution", prod(volume) * (channels[-(len(kernel) - 1)] // it["groups"]) * prod(kernel[2:])
    if "Linear" in names:
        return "dense", it["in_features"] * prod(out)
    if "Bilinear" in names:
        return "dense", (it["in1_features"] + 1) * it["in2_features"] * prod(out)
    if any(name in ("_NormBase", "LayerNorm", "GroupNorm", "RMSNorm") for name in names):
        return "norms", 2 * prod(given) * (2 if it.get("affine") or it.get("elementwise_affine") else 1)
    if any(name in _SOFTMAX for name in names):
        return "softmax", _normalised(names, it, given)
    if kind := next((name for name in names if name in ("RNN", "GRU", "LSTM")), ""):
        steps = given.data[0] if isinstance(given, Packed) else prod(given[:-1])
        return "recurrent", steps * thop.stack(kind, it, it["proj_size"])
    if kind := next((name for name in names if name in ("RNNCell", "GRUCell", "LSTMCell")), ""):
        return "recurrent", prod(given[:-1]) * thop.cell(kind[:-4], it["input_size"], it["hidden_size"], it["bias"])
    if any(name.startswith("AdaptiveAvgPool") for name in names):
        windows = [
            sum(-(-(j + 1) * i // o) - j * i // o for j in range(o)) if i != o else o
            for i, o in zip(given, out, strict=True)
        ]
        return "pools", prod(windows) + prod(out)
    if pool := next((name for name in names if name.startswith("AvgPool")), ""):
        return "pools", _pooled(it, given, out, int(pool[-2]))
    if "Upsample" in names:
        return "upsampling", _UPSAMPLE.get(it["mode"], 0) * prod(out)
    return ("activations", prod(given)) if "PReLU" in names else ("nothing", 0)


def _normalised(names: Sequence[str], it: Any, given: Any) -> int:
    """A softmax along the dimension that is named, or that torch takes where none is."""
    dim = -3 if "Softmax2d" in names else it["dim"]
    if dim is None:
        dim = 0 if len(given) in (0, 1, 3) else 1
    length = given[dim] if given else 1
    rows = prod(given) // length if length else 0
    more = prod(given) if "Softmin" in names else rows if "LogSoftmax" in names else 0
    return int(rows * (3 * length - 1) + more)


def _pooled(it: Any, given: Any, out: Any, dims: int) -> int:
    def each(value: Any) -> Sequence[int]:
        return (value,) * dims if isinstance(value, int) else value

    windows = 1
    sides = zip(
        given[-dims:], out[-dims:], each(it["kernel_size"]), each(it["stride"]), each(it["padding"]), strict=True
    )
    for size, output, k, s, p in sides:
        low, high = (-p, size + p) if it["count_include_pad"] else (0, size)
        windows *= sum(max(min(i * s - p + k, high) - max(i * s - p, low), 0) for i in range(output))
    return int(prod(given[:-dims]) * windows + prod(out))


def _sizes(hook: Hooked) -> tuple[int, int, int, int]:
    """Batch, queries, keys, and how many of those it appends, of an attention layer's call."""
    out, given, settings = hook.out, hook.given, hook.layer.settings
    result, weights = out if isinstance(out[0], tuple) else (out, None)
    first = settings["batch_first"]
    queries = result[-2] if first or len(result) == 2 else result[0]
    batch = 1 if len(result) == 2 else result[0 if first else 1]
    appended = ("bias_k" in hook.layer.parameters) + bool(settings["add_zero_attn"])
    key = given[1]
    keys = (
        weights[-1]
        if weights is not None and len(weights) > 1
        else (key[-2] if first or len(key) == 2 else key[0]) + appended
    )
    return batch, queries, keys, appended


def _attention(batch: int, queries: int, keys: int, appended: int, it: Any) -> int:
    width = it["embed_dim"]
    projections = width * (2 * queries * width + (keys - appended) * (it["kdim"] + it["vdim"]))
    return int(batch * (projections + 2 * queries * keys * width))


def _softmax(batch: int, queries: int, keys: int, appended: int, heads: int) -> int:
    return batch * heads * queries * (3 * keys - 1)


def _product(call: Called) -> int:
    if call.name in ("linear", "matmul", "@", "bmm") and call.out is not None and call.x:
        return int(prod(call.out) * call.x[-1])
    if call.name == "multi_head_attention_forward":
        it = asked(call)  # where it asks for no weights, its attention is counted where it ran
        return it.projections + (2 * it.scores * it.head if it.weights else 0)
    return _einsum(call.args) if call.name == "einsum" else 0


def _einsum(args: Any) -> int:
    """A product of two: the sizes of all labels that both have, or that are kept; what is 1 is summed or spread before."""
    equation, *operands = args
    shapes = operands[0] if len(operands) == 1 and not is_shape(operands[0]) else operands
    if len(shapes) != 2 or None in shapes:
        return 0
    given, _, kept = equation.replace(" ", "").partition("->")
    if "->" not in equation:
        kept = "..." + "".join(c for c in given if given.count(c) == 1)
    a, b = (_labelled(labels, shape) for labels, shape in zip(given.split(","), shapes, strict=True))
    sizes = {**b, **a}
    return int(prod(sizes[c] for c in sizes if (c in a and c in b) or (c if isinstance(c, str) else "...") in kept))


def _labelled(labels: str, shape: Sequence[int]) -> dict[str | int, int]:
    """Sizes by label, those of an ellipsis numbered from its end, without what is 1."""
    head, _, tail = labels.partition("...")
    between = range(len(shape) - len(head) - len(tail), 0, -1)
    return {label: size for label, size in zip((*head, *between, *tail), shape, strict=True) if size != 1}
