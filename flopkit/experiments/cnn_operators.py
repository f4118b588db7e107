"""Where the time of a network's training step goes: the kernels' own time by kind of
operator, from torch's profiler, beside the time of the step."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.cnns import network_of
from flopkit.experiments.decoder import take_step
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span
from flopkit.measuring.workloads import torch_dtype

TITLE = "Which operators take the time of a network's training step"
PREDICTION = (
    "Of MobileNetV2 in fp32 with the channels first, batch norms take the largest share of the kernels' time on a GPU, 30 to 45 %, close to "
    "their share of the bytes; depthwise convolutions take 20 to 40 %, clearly more than their 16 % of the bytes, and most of it on the way back. "
    "Of ResNet-50 convolutions take more than 60 %. With 64 images in fp32 launching takes less time than the kernels, so a CUDA graph saves less than "
    "a tenth; in bf16 with the channels last the kernels are faster than their launches, and a graph saves a third of MobileNetV2's time or more. "
    "Channels last helps ResNet-50 in bf16 more than MobileNetV2."
)
OPERATOR_KINDS = ("norms", "depthwise", "pointwise", "convolutions", "activations", "copies", "others")
KERNELS = "of the kernels' time"
EXPECTATIONS = {
    "gpu": (
        Expectation(
            "of MobileNetV2 in fp32 with channels first, batch norms take the largest share of the kernels' time", (1, math.inf),
            "over that of the next kind",
            lambda of: [_share(of, "mobilenet_v2", "norms") / max(_share(of, "mobilenet_v2", kind) for kind in OPERATOR_KINDS if kind != "norms")],
        ),
        Expectation("they take 30 to 45 % of it", (0.3, 0.45), KERNELS, lambda of: [_share(of, "mobilenet_v2", "norms")], " %"),
        Expectation(
            "depthwise convolutions take 20 to 40 %", (0.2, 0.4), KERNELS, lambda of: [_share(of, "mobilenet_v2", "depthwise")], " %"
        ),
        Expectation(
            "and most of it on the way back", (0.5, 1), "backward, of the depthwise convolutions' time",
            lambda of: [_share(of, "mobilenet_v2", "depthwise, backward") / _share(of, "mobilenet_v2", "depthwise")], " %",
        ),
        Expectation(
            "of ResNet-50, in the same format, convolutions take more than 60 %", (0.6, 1), KERNELS,
            lambda of: [_share(of, "resnet50", "pointwise", "convolutions")], " %",
        ),
        Expectation(
            "in fp32 a CUDA graph saves less than a tenth", (0.9, math.inf),
            "time with a graph over eager, MobileNetV2, EfficientNet-B0, ResNet-50, channels first, then last",
            lambda of: [_kept(of, name, "fp32", on) for on in ("NCHW", "NHWC") for name in ("mobilenet_v2", "efficientnet_b0", "resnet50")],
        ),
        Expectation(
            "in bf16 with channels last it saves a third of MobileNetV2's time or more", (0, 2 / 3),
            "time with a graph over eager", lambda of: [_kept(of, "mobilenet_v2", "bf16", "NHWC")],
        ),
        Expectation(
            "channels last helps ResNet-50 in bf16 more than MobileNetV2", (1, math.inf),
            "the gain of ResNet-50 over that of MobileNetV2, eager and as a graph",
            lambda of: [_turned(of, "resnet50", mode) / _turned(of, "mobilenet_v2", mode) for mode in ("eager", "graph")],
        ),
    ),
}  # fmt: skip


def _share(of: Cases, network: str, *kinds: str) -> float:
    """Of the kernels' time in a step, in fp32 with channels first."""
    found = of(network=network, dtype="fp32", layout="NCHW", mode="eager")["extra"]
    return sum(found[kind] for kind in kinds) / sum(found[kind] for kind in OPERATOR_KINDS)  # type: ignore[no-any-return]


def _took(of: Cases, network: str, dtype: str, layout: str, mode: str) -> Span:
    return of.seconds(network=network, dtype=dtype, layout=layout, mode=mode)


def _kept(of: Cases, network: str, dtype: str, layout: str) -> Span:
    """The time as a CUDA graph over that of the eager step."""
    return _took(of, network, dtype, layout, "graph") / _took(of, network, dtype, layout, "eager")


def _turned(of: Cases, network: str, mode: str) -> Span:
    """The time with channels first over that with channels last."""
    return _took(of, network, "bf16", "NCHW", mode) / _took(of, network, "bf16", "NHWC", mode)


STEPS = 3  # under the profiler, after one to warm up


def run(bench: Bench) -> Iterator[Record]:
    """Seconds of a step by network, format and order of memory; *extra* has the
    kernels' seconds in one step by kind of operator.

    On a CUDA device the same step as a CUDA graph, too, whose kernels the host launches
    all at once.
    """
    networks = bench.pick(
        toy=("mobilenet_v2",), cpu=("mobilenet_v2", "resnet18"), gpu=("mobilenet_v2", "efficientnet_b0", "resnet50")
    )
    for network in networks:
        for dtype in dict.fromkeys((bench.dtypes[-1], bench.dtypes[0])):
            for layout in ("NCHW", "NHWC"):
                eager = _case(bench, network, dtype, layout, "eager")
                yield eager
                if (
                    bench.device.type == "cuda"
                ):  # of a graph the counter sees one launch, so it takes the work of the other
                    yield _case(bench, network, dtype, layout, "graph", eager["counted"])


