"""Whole networks as trees of layers, and the configurations of published ones."""

from flopkit.models.blocks import Block, Branch, Frames, Parallel, Patches
from flopkit.models.catalogue import load, model_names
from flopkit.models.compressed import CompressedAttention, CompressedIndexer, Compressor
from flopkit.models.configs import config_names, config_source, hf_config
from flopkit.models.disentangled import Convolution, DisentangledAttention
from flopkit.models.ends import AttentionPool, Dense, End, EndNorm, Learned, Mean
from flopkit.models.feed_forward import MLP, Experts
from flopkit.models.finetuning import LastLayers
from flopkit.models.formats import Formats
from flopkit.models.heads import Head
from flopkit.models.hugging_face import families, from_hf
from flopkit.models.lora import LoRA
from flopkit.models.mixers import Attention, LatentAttention
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
from flopkit.models.towers import Beside, Scaled, Then, Windows
from flopkit.models.transformer import WindowedLayers, transformer
from flopkit.models.vision import ConvNet, cnn, cnn_names

__all__ = [
    "Attention",
    "AttentionPool",
    "Beside",
    "Block",
    "Branch",
    "CompressedAttention",
    "CompressedIndexer",
    "Compressor",
    "ConvNet",
    "Convolution",
    "Dense",
    "DenseAndExperts",
    "DisentangledAttention",
    "End",
    "EndNorm",
    "Experts",
    "Formats",
    "Frames",
    "GatedDelta",
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
    "MLP",
    "Mean",
    "Model",
    "Parallel",
    "Patches",
    "Scaled",
    "Segments",
    "SelectiveScan",
    "SharedBlock",
    "ShortConv",
    "Stack",
    "StateSpace",
    "Storage",
    "Then",
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
