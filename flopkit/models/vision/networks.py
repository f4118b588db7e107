"""The thirteen networks, layer by layer.

They are those of torchvision, and each layer bears the name that it has there, so that
a count can be compared layer by layer. Nothing here needs torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Literal, TypeAlias

from flopkit.models.vision.feature_map import FeatureMap
from flopkit.sizes import number, size

__all__ = ["NETWORKS", "Name", "cnn_published", "through"]

Name: TypeAlias = Literal[
    "alexnet", "vgg11", "vgg13", "vgg16", "vgg19", "resnet18", "resnet34",
    "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "mobilenet_v2", "efficientnet_b0",
]  # fmt: skip


def cnn_published() -> dict[str, Any]:
    """What torchvision publishes: ``{"gmacs": {"resnet50": 4.089, …}, "params": {…}}``, with source and version.

    GMACs of one image of 3 × 224 × 224, rounded to three decimals.

    >>> cnn_published()["gmacs"]["vgg16"]
    15.47
    """
    return tomllib.loads(files("flopkit").joinpath("data/torchvision_gmacs.toml").read_text(encoding="utf-8"))


def through(name: str, *, batch: Any, height: Any, width: Any, dtype: Any, training: bool = False) -> FeatureMap:
    """An image in colours that has been through a network."""
    batch, height, width = size("batch", batch), number("height", height), number("width", width)
    image = FeatureMap(batch, 3, height, width, dtype, name, (height, width), training)
    NETWORKS[name](image)
    return image


def _alexnet(image: FeatureMap) -> None:
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


def _vgg(blocks: tuple[int, ...]) -> Callable[[FeatureMap], None]:
    def build(image: FeatureMap) -> None:
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


def _resnet(blocks: tuple[int, ...], *, bottleneck: bool, widen: int = 1) -> Callable[[FeatureMap], None]:
    def build(image: FeatureMap) -> None:
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


def _residual_block(image: FeatureMap, name: str, width: int, stride: int, bottleneck: bool, widen: int) -> None:
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


def _mobilenet_v2(image: FeatureMap) -> None:
    image.conv_norm("features.0", 32, 3, stride=2, act="relu6")
    index = 1
    for expand, channels, count, first_stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for repeat in range(count):
            _inverted(image, f"features.{index}.conv", expand, 3, first_stride if repeat == 0 else 1, channels, "relu6")
            index += 1
    _pointwise_head(image, f"features.{index}", "relu6")


def _efficientnet_b0(image: FeatureMap) -> None:
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
    image: FeatureMap, name: str, expand: int, kernel: int, stride: int, channels: int, act: str, gated: bool = False
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


def _pointwise_head(image: FeatureMap, name: str, act: str) -> None:
    image.conv_norm(name, 1280, 1, act=act)
    image.average_pool("avgpool")
    image.dense("classifier.1", 1000)


NETWORKS: Mapping[str, Callable[[FeatureMap], None]] = {
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
