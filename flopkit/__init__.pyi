"""What a reader of flopkit types: each public name and its home, read by `__init__.py` and by type checkers alike."""

from flopkit import (
    charts as charts,
)
from flopkit import (
    conventions as conventions,
)
from flopkit import (
    lessons as lessons,
)
from flopkit import (
    models as models,
)
from flopkit import (
    rooflines as rooflines,
)
from flopkit import (
    tally as tally,
)
from flopkit import (
    units as units,
)
from flopkit import (
    widgets as widgets,
)
from flopkit.__about__ import __version__ as __version__
from flopkit.arithmetic import (
    ceil_div as ceil_div,
)
from flopkit.arithmetic import (
    exact_div as exact_div,
)
from flopkit.arithmetic import (
    log2 as log2,
)
from flopkit.arithmetic import (
    maximum as maximum,
)
from flopkit.arithmetic import (
    minimum as minimum,
)
from flopkit.arithmetic import (
    where as where,
)
from flopkit.conventions import Convention as Convention
from flopkit.cost import Cost as Cost
from flopkit.counter.registry import formula as formula
from flopkit.counter.report import Report as Report
from flopkit.counter.running import UncountedError as UncountedError
from flopkit.counter.running import count as count
from flopkit.counter.running import counting as counting
from flopkit.devices import Device as Device
from flopkit.devices import device as device
from flopkit.devices import device_names as device_names
from flopkit.layers.attention_layers import mla as mla
from flopkit.layers.attention_layers import multi_head_attention as multi_head_attention
from flopkit.layers.attentions import attention as attention
from flopkit.layers.attentions import visible_pairs as visible_pairs
from flopkit.layers.attentions import window as window
from flopkit.layers.convolutions import (
    conv1d as conv1d,
)
from flopkit.layers.convolutions import (
    conv2d as conv2d,
)
from flopkit.layers.convolutions import (
    conv3d as conv3d,
)
from flopkit.layers.convolutions import (
    conv_output as conv_output,
)
from flopkit.layers.convolutions import (
    conv_transpose1d as conv_transpose1d,
)
from flopkit.layers.convolutions import (
    conv_transpose2d as conv_transpose2d,
)
from flopkit.layers.convolutions import (
    conv_transpose3d as conv_transpose3d,
)
from flopkit.layers.embeddings import (
    embedding as embedding,
)
from flopkit.layers.embeddings import (
    learned_positions as learned_positions,
)
from flopkit.layers.embeddings import (
    rotary as rotary,
)
from flopkit.layers.embeddings import (
    sinusoidal_positions as sinusoidal_positions,
)
from flopkit.layers.experts import moe as moe
from flopkit.layers.normalisations import (
    batch_norm as batch_norm,
)
from flopkit.layers.normalisations import (
    group_norm as group_norm,
)
from flopkit.layers.normalisations import (
    layer_norm as layer_norm,
)
from flopkit.layers.normalisations import (
    rms_norm as rms_norm,
)
from flopkit.layers.pointwise import (
    activation as activation,
)
from flopkit.layers.pointwise import (
    cross_entropy as cross_entropy,
)
from flopkit.layers.pointwise import (
    dropout as dropout,
)
from flopkit.layers.pointwise import (
    residual as residual,
)
from flopkit.layers.pointwise import (
    scale as scale,
)
from flopkit.layers.pointwise import (
    softmax as softmax,
)
from flopkit.layers.pooling import avg_pool2d as avg_pool2d
from flopkit.layers.pooling import max_pool2d as max_pool2d
from flopkit.layers.products import dense as dense
from flopkit.layers.products import matmul as matmul
from flopkit.rooflines import roofline as roofline
from flopkit.training import (
    attention_backward as attention_backward,
)
from flopkit.training import (
    conv2d_backward as conv2d_backward,
)
from flopkit.training import (
    dense_backward as dense_backward,
)
