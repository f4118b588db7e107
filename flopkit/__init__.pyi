"""What a reader of flopkit types: each public name and its home, read by `__init__.py` and by type checkers alike."""

from flopkit import conventions as conventions, models as models, units as units
from flopkit.__about__ import __version__ as __version__
from flopkit.conventions import Convention as Convention
from flopkit.cost import Cost as Cost
from flopkit.counter.gathering import gather as gather
from flopkit.counter.registry import formula as formula
from flopkit.counter.report import Report as Report
from flopkit.counter.running import UncountedError as UncountedError, count as count, counting as counting
from flopkit.devices import Device as Device, device as device, device_names as device_names
from flopkit.diagnosis import doctor as doctor
from flopkit.layers.attention_layers import mla as mla, multi_head_attention as multi_head_attention
from flopkit.layers.attentions import attention as attention, visible_pairs as visible_pairs, window as window
from flopkit.layers.convolutions import conv1d as conv1d, conv2d as conv2d, conv3d as conv3d
from flopkit.layers.embeddings import (
    embedding as embedding,
    learned_positions as learned_positions,
    rotary as rotary,
)
from flopkit.layers.experts import expert_load as expert_load, moe as moe
from flopkit.layers.normalisations import (
    batch_norm as batch_norm,
    group_norm as group_norm,
    layer_norm as layer_norm,
    rms_norm as rms_norm,
)
from flopkit.layers.pointwise import (
    activation as activation,
    cross_entropy as cross_entropy,
    dropout as dropout,
    residual as residual,
    scale as scale,
    softmax as softmax,
)
from flopkit.layers.pooling import avg_pool2d as avg_pool2d, max_pool2d as max_pool2d
from flopkit.layers.products import dense as dense, matmul as matmul
from flopkit.layers.states import gated_delta as gated_delta, state_space as state_space
from flopkit.layers.transposed_convolutions import (
    conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d,
    conv_transpose3d as conv_transpose3d,
)
from flopkit.measuring.ceilings import ceilings as ceilings
from flopkit.measuring.running import measure as measure
from flopkit.models.catalogue import load as load, model_names as model_names
from flopkit.models.files.hugging_face import from_hf as from_hf
from flopkit.models.training.lora import LoRA as LoRA
from flopkit.peers.asking import ask as ask
from flopkit.peers.of_transformers import count_hf as count_hf
from flopkit.profiling.running import profile as profile
from flopkit.rooflines import roofline as roofline
from flopkit.simulation.ranks import simulate_ranks as simulate_ranks
from flopkit.utilization.meters import Meter as Meter
from flopkit.utilization.shares import hfu as hfu, mbu as mbu, mfu as mfu
