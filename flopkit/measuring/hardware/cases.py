"""Small programs that run under hardware counters, each with what is accepted: executed over counted FLOPs.

As a program, ``python -m flopkit.measuring.hardware.cases FOLDER``, it runs them on the CUDA device; `flopkit.measuring.hardware.ncu` watches it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flopkit.counter.running import count
from flopkit.measuring.workloads import SINCE, scaled_mm, torch_dtype

__all__ = ["CASES", "Program", "counted", "prepared", "verdict"]


@dataclass(frozen=True)
class Program:
    """A function, the shapes of its inputs, the number format whose executed FLOPs are compared, and what is accepted of them."""

    name: str
    forward: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    accepted: tuple[float, float] | None  # executed over counted FLOPs; None: shown and not judged
    note: str = ""
    with_gradient: int = 0  # how many of the last inputs get a gradient; 0: forward pass only
    kind: str = "flops"  # what the count is: "flops", or "vector_flops" of element-wise work
    convention: str = "TORCH"
    bytes_accepted: tuple[float, float] | None = None  # traffic of the memory over the bytes counted
    products: tuple[
        tuple[int, int, int], ...
    ] = ()  # rows, columns and inner size of its matrix products, in the order in which they run


def verdict(*found: tuple[float, tuple[float, float] | None]) -> str:
    """Of ratios and what is accepted of each: ``agrees``, ``differs``, or ``reported`` where nothing is expected.

    >>> verdict((1.0, (0.9, 1.1)), (7.0, None)), verdict((1.0, (0.9, 1.1)), (0.7, (0.8, 1.0))), verdict((7.0, None))
    ('agrees', 'differs', 'reported')
    """
    within = [accepted[0] <= ratio <= accepted[1] for ratio, accepted in found if accepted]
    return "reported" if not within else "agrees" if all(within) else "differs"


def prepared(case: Program, where: Any, most: int = 2**40) -> Callable[[], Any]:
    """A case with random inputs on a device of torch; *most* clips each size, for a test."""
    import torch

    shapes = [[min(size, most) for size in shape] for shape in case.shapes]
    inputs = [torch.randn(*shape, device=where).to(torch_dtype(case.dtype)) for shape in shapes]
    with_gradient = inputs[len(inputs) - case.with_gradient :]
    for each in with_gradient:
        each.requires_grad_()

    def run() -> Any:
        out = case.forward(*inputs)
        return torch.autograd.grad(out, with_gradient, out.detach()) if with_gradient else out

    return run


def counted(case: Program, run: Callable[[], Any]) -> dict[str, Any]:
    """FLOPs and bytes that `flopkit.count` gives for a case.

    >>> counted(CASES["mm_fp32"], prepared(CASES["mm_fp32"], "cpu", 16))
    {'flops': 8192, 'bytes': 3072}
    """
    report = count(run).under(case.convention)
    return {"flops": getattr(report, case.kind), "bytes": report.bytes}


def _scaled(a: Any, b: Any) -> Any:
    import torch

    return scaled_mm(a, b, torch.ones((), device=a.device))


def _convolution(x: Any, w: Any) -> Any:
    from torch.nn.functional import conv2d

    return conv2d(x, w, padding=1, groups=x.shape[1] // w.shape[1])


def _flash(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


def _mlp(x: Any, up: Any, down: Any) -> Any:
    from torch.nn.functional import gelu

    return gelu(x @ up) @ down


def _recomputed(*x: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(_mlp, *x, use_reentrant=False)


EQUAL = (1.0, 1.0)
SQUARES, RAGGED, HALF = ((4096, 4096),) * 2, ((4097, 4096), (4096, 4096)), ((2048, 2048),) * 2
LONG, HEADS, MLP = ((2**27,),) * 2, ((2, 16, 4096, 128),) * 3, ((8192, 4096), (4096, 16384), (16384, 4096))
WIDE, NARROW = (8192, 16384, 4096), (8192, 4096, 16384)  # forward, up and down; and the gradients of what goes in
DOWN_WEIGHT, UP_WEIGHT = (16384, 4096, 8192), (4096, 16384, 8192)
BACKWARD = (DOWN_WEIGHT, WIDE, UP_WEIGHT, NARROW)
ONE, ONE_MORE = ((4096, 4096, 4096),), ((4097, 4096, 4096),)
DENSE, DEPTHWISE = ((64, 128, 56, 56), (128, 128, 3, 3)), ((64, 512, 56, 56), (512, 1, 3, 3))
CASES = {
    case.name: case
    for case in (
        Program("mm_bf16", lambda a, b: a @ b, SQUARES, "bf16", EQUAL, products=ONE),
        Program("mm_bf16_ragged", lambda a, b: a @ b, RAGGED, "bf16", (1, 1.07), "one more row of tiles", products=ONE_MORE),
        Program("mm_fp16", lambda a, b: a @ b, SQUARES, "fp16", EQUAL, products=ONE),
        Program("mm_tf32", lambda a, b: a @ b, SQUARES, "tf32", EQUAL),
        Program("mm_fp32", lambda a, b: a @ b, SQUARES, "fp32", (1, 1.01), "the same units scale the result"),
        Program("mm_fp64", lambda a, b: a @ b, HALF, "fp64", (1, 1.01), "the same units scale the result"),
        Program("mm_fp8", _scaled, SQUARES, "fp8", EQUAL),
        Program("add_fp32", lambda x, y: x + y, LONG, "fp32", (1, 2), "torch may compute x + 1 · y in one FMA", kind="vector_flops", bytes_accepted=(0.9, 1.1)),
        Program("mul_fp32", lambda x, y: x * y, LONG, "fp32", EQUAL, kind="vector_flops", bytes_accepted=(0.9, 1.1)),
        Program("conv3x3_fp32", _convolution, DENSE, "fp32", None, "below 1: Winograd or FFT"),
        Program("conv3x3_bf16", _convolution, DENSE, "bf16", (1, 1.1), "tiles; below 1: Winograd"),
        Program("depthwise_fb", _convolution, DEPTHWISE, "fp32", (0.9, 1.5), "taps on padding are skipped, sums of the weight's gradient come on top", with_gradient=2),
        Program("flash", _flash, HEADS, "bf16", (1, 1.05)),
        Program("flash_causal", lambda q, k, v: _flash(q, k, v, True), HEADS, "bf16", (1, 1.07), "blocks on the diagonal are whole", convention="EXACT"),
        Program("flash_fb", _flash, HEADS, "bf16", (1, 1.05), "the backward pass computes the scores again", with_gradient=3),
        Program("mlp_fb", _mlp, MLP, "bf16", EQUAL, with_gradient=3, products=(WIDE, NARROW, *BACKWARD)),
        Program("mlp_fb_checkpoint", _recomputed, MLP, "bf16", EQUAL, "what is recomputed counts", with_gradient=3, products=(WIDE, NARROW, WIDE, *BACKWARD)),
        Program("first_layer_fb", lambda x, w: x @ w, MLP[:2], "bf16", EQUAL, "no gradient of the input", with_gradient=1, products=(WIDE, UP_WEIGHT)),
    )
}  # fmt: skip


def run_cases(folder: Path) -> None:
    """Run all cases on the CUDA device, each behind a delimiter kernel, and write what was counted to ``cases.json``."""
    import torch

    cuda: Any = torch.cuda
    capability = cuda.get_device_capability()
    results: list[dict[str, Any]] = []

    def profiled(run: Callable[[], Any]) -> None:
        cuda.synchronize()
        cuda.cudart().cudaProfilerStart()
        cuda._sleep(1)  # the kernel that the reader of the report splits on
        run()
        cuda.synchronize()
        cuda.cudart().cudaProfilerStop()

    for case in CASES.values():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.dtype == "tf32"
        try:
            if capability < SINCE.get(case.dtype, (0, 0)):
                raise NotImplementedError(f"this GPU, of capability {capability}, has no units for {case.dtype}")
            run = prepared(case, "cuda")
            said = counted(case, run)  # it also warms up: libraries choose their kernels here
            run()
        except Exception as error:  # what torch and this card cannot do is said in the table, and the others are run
            results.append({"case": case.name, "error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"})
        else:
            profiled(run)
            results.append({"case": case.name, "counted": said})
        run = None  # type: ignore[assignment]  # its memory goes before the next case takes its own
        cuda.empty_cache()
    profiled(lambda: None)  # a report without this delimiter is not whole
    about = {"device": cuda.get_device_name(), "capability": capability, "torch": str(torch.__version__)}
    (folder / "cases.json").write_text(json.dumps({**about, "results": results}, indent=1), "utf-8")


if __name__ == "__main__":
    run_cases(Path(sys.argv[1]))
