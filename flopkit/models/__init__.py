"""Whole networks as trees of layers, and the configurations of published ones."""

from flopkit.models.branches.block_sparse import BlockSparseAttention
from flopkit.models.branches.compressed import CompressedAttention, CompressedIndexer, Compressor
from flopkit.models.branches.depthwise import DepthwiseMLP
from flopkit.models.branches.disentangled import Convolution, DisentangledAttention
from flopkit.models.branches.feed_forward import MLP, Experts
from flopkit.models.branches.latent_attention import LatentAttention
from flopkit.models.branches.mixers import Attention
from flopkit.models.branches.per_layer import DenseAndExperts, LayerGate, LayerInputs
from flopkit.models.branches.recurrences import GatedDelta, StateSpace
from flopkit.models.branches.scans import GatedRecurrence, LightningAttention, SelectiveScan, ShortConv
from flopkit.models.branches.shared_blocks import SharedBlock
from flopkit.models.branches.sparse import Indexer
from flopkit.models.branches.sub_norms import SubNorm
from flopkit.models.catalogue import load, model_names
from flopkit.models.files.configs import config_names, config_source, hf_config
from flopkit.models.files.hugging_face import families, from_hf
from flopkit.models.formats import Formats
from flopkit.models.model import Model
from flopkit.models.stacks.alternating import AlternatingUpdates, LowRank
from flopkit.models.stacks.blocks import Block, Branch, Frames, Parallel, Patches
from flopkit.models.stacks.ends import AttentionPool, Dense, End, EndNorm, Gated, Learned, Mean, Newline
from flopkit.models.stacks.heads import Head
from flopkit.models.stacks.matrices import MATRICES
from flopkit.models.stacks.stack import Stack
from flopkit.models.stacks.streams import HyperConnections
from flopkit.models.stacks.towers import Beside, Scaled, Still, Then, Windows
from flopkit.models.stacks.waves import GatedPositions, NormedMLP, Waves
from flopkit.models.storage import Storage, storage_names
from flopkit.models.training.finetuning import LastLayers
from flopkit.models.training.lora import LoRA
from flopkit.models.training.recompute import Segments
from flopkit.models.transformer import WindowedLayers, transformer
from flopkit.models.vision import ConvNet, cnn, cnn_names

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
