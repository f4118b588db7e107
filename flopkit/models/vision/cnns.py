"""The thirteen networks by their names."""

from __future__ import annotations

from typing import Any

from flopkit.cost import Cost
from flopkit.models.vision.convnet import ConvNet
from flopkit.models.vision.networks import NETWORKS

__all__ = ["cnn", "cnn_backward", "cnn_kinds", "cnn_names"]


def cnn(
    name: str, *, batch: int = 1, height: int = 224, width: int = 224, dtype: Any = "bf16",
) -> Cost:  # fmt: skip
    """The forward pass of a convolutional network: `ConvNet.forward`, by its name.

    Parameters
    ----------
    name : str
        One of `cnn_names()`; case, space, ``_``, ``-`` and ``.`` do not matter.
    batch, height, width : int, optional
        Images, and their size in pixels; three channels in, 1,000 classes out.
    dtype : Any, optional
        Number format of weights and maps, for the bytes.

    Raises
    ------
    ValueError
        For an unknown name, with near ones, and for an image too small for the network, with the layer that it does not
        fit.
    TypeError
        For a name that is not a string.

    Notes
    -----
    Batch normalisation runs as in inference, as an operator of its own. Not counted: flattening, which moves nothing.

    References
    ----------
    torchvision.models, of which each layer has the name and the sizes.

    Examples
    --------
    >>> network = cnn("resnet50")
    >>> network.macs, network.params
    (4089184256, 25557032)
    """
    network = ConvNet(name=name)
    return network.forward(batch=batch, height=height, width=width, dtype=dtype).named(network.name)


def cnn_backward(
    name: str, *, batch: int = 1, height: int = 224, width: int = 224, dtype: Any = "bf16",
) -> Cost:  # fmt: skip
    """The backward pass of `cnn`, one part a layer, in the order of the forward pass:
    that of `ConvNet.train_step`, by its name.

    FLOPs: twice the forward pass in a layer with weights, once in the first, whose input is the image.
    Bytes: a layer with weights reads its input, its weight and the gradient of its output, and writes two gradients; the first writes one.
    A norm or an activation reads its input and a gradient and writes a gradient: 3 maps where the forward pass moves 2. Everything else
    moves what it moves forward, the other way.

    Parameters
    ----------
    name : str
        One of `cnn_names()`.
    batch, height, width : int, optional
        Images, and their size in pixels.
    dtype : Any, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        As `cnn` does.

    Notes
    -----
    A lower bound of the bytes: an operator that takes several steps, such as the gradient of squeeze-and-excite's factors, moves more.
    Not counted: element-wise FLOPs, the loss, the optimiser's step.

    Examples
    --------
    >>> round(cnn_backward("mobilenet_v2").flops / cnn("mobilenet_v2").flops, 6)
    1.963966
    """
    network = ConvNet(name=name)
    step = network.train_step(batch=batch, height=height, width=width, dtype=dtype)
    return step.backward.named(f"{network.name}, backward")


def cnn_kinds(name: str) -> dict[str, str]:
    """What each layer of a network is, one of ``KINDS``, by its name.

    Raises
    ------
    ValueError
        For an unknown name, with near ones.
    TypeError
        For one that is not a string.

    Examples
    --------
    >>> kinds = cnn_kinds("mobilenet_v2")
    >>> kinds["features.2.conv.0.0"], kinds["features.2.conv.1.0"]
    ('pointwise', 'depthwise')
    """
    return ConvNet(name=name).kinds


def cnn_names() -> list[str]:
    """The networks that `cnn` knows.

    >>> len(cnn_names())
    13
    """
    return list(NETWORKS)
