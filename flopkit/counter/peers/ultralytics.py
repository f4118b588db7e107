"""ultralytics-thop 2.2: hooks on layers, classes derived from known ones included, and products of functions outside of those layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from flopkit.counter.peers import thop
from flopkit.counter.peers.families import family_of, rows_of
from flopkit.counter.peers.lines import ATTENTION, lines, truth
from flopkit.counter.peers.seen import Seen

__all__ = ["seen"]

UNSEEN = "it has no rule for {}, and counts 0"
_WITH_RULE = ("Linear", "Bilinear", "MultiheadAttention", "LSTM", "GRU", "RNN", "_ConvNd", "_NormBase", "LayerNorm", "GroupNorm", "RMSNorm")  # fmt: skip
_UPSAMPLE = {"linear": 5, "bilinear": 11, "bicubic": 259, "trilinear": 31}


def seen(source: Any) -> Seen:
    """What ultralytics-thop's ``thop.profile`` would print of the forward passes that *source* watched."""
    macs: Counter[str] = Counter()
    added: Counter[str] = Counter()
    ledger = source.ledger()
    for (layer, given, out), calls in ledger.layers.items():
        family, each = _layer(layer, given, out)
        (macs if family in ("convolution", "dense", "recurrent", "attention") else added)[family] += calls * each
        if family == "attention":  # a softmax stands in the same rule
            added["softmax"] += calls * _softmax(layer, given, out)
    for (function, within, (args, named), out, _), calls in ledger.functions.items():
        if not any(name in _WITH_RULE for name in _ancestors(within)):
            macs["dense"] += calls * _product(function, args, dict(named), out)
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
            else:
                outer += pairs
    if inner:
        macs["dense"] += rule - inner
    elif apart:  # it ran as products like any other
        macs["dense"] += rule
        rule = 0
    macs["attention"] = (inner or rule) + outer


def _ancestors(kind: Any) -> Sequence[str]:
    return [each.__name__ for each in kind.__mro__ if each.__module__.startswith("torch.nn.modules")]


def _layer(layer: Any, given: Any, out: Any) -> tuple[str, int]:
    names, it = _ancestors(layer.kind), layer.settings
    if given is None or out is None:
        return "nothing", 0
    if "MultiheadAttention" in names:
        return "attention", _attention(layer, given, out)
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
    if "Softmax" in names or "LogSoftmax" in names or "Softmin" in names:
        length = given[it["dim"]]
        rows = prod(given) // length
        more = prod(given) if "Softmin" in names else rows if "LogSoftmax" in names else 0
        return "softmax", rows * (3 * length - 1) + more
    if any(name in ("RNN", "GRU", "LSTM") for name in names):
        kind = next(name for name in names if name in ("RNN", "GRU", "LSTM"))
        steps = given[0] if len(given) < 3 else given[0] * given[1]
        return "recurrent", steps * thop.stack(kind, it)
    if any(name.startswith("AdaptiveAvgPool") for name in names):
        windows = [
            sum(-(-(j + 1) * i // o) - j * i // o for j in range(o)) if i != o else o
            for i, o in zip(given, out, strict=True)
        ]
        return "pools", prod(windows) + prod(out)
    if any(name.startswith("AvgPool") for name in names):
        return "pools", _pooled(it, given, out)
    if "Upsample" in names:
        return "upsampling", _UPSAMPLE.get(it["mode"], 0) * prod(out)
    return ("activations", prod(given)) if "PReLU" in names else ("nothing", 0)


def _pooled(it: Any, given: Any, out: Any) -> int:
    dims = len(given) - 2

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


def _sizes(layer: Any, given: Any, out: Any) -> tuple[int, int, int]:
    """Batch, queries and keys of an attention layer's call."""
    result, weights = out if isinstance(out[0], tuple) else (out, None)
    first = layer.settings["batch_first"]
    queries = result[-2] if first or len(result) == 2 else result[0]
    batch = 1 if len(result) == 2 else result[0 if first else 1]
    key = given[1]
    keys = weights[-1] if weights is not None else (key[-2] if first or len(key) == 2 else key[0])
    return batch, queries, keys


def _attention(layer: Any, given: Any, out: Any) -> int:
    it = layer.settings
    batch, queries, keys = _sizes(layer, given, out)
    width = it["embed_dim"]
    return int(batch * (width * (2 * queries * width + keys * (it["kdim"] + it["vdim"])) + 2 * queries * keys * width))


def _softmax(layer: Any, given: Any, out: Any) -> int:
    batch, queries, keys = _sizes(layer, given, out)
    return int(batch * layer.settings["num_heads"] * queries * (3 * keys - 1))


def _product(function: str, args: Any, named: dict[str, Any], out: Any) -> int:
    if function in ("linear", "matmul", "@", "bmm") and out is not None:
        first = args[0] if args else named.get("input")
        return int(prod(out) * first[-1]) if first else 0
    if function == "einsum":
        return _einsum(args)
    return 0


def _einsum(args: Any) -> int:
    """A product of two: the sizes of all labels that both have, or that are kept."""
    equation, *operands = args
    shapes = operands[0] if len(operands) == 1 and operands[0] and isinstance(operands[0][0], tuple) else operands
    if len(shapes) != 2 or "..." in equation:
        return 0
    given, _, kept = equation.replace(" ", "").partition("->")
    if not kept:
        kept = "".join(c for c in given if given.count(c) == 1 and c != ",")
    a, b = (dict(zip(labels, shape, strict=True)) for labels, shape in zip(given.split(","), shapes, strict=True))
    sizes = {**b, **a}
    return int(prod(sizes[c] for c in sizes if (c in a and c in b) or c in kept))
