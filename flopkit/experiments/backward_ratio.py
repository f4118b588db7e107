"""How much longer the backward pass of a layer takes than its forward pass, layer by
layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flopkit.experiments.attention_kernels import kernels, sdpa
from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span, over

TITLE = "Backward to forward, layer by layer"
PREDICTION = (
    "In FLOPs: 2 for a linear layer, a convolution and a depthwise one, 1 for a first layer, whose input needs no gradient, 2 for attention by "
    "math and 2.5 for a fused kernel, which computes the scores again. In time the same within a fifth where the layer is compute-bound: linear, "
    "first and dense convolution. The depthwise convolution is memory-bound, moves twice the bytes on its way back, and takes 2 to 4 times as "
    "long, for kernels of its weight's gradient are less polished. A fused attention kernel takes 2 to 3.5 times as long."
)
COMPUTE_BOUND = {"linear": 2, "linear, first layer": 1, "convolution": 2}  # backward over forward, expected
EXPECTED = (
    Expectation(
        "linear 2, first layer 1, convolution 2, within a fifth", (0.8, 1.2), "what was measured over this",
        lambda of: [_back(of, layer) / expected for layer, expected in COMPUTE_BOUND.items()],
    ),
    Expectation(
        "depthwise convolution 2 to 4", (2, 4), "backward over forward", lambda of: [_back(of, "depthwise convolution")]
    ),
    Expectation(
        "fused attention 2 to 3.5", (2, 3.5), "backward over forward", lambda of: [_back(of, "attention, flash")]
    ),
)  # fmt: skip
EXPECTATIONS = {"gpu": EXPECTED, "cpu": EXPECTED}


def _back(of: Cases, layer: str) -> Span:
    """Backward over forward."""
    return of.seconds(layer=layer, passes="forward and backward") / of.seconds(layer=layer, passes="forward") + -1


Shapes = list[tuple[int, ...]]
Function = Callable[..., Any]


def run(bench: Bench) -> Iterator[Record]:
    """The forward pass alone, with what autograd keeps of it, and both passes. See
    `ratios`."""
    dtype = bench.dtypes[0]
    for layer, forward, shapes, with_gradient, check in _layers(bench, dtype):
        for passes in ("forward", "forward and backward"):

            def make(
                forward: Function = forward, shapes: Shapes = shapes, with_gradient: int = with_gradient, passes: str = passes
            ) -> tuple[Any, ...]:  # fmt: skip
                inputs = [bench.randn(dtype, *shape) for shape in shapes]
                gradient = bench.randn(dtype, *forward(*inputs).shape)
                return _passes(forward, with_gradient, passes), gradient, *inputs

            reference = None if check is None else _passes(check, with_gradient, passes)
            yield bench.case("backward_ratio", {"layer": layer, "passes": passes}, make, dtype, check=reference)


def ratios(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Backward to forward by layer, in FLOPs, bytes and seconds, and the seconds'
    interval at its widest: of pairs whose verdicts are ok.

    The interval has no upper end where the forward pass may have taken no time at all.

    >>> found = ratios(run(Bench("cpu", "toy")))
    >>> found["linear"]["flops"], found["linear, first layer"]["flops"], found["attention, flash"]["flops"]
    (2.0, 1.0, 2.5)
    """
    by_layer: dict[str, dict[str, Mapping[str, Any]]] = {}
    for each in records:
        if each["verdict"] == "ok":
            by_layer.setdefault(each["params"]["layer"], {})[each["params"]["passes"]] = each
    found = {}
    for layer, pair in by_layer.items():
        if len(pair) == 2:
            times = over(pair["forward and backward"], pair["forward"])
            found[layer] = {name: ratio - 1 for name, ratio in times.items()} | {"low": max(0.0, times["low"] - 1)}
    return found


def _passes(forward: Function, with_gradient: int, passes: str) -> Function:
    """A function of the output's gradient and the inputs: the output, or with both
    passes the gradients of the last *with_gradient* inputs."""

    def run(gradient: Any, *inputs: Any) -> Any:
        import torch

        with torch.enable_grad():
            fixed = len(inputs) - with_gradient
            leaves = [each.detach().requires_grad_(i >= fixed) for i, each in enumerate(inputs)]
            out = forward(*leaves)
            if passes == "forward":
                return out.detach()
            return torch.autograd.grad(out, leaves[fixed:], gradient.to(out.dtype))

    return run


def _layers(bench: Bench, dtype: str) -> Iterator[tuple[str, Function, Shapes, int, Function | None]]:
    """(name, forward function, shapes of its inputs, how many of the last ones get a
    gradient, what it is checked by)."""
    from torch.nn.functional import conv2d, linear

    tokens, width = bench.pick(toy=(8, 16), cpu=(256, 1024), gpu=(8192, 4096))
    dense: Shapes = [(tokens, width), (4 * width, width)]
    yield "linear", linear, dense, 2, None
    yield "linear, first layer", linear, dense, 1, None
    batch, channels, side = bench.pick(toy=(1, 8, 6), cpu=(2, 128, 56), gpu=(64, 256, 56))
    images = (batch, channels, side, side)
    yield "convolution", lambda x, w: conv2d(x, w, padding=1), [images, (channels, channels, 3, 3)], 2, None

    def depthwise(x: Any, w: Any) -> Any:
        return conv2d(x, w, padding=1, groups=channels)

    yield "depthwise convolution", depthwise, [images, (channels, 1, 3, 3)], 2, None
    heads: tuple[int, ...] = bench.pick(toy=(1, 2, 16, 8), cpu=(1, 8, 512, 64), gpu=(2, 32, 2048, 128))

    def written_out(*inputs: Any) -> Any:
        return sdpa("math", False)(*(each.double() for each in inputs))

    for kernel in dict.fromkeys(("math", kernels(bench, dtype)[-1])):
        yield f"attention, {kernel}", sdpa(kernel, False), [heads] * 3, 3, written_out
