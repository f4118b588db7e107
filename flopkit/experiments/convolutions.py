"""One convolution in four kinds, at the same image and channels: dense, grouped, depthwise, pointwise; in both orders of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flopkit.experiments.bench import Bench, Record

TITLE = "Convolutions: dense, grouped, depthwise, pointwise"
PREDICTION = (
    "All four read and write the same activations. The dense one makes the most FLOP/s. The depthwise one has as many FLOPs fewer as there are "
    "channels, but its time is bound by the activations: 2.25 FLOPs a byte in fp32 and 4.5 in bf16 keep it below a tenth of the dense one's "
    "FLOP/s, and it is not faster than the pointwise one by more than 3 times, though it has a tenth of its FLOPs or fewer. Tensor cores are "
    "fastest with the channels last, on a CPU the order changes little."
)

KINDS = {"dense": 3, "grouped": 3, "depthwise": 3, "pointwise": 1}  # the kernel's side
GROUPS = 8  # of the grouped one


def run(bench: Bench) -> Iterator[Record]:
    """FLOP/s and bytes/s by kind, number format, and order: channels first (NCHW) or last (NHWC)."""
    batch, channels, side = bench.pick(toy=(1, 16, 8), cpu=(4, 128, 56), gpu=(64, 256, 56))
    for dtype in bench.dtypes:
        for layout in ("NCHW", "NHWC") if dtype == bench.dtypes[0] else ("NCHW",):
            for kind, kernel in KINDS.items():
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
