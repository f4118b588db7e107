"""What shows the ceilings of a device: matrix products of many shapes, and calls that do little but move bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flopkit import machine
from flopkit.measuring.arguments import cache_bytes

__all__ = [
    "TORCH",
    "Workload",
    "dtypes",
    "product",
    "scaled_mm",
    "shapes",
    "tf32_allowed",
    "torch_dtype",
    "traffic",
]

# What a number format is called in torch. tf32 is how products of float32 may be rounded.
TORCH = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn",
}  # fmt: skip
SINCE = {"bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}  # the first CUDA capability with units for the format
# Bytes of one array of the traffic: at least, so that starting a call does not show, and at most.
ARRAY = {"cpu": (2**26, 2**28), "cuda": (2**28, 2**30)}
PART = {"cpu": 64, "cuda": 16}  # of the memory: arrays are copied, and checked in float64
SAMPLE = 1009  # a prime, so that it falls on all places in a page

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Workload:
    """A call, its arguments, the function that gives the right result (None: the same in float64), its FLOPs and bytes."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    check: Callable[..., Any] | None = None
    flops: float | None = None
    bytes: float | None = None


def torch_dtype(dtype: str) -> Any:
    """The format in which torch keeps numbers whose products run in *dtype*; tf32 and fp32 are kept alike.

    >>> torch_dtype("tf32")
    torch.float32
    """
    import torch

    return getattr(torch, TORCH[dtype])


@contextlib.contextmanager
def tf32_allowed(allowed: bool) -> Iterator[None]:
    """Products and convolutions of float32 may, or may not, round their operands to tf32 on a GPU that has it. Afterwards torch has the
    switches that it had."""
    import torch

    backends: Any = torch.backends
    products = convolutions = None
    with contextlib.suppress(RuntimeError):  # an older name cannot be read where a newer one said something else
        products = torch.get_float32_matmul_precision()
    with contextlib.suppress(RuntimeError):
        convolutions = backends.cudnn.allow_tf32
    switches: list[Any] = []
    if hasattr(backends.cudnn, "conv"):  # since torch 2.9
        switches = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.matmul]
    precisions = [switch.fp32_precision for switch in switches]
    backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = allowed  # some of torch's compilers read these
    for switch in switches[:3]:  # the last is a CPU's: the older name for products writes it, too
        switch.fp32_precision = "tf32" if allowed else "ieee"
    try:
        yield
    finally:
        if products is not None:
            torch.set_float32_matmul_precision(products)
        if convolutions is not None:
            backends.cudnn.allow_tf32 = convolutions
        for switch, precision in zip(switches, precisions, strict=True):
            switch.fp32_precision = precision


def dtypes(where: Any) -> tuple[str, ...]:
    """Number formats that a device multiplies in units of its own; on a CPU, those for which torch has a product."""
    if where.type != "cuda":
        return ("fp32", "bf16", "fp16", "fp64")
    import torch

    capability, usual_first = torch.cuda.get_device_capability(where), ("bf16", "fp16", "fp8", "tf32", "fp32", "fp64")
    return tuple(dtype for dtype in usual_first if capability >= SINCE.get(dtype, (0, 0)))


def shapes(where: Any, dtype: str) -> list[Shape]:
    """(m, n, k) of the products to try, the smallest first.

    Squares, long and short sums, and on a GPU products whose result divides into whole waves of tiles: as many tiles of 128 × 256 as there
    are multiprocessors, or a multiple.
    """
    if where.type != "cuda":
        found = [(n, n, n) for n in (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)]
        found += [(n, n, 4 * n) for n in (256, 512, 1024)]
    else:
        import torch

        units = torch.cuda.get_device_properties(where).multi_processor_count
        rows = max(n for n in range(1, int(units**0.5) + 1) if units % n == 0)
        sides = (128 * rows, 256 * (units // rows))
        found = [(n, n, n) for n in (1024, 2048, 3072, 4096, 5120, 6144, 8192, 10240, 12288, 16384)]
        found += [(n, n, k) for n in (2048, 4096, 8192) for k in (2048, 4096, 8192, 16384) if k != n]
        found += [(w * sides[0], w * sides[1], k) for w in (1, 2, 3) for k in (2048, 4096, 8192)]
        found += [(w * sides[1], w * sides[0], k) for w in (1, 2, 3) for k in (4096, 8192)]
        found += [(4096, 16384, 4096), (8192, 28672, 8192), (8192, 8192, 28672), (16384, 8192, 2048)]
    room = (machine.memory(where) or 2**33) / 2
    return sorted({s for s in found if _held(s, dtype) <= room}, key=lambda s: (s[0] * s[1] * s[2], s))


def _held(shape: Shape, dtype: str) -> float:
    """Bytes while a product is checked: operands and result, copies of them, and what float64 takes."""
    m, n, k = shape
    return (m * k + k * n + m * n) * (24 + 3 * {"fp64": 8, "fp32": 4, "tf32": 4}.get(dtype, 2))


def product(where: Any, dtype: str, shape: Shape) -> Workload:
    """A matrix product of normal random numbers: zeros draw less power, and run faster where power is the limit."""
    import torch

    m, n, k = shape
    right = (n, k) if dtype == "fp8" else (k, n)
    a, b = (torch.randn(*size, device=where).to(torch_dtype(dtype)) for size in ((m, k), right))
    if dtype != "fp8":
        return Workload(torch.mm, (a, b), flops=2 * m * n * k)
    one = torch.ones((), device=where)
    return Workload(scaled_mm, (a, b, one), lambda a, b, one: a.float() @ b.float().t(), flops=2 * m * n * k)


def scaled_mm(a: Any, b: Any, one: Any) -> Any:
    """a · bᵀ in fp8, by the only product of that format that torch has: its right operand lies by columns."""
    import torch

    return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def traffic(where: Any) -> Iterator[tuple[str, Workload]]:
    """Copy, triad and read of fp32 arrays that no cache holds. Bytes are those that the call names: where a CPU reads a line before it
    writes it, that is not counted, as in STREAM."""
    import torch

    least, most = ARRAY[where.type]
    room = (machine.memory(where) or 2**33) / PART[where.type]
    held = int(min(most, room, max(least, 2 * cache_bytes(where)))) // 4 * 4
    a, b, out = (torch.empty(held // 4, device=where).uniform_(0.5, 1.5) for _ in range(3))
    # of the result some numbers are checked: all of them would take longer than the timing
    yield "copy", Workload(lambda out, a: out.copy_(a)[::SAMPLE], (out, a), lambda out, a: a[::SAMPLE], bytes=2 * held)
    yield (
        "triad",
        Workload(
            lambda out, a, b: torch.add(a, b, alpha=3, out=out)[::SAMPLE], (out, a, b),
            lambda out, a, b: a[::SAMPLE] + 3 * b[::SAMPLE], bytes=3 * held,
        ),
    )  # fmt: skip
    yield "read", Workload(torch.dot, (a, b), bytes=2 * held)