def _case(
    bench: Bench, network: str, dtype: str, layout: str, mode: str, counted: Mapping[str, Any] | None = None
) -> Record:
    import torch
    from torch.nn.functional import cross_entropy

    kind = torch_dtype(dtype)
    order = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    batch, pixels = bench.pick(toy=(2, 64), cpu=(4, 64), gpu=(64, 224))
    net = functools.cache(lambda: network_of(network, bench.device).to(kind, memory_format=order))

    def step(images: Any, labels: Any) -> Any:
        with torch.enable_grad():
            return take_step(cross_entropy(net()(images), labels), net().parameters())

    def right(images: Any, labels: Any) -> Any:
        return cross_entropy(copy.deepcopy(net()).double()(images.double()), labels)

    def given() -> tuple[Any, Any]:
        images = bench.randn(dtype, batch, 3, pixels, pixels).to(memory_format=order)
        return images, torch.randint(1000, (batch,), device=bench.device)

    def make() -> tuple[Any, ...]:
        images, labels = given()
        return (step if mode == "eager" else _captured(step, images, labels)), images, labels

    params = {"network": network, "layout": layout, "mode": mode, "batch": batch, "pixels": pixels}
    extra = functools.partial(profiled, step, given) if mode == "eager" else None
    work = {name: counted[name] for name in ("flops", "bytes")} if counted else {}
    return bench.case("cnn_operators", params, make, dtype, check=right, time_budget=1, extra=extra, **work)


def profiled(step: Callable[..., Any], given: Callable[[], tuple[Any, ...]]) -> dict[str, float]:
    """Seconds of the kernels in one step, by kind of operator, and how many ran. On a
    CPU the operators' own time stands for that of kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    args = given()
    cuda = args[0].is_cuda
    step(*args)
    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])],
        record_shapes=True,
        acc_events=True,
    ) as watched:
        for _ in range(STEPS):
            step(*args)
        if cuda:
            torch.cuda.synchronize()
    rows = watched.key_averages(group_by_input_shape=True)
    return by_kind(
        (each.key, each.input_shapes, each.self_device_time_total if cuda else each.self_cpu_time_total, each.count)
        for each in rows
        if each.key.startswith("aten::")
    )


def by_kind(rows: Iterable[tuple[str, list[list[int]], float, int]]) -> dict[str, float]:
    """Seconds of one step by kind, of an operator's name, shapes, microseconds and
    calls in all steps.

    >>> found = by_kind([("aten::convolution_backward", [[8, 4, 9, 9], [8, 4, 9, 9], [4, 1, 3, 3]], 3e6, 3)])
    >>> found["depthwise, backward"], found["norms"]
    (1.0, 0.0)
    """
    found = dict.fromkeys([*OPERATOR_KINDS, "depthwise, backward"], 0.0)
    calls = 0
    for name, shapes, micros, count in rows:
        kind, back = kind_of(name, shapes), "backward" in name
        found[kind] += micros / 1e6 / STEPS
        if kind == "depthwise" and back:
            found["depthwise, backward"] += micros / 1e6 / STEPS
        calls += count * (micros > 0)
    return found | {"operators": calls / STEPS}


def kind_of(name: str, shapes: list[list[int]]) -> str:
    """One of `OPERATOR_KINDS` for an operator as torch's profiler names it, with the shapes of
    its inputs.

    >>> kind_of("aten::cudnn_convolution", [[8, 4, 9, 9], [16, 4, 1, 1]]), kind_of("aten::hardtanh_", [[8, 4]])
    ('pointwise', 'activations')
    """
    words: Mapping[str, tuple[str, ...]] = {
        "norms": ("batch_norm",), "activations": ("hardtanh", "relu", "silu", "sigmoid", "threshold", "clamp"),
        "copies": ("copy", "clone", "contiguous"),
    }  # fmt: skip
    if "conv" in name:
        maps = [shape for shape in shapes if len(shape) == 4]
        weight = maps[2 if "backward" in name else 1]
        if weight[1] == 1 and weight[0] > 1 and weight[2] > 1:
            return "depthwise"
        return "pointwise" if weight[2] == 1 else "convolutions"
    return next((kind for kind, some in words.items() if any(word in name for word in some)), "others")


def _captured(step: Callable[..., Any], images: Any, labels: Any) -> Callable[..., Any]:
    """*step* as a CUDA graph, on copies of its inputs into which those of each call are
    copied."""
    import torch

    fixed = images.clone(), labels.clone()
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(*fixed)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(*fixed)

    def replayed(images: Any, labels: Any) -> Any:
        fixed[0].copy_(images)
        fixed[1].copy_(labels)
        graph.replay()
        return out

    return replayed
