"""Thirteen convolutional networks as lists of layers, built from the closed forms.

They are the networks of torchvision, and each layer bears the name that it has there, so that a count can be
compared layer by layer. Nothing here needs torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from flopkit.cost import Cost
from flopkit.dtypes import nbytes, real
from flopkit.layers.convolutions import conv2d
from flopkit.layers.normalisations import batch_norm
from flopkit.layers.pointwise import activation, residual, scale, vector_work
from flopkit.layers.pooling import max_pool2d
from flopkit.layers.positions import conv_output
from flopkit.layers.products import dense
from flopkit.names import find
from flopkit.sizes import number, size

__all__ = ["KINDS", "cnn", "cnn_backward", "cnn_kinds", "cnn_names", "cnn_published"]

KINDS = ("convolution", "pointwise", "depthwise", "dense", "norm", "activation", "other")
"""What a layer can be. Pointwise is a 1 × 1 convolution; other is pooling, residual sums and squeeze-and-excite's scaling."""


def cnn(
    name: str, *, batch: int = 1, height: int = 224, width: int = 224, dtype: Any = "bf16",
) -> Cost:  # fmt: skip
    """The forward pass of a convolutional network, one part a layer, in the order in which they run.

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
    image = _through(name, size("batch", batch), number("height", height), number("width", width), dtype)
    return Cost.total(image.network, image.parts)


def cnn_backward(
    name: str, *, batch: int = 1, height: int = 224, width: int = 224, dtype: Any = "bf16",
) -> Cost:  # fmt: skip
    """The backward pass of `cnn`, one part a layer, in the order of the forward pass.

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
    image = _through(name, size("batch", batch), number("height", height), number("width", width), dtype)
    return Cost.total(f"{image.network}, backward", image.gradients)


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
    # equivalent: 1 -> 2 | 224 -> 225 [1] | 224 -> 225 [2] (what a layer is does not depend on the image)
    return _through(name, 1, 224, 224, "bf16").kinds


def _through(name: str, batch: Any, height: int, width: int, dtype: Any) -> _Image:
    """An image in colours that has been through a network."""
    key = find(name, _NETWORKS, "a known network")
    image = _Image(batch, 3, height, width, dtype, key, (height, width))
    _NETWORKS[key](image)
    return image


def cnn_names() -> list[str]:
    """The networks that `cnn` knows.

    >>> len(cnn_names())
    13
    """
    return list(_NETWORKS)


def cnn_published() -> dict[str, dict[str, Any]]:
    """What torchvision publishes: ``{"gmacs": {"resnet50": 4.089, …}, "params": {…}}``, with source and version.

    GMACs of one image of 3 × 224 × 224, rounded to three decimals.

    >>> cnn_published()["gmacs"]["vgg16"]
    15.47
    """
    return tomllib.loads(files("flopkit").joinpath("data/torchvision_gmacs.toml").read_text(encoding="utf-8"))


