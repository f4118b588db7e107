"""Whole networks as trees of layers, and the configurations of published ones."""

from flopkit.models.alternating import AlternatingUpdates, LowRank
from flopkit.models.block_sparse import BlockSparseAttention
from flopkit.models.blocks import Block, Branch, Frames, Parallel, Patches
from flopkit.models.catalogue import load, model_names
from flopkit.models.compressed import CompressedAttention, CompressedIndexer, Compressor
from flopkit.models.configs import config_names, config_source, hf_config
from flopkit.models.depthwise import DepthwiseMLP
from flopkit.models.disentangled import Convolution, DisentangledAttention
from flopkit.models.ends import AttentionPool, Dense, End, EndNorm, Gated, Learned, Mean, Newline
from flopkit.models.feed_forward import MLP, Experts
from flopkit.models.finetuning import LastLayers
from flopkit.models.formats import Formats
from flopkit.models.heads import Head
from flopkit.models.hugging_face import families, from_hf
from flopkit.models.latent_attention import LatentAttention
from flopkit.models.lora import LoRA
from flopkit.models.matrices import MATRICES
from flopkit.models.mixers import Attention
from flopkit.models.model import Model
from flopkit.models.per_layer import DenseAndExperts, LayerGate, LayerInputs
from flopkit.models.recompute import Segments
from flopkit.models.recurrences import GatedDelta, StateSpace
from flopkit.models.scans import GatedRecurrence, LightningAttention, SelectiveScan, ShortConv
from flopkit.models.shared_blocks import SharedBlock
from flopkit.models.sparse import Indexer
from flopkit.models.stack import Stack
from flopkit.models.storage import Storage, storage_names
from flopkit.models.streams import HyperConnections
from flopkit.models.sub_norms import SubNorm
from flopkit.models.towers import Beside, Scaled, Still, Then, Windows
from flopkit.models.transformer import WindowedLayers, transformer
from flopkit.models.vision import ConvNet, cnn, cnn_names
from flopkit.models.waves import GatedPositions, NormedMLP, Waves

__all__ = [
    "AlternatingUpdates",
    "Attention",
    "AttentionPool",
    "Beside",
    "Block",
    "BlockSparseAttention",
    "Branch",
    "CompressedAttention",
    "CompressedIndexer",
    "Compressor",
    "ConvNet",
    "Convolution",
    "Dense",
    "DepthwiseMLP",
    "DenseAndExperts",
    "DisentangledAttention",
    "End",
    "EndNorm",
    "Experts",
    "Formats",
    "Frames",
    "Gated",
    "GatedDelta",
    "GatedPositions",
    "GatedRecurrence",
    "Head",
    "HyperConnections",
    "Indexer",
    "LastLayers",
    "LatentAttention",
    "LayerGate",
    "LayerInputs",
    "Learned",
    "LightningAttention",
    "LoRA",
    "LowRank",
    "MATRICES",
    "MLP",
    "Mean",
    "Model",
    "Newline",
    "NormedMLP",
    "Parallel",
    "Patches",
    "Scaled",
    "Segments",
    "SelectiveScan",
    "SharedBlock",
    "ShortConv",
    "Stack",
    "StateSpace",
    "Still",
    "Storage",
    "SubNorm",
    "Then",
    "Waves",
    "WindowedLayers",
    "Windows",
    "cnn",
    "cnn_names",
    "config_names",
    "config_source",
    "families",
    "from_hf",
    "hf_config",
    "load",
    "model_names",
    "storage_names",
    "transformer",
]
