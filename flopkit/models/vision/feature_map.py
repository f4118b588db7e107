"""A feature map on its way through a network, and what each layer costs that it
passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from flopkit.cost import Cost
from flopkit.dtypes import nbytes, real
from flopkit.layers.convolutions import conv2d
from flopkit.layers.normalisations import batch_norm
from flopkit.layers.pointwise import activation, residual, scale, vector_work
from flopkit.layers.pooling import max_pool2d
from flopkit.layers.positions import conv_output
from flopkit.layers.products import dense
from flopkit.models.stacks.parts import Part
from flopkit.training.memory import Kept

__all__ = ["KINDS", "FeatureMap", "Layer", "nested", "weight_gradient"]

KINDS = ("convolution", "pointwise", "depthwise", "dense", "norm", "activation", "other")
"""What a layer can be. Pointwise is a 1 × 1 convolution; other is pooling, residual sums and squeeze-and-excite's scaling."""


class Layer(NamedTuple):
    """What a map has passed: the cost of the layer, under its name in torchvision, and
    of its backward pass; what it is, one of `KINDS`; its FLOPs in words of its sizes.
    """

    cost: Cost
    gradient: Cost
    kind: str
    formula: str = ""


def weight_gradient(cost: Cost) -> Cost:
    """The backward pass of a layer with weights, were its input to need no gradient:
    one product."""
    return replace(cost, vector_by_kind={}, params_by_role={}, parts=())


@dataclass
class FeatureMap:
    """A feature map on its way through a network: its size, and the layers it has
    passed, which all branches share."""

    batch: Any
    channels: int
    height: int
    width: int
    dtype: Any
    network: str
    pixels: tuple[int, int]  # of the image that went in
    training: bool = False  # whether norms take the statistics of the batch
    label: str = "image"  # what tables call the map among those that are kept
    tensor: object = field(default_factory=object)  # which one it is
    layers: list[Layer] = field(default_factory=list)
    kept: dict[object, Kept] = field(default_factory=dict)  # by tensor

    @property
    def elements(self) -> Any:
        """Numbers in the map, those of all images."""
        return self.batch * self.channels * self.height * self.width

    def fork(self) -> FeatureMap:
        """The same map, on a branch of its own; its layers join the same list."""
        return replace(self, layers=self.layers, kept=self.kept)

    def _keep(self) -> None:
        """The map is read in the backward pass. A tensor that two layers keep is there
        once."""
        self.kept.setdefault(self.tensor, Kept(self.label, nbytes(self.elements, self.dtype)))

    def _made(self, name: str) -> None:
        self.label, self.tensor = f"{name}, output", object()

    def _passed(self, name: str, kind: str, cost: Cost, maps: int = 0) -> None:
        """A layer without products: its backward pass moves what the forward pass does,
        and *maps* more of its output's size."""
        more = nbytes(maps * self.elements, self.dtype)
        self.layers.append(Layer(cost.named(name), Cost(name, bytes=cost.bytes + more), kind))

    def _product(self, name: str, kind: str, cost: Cost, outputs: Any, formula: str) -> None:
        """A layer with weights: two products for one, whose operator reads the gradient
        of its *outputs* once; one in the first layer."""
        back = weight_gradient(cost)
        if self.layers:
            back = replace(2 * back, bytes=2 * back.bytes - nbytes(outputs, self.dtype))
        self._keep()
        self.layers.append(Layer(cost.named(name), back.named(name), kind, formula))
        self._made(name)

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
        taps = self.channels // groups * kernel**2
        formula = f"2·batch·{height * width}·{taps}·{channels}"
        self._product(name, kind, cost, self.batch * channels * height * width, formula)
        self.channels, self.height, self.width = channels, height, width

    def norm(self, name: str) -> None:
        """Batch normalisation, which keeps mean and deviation of each channel, too."""
        sizes = {"batch": self.batch, "channels": self.channels, "positions": self.height * self.width}
        self._keep()
        self.kept[object()] = Kept(f"{name}, statistics", nbytes(2 * self.channels, "fp32"))
        self._passed(name, "norm", batch_norm(**sizes, dtype=self.dtype), maps=1)
        if self.training:
            trained = batch_norm(**sizes, training=True, dtype=self.dtype)
            self.layers[-1] = self.layers[-1]._replace(cost=trained.named(name))
        self._made(name)

    def act(self, name: str, kind: str) -> None:
        """An activation. ReLU, in place, and sigmoid keep what they give, the others
        what they are given."""
        if kind not in ("relu", "sigmoid"):
            self._keep()
        self._made(name)
        if kind in ("relu", "sigmoid"):
            self._keep()
        self._passed(name, "activation", activation(kind, elements=self.elements, dtype=self.dtype), maps=1)

    def add(self, name: str) -> None:
        self._passed(name, "other", residual(elements=self.elements, dtype=self.dtype))
        self._made(name)

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
        self._keep()
        self._passed(name, "other", cost)
        self.height, self.width = rows, columns
        self.kept[object()] = Kept(f"{name}, places", nbytes(self.elements, "int64"))
        self._made(name)

    def average_pool(self, name: str, side: int = 1) -> None:
        """Down to *side* × *side*: row i is the mean of rows i·height/side, rounded down, up to (i + 1)·height/side, rounded up."""
        rows, columns = (
            sum(-((i + 1) * length // -side) - i * length // side for i in range(side))
            for length in (self.height, self.width)
        )
        taps, read = self.batch * self.channels * rows * columns, nbytes(self.elements, real(self.dtype))
        if side > 1:  # else it is a plain mean, whose gradient needs the size alone
            self._keep()
        self.height, self.width = side, side
        flops = taps + self.elements  # each is added to a sum, each sum is divided
        self._passed(name, "other", vector_work(name, flops, read + nbytes(self.elements, self.dtype)))
        self._made(name)

    def dense(self, name: str, features: int) -> None:
        inputs = self.channels * self.height * self.width
        cost = dense(tokens=self.batch, d_in=inputs, d_out=features, bias=True, dtype=self.dtype)
        self._product(name, "dense", cost, self.batch * features, f"2·batch·{inputs}·{features}")
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
        self._keep()
        scaled = scale(elements=self.elements, factors=branch.elements, dtype=self.dtype)
        self._passed(f"{name}.scale", "other", scaled)
        self._made(f"{name}.scale")


def nested(layers: Sequence[Layer], prefix: str = "") -> list[Part]:
    """Layers as parts, those of a stage or a block inside of one: ``layer1`` has
    ``layer1.0``, and this ``layer1.0.conv1``."""
    found: list[Part] = []
    for name, group in groupby(layers, lambda layer: _below(layer.cost.name, prefix)):
        inside = list(group)
        if len(inside) == 1:
            found.append(Part(inside[0].cost, formula=inside[0].formula))
        elif len(inside) == len(layers):  # a name that holds nothing else says nothing new
            found += nested(inside, name + ".")
        else:
            parts = tuple(nested(inside, name + "."))
            found.append(Part(Cost.total(name, (each.cost for each in parts)), inside=parts))
    return found


def _below(name: str, prefix: str) -> str:
    """The part of a dotted *name* that is one step longer than *prefix*."""
    return prefix + name.removeprefix(prefix).partition(".")[0]
