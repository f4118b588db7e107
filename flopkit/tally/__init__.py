"""Counting by doing: numbers that have their arithmetic counted, and naive algorithms to run on them.

The closed forms of `flopkit.layers` are checked against these loops, which know nothing of them. Every algorithm
takes the sizes of the formula of the same name, draws numbers, does the work one operation at a time, and returns the
`Ledger`; `ledger.inputs` and `ledger.output` hold the numbers, so that the result can be checked too.

>>> from flopkit import tally
>>> counted = tally.matmul(m=5, k=3, n=7)
>>> counted.multiplies, counted.adds, counted.flops
(105, 70, 210)

A contraction starts from its first product (K multiplications, K − 1 additions); a running sum or maximum of
element-wise work starts from 0 or −∞, as kernels do, and so takes one operation an element.
"""

from flopkit.tally.attention_layers import mla, multi_head_attention
from flopkit.tally.attentions import attention
from flopkit.tally.convolutions import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from flopkit.tally.embeddings import embedding, learned_positions, rotary, sinusoidal_positions
from flopkit.tally.experts import moe
from flopkit.tally.ledger import Ledger, contraction, counting, elementwise
from flopkit.tally.normalisations import batch_norm, group_norm, layer_norm, rms_norm
from flopkit.tally.pointwise import activation, cross_entropy, dropout, residual, scale, softmax
from flopkit.tally.pooling import avg_pool2d, max_pool2d
from flopkit.tally.products import dense, dot, matmul
from flopkit.tally.scalar import Tally, numbers, plain
from flopkit.tally.states import gated_delta, selective_scan, state_space

__all__ = [
    "Ledger",
    "Tally",
    "activation",
    "attention",
    "avg_pool2d",
    "batch_norm",
    "contraction",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "counting",
    "cross_entropy",
    "dense",
    "dot",
    "dropout",
    "elementwise",
    "embedding",
    "gated_delta",
    "group_norm",
    "layer_norm",
    "learned_positions",
    "matmul",
    "max_pool2d",
    "mla",
    "moe",
    "multi_head_attention",
    "numbers",
    "plain",
    "residual",
    "rms_norm",
    "rotary",
    "scale",
    "selective_scan",
    "sinusoidal_positions",
    "softmax",
    "state_space",
]
