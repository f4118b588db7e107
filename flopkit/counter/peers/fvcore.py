"""fvcore 0.1.5: the operators of a trace, forward only. It prints multiply-adds under the name of FLOPs, and adds norms and pools."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from flopkit.counter.peers import dispatch
from flopkit.counter.peers.families import rows_of
from flopkit.counter.peers.lines import ATTENTION, lines, name
from flopkit.counter.peers.seen import Seen

__all__ = ["seen"]

UNSEEN = "it has no rule for {}, counts 0, and logs a warning"
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "aten::convolution", "aten::_convolution")


def seen(source: Any) -> Seen:
    """What ``FlopCountAnalysis(model, inputs).total()`` would print of the forward passes that *source* watched.

    Matrix products are taken as the dispatcher shows them; fvcore meets them one floor above, as ``linear``, ``matmul`` and
    ``einsum``, and counts the same.
    """
    macs: Counter[str] = Counter()
    whole = {
        layer.path for layer, *_ in source.ledger().layers if layer.kind.__name__ in ("RNN", "GRU", "LSTM")
    }  # one operator
    for line in lines(source):
        op = name(line.entry)
        unseen = line.hidden or (line.inside and line.group == ATTENTION) or line.path in whole
        if line.phase == "forward" and not unseen and op in _PRODUCTS:
            family = "convolution" if "conv" in op else "dense"
            macs[family] += line.calls * dispatch.count(line.entry) // 2
    added: Counter[str] = Counter()
    for (function, _, (args, named), out, _), calls in source.ledger().functions.items():
        what, each = _added(function, args, dict(named), out)
        added[what] += calls * each
    total, rows = rows_of(source, {f: 2 * n for f, n in macs.items()}, {f: 2 * n for f, n in added.items()}, UNSEEN)
    value = sum(macs.values()) + sum(added.values())
    return Seen("fvcore", value, "FLOPs", "multiply-adds, and operations of norms and pools", total, rows)


def _added(function: str, args: Any, named: dict[str, Any], out: Any) -> tuple[str, int]:
    def given(place: int, key: str) -> Any:
        return args[place] if place < len(args) else named.get(key)

    x = given(0, "input")
    if function in ("batch_norm", "torch.batch_norm"):
        scaled = given(3 if function == "batch_norm" else 1, "weight") is not None
        training = bool(given(5, "training"))
        return "norms", prod(x) * (4 + scaled if training else 1 + scaled)
    if function in ("layer_norm", "group_norm", "instance_norm"):
        place = 3 if function == "instance_norm" else 2
        return "norms", prod(x) * (4 + (given(place, "weight") is not None))
    if function == "adaptive_avg_pool2d":
        return "pools", prod(x)
    if function == "interpolate" and len(x) == 4:
        return "upsampling", {"nearest": 1, "bilinear": 4}.get(given(3, "mode") or "nearest", 0) * prod(out)
    if function == "grid_sample":
        return "sampling", 4 * prod(out)
    return "nothing", 0
