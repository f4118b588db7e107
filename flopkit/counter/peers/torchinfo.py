"""torchinfo 1.8: parameters times positions of the output, where a dense layer has as many positions as sequences in the batch."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from flopkit.counter.peers.calls import hooked
from flopkit.counter.peers.families import rows_of
from flopkit.counter.peers.seen import Fails, Seen

__all__ = ["seen"]

UNIT = "mult-adds"
REALLY = "multiply-adds of weights"
FAILED = "RuntimeError: Failed to run torchinfo."
UNSEEN = "of {} it sees what lies in layers of their own, and of a dense layer one position for each sequence"


def seen(source: Any) -> Seen:
    """The ``total_mult_adds`` that ``torchinfo.summary`` would print of the forward passes that *source* watched."""
    macs: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for layer, _, out, _, calls in hooked(source):
        name = layer.kind.__name__
        if out is None or not layer.leaf:
            continue
        if not out and any("weight" in parameter or "bias" in parameter for parameter in layer.parameters):
            raise Fails(FAILED)  # a number has no first size
        for parameter, size in layer.parameters.items():
            positions = 0
            if parameter in ("weight", "bias"):
                positions = prod(out[:1] + out[2:]) if "Conv" in name else out[0]
            elif "weight" in parameter or "bias" in parameter:
                positions = prod(out[:2])
            if parameter.startswith("bias"):
                added["biases"] += calls * positions * prod(size)
            elif family := _family(name):
                macs[family] += calls * positions * prod(size)
            else:
                added["parameters of norms and embeddings"] += calls * positions * prod(size)
    total, rows = rows_of(source, {f: 2 * n for f, n in macs.items()}, {f: 2 * n for f, n in added.items()}, UNSEEN)
    return Seen("torchinfo", sum(macs.values()) + sum(added.values()), UNIT, REALLY, total, rows)


def _family(name: str) -> str:
    if "Conv" in name:
        return "convolution"
    if any(part in name for part in ("RNN", "GRU", "LSTM")):
        return "recurrent"
    return "dense" if "Linear" in name else ""