@dataclass
class _Image:
    """A feature map on its way through a network: its size, and the layers that it has passed."""

    batch: int
    channels: int
    height: int
    width: int
    dtype: Any
    network: str
    pixels: tuple[int, int]  # of the image that went in
    parts: list[Cost] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    gradients: list[Cost] = field(default_factory=list)  # the backward pass of each part

    @property
    def elements(self) -> int:
        return self.batch * self.channels * self.height * self.width

    def _passed(self, name: str, kind: str, cost: Cost, maps: int = 0) -> None:
        """A layer without products: its backward pass moves what the forward pass does, and *maps* more of its output's size."""
        more = nbytes(maps * self.elements, self.dtype)
        self._taken(name, kind, cost, Cost(bytes=cost.bytes + more))

    def _taken(self, name: str, kind: str, cost: Cost, gradients: Cost) -> None:
        self.parts.append(cost.named(name))
        self.gradients.append(gradients.named(name))
        self.kinds[name] = kind

    def _product(self, name: str, kind: str, cost: Cost, outputs: int) -> None:
        """A layer with weights: two products for one, whose operator reads the gradient of its *outputs* once; one in the first layer."""
        first = not self.parts
        once = nbytes(outputs, self.dtype)
        gradients = replace(cost if first else 2 * cost, name=name, vector_by_kind={}, params_by_role={}, parts=())
        self._taken(name, kind, cost, gradients if first else replace(gradients, bytes=gradients.bytes - once))

    def fork(self) -> _Image:
        """The same map, on a branch of its own; its layers join the same list."""
        return replace(self, parts=self.parts, kinds=self.kinds, gradients=self.gradients)

    def _slid(self, layer: str, kernel: int, stride: int, padding: int) -> tuple[int, int]:
        """Rows and columns that a kernel leaves of the map."""
        for what, pixels, side in zip(("height", "width"), self.pixels, (self.height, self.width), strict=True):
            if kernel > side + 2 * padding:
                padded = f" ({side + 2 * padding} with padding)" if padding else ""
                raise ValueError(
                    f"{what}={pixels} is too small for {self.network}: a map of {what} {side}{padded} reaches layer {layer!r}, "
                    f"whose kernel is {kernel}; use a larger image, such as 224 × 224"
                )
        window = {"kernel": kernel, "stride": stride, "padding": padding}
        return conv_output(size_in=self.height, **window), conv_output(size_in=self.width, **window)

    def conv(
        self, name: str, channels: int, kernel: int, *, stride: int = 1, padding: int | None = None, groups: int = 1,
        bias: bool = False,
    ) -> None:  # fmt: skip
        padding = (kernel - 1) // 2 if padding is None else padding
        height, width = self._slid(name, kernel, stride, padding)
        cost = conv2d(
            batch=self.batch, c_in=self.channels, c_out=channels, h_out=height, w_out=width, kernel=kernel,
            groups=groups, stride=stride, h_in=self.height, w_in=self.width, bias=bias, dtype=self.dtype,
        )  # fmt: skip
        kind = "depthwise" if groups == self.channels else "pointwise" if kernel == 1 else "convolution"
        self._product(name, kind, cost, self.batch * channels * height * width)
        self.channels, self.height, self.width = channels, height, width

    def norm(self, name: str) -> None:
        positions = self.height * self.width
        cost = batch_norm(batch=self.batch, channels=self.channels, positions=positions, dtype=self.dtype)
        self._passed(name, "norm", cost, maps=1)

    def act(self, name: str, kind: str) -> None:
        self._passed(name, "activation", activation(kind, elements=self.elements, dtype=self.dtype), maps=1)

    def add(self, name: str) -> None:
        self._passed(name, "other", residual(elements=self.elements, dtype=self.dtype))

    def conv_norm(
        self, name: str, channels: int, kernel: int, *, stride: int = 1, groups: int = 1, act: str = ""
    ) -> None:
        """torchvision's Conv2dNormActivation: a convolution, a norm and, but for a linear one, an activation."""
        self.conv(f"{name}.0", channels, kernel, stride=stride, groups=groups)
        self.norm(f"{name}.1")
        if act:
            self.act(f"{name}.2", act)

    def max_pool(self, name: str, kernel: int, stride: int, padding: int = 0) -> None:
        rows, columns = self._slid(name, kernel, stride, padding)
        cost = max_pool2d(
            batch=self.batch, channels=self.channels, h_out=rows, w_out=columns, kernel=kernel, stride=stride,
            h_in=self.height, w_in=self.width, dtype=self.dtype,
        )  # fmt: skip
        self._passed(name, "other", cost)
        self.height, self.width = rows, columns

    def average_pool(self, name: str, side: int = 1) -> None:
        """Down to *side* × *side*: row i is the mean of rows i·height/side, rounded down, up to (i + 1)·height/side, rounded up."""
        rows, columns = (
            sum(-((i + 1) * length // -side) - i * length // side for i in range(side))
            for length in (self.height, self.width)
        )
        taps, read = self.batch * self.channels * rows * columns, nbytes(self.elements, real(self.dtype))
        self.height, self.width = side, side
        flops = taps + self.elements  # each is added to a sum, each sum is divided
        self._passed(name, "other", vector_work(name, flops, read + nbytes(self.elements, self.dtype)))

    def dense(self, name: str, features: int) -> None:
        inputs = self.channels * self.height * self.width
        cost = dense(tokens=self.batch, d_in=inputs, d_out=features, bias=True, dtype=self.dtype)
        self._product(name, "dense", cost, self.batch * features)
        self.channels, self.height, self.width = features, 1, 1

    def classifier(self, *places: int) -> None:
        """AlexNet's and VGG's: two dense layers with an activation each, then the classes."""
        for place in places:
            self.dense(f"classifier.{place}", 4096)
            self.act(f"classifier.{place + 1}", "relu")
        self.dense("classifier.6", 1000)

    def gate(self, name: str, squeezed: int) -> None:
        """Squeeze and excite: average, two 1 × 1 convolutions, and one factor a channel."""
        branch = self.fork()
        branch.average_pool(f"{name}.avgpool")
        branch.conv(f"{name}.fc1", squeezed, 1, bias=True)
        branch.act(f"{name}.activation", "silu")
        branch.conv(f"{name}.fc2", self.channels, 1, bias=True)
        branch.act(f"{name}.scale_activation", "sigmoid")
        factors = self.batch * self.channels
        self._passed(f"{name}.scale", "other", scale(elements=self.elements, factors=factors, dtype=self.dtype))


def _alexnet(image: _Image) -> None:
    for index, channels, kernel, stride, padding, pooled in (
        (0, 64, 11, 4, 2, True), (3, 192, 5, 1, 2, True), (6, 384, 3, 1, 1, False), (8, 256, 3, 1, 1, False),
        (10, 256, 3, 1, 1, True),
    ):  # fmt: skip
        image.conv(f"features.{index}", channels, kernel, stride=stride, padding=padding, bias=True)
        image.act(f"features.{index + 1}", "relu")
        if pooled:
            image.max_pool(f"features.{index + 2}", 3, 2)
    image.average_pool("avgpool", 6)
    image.classifier(1, 4)


def _vgg(blocks: tuple[int, ...]) -> Callable[[_Image], None]:
    def build(image: _Image) -> None:
        index = 0
        for convolutions, channels in zip(blocks, (64, 128, 256, 512, 512), strict=True):
            for _ in range(convolutions):
                image.conv(f"features.{index}", channels, 3, bias=True)
                image.act(f"features.{index + 1}", "relu")
                index += 2
            image.max_pool(f"features.{index}", 2, 2)
            index += 1
        image.average_pool("avgpool", 7)
        image.classifier(0, 3)

    return build


def _resnet(blocks: tuple[int, ...], *, bottleneck: bool, widen: int = 1) -> Callable[[_Image], None]:
    def build(image: _Image) -> None:
        image.conv("conv1", 64, 7, stride=2)
        image.norm("bn1")
        image.act("relu", "relu")
        image.max_pool("maxpool", 3, 2, padding=1)
        for stage, count in enumerate(blocks):
            for index in range(count):
                stride = 2 if stage and not index else 1
                _residual_block(image, f"layer{stage + 1}.{index}", 64 * 2**stage, stride, bottleneck, widen)
        image.average_pool("avgpool")
        image.dense("fc", 1000)

    return build


def _residual_block(image: _Image, name: str, width: int, stride: int, bottleneck: bool, widen: int) -> None:
    shortcut = image.fork()
    inner = width * widen
    convolutions = (
        [(inner, 1, 1), (inner, 3, stride), (4 * width, 1, 1)] if bottleneck else [(width, 3, stride), (width, 3, 1)]
    )
    for place, (channels, kernel, step) in enumerate(convolutions, start=1):
        image.conv(f"{name}.conv{place}", channels, kernel, stride=step)
        image.norm(f"{name}.bn{place}")
        if place < len(convolutions):
            image.act(f"{name}.relu{place}", "relu")
    if shortcut.channels != image.channels:
        shortcut.conv(f"{name}.downsample.0", image.channels, 1, stride=stride)
        shortcut.norm(f"{name}.downsample.1")
    image.add(f"{name}.add")
    image.act(f"{name}.relu{len(convolutions)}", "relu")


def _mobilenet_v2(image: _Image) -> None:
    image.conv_norm("features.0", 32, 3, stride=2, act="relu6")
    index = 1
    for expand, channels, count, first_stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for repeat in range(count):
            _inverted(image, f"features.{index}.conv", expand, 3, first_stride if repeat == 0 else 1, channels, "relu6")
            index += 1
    _pointwise_head(image, f"features.{index}", "relu6")


def _efficientnet_b0(image: _Image) -> None:
    image.conv_norm("features.0", 32, 3, stride=2, act="silu")
    for stage, (expand, kernel, first_stride, channels, count) in enumerate(
        ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
         (6, 3, 1, 320, 1)), start=1,
    ):  # fmt: skip
        for repeat in range(count):
            stride = first_stride if repeat == 0 else 1
            _inverted(image, f"features.{stage}.{repeat}.block", expand, kernel, stride, channels, "silu", gated=True)
    _pointwise_head(image, "features.8", "silu")


def _inverted(
    image: _Image, name: str, expand: int, kernel: int, stride: int, channels: int, act: str, gated: bool = False
) -> None:
    """An inverted residual block: widen, convolve each channel by itself, with *gated* squeeze and excite, and narrow again."""
    entered, wide, place = image.channels, image.channels * expand, 0
    if wide > entered:
        image.conv_norm(f"{name}.0", wide, 1, act=act)
        place = 1
    image.conv_norm(f"{name}.{place}", wide, kernel, stride=stride, groups=wide, act=act)
    if gated:  # EfficientNet's block; its last convolution and norm have a name together, MobileNet's have one each
        image.gate(f"{name}.{place + 1}", entered // 4)
        image.conv_norm(f"{name}.{place + 2}", channels, 1)
    else:
        image.conv(f"{name}.{place + 1}", channels, 1)
        image.norm(f"{name}.{place + 2}")
    if stride == 1 and entered == channels:
        image.add(f"{name}.add")


def _pointwise_head(image: _Image, name: str, act: str) -> None:
    image.conv_norm(name, 1280, 1, act=act)
    image.average_pool("avgpool")
    image.dense("classifier.1", 1000)


_NETWORKS: dict[str, Callable[[_Image], None]] = {
    "alexnet": _alexnet,
    "vgg11": _vgg((1, 1, 2, 2, 2)),
    "vgg13": _vgg((2, 2, 2, 2, 2)),
    "vgg16": _vgg((2, 2, 3, 3, 3)),
    "vgg19": _vgg((2, 2, 4, 4, 4)),
    "resnet18": _resnet((2, 2, 2, 2), bottleneck=False),
    "resnet34": _resnet((3, 4, 6, 3), bottleneck=False),
    "resnet50": _resnet((3, 4, 6, 3), bottleneck=True),
    "resnet101": _resnet((3, 4, 23, 3), bottleneck=True),
    "resnet152": _resnet((3, 8, 36, 3), bottleneck=True),
    "wide_resnet50_2": _resnet((3, 4, 6, 3), bottleneck=True, widen=2),
    "mobilenet_v2": _mobilenet_v2,
    "efficientnet_b0": _efficientnet_b0,
}
