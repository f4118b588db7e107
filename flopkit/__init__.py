"""flopkit: every FLOP accounted for.

Closed forms, counters and measurements for the arithmetic and the memory traffic of neural networks.

>>> import flopkit as fk
>>> fk.matmul(m=4096, k=4096, n=4096).flops
137438953472

Importing this package loads nothing heavy: each name below is fetched from its room when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_ROOMS = {
    "flopkit.__about__": ("__version__",),
    "flopkit.arithmetic": ("ceil_div", "exact_div", "log2", "maximum", "minimum", "where"),
    "flopkit.conventions": ("Convention",),
    "flopkit.cost": ("Cost",),
    "flopkit.counter.registry": ("formula",),
    "flopkit.counter.report": ("Report",),
    "flopkit.counter.running": ("UncountedError", "count", "counting"),
    "flopkit.devices": ("Device", "device", "device_names"),
    "flopkit.layers.attention_layers": ("mla", "multi_head_attention"),
    "flopkit.layers.attentions": ("attention", "visible_pairs", "window"),
    "flopkit.layers.convolutions": (
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_output",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
    ),
    "flopkit.layers.embeddings": ("embedding", "learned_positions", "rotary", "sinusoidal_positions"),
    "flopkit.layers.experts": ("moe",),
    "flopkit.layers.normalisations": ("batch_norm", "group_norm", "layer_norm", "rms_norm"),
    "flopkit.layers.pointwise": ("activation", "cross_entropy", "dropout", "residual", "scale", "softmax"),
    "flopkit.layers.pooling": ("avg_pool2d", "max_pool2d"),
    "flopkit.layers.products": ("dense", "matmul"),
    "flopkit.rooflines": ("roofline",),
    "flopkit.training": ("attention_backward", "conv2d_backward", "dense_backward"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}
_SUBMODULES = ("charts", "conventions", "lessons", "models", "rooflines", "tally", "units", "widgets")

# Spelt out for type checkers, as is the list below it; a test holds both to the rooms above.
__all__ = [
    "Convention", "Cost", "Device", "Report", "UncountedError", "__version__", "activation", "attention",
    "attention_backward", "avg_pool2d", "batch_norm", "ceil_div", "charts", "conv1d", "conv2d", "conv2d_backward",
    "conv3d", "conv_output", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conventions", "count",
    "counting", "cross_entropy", "dense", "dense_backward", "device", "device_names", "dropout", "embedding",
    "exact_div", "formula", "group_norm", "layer_norm", "learned_positions", "lessons", "log2", "matmul",
    "max_pool2d", "maximum", "minimum", "mla", "models", "moe", "multi_head_attention", "residual", "rms_norm",
    "roofline", "rooflines", "rotary", "scale", "sinusoidal_positions", "softmax", "tally", "units",
    "visible_pairs", "where", "widgets", "window",
]  # fmt: skip

if TYPE_CHECKING:
    from flopkit import charts, conventions, lessons, models, rooflines, tally, units, widgets
    from flopkit.__about__ import __version__
    from flopkit.arithmetic import ceil_div, exact_div, log2, maximum, minimum, where
    from flopkit.conventions import Convention
    from flopkit.cost import Cost
    from flopkit.counter.registry import formula
    from flopkit.counter.report import Report
    from flopkit.counter.running import UncountedError, count, counting
    from flopkit.devices import Device, device, device_names
    from flopkit.layers.attention_layers import mla, multi_head_attention
    from flopkit.layers.attentions import attention, visible_pairs, window
    from flopkit.layers.convolutions import (
        conv1d,
        conv2d,
        conv3d,
        conv_output,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
    )
    from flopkit.layers.embeddings import embedding, learned_positions, rotary, sinusoidal_positions
    from flopkit.layers.experts import moe
    from flopkit.layers.normalisations import batch_norm, group_norm, layer_norm, rms_norm
    from flopkit.layers.pointwise import activation, cross_entropy, dropout, residual, scale, softmax
    from flopkit.layers.pooling import avg_pool2d, max_pool2d
    from flopkit.layers.products import dense, matmul
    from flopkit.rooflines import roofline
    from flopkit.training import attention_backward, conv2d_backward, dense_backward


if not TYPE_CHECKING:  # to a type checker a misspelt name is an error, too

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            value = getattr(import_module(_HOME[name]), name)
        elif name in _SUBMODULES:
            value = import_module(f"flopkit.{name}")
        else:
            raise AttributeError(_unknown(name))
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__


def _unknown(name: str) -> str:
    from flopkit.names import hint

    return f"module 'flopkit' has no attribute {name!r}; {hint(name, __all__)}"
