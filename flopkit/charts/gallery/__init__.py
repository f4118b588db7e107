"""The book's figures, one subject a file. Each function takes no arguments and returns a `Figure`."""

from flopkit.charts.gallery.attention import attention_pairs
from flopkit.charts.gallery.attention_length import attention_crossing
from flopkit.charts.gallery.backward import backward_stack
from flopkit.charts.gallery.calculators import calculator
from flopkit.charts.gallery.checkpoints import recompute_policies
from flopkit.charts.gallery.cnns import cnn_anatomy
from flopkit.charts.gallery.conventions import what_counts
from flopkit.charts.gallery.convolutions import convolution_cost
from flopkit.charts.gallery.counters import eight_tools
from flopkit.charts.gallery.dense import dense_roofline
from flopkit.charts.gallery.experts import expert_loads
from flopkit.charts.gallery.flash import eager_and_flash
from flopkit.charts.gallery.measuring import stopping_rules
from flopkit.charts.gallery.models import model_parts, six_n_error
from flopkit.charts.gallery.one_run import one_run
from flopkit.charts.gallery.rest import layer_shares
from flopkit.charts.gallery.roofs import reached_roof
from flopkit.charts.gallery.serving import decode_throughput
from flopkit.charts.gallery.study import utilisation_ceilings
from flopkit.charts.gallery.trace import rate_and_clock
from flopkit.charts.gallery.utilisation import usual_mistakes

__all__ = [
    "attention_crossing",
    "attention_pairs",
    "backward_stack",
    "calculator",
    "cnn_anatomy",
    "convolution_cost",
    "decode_throughput",
    "dense_roofline",
    "eager_and_flash",
    "eight_tools",
    "expert_loads",
    "layer_shares",
    "model_parts",
    "one_run",
    "rate_and_clock",
    "reached_roof",
    "recompute_policies",
    "six_n_error",
    "utilisation_ceilings",
    "stopping_rules",
    "usual_mistakes",
    "what_counts",
]
