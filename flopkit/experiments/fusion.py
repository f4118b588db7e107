"""A chain of element-wise operators and a norm: one by one, and fused by torch.compile;
the norm also by torch's own operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flopkit.dtypes import nbytes
from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span

TITLE = "Fusion: operators one by one and in one kernel"
PREDICTION = (
    "The FLOPs stay the same and the bytes fall: of gelu(x·a + b) each operator reads a tensor and writes one, six in all, and in one kernel "
    "two move. A layer norm written out of seven operators moves 12, fused 2. On a GPU the times fall with the bytes, by 2.5 to 3 and by 4 to "
    "6, and torch's own layer norm is within a fifth of the compiled one. On a CPU of few cores the arithmetic of gelu takes its share, so the "
    "chain gains 1.5 to 3, the norm 3 to 6."
)
APART = "time apart over time in one kernel"
EXPECTATIONS = {
    "gpu": (
        Expectation("the chain gains 2.5 to 3", (2.5, 3), APART, lambda of: [_gain(of, "chain")]),
        Expectation("the norm gains 4 to 6", (4, 6), APART, lambda of: [_gain(of, "norm")]),
        Expectation(
            "torch's own layer norm is within a fifth of the compiled one", (0.8, 1.2),
            "time over that of the compiled one", lambda of: [_gain(of, "norm", "layer_norm")],
        ),
    ),
    "cpu": (
        Expectation("the chain gains 1.5 to 3", (1.5, 3), APART, lambda of: [_gain(of, "chain")]),
        Expectation("the norm gains 3 to 6", (3, 6), APART, lambda of: [_gain(of, "norm")]),
    ),
}  # fmt: skip


def _gain(of: Cases, program: str, form: str = "eager") -> Span:
    return of.seconds(program=program, form=form) / of.seconds(program=program, form="compiled")


def run(bench: Bench) -> Iterator[Record]:
    """Seconds and bytes/s by program and form. The compiled forms come last:
    torch.compile needs a C++ compiler on a CPU, Triton on a GPU.

    At toy size `torch.compile` takes its back end "aot_eager", which compiles nothing:
    its bytes are those of the operators, one by one.
    """
    backend = bench.pick(toy="aot_eager", cpu="inductor", gpu="inductor")
    forms = (("chain", "eager"), ("norm", "eager"), ("norm", "layer_norm"), ("chain", "compiled"), ("norm", "compiled"))
    for dtype in bench.dtypes[:1]:
        for program, form in forms:
            yield _case(bench, program, form, dtype, backend)


def _case(bench: Bench, program: str, form: str, dtype: str, backend: str) -> Record:
    rows, width = bench.pick(toy=(8, 16), cpu=(2048, 2048), gpu=(32768, 8192))
    written_out = {"chain": chain, "norm": norm}[program]
    fn: Callable[..., Any] = layer_norm if form == "layer_norm" else written_out
    if form == "compiled":
        import torch

        fn = torch.compile(written_out, backend=backend, dynamic=False)

    def check(*inputs: Any) -> Any:
        return written_out(*(each.double() for each in inputs))

    params = {"program": program, "form": form, "rows": rows, "width": width}
    bytes = None  # of each operator, as counted
    if form == "compiled" and backend == "inductor":
        bytes = (2 * rows * width + 2 * width) * nbytes(1, dtype)  # of one kernel
    once = bench.random(fn, dtype, (rows, width), (width,), (width,))
    return bench.case("fusion", params, once, dtype, bytes=bytes, check=check)


def chain(x: Any, scale: Any, shift: Any) -> Any:
    """Three operators: multiply, add, gelu."""
    from torch.nn.functional import gelu

    return gelu(x * scale + shift)


def norm(x: Any, scale: Any, shift: Any) -> Any:
    """A layer norm, written out."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * (variance + 1e-5).rsqrt() * scale + shift


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    """The same by the operator that torch has for it."""
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], scale, shift)
