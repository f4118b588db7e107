"""thop 0.1.1 (PyPI: thop): a hook on every layer whose very class is in its table. Multiply-adds, and operations of norms and pools."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from flopkit.counter.peers.calls import Hooked, hooked, scripted
from flopkit.counter.peers.families import rows_of
from flopkit.counter.peers.seen import Fails, Seen
from flopkit.counter.told import Packed

__all__ = ["cell", "seen", "stack"]

UNIT = "MACs"
REALLY = "multiply-adds, and operations of norms and pools"
SCRIPT = "RuntimeError: Can't add a new parameter after ScriptModule construction. Tried to add 'total_ops"
UNSEEN = "no layer in its table computes {}, so no hook of it runs"
_READS = (
    "Conv",
    "LayerNorm",
    "SyncBatchNorm",
    "BatchNorm",
    "InstanceNorm",
    "PReLU",
    "Softmax",
    "AdaptiveAvgPool",
    "RNN",
    "GRU",
    "LSTM",
)
_UPSAMPLE = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259}


def seen(source: Any) -> Seen:
    """What ``thop.profile`` would print of the forward passes that *source* watched."""
    if scripted(source):
        raise Fails(SCRIPT)
    macs: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for call in hooked(source):
        kind = _kind(call.layer)
        if kind is None or call.given is None or call.out is None:
            continue
        family, each = _count(kind, call)
        # A layer that parents share is hooked once for each of the ways to it, and added up once for each.
        each *= call.times * call.layer.times**2
        (macs if family in ("convolution", "dense", "recurrent") else added)[family] += each
    total, rows = rows_of(source, {f: 2 * n for f, n in macs.items()}, {f: 2 * n for f, n in added.items()}, UNSEEN)
    value = sum(macs.values()) + sum(added.values())
    return Seen("thop", value, UNIT, REALLY, total, rows)


def _kind(layer: Any) -> str | None:
    """The class's name, if it is torch's own class and not one derived from it."""
    return layer.kind.__name__ if layer.kind.__module__.startswith("torch.nn.modules") else None


def _count(kind: str, call: Hooked) -> tuple[str, int]:
    layer, given, out, it = call.layer, call.given, call.out, call.layer.settings
    if not call.placed and kind.startswith(_READS):  # hooks are told what was given by position
        raise Fails("IndexError: tuple index out of range")
    if kind in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"):
        # A transposed one by the same formula: at every position of its output, which is stride times too much each way.
        return "convolution", prod(out) * (given[1] // it["groups"]) * prod(layer.parameters["weight"][2:])
    if kind == "Linear":
        return "dense", it["in_features"] * prod(out)
    if kind in ("LayerNorm", "SyncBatchNorm") or kind.startswith(("BatchNorm", "InstanceNorm")):
        return "norms", 2 * prod(given) * (2 if it.get("affine") or it.get("elementwise_affine") else 1)
    if kind == "PReLU":
        return "activations", prod(given)
    if kind == "Softmax":
        if it["dim"] is None:
            raise Fails("TypeError: tuple indices must be integers or slices, not NoneType")
        if not given:
            raise Fails("IndexError: tuple index out of range")
        length = given[it["dim"]]
        return "softmax", prod(given) // length * (3 * length - 1)
    if kind.startswith("AvgPool"):
        return "pools", prod(out)
    if kind.startswith("AdaptiveAvgPool"):
        window = 1.0
        for before, after in zip(given[2:], out[2:], strict=True):
            window *= before / after
        return "pools", int((window + 1) * prod(out))
    if kind in ("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"):
        if not call.placed and it["mode"] in _UPSAMPLE:
            raise Fails("IndexError: tuple index out of range")
        return "upsampling", _UPSAMPLE.get(it["mode"], 0) * prod(out)
    if kind in ("RNN", "GRU", "LSTM"):
        # What is packed counts as if every sequence were as long as the longest.
        steps = given.steps * (given.batch or 0) if isinstance(given, Packed) else prod(given[:2])
        return "recurrent", steps * stack(kind, it)
    if kind in ("RNNCell", "GRUCell", "LSTMCell"):
        return "recurrent", given[0] * cell(kind[:-4], it["input_size"], it["hidden_size"], it["bias"])
    return "nothing", 0


def cell(kind: str, size: int, hidden: int, bias: bool, projected: int = 0) -> int:
    """One step of a recurrent layer: its products, and gates, sums and biases as operations of their own."""
    state = (size + (projected or hidden)) * hidden + hidden + (2 * hidden if bias else 0)
    return {"RNN": state, "GRU": 3 * state + 4 * hidden, "LSTM": 4 * state + 4 * hidden + hidden * projected}[kind]


def stack(kind: str, it: Any, projected: int = 0) -> int:
    """One step of all layers of it. thop itself does not know that an LSTM may project its states to a smaller size."""
    ways = 2 if it["bidirectional"] else 1
    first = ways * cell(kind, it["input_size"], it["hidden_size"], it["bias"], projected)
    later = ways * cell(kind, ways * (projected or it["hidden_size"]), it["hidden_size"], it["bias"], projected)
    return int(first + (it["num_layers"] - 1) * later)
