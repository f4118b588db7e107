"""One convolution in four kinds, at the same image and channels: dense, grouped,
depthwise, pointwise; in both orders of memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span

TITLE = "Convolutions: dense, grouped, depthwise, pointwise"
PREDICTION = (
    "All four read and write the same activations. The dense one makes the most FLOP/s. The depthwise one has as many FLOPs fewer as there are "
    "channels, but its time is bound by the activations: 2.25 FLOPs a byte in fp32 and 4.5 in bf16 keep it below a tenth of the dense one's "
    "FLOP/s, and it is not faster than the pointwise one by more than 3 times, though it has a tenth of its FLOPs or fewer. Tensor cores are "
    "fastest with the channels last, on a CPU the order changes little."
)
MEANT = {"as many FLOPs fewer as there are channels": "1/256 of the FLOPs; 1/128 on the CPU"}
ORDERS = [{"layout": "NCHW"}, {"layout": "NHWC"}]
RUNS = [{"dtype": "bf16", "layout": "NCHW"}, {"dtype": "bf16", "layout": "NHWC"},
        {"dtype": "tf32", "layout": "NCHW"}, {"dtype": "fp32", "layout": "NCHW"}]  # fmt: skip
IN_RUNS = "bf16 with channels first and last, TF32, fp32"
EXPECTATIONS = {
    "gpu": (
        Expectation(
            "the dense one makes the most FLOP/s", (0, 1), f"the best other one over it, {IN_RUNS}",
            lambda of: [max(_shares(of, run, "grouped", "depthwise", "pointwise"), key=lambda each: each.mean) for run in RUNS],
        ),
        Expectation(
            "the depthwise one makes less than a tenth of them", (0, 0.1), IN_RUNS,
            lambda of: [share for run in RUNS for share in _shares(of, run, "depthwise")],
        ),
        Expectation(
            "it is at most 3 times as fast as the pointwise one", (0, 3), IN_RUNS, lambda of: _faster(of, RUNS)
        ),
        Expectation(
            "tensor cores are fastest with the channels last", (1, math.inf),
            "bf16, time with channels first over last, dense, grouped, pointwise",
            lambda of: _turned(of, ("dense", "grouped", "pointwise"), dtype="bf16"),
        ),
    ),
    "cpu": (
        Expectation(
            "the dense one makes the most FLOP/s", (0, 1), "the others over it, channels first, then last",
            lambda of: [share for on in ORDERS for share in _shares(of, on, "grouped", "depthwise", "pointwise")],
        ),
        Expectation(
            "the depthwise one makes less than a tenth of them", (0, 0.1), "channels first and last",
            lambda of: [share for on in ORDERS for share in _shares(of, on, "depthwise")],
        ),
        Expectation(
            "it is at most 3 times as fast as the pointwise one", (0, 3), "channels first and last", lambda of: _faster(of, ORDERS)
        ),
        Expectation(
            "the order of the channels changes little: less than a quarter", (0.8, 1.25), "time with channels first over last",
            lambda of: _turned(of, ("dense", "grouped", "depthwise", "pointwise")),
        ),
    ),
}  # fmt: skip


def _shares(of: Cases, run: dict[str, str], *kinds: str) -> list[Span]:
    """FLOP/s of these kinds, over the dense one's."""
    return [of.rate(kind=kind, **run) / of.rate(kind="dense", **run) for kind in kinds]


def _faster(of: Cases, runs: list[dict[str, str]]) -> list[Span]:
    return [of.seconds(kind="pointwise", **run) / of.seconds(kind="depthwise", **run) for run in runs]


def _turned(of: Cases, kinds: tuple[str, ...], **run: str) -> list[Span]:
    return [of.seconds(kind=kind, layout="NCHW", **run) / of.seconds(kind=kind, layout="NHWC", **run) for kind in kinds]


SIDES = {"dense": 3, "grouped": 3, "depthwise": 3, "pointwise": 1}  # the kernel's side
GROUPS = 8  # of the grouped one


def run(bench: Bench) -> Iterator[Record]:
    """FLOP/s and bytes/s by kind, number format, and order: channels first (NCHW) or
    last (NHWC)."""
    batch, channels, side = bench.pick(toy=(1, 16, 8), cpu=(4, 128, 56), gpu=(64, 256, 56))
    for dtype in bench.dtypes:
        for layout in ("NCHW", "NHWC") if dtype == bench.dtypes[0] else ("NCHW",):
            for kind, kernel in SIDES.items():
                groups = {"grouped": GROUPS, "depthwise": channels}.get(kind, 1)

                def make(
                    dtype: str = dtype, layout: str = layout, kernel: int = kernel, groups: int = groups
                ) -> tuple[Any, ...]:
                    import torch

                    order = torch.channels_last if layout == "NHWC" else torch.contiguous_format
                    images = bench.randn(dtype, batch, channels, side, side)
                    weight = bench.randn(dtype, channels, channels // groups, kernel, kernel)

                    def conv2d(images: Any, weight: Any) -> Any:
                        return torch.nn.functional.conv2d(images, weight, padding=kernel // 2, groups=groups)

                    return conv2d, images.to(memory_format=order), weight.to(memory_format=order)

                params = {
                    "kind": kind, "kernel": kernel, "groups": groups, "layout": layout, "batch": batch, "channels": channels, "side": side,
                }  # fmt: skip
                yield bench.case("convolutions", params, make, dtype)
