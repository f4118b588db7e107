"""Pictures that explain, one subject a file: what touches what, what is reused, what is skipped. Each function returns a `Drawing`."""

from flopkit.book.drawings.backward import gradients, wanted_gradients
from flopkit.book.drawings.bottlenecks import bottlenecks, inverted_bottleneck, two_networks
from flopkit.book.drawings.causal import causal_tiles
from flopkit.book.drawings.checkpoints import kept_over_time
from flopkit.book.drawings.clinic import saved_by_cures, step_followed, step_rows, symptoms
from flopkit.book.drawings.convolutions import transposed, window, wiring
from flopkit.book.drawings.counters import seen_calls, seen_parts, tower
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.engines import decode_parts, engine_batches
from flopkit.book.drawings.experts import chosen_experts, routed_tokens
from flopkit.book.drawings.flash import fused_chain, tile_on_chip
from flopkit.book.drawings.floors import launch_floor, many_roofs
from flopkit.book.drawings.fusion import layer_tensors, norm_steps
from flopkit.book.drawings.hardware import peak
from flopkit.book.drawings.intensities import batch_intensity
from flopkit.book.drawings.latent import mla
from flopkit.book.drawings.layer import attention_layer
from flopkit.book.drawings.layer_costs import growing_core, layer_timeline
from flopkit.book.drawings.many_gpus import hidden_exchange, node_cards, ring_all_reduce
from flopkit.book.drawings.measuring import interval_of_rounds, warm_up
from flopkit.book.drawings.models import model_tree, six_flops
from flopkit.book.drawings.products import bytes_and_flops, dot_product, matrix_product
from flopkit.book.drawings.recipes import fitted_sequences
from flopkit.book.drawings.roofs import five_reasons, overlapped_times, roof_lines
from flopkit.book.drawings.scores import score_transfers, tile_walk
from flopkit.book.drawings.serving import decode_bytes, prefill_and_decode
from flopkit.book.drawings.six_n import two_errors
from flopkit.book.drawings.splits import five_splits
from flopkit.book.drawings.splitting import layer_cut, schedules, zigzag
from flopkit.book.drawings.stopwatches import stopwatches
from flopkit.book.drawings.sweeps import batch_crossing
from flopkit.book.drawings.utilisation import denominators, numerators

__all__ = [
    "Drawing",
    "attention_layer",
    "batch_crossing",
    "batch_intensity",
    "bottlenecks",
    "bytes_and_flops",
    "causal_tiles",
    "chosen_experts",
    "decode_bytes",
    "decode_parts",
    "denominators",
    "dot_product",
    "engine_batches",
    "five_reasons",
    "five_splits",
    "fitted_sequences",
    "fused_chain",
    "gradients",
    "growing_core",
    "hidden_exchange",
    "inverted_bottleneck",
    "interval_of_rounds",
    "kept_over_time",
    "launch_floor",
    "layer_cut",
    "layer_tensors",
    "layer_timeline",
    "many_roofs",
    "matrix_product",
    "mla",
    "node_cards",
    "norm_steps",
    "numerators",
    "model_tree",
    "overlapped_times",
    "peak",
    "ring_all_reduce",
    "roof_lines",
    "routed_tokens",
    "saved_by_cures",
    "prefill_and_decode",
    "schedules",
    "score_transfers",
    "seen_calls",
    "seen_parts",
    "six_flops",
    "step_followed",
    "step_rows",
    "stopwatches",
    "symptoms",
    "tile_on_chip",
    "tile_walk",
    "tower",
    "transposed",
    "two_errors",
    "two_networks",
    "wanted_gradients",
    "warm_up",
    "window",
    "wiring",
    "zigzag",
]
