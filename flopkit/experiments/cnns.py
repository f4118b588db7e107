"""The thirteen networks of the study of 2021, trained on random images: one image, a
batch, and some batches of an epoch."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.decoder import take_step
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span
from flopkit.measuring.workloads import torch_dtype
from flopkit.models.vision import cnn, cnn_names

TITLE = "Thirteen convolutional networks, four methods"
PREDICTION = (
    "Theory (three times the forward pass) and the counted step agree within 4 %. MobileNetV2 and EfficientNet-B0 make a tenth or less of the "
    "FLOP/s of VGG-16, because they move about one byte for every three FLOPs and VGG one for a hundred; what they reach is more than half of "
    "what their bytes allow. A batch is several times as efficient as one image on a GPU, and hardly more so on a CPU; an epoch adds the "
    "optimiser and the copy of the images, less than a tenth. Half precision speeds up VGG by more than MobileNetV2 does, and compiling "
    "speeds up MobileNetV2 by about 1.5, since it fuses normalisations and activations."
)
SMALL = ("mobilenet_v2", "efficientnet_b0")
FORMATS = ("bf16", "tf32", "fp32")
EACH = "MobileNetV2, then EfficientNet-B0, each in bf16, TF32, fp32"
THEORY = Expectation(
    "three times the forward pass is the counted step, within 4 %", (0.96, 1.04),
    lambda of: f"the farthest of {len({each['params']['network'] for each in _batches(of)})} networks",
    lambda of: [max(map(_theory, _batches(of)), key=lambda ratio: abs(ratio - 1))],
)  # fmt: skip
EXPECTATIONS = {
    "gpu": (
        THEORY,
        Expectation(
            "MobileNetV2 and EfficientNet-B0 make a tenth of VGG-16's FLOP/s or less", (0, 0.1), EACH,
            lambda of: [of.rate(**_batch(name, d)) / of.rate(**_batch("vgg16", d)) for name in SMALL for d in FORMATS],
        ),
        Expectation(
            "they reach more than half of what their bytes allow", (0.5, math.inf), f"of the bandwidth, {EACH}",
            lambda of: [of.bandwidth(**_batch(name, d)) for name in SMALL for d in FORMATS], " %",
        ),
        Expectation(
            "a batch is several times as efficient as one image: at least twice", (2, math.inf),
            "time of one image, ResNet-18, ResNet-50, VGG-16", lambda of: _image(of, "one", "resnet18", "resnet50", "vgg16"),
        ),
        Expectation(
            "an epoch adds less than a tenth", (0, 1.1),
            "time of an image in an epoch over one in a batch, ResNet-18 and ResNet-50",
            lambda of: _image(of, "epoch", "resnet18", "resnet50"),
        ),
        Expectation(
            "half precision speeds up VGG by more than MobileNetV2", (1, math.inf),
            "the gain of VGG-16 over that of MobileNetV2, fp32 to bf16",
            lambda of: [_halved(of, "vgg16") / _halved(of, "mobilenet_v2")],
        ),
    ),
    "cpu": (
        THEORY,
        Expectation(
            "MobileNetV2 and EfficientNet-B0 make a tenth of VGG-16's FLOP/s or less", (0, 0.1), "these two",
            lambda of: [of.rate(**_batch(name)) / of.rate(**_batch("vgg16")) for name in SMALL],
        ),
        Expectation(
            "they reach more than half of what their bytes allow", (0.5, math.inf), "of the bandwidth",
            lambda of: [of.bandwidth(**_batch(name)) for name in SMALL], " %",
        ),
        Expectation(
            "a batch is hardly more efficient than one image: less than a quarter", (0, 1.25),
            "time of one image, ResNet-18 and MobileNetV2", lambda of: _image(of, "one", "resnet18", "mobilenet_v2"),
        ),
        Expectation(
            "an epoch adds less than a tenth", (0, 1.1), "time of an image in an epoch over one in a batch, the same two",
            lambda of: _image(of, "epoch", "resnet18", "mobilenet_v2"),
        ),
    ),
}  # fmt: skip


def _batches(of: Cases) -> list[Record]:
    return [each for each in of.records if each["params"]["method"] == "batch"]


def _theory(case: Record) -> float:
    return case["extra"]["theory_flops"] / case["counted"]["flops"]  # type: ignore[no-any-return]


def _batch(network: str, dtype: str = "fp32", method: str = "batch") -> dict[str, Any]:
    return {"network": network, "dtype": dtype, "method": method, "compiled": False}


def _image(of: Cases, method: str, *networks: str) -> list[Span]:
    """The time of an image by this method over that in a batch, in fp32."""

    def took(network: str, method: str) -> Span:
        case = _batch(network, method=method)
        images: int = of(**case)["extra"]["images"]
        return of.seconds(**case) / images

    return [took(network, method) / took(network, "batch") for network in networks]


def _halved(of: Cases, network: str) -> Span:
    """What half precision gains."""
    return of.seconds(**_batch(network, "fp32")) / of.seconds(**_batch(network, "bf16"))


SHOWN = ("resnet18", "resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0")  # those that run by more than one method


def run(bench: Bench) -> Iterator[Record]:
    """A training step of each network by number format, then for some of them one
    image, an epoch, and the compiled network."""
    networks = bench.pick(toy=("resnet18", "mobilenet_v2"), cpu=cnn_names(), gpu=cnn_names())
    shown = bench.pick(toy=("mobilenet_v2",), cpu=("resnet18", "mobilenet_v2"), gpu=SHOWN)
    for network in networks:
        for dtype in bench.dtypes:
            yield _case(bench, network, "batch", dtype)
    for network in shown:
        for method in ("one", "epoch"):
            yield _case(bench, network, method, bench.dtypes[-1])
        if bench.scale == "gpu":  # on a CPU the compiler takes minutes
            yield _case(bench, network, "batch", bench.dtypes[0], compiled=True)


def _case(bench: Bench, network: str, method: str, dtype: str, compiled: bool = False) -> Record:
    import torch
    from torch.nn import functional

    kind, device = torch_dtype(dtype), bench.device
    pixels = bench.pick(toy=64, cpu=64, gpu=224)
    batch = 1 if method == "one" else bench.pick(toy=2, cpu=4, gpu=64)
    batches = bench.pick(toy=2, cpu=2, gpu=8) if method == "epoch" else 1
    order = torch.contiguous_format if kind == torch.float32 else torch.channels_last  # matrix units want channels last
    net = functools.cache(lambda: network_of(network, device).to(kind, memory_format=order))

    def right(labels: Any, images: Any) -> Any:
        """The losses in float64. That gradients were computed, the counted FLOPs
        show."""
        double = copy.deepcopy(net()).double()
        outputs = [double(x.to(device, torch.float64)) for x in images]
        return torch.stack([functional.cross_entropy(each, y) for each, y in zip(outputs, labels, strict=True)])

    def make() -> tuple[Any, ...]:
        host = method == "epoch"  # whose images wait in the memory of the host
        images = [torch.randn(batch, 3, pixels, pixels, device="cpu" if host else device) for _ in range(batches)]
        images = [each.to(kind, memory_format=order) for each in images]
        labels = torch.randint(1000, (batches, batch), device=device)
        # a rate of zero leaves the weights as they are, for the check; the optimiser does all of its work
        optimizer = torch.optim.SGD(net().parameters(), lr=0.0, momentum=0.9) if host else None
        return _steps(net(), device, compiled, optimizer), labels, images

    params = {"network": network, "method": method, "batch": batch, "pixels": pixels, "compiled": compiled}
    forward = cnn(network, batch=batch, height=pixels, width=pixels).flops
    extra = {"images": batch * batches, "theory_flops": 3 * forward * batches}
    return bench.case("cnns", params, make, dtype, check=right, time_budget=1, extra=extra)


def network_of(name: str, device: Any) -> Any:
    """The network as torchvision has it, with random weights, without what is random in
    a step."""
    import torch

    try:
        import torchvision
    except ImportError:
        raise ImportError("the networks need torchvision, which is not installed: pip install torchvision") from None
    net = getattr(torchvision.models, name)().to(device).train()
    for layer in net.modules():
        if isinstance(layer, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            layer.p = 0.0  # the check in float64 would draw another mask
        # a block of a ResNet: untrained, a hundred layers multiply rounding errors by thousands
        if hasattr(layer, "downsample"):
            torch.nn.init.constant_(getattr(layer, "bn3", layer.bn2).weight, 0.2)
    return net


def _steps(net: Any, device: Any, compiled: bool = False, optimizer: Any = None) -> Callable[..., Any]:
    """Batch by batch: copied to the device, forward, backward and, where there is an
    optimiser, its step."""
    import torch
    from torch.nn import functional

    runs = torch.compile(net) if compiled else net

    def step(x: Any, y: Any) -> Any:
        return take_step(functional.cross_entropy(runs(x.to(device)), y), net.parameters(), optimizer)

    def steps(labels: Any, images: Any) -> Any:
        with torch.enable_grad():
            return torch.stack([step(x, y) for x, y in zip(images, labels, strict=True)])

    return steps
