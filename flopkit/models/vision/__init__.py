"""Convolutional networks for images: thirteen of torchvision's, from the closed forms."""

from flopkit.models.vision.cnns import cnn, cnn_backward, cnn_kinds, cnn_names
from flopkit.models.vision.convnet import ConvNet
from flopkit.models.vision.feature_map import KINDS
from flopkit.models.vision.networks import cnn_published

__all__ = ["KINDS", "ConvNet", "cnn", "cnn_backward", "cnn_kinds", "cnn_names", "cnn_published"]
