"""Whole networks as trees of layers."""

from flopkit.models.vision import cnn, cnn_names

__all__ = ["cnn", "cnn_names"]
