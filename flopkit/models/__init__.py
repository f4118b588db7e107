"""Whole networks as trees of layers, and the configurations of published ones."""

from flopkit.models.configs import config_names, config_source, hf_config
from flopkit.models.language import Decoder, decoder
from flopkit.models.vision import cnn, cnn_names

__all__ = ["Decoder", "cnn", "cnn_names", "config_names", "config_source", "decoder", "hf_config"]
