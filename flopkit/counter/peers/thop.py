"""thop 0.1.1 (PyPI: thop): a hook on every layer whose very class is in its table. Multiply-adds, and operations of norms and pools."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from flopkit.counter.peers.families import rows_of
from flopkit.counter.peers.seen import Seen

__all__ = ["seen"]

UNSEEN = "no layer in its table computes {}, so no hook of it runs"
_UPSAMPLE = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259}


def seen(source: Any) -> Seen:
    """What ``thop.profile`` would print of the forward passes that *source* watched."""
    macs: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for (layer, given, out), calls in source.ledger().layers.items():
        kind = _kind(layer)
        if kind is None or given is None or out is None:
            continue
        family, each = _count(kind, layer, given, out)
        (macs if family in ("convolution", "dense", "recurrent") else added)[family] += calls * each
    total, rows = rows_of(source, {f: 2 * n for f, n in macs.items()}, {f: 2 * n for f, n in added.items()}, UNSEEN)
    value = sum(macs.values()) + sum(added.values())
    return Seen("thop", value, "MACs", "multiply-adds, and operations of norms and pools", total, rows)


def _kind(layer: Any) -> str | None:
    """The class's name, if it is torch's own class and not one derived from it."""
    return layer.kind.__name__ if layer.kind.__module__.startswith("torch.nn.modules") else None


def _count(kind: str, layer: Any, given: Any, out: Any) -> tuple[str, int]:
    it = layer.settings
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
        return "upsampling", _UPSAMPLE.get(it["mode"], 0) * prod(out)
    if kind in ("RNN", "GRU", "LSTM"):
        return "recurrent", prod(given[:2]) * stack(kind, it)
    if kind in ("RNNCell", "GRUCell", "LSTMCell"):
        return "recurrent", given[0] * cell(kind[:-4], it["input_size"], it["hidden_size"], it["bias"])
    return "nothing", 0


def cell(kind: str, size: int, hidden: int, bias: bool) -> int:
    """One step of a recurrent layer: its products, and gates, sums and biases as operations of their own."""
    state = (size + hidden) * hidden + hidden + (2 * hidden if bias else 0)
    return {"RNN": state, "GRU": 3 * state + 4 * hidden, "LSTM": 4 * state + 4 * hidden}[kind]


def stack(kind: str, it: Any) -> int:
    ways = 2 if it["bidirectional"] else 1
    first = ways * cell(kind, it["input_size"], it["hidden_size"], it["bias"])
    return int(
        first + (it["num_layers"] - 1) * ways * cell(kind, ways * it["hidden_size"], it["hidden_size"], it["bias"])
    )
