"""The book's figures, one subject a file. Each function takes no arguments and returns a `Figure`."""

from flopkit.book.gallery.all_reduces import all_reduce_time
from flopkit.book.gallery.attention import attention_pairs
from flopkit.book.gallery.attention_length import attention_crossing
from flopkit.book.gallery.backward import backward_stack
from flopkit.book.gallery.calculators import calculator
from flopkit.book.gallery.checkpoints import recompute_policies
from flopkit.book.gallery.clinic import cures
from flopkit.book.gallery.cnns import cnn_anatomy
from flopkit.book.gallery.conventions import what_counts
from flopkit.book.gallery.conventions_of_models import conventions_compared
from flopkit.book.gallery.convolutions import convolution_cost
from flopkit.book.gallery.counters import eight_tools
from flopkit.book.gallery.data_parallel import gradient_exchange
from flopkit.book.gallery.dense import dense_roofline
from flopkit.book.gallery.flash import eager_and_flash
from flopkit.book.gallery.fusing import fused_kernels
from flopkit.book.gallery.layouts import layouts
from flopkit.book.gallery.lengths import token_growth
from flopkit.book.gallery.measuring import stopping_rules
from flopkit.book.gallery.models import model_parts, six_n_error
from flopkit.book.gallery.one_run import one_run
from flopkit.book.gallery.online_softmax import online_softmax_steps
from flopkit.book.gallery.parallel_step import parallel_step
from flopkit.book.gallery.peak_to_bill import from_peak_to_bill
from flopkit.book.gallery.pipelines import pipeline_playground
from flopkit.book.gallery.predictions import predictions_held
from flopkit.book.gallery.rest import layer_shares
from flopkit.book.gallery.roofs import reached_roof
from flopkit.book.gallery.serving import decode_throughput
from flopkit.book.gallery.sparse import sparse_and_dense
from flopkit.book.gallery.step_gaps import where_a_step_goes
from flopkit.book.gallery.study import utilisation_ceilings
from flopkit.book.gallery.trace import rate_and_clock
from flopkit.book.gallery.utilisation import usual_mistakes
from flopkit.book.gallery.waterfall import lost_utilisation

__all__ = [
    "all_reduce_time",
    "attention_crossing",
    "attention_pairs",
    "backward_stack",
    "calculator",
    "cnn_anatomy",
    "conventions_compared",
    "convolution_cost",
    "cures",
    "decode_throughput",
    "dense_roofline",
    "eager_and_flash",
    "eight_tools",
    "from_peak_to_bill",
    "fused_kernels",
    "gradient_exchange",
    "layer_shares",
    "layouts",
    "lost_utilisation",
    "model_parts",
    "one_run",
    "online_softmax_steps",
    "parallel_step",
    "pipeline_playground",
    "predictions_held",
    "rate_and_clock",
    "reached_roof",
    "recompute_policies",
    "six_n_error",
    "token_growth",
    "utilisation_ceilings",
    "sparse_and_dense",
    "stopping_rules",
    "usual_mistakes",
    "what_counts",
    "where_a_step_goes",
]
