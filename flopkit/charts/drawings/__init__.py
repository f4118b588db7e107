"""Pictures that explain, one subject a file: what touches what, what is reused, what is skipped. Each function returns a `Drawing`."""

from flopkit.charts.drawings.backward import gradients, wanted_gradients
from flopkit.charts.drawings.bottlenecks import bottlenecks, inverted_bottleneck
from flopkit.charts.drawings.causal import causal_tiles
from flopkit.charts.drawings.checkpoints import kept_over_time
from flopkit.charts.drawings.convolutions import transposed, window, wiring
from flopkit.charts.drawings.counters import seen_calls, tower
from flopkit.charts.drawings.drawing import Drawing
from flopkit.charts.drawings.experts import routed_tokens
from flopkit.charts.drawings.flash import fused_chain, online_softmax
from flopkit.charts.drawings.fusion import layer_tensors, norm_steps
from flopkit.charts.drawings.hardware import peak
from flopkit.charts.drawings.latent import mla
from flopkit.charts.drawings.layer import attention_layer
from flopkit.charts.drawings.measuring import interval_of_rounds, warm_up
from flopkit.charts.drawings.models import model_tree, six_flops
from flopkit.charts.drawings.products import bytes_and_flops, dot_product, matrix_product
from flopkit.charts.drawings.roofs import overlapped_times, roof_lines
from flopkit.charts.drawings.serving import decode_bytes, prefill_and_decode
from flopkit.charts.drawings.utilisation import numerators

__all__ = [
    "Drawing",
    "attention_layer",
    "bottlenecks",
    "bytes_and_flops",
    "causal_tiles",
    "decode_bytes",
    "dot_product",
    "fused_chain",
    "gradients",
    "inverted_bottleneck",
    "interval_of_rounds",
    "kept_over_time",
    "layer_tensors",
    "matrix_product",
    "mla",
    "norm_steps",
    "numerators",
    "model_tree",
    "overlapped_times",
    "online_softmax",
    "peak",
    "roof_lines",
    "routed_tokens",
    "prefill_and_decode",
    "seen_calls",
    "six_flops",
    "tower",
    "transposed",
    "wanted_gradients",
    "warm_up",
    "window",
    "wiring",
]
